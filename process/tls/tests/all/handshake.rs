//! Two ends that find out about each other.
//!
//! Goal: who is right gets in and is known; who is wrong is turned away, and is told in one sentence
//! what is wrong and what to do. Method: a server that answers with the name of whoever calls, and
//! clients of every kind.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{Certs, spec};
use berth_tls::client::Connection;
use berth_tls::material::Protocol;
use berth_tls::server::{Limits, Transport};
use berth_tls::{Connector, Expected, Files, Incoming, Peer, Revoked, Role, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::transport::{Endpoint, Uri};
use tower_service::Service as _;

/// What HTTP/2 begins with.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Tells everybody who he is.
async fn greeter(tls: Option<Tls>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut incoming = Incoming::new(listener, tls, Protocol::Grpc);
    tokio::spawn(async move {
        while let Some(mut stream) = incoming.next().await {
            tokio::spawn(async move {
                let identity = stream.peer().identity.clone();
                let who = identity.map_or("nobody".to_owned(), |i| i.principal());
                let _ = stream.write_all(who.as_bytes()).await;
                let _ = stream.shutdown().await;
                // What is closed with something unread is cut.
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    });
    address
}

/// Returns what somebody is told, or why he is not.
async fn call(address: SocketAddr, tls: Option<Tls>, expected: Expected) -> Result<String, String> {
    let uri: Uri = format!("http://{address}").parse().unwrap();
    let mut connector = Connector::new(tls, expected, Duration::from_secs(60));
    let connected = connector.call(uri).await;
    let mut connection = connected.map_err(|e| e.to_string())?.into_inner();
    // As a client of gRPC does.
    connection
        .write_all(HELLO)
        .await
        .map_err(|e| e.to_string())?;
    let mut told = String::new();
    let read = connection.read_to_string(&mut told).await;
    read.map_err(|e| e.to_string())?;
    Ok(told)
}

fn check(found: Result<String, String>, part: &str) {
    let why = found.unwrap_err();
    assert!(why.contains(part), "{part:?} is not in {why:?}");
}

#[tokio::test]
async fn both_ends_know_each_other() {
    let certs = Certs::new();
    let server = greeter(Some(certs.tls(Role::Agent, "h1"))).await;
    let ann = certs.tls(Role::Operator, "ann");
    let meant = Expected::Agent("h1".into());
    assert_eq!(
        call(server, Some(ann.clone()), meant).await.unwrap(),
        "operator:ann"
    );

    let other = Expected::Agent("h2".into());
    check(
        call(server, Some(ann.clone()), other).await,
        "is not the agent of host h2: its certificate is that of agent:h1",
    );
    check(
        call(server, Some(ann), Expected::Scheduler).await,
        "is not a scheduler",
    );

    let plain = greeter(None).await;
    assert_eq!(
        call(plain, None, Expected::Scheduler).await.unwrap(),
        "nobody"
    );
}

#[tokio::test]
async fn whoever_is_wrong_is_told_why() {
    let certs = Certs::new();
    let server = greeter(Some(certs.tls(Role::Scheduler, "m1"))).await;
    let ann = certs.tls(Role::Operator, "ann");

    check(
        call(server, None, Expected::Scheduler).await,
        "speaks TLS only: give --tls-ca",
    );
    let plain = greeter(None).await;
    check(
        call(plain, Some(ann.clone()), Expected::Scheduler).await,
        "does not speak TLS",
    );
    // Nothing was dialled: what listens there is not known.
    let mut connector = Connector::new(None, Expected::Scheduler, Duration::from_secs(60));
    let dialled = connector.call("https://127.0.0.1:1".parse().unwrap()).await;
    let why = dialled.expect_err("no certificates").to_string();
    assert!(
        why.starts_with("https://127.0.0.1:1 is dialled with certificates only"),
        "{why}"
    );

    // Another authority on the client's side, and on the server's.
    let foreign = Certs::new();
    let stranger = foreign.tls(Role::Operator, "ann");
    check(
        call(server, Some(stranger), Expected::Scheduler).await,
        "comes from an authority that is not trusted here; all certificates of a cluster",
    );
    let files = foreign.issue(&spec(Role::Operator, "bob"));
    let trusting = Tls::open_unvalidated(Files {
        ca: certs.path().join("ca.pem"),
        ..files
    })
    .unwrap();
    check(
        call(server, Some(trusting), Expected::Scheduler).await,
        "does not trust the authority of the presented certificate",
    );

    // A name that is not in the certificate.
    let mut elsewhere = spec(Role::Scheduler, "m2");
    (elsewhere.dns, elsewhere.ips) = (vec!["m2".into()], Vec::new());
    let elsewhere = greeter(Some(Tls::open(certs.issue(&elsewhere)).unwrap())).await;
    check(
        call(elsewhere, Some(ann), Expected::Scheduler).await,
        "is not valid for that name: dial it by a name that is in it",
    );
}

#[tokio::test]
async fn what_has_run_out_is_refused_by_both() {
    let certs = Certs::new();
    let server = greeter(Some(certs.tls(Role::Scheduler, "m1"))).await;
    let mut old = spec(Role::Operator, "old");
    old.validity = Duration::ZERO;
    let old = certs.issue(&old);
    let mut late = spec(Role::Scheduler, "m2");
    late.validity = Duration::ZERO;
    let late = certs.issue(&late);
    // Until the second in which both still held is over.
    while Tls::open(old.clone()).is_ok() || Tls::open(late.clone()).is_ok() {
        tokio::task::yield_now().await;
    }
    let told = Tls::open(old.clone()).unwrap_err().to_string();
    assert!(
        told.contains("it has expired; renew it: berth certs renew"),
        "{told}"
    );
    let old = Tls::open_unvalidated(old).unwrap();
    check(
        call(server, Some(old), Expected::Scheduler).await,
        "the presented certificate has expired: renew it",
    );
    let late = greeter(Some(Tls::open_unvalidated(late).unwrap())).await;
    let ann = certs.tls(Role::Operator, "ann");
    check(
        call(late, Some(ann), Expected::Scheduler).await,
        "is refused: it has expired; renew it",
    );
}

/// Goal: who connects and says nothing, or half a hello, keeps nobody else out.
#[tokio::test]
async fn the_slow_hold_nobody_up() {
    let certs = Certs::new();
    let server = greeter(Some(certs.tls(Role::Scheduler, "m1"))).await;
    let mut slow = Vec::new();
    for number in 0..50 {
        let mut stream = TcpStream::connect(server).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(&[0x16, 0x03, 0x01, 0x02]).await.unwrap();
        }
        slow.push(stream);
    }
    let ann = certs.tls(Role::Operator, "ann");
    let told = call(server, Some(ann), Expected::Scheduler).await;
    assert_eq!(told.unwrap(), "operator:ann");
}

/// Goal: new handshakes show the new certificate, and trust the new authority.
#[tokio::test]
async fn other_files_serve_whoever_comes_next() {
    let certs = Certs::new();
    let files = certs.issue(&spec(Role::Scheduler, "m1"));
    let tls = Tls::open(files.clone()).unwrap();
    let server = greeter(Some(tls.clone())).await;
    let ann = certs.tls(Role::Operator, "ann");
    let meant = || Expected::Scheduler;
    assert!(call(server, Some(ann.clone()), meant()).await.is_ok());

    // The server moves to another authority, and trusts both on the way.
    let next = Certs::new();
    let other = next.issue(&spec(Role::Scheduler, "m1"));
    let authority = |certs: &Certs| std::fs::read_to_string(certs.path().join("ca.pem")).unwrap();
    let both = authority(&certs) + &authority(&next);
    std::fs::write(&files.ca, &both).unwrap();
    tls.reload().unwrap();
    let stopping = tokio_util::sync::CancellationToken::new();
    let following = tokio::spawn(ann.clone().follow(stopping.clone()));
    std::fs::copy(&other.key, &files.key).unwrap();
    std::fs::copy(&other.cert, &files.cert).unwrap();
    tls.reload().unwrap();
    // The client's files have the same authorities, and are looked at again.
    let mut generations = ann.generations();
    generations
        .wait_for(|generation| *generation > 0)
        .await
        .unwrap();
    assert_eq!(
        call(server, Some(ann), meant()).await.unwrap(),
        "operator:ann"
    );
    let new = next.tls(Role::Operator, "bob");
    assert_eq!(
        call(server, Some(new), meant()).await.unwrap(),
        "operator:bob"
    );
    stopping.cancel();
    following.await.unwrap();
}

/// Tells everybody who he is as often as he says something, and passes on who they are.
async fn talker(tls: Tls) -> (SocketAddr, mpsc::UnboundedReceiver<Peer>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut incoming = Incoming::new(listener, Some(tls), Protocol::Grpc);
    let (known, peers) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(mut stream) = incoming.next().await {
            let _ = known.send(stream.peer().clone());
            tokio::spawn(async move {
                let who = stream.peer().identity.clone().unwrap().principal();
                let mut said = [0; 100];
                while stream.read(&mut said).await? > 0 {
                    stream.write_all(who.as_bytes()).await?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    (address, peers)
}

async fn connect(address: SocketAddr, tls: &Tls) -> Connection {
    let uri: Uri = format!("http://{address}").parse().unwrap();
    let timeout = Duration::from_secs(60);
    let mut connector = Connector::new(Some(tls.clone()), Expected::Scheduler, timeout);
    let mut connection = connector.call(uri).await.unwrap();
    // It was said when the connection was made, and is not said twice.
    connection.inner_mut().write_all(HELLO).await.unwrap();
    let own = tls.identity().principal();
    assert_eq!(heard(&mut connection).await.unwrap(), own);
    connection
}

async fn heard(connection: &mut Connection) -> std::io::Result<String> {
    let mut told = [0; 12];
    connection.inner_mut().read_exact(&mut told).await?;
    Ok(String::from_utf8(told.to_vec()).unwrap())
}

async fn ask(connection: &mut Connection) -> std::io::Result<String> {
    connection.inner_mut().write_all(b"who am I?").await?;
    heard(connection).await
}

/// Goal: an authority that is taken away lets nobody in any more, and whoever it let in is out: on both
/// ends of a connection, and whether something is said on it or not. Others go on.
#[tokio::test]
async fn an_authority_that_is_taken_away_ends_what_it_let_in() {
    let (old, new) = (Certs::new(), Certs::new());
    let ca = |certs: &Certs| std::fs::read_to_string(certs.path().join("ca.pem")).unwrap();
    let (only_old, only_new) = (ca(&old), ca(&new));
    let both = only_old.clone() + &only_new;
    // Everybody trusts both; the server has a certificate of the new one.
    let trusting = |certs: &Certs, role, name: &str, file: &str| {
        let file = certs.path().join(file);
        std::fs::write(&file, &both).unwrap();
        let files = certs.issue(&spec(role, name));
        let files = Files { ca: file, ..files };
        (Tls::open(files.clone()).unwrap(), files)
    };
    let (server, server_files) = trusting(&new, Role::Scheduler, "m1", "server-ca.pem");
    let (address, mut peers) = talker(server.clone()).await;
    let (with_old, _) = trusting(&old, Role::Operator, "ann", "old-ca.pem");
    let (with_new, user) = trusting(&new, Role::Operator, "ann", "new-ca.pem");
    let mut goes = connect(address, &with_old).await;
    let mut is_silent = connect(address, &with_old).await;
    let mut stays = connect(address, &with_new).await;
    let mut known = Vec::new();
    for _ in 0..3 {
        known.push(peers.recv().await.unwrap());
    }
    assert!(known.iter().all(|peer| peer.check().is_ok()));

    std::fs::write(&server_files.ca, &only_new).unwrap();
    server.reload().unwrap();
    let told = known[0].check().unwrap_err();
    assert!(
        told.contains("comes from an authority that is not trusted"),
        "{told}"
    );
    assert!(known[1].check().is_err() && known[2].check().is_ok());
    assert!(ask(&mut goes).await.is_err());
    assert!(heard(&mut is_silent).await.is_err());
    assert_eq!(ask(&mut stays).await.unwrap(), "operator:ann");
    check(
        call(address, Some(with_old), Expected::Scheduler).await,
        "does not trust the authority of the presented certificate",
    );

    // The other way round: whoever dials trusts the server's authority no more.
    let own = old.files(&old.pair("operator-ann"));
    std::fs::copy(&own.key, &user.key).unwrap();
    std::fs::copy(&own.cert, &user.cert).unwrap();
    std::fs::write(&user.ca, &only_old).unwrap();
    with_new.reload().unwrap();
    assert!(heard(&mut stays).await.is_err());
}

/// Goal: nothing is accepted of a revoked certificate, on open connections and on new ones, whichever
/// end bears it; an earlier list changes nothing, and a reinstated certificate is accepted.
#[tokio::test]
async fn a_revoked_certificate_is_refused_at_once() {
    let certs = Certs::new();
    let open = |role, name: &str| Tls::open(certs.issue(&spec(role, name))).unwrap();
    let server = open(Role::Scheduler, "m1");
    let (address, mut peers) = talker(server.clone()).await;
    let (ann, bob) = (open(Role::Operator, "ann"), open(Role::Operator, "bob"));
    let mut active = connect(address, &ann).await;
    let mut is_silent = connect(address, &ann).await;
    let mut stays = connect(address, &bob).await;
    let mut known = Vec::new();
    for _ in 0..3 {
        known.push(peers.recv().await.unwrap());
    }
    let fingerprint = |tls: &Tls| {
        let digits = tls.identity().fingerprint.clone();
        std::array::from_fn(|at| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).unwrap())
    };
    let list = |revision, of: &[&Tls]| Revoked {
        cluster: "c".to_owned(),
        revision,
        fingerprints: of.iter().map(|tls| fingerprint(tls)).collect(),
    };
    server.revoke(list(5, &[&ann]));
    assert!(known[0].check().unwrap_err().contains("it is revoked"));
    assert!(known[1].check().is_err() && known[2].check().is_ok());
    assert!(ask(&mut active).await.is_err());
    assert!(heard(&mut is_silent).await.is_err());
    assert_eq!(ask(&mut stays).await.unwrap(), "operator:bob");
    let refused = || call(address, Some(ann.clone()), Expected::Scheduler);
    let expected = "refused the connection: the presented certificate is revoked";
    check(refused().await, expected);

    // A list that is older, as of a member that lags behind, and one that is as old.
    server.revoke(list(4, &[]));
    server.revoke(list(5, &[]));
    check(refused().await, expected);
    server.revoke(list(6, &[]));
    let mut accepted = connect(address, &ann).await;
    assert_eq!(ask(&mut accepted).await.unwrap(), "operator:ann");

    // The other way round: whoever dials knows that the server's certificate is revoked.
    bob.revoke(list(1, &[&server]));
    assert!(heard(&mut stays).await.is_err());
    check(
        call(address, Some(bob), Expected::Scheduler).await,
        "is refused: it is revoked",
    );
}

/// Half a hello, from this address.
async fn half_open(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    // It may be closed already.
    let _ = stream.write_all(&[0x16, 0x03, 0x01, 0x02]).await;
    stream
}

/// Goal: one that begins handshakes and does not end them keeps nobody out that comes from elsewhere:
/// not where it has all places that an address has, and not where all places are taken. Method: a
/// handshake may take an hour, so that nobody gets a place by waiting.
#[tokio::test]
async fn a_flood_keeps_out_nobody_else() {
    let certs = Certs::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = certs.tls(Role::Scheduler, "m1");
    let limits = Limits {
        handshake: Duration::from_secs(3600),
        handshakes_max: 24,
        handshakes_per_source_max: 16,
    };
    let speaks = Transport::MutualTls(tls, Protocol::Grpc);
    let mut incoming = Incoming::bounded(listener, speaks, limits);
    tokio::spawn(async move {
        while let Some(mut stream) = incoming.next().await {
            tokio::spawn(async move {
                let _ = stream.write_all(b"you are in").await;
                let _ = stream.shutdown().await;
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    });
    let ann = certs.tls(Role::Operator, "ann");
    let get_in = || call(address, Some(ann.clone()), Expected::Scheduler);
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(half_open([127, 0, 0, 2], address).await);
    }
    assert_eq!(get_in().await.unwrap(), "you are in");
    // Of the first address no more than its places are left.
    let mut turned_away = 0;
    for mut stream in flood.drain(16..) {
        // Until the end, or until it is cut.
        let _ = stream.read(&mut [0; 10]).await;
        turned_away += 1;
    }
    assert_eq!(turned_away, 184);
    for host in 3..30 {
        flood.push(half_open([127, 0, 0, host], address).await);
        assert_eq!(get_in().await.unwrap(), "you are in");
    }
}

/// Goal: a client of gRPC is told why it is turned away, always. Nothing is lost between the end of a
/// handshake and the first request.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_word_is_heard() {
    let certs = Certs::new();
    let foreign = Certs::new();
    let server = greeter(Some(certs.tls(Role::Scheduler, "m1"))).await;
    let stranger = Tls::open_unvalidated(Files {
        ca: certs.path().join("ca.pem"),
        ..foreign.issue(&spec(Role::Operator, "bob"))
    });
    let stranger = Some(stranger.unwrap());
    for (tls, part) in [(None, "speaks TLS only"), (stranger, "does not trust")] {
        for _ in 0..100 {
            let timeout = Duration::from_secs(60);
            let connector = Connector::new(tls.clone(), Expected::Scheduler, timeout);
            let endpoint = Endpoint::from_shared(format!("http://{server}")).unwrap();
            let mut channel = endpoint.connect_with_connector_lazy(connector);
            let request = Request::post("http://server/a.b.C/D").body(Body::empty());
            std::future::poll_fn(|context| channel.poll_ready(context))
                .await
                .unwrap();
            let failed = channel.call(request.unwrap()).await.unwrap_err();
            let mut causes = format!("{failed:?}");
            causes.truncate(500);
            assert!(causes.contains(part), "{part:?} is not in {causes}");
        }
    }
}
