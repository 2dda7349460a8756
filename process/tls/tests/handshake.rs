//! Two ends that find out about each other.
//!
//! Goal: who is right gets in and is known; who is wrong is turned away, and is told in one sentence
//! what is wrong and what to do. Method: a server that answers with the name of whoever calls, and
//! clients of every kind.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use berth_tls::material::Face;
use berth_tls::{Connector, Expected, Files, Incoming, Role, Tls};
use common::{Certs, wanted};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Uri;
use tower_service::Service as _;

/// Tells everybody who he is.
async fn greeter(tls: Option<Tls>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut incoming = Incoming::new(listener, tls, Face::Grpc);
    tokio::spawn(async move {
        while let Some(mut stream) = incoming.next().await {
            tokio::spawn(async move {
                let identity = stream.peer().identity.clone();
                let who = identity.map_or("nobody".to_owned(), |i| i.principal());
                let _ = stream.write_all(who.as_bytes()).await;
                let _ = stream.shutdown().await;
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
        .write_all(b"hello")
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

    // Another authority on the client's side, and on the server's.
    let foreign = Certs::new();
    let stranger = foreign.tls(Role::Operator, "ann");
    check(
        call(server, Some(stranger), Expected::Scheduler).await,
        "comes from an authority that is not trusted here; all certificates of a cluster",
    );
    let files = foreign.issue(&wanted(Role::Operator, "bob"));
    let trusting = Tls::open_useless(Files {
        ca: certs.path().join("ca.pem"),
        ..files
    })
    .unwrap();
    check(
        call(server, Some(trusting), Expected::Scheduler).await,
        "does not trust the authority of the certificate that it was shown",
    );

    // A name that is not in the certificate.
    let mut elsewhere = wanted(Role::Scheduler, "m2");
    (elsewhere.dns, elsewhere.ips) = (vec!["m2".into()], Vec::new());
    let elsewhere = greeter(Some(Tls::open(certs.issue(&elsewhere)).unwrap())).await;
    check(
        call(elsewhere, Some(ann), Expected::Scheduler).await,
        "is not made for that name: dial it by a name that is in it",
    );
}

#[tokio::test]
async fn what_has_run_out_is_refused_by_both() {
    let certs = Certs::new();
    let server = greeter(Some(certs.tls(Role::Scheduler, "m1"))).await;
    let mut old = wanted(Role::Operator, "old");
    old.holds = Duration::ZERO;
    let old = certs.issue(&old);
    let mut late = wanted(Role::Scheduler, "m2");
    late.holds = Duration::ZERO;
    let late = certs.issue(&late);
    // Until the second in which both still held is over.
    while Tls::open(old.clone()).is_ok() || Tls::open(late.clone()).is_ok() {
        tokio::task::yield_now().await;
    }
    let told = Tls::open(old.clone()).unwrap_err().to_string();
    assert!(
        told.contains("it has run out; renew it: berth certs renew"),
        "{told}"
    );
    let old = Tls::open_useless(old).unwrap();
    check(
        call(server, Some(old), Expected::Scheduler).await,
        "the certificate that it was shown has run out: renew it",
    );
    let late = greeter(Some(Tls::open_useless(late).unwrap())).await;
    let ann = certs.tls(Role::Operator, "ann");
    check(
        call(late, Some(ann), Expected::Scheduler).await,
        "is refused: it has run out; renew it",
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
    let files = certs.issue(&wanted(Role::Scheduler, "m1"));
    let tls = Tls::open(files.clone()).unwrap();
    let server = greeter(Some(tls.clone())).await;
    let ann = certs.tls(Role::Operator, "ann");
    let meant = || Expected::Scheduler;
    assert!(call(server, Some(ann.clone()), meant()).await.is_ok());

    // The server moves to another authority, and trusts both on the way.
    let next = Certs::new();
    let other = next.issue(&wanted(Role::Scheduler, "m1"));
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
