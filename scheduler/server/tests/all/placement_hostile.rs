//! The REST API and clients that mean it no good: slow ones, many, and what they send.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use berth_scheduler::{Config, Profile, Start};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use uuid::Uuid;

use crate::common::rest::{ask, send};
use crate::common::trio::Trio;
use crate::common::{self, Member, config, eventually};

async fn serve(change: impl FnOnce(&mut Config)) -> (Member, SocketAddr, TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = config(&directory.path().join("0"), Start::Bootstrap);
    config.placement_listen = Some("127.0.0.1:0".into());
    config.placement_profile = Some(Profile::Default);
    change(&mut config);
    let member = Member::start(config).await;
    let address = member.placement.expect("the REST API is served");
    (member, address, directory)
}

/// Reads until the other side closes.
async fn rest_of(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(common::PATIENCE, read).await;
    read.expect("the connection is closed").expect("bytes");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Goal: who connects and sends nothing, or half of a head, or nothing after an answer, loses the
/// connection. Method: one of each.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_closed() {
    let (_member, address, _directory) = serve(|config| config.request_timeout_ms = 500).await;
    for (sent, answered) in [
        ("", ""),
        ("GET / HTTP/1.1\r\nHost: x\r\nX-A", ""),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200"),
    ] {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(sent.as_bytes()).await.expect("sent");
        let answer = rest_of(&mut stream).await;
        assert!(answer.starts_with(answered), "{sent:?}: {answer}");
    }
}

/// Returns a connection from another address of this machine.
async fn connect_from(source: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((source, 0).into()).expect("an address");
    socket.connect(address).await.expect("a connection")
}

/// Goal: there are never more connections than are allowed, one address never has all of them, and a
/// client that waits gets its turn. Method: four may, and two of each address.
#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded() {
    let (_member, address, _directory) = serve(|config| config.placement_connections_max = 4).await;
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut held = Vec::new();
    for source in [2, 3] {
        let source = [127, 0, 0, source];
        for _ in 0..2 {
            let mut stream = connect_from(source, address).await;
            stream.write_all(request).await.expect("sent");
            assert_ne!(stream.read_u8().await.expect("an answer"), 0);
            held.push(stream);
        }
        if held.len() < 4 {
            let mut third = connect_from(source, address).await;
            third.write_all(request).await.expect("sent");
            let answer = rest_of(&mut third).await;
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            let what = "too many connections: 2 of address 127.0.0.2 at most";
            assert!(answer.ends_with(what), "{answer}");
        }
    }
    let mut fifth = connect_from([127, 0, 0, 4], address).await;
    fifth.write_all(request).await.expect("sent");
    let early = tokio::time::timeout(Duration::from_millis(300), fifth.read_u8()).await;
    assert!(early.is_err(), "a fifth connection is answered");
    held.pop();
    let answer = tokio::time::timeout(common::PATIENCE, fifth.read_u8()).await;
    assert_eq!(answer.expect("in time").expect("an answer"), b'H');
}

/// Goal: a member that starts and finds no leader says so, instead of leaving its clients to
/// wait. Method: one of three processes comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_finds_no_leader_says_so() {
    let mut trio = Trio::start().await;
    for number in 0..3 {
        trio.kill(number);
    }
    trio.restart(1);
    let begun = Instant::now();
    let answer = eventually("an answer", || ask(trio.rest[1], "GET", "/traits", None)).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("\r\nretry-after: "), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(40));
}

/// Goal: what a caller sends comes back cut, and no name of any length is kept. Method: a table
/// of long things.
#[tokio::test(flavor = "multi_thread")]
async fn long_things_are_told_shortly() {
    let (_member, address, _directory) = serve(|_| ()).await;
    let provider = Uuid::new_v4();
    let body = json!({"name": "p", "uuid": provider});
    let made = ask(address, "POST", "/resource_providers", Some(body)).await;
    assert_eq!(made.expect("an answer").status, 200);
    let long = "A".repeat(60_000);
    let version = |version: &str| format!("OpenStack-API-Version: placement {version}\r\n");
    let admin = "X-Auth-Token: admin\r\nContent-Type: application/json\r\n";
    let inventories = format!(
        r#"{{"resource_provider_generation": 0,
            "inventories": {{"{long}": {{"total": 1, "reserved": 9}}}}}}"#
    );
    let orphans: String = (1..3000).map(|n| format!("&required{n}=T")).collect();
    let orphans = format!("/allocation_candidates?resources=VCPU:1{orphans}");
    let conflicts: String = (1..600)
        .map(|n| format!("&resources{n}=VCPU:1&required{n}=TTTTTTTTTTTTTTTTTTTTTTTTT,!TTTTTTTTTTTTTTTTTTTTTTTTT"))
        .collect();
    let conflicts = format!("/allocation_candidates?group_policy=none{conflicts}");
    let set = format!("/resource_providers/{provider}/inventories");
    for (method, path, head, body, status) in [
        ("GET", "/traits", version(&long), "", 400),
        (
            "GET",
            "/traits",
            version(&format!("1.{}", "9".repeat(19))),
            "",
            406,
        ),
        ("PUT", &set, version("1.39"), &*inventories, 400),
        ("GET", &orphans, version("1.30"), "", 400),
        ("GET", &conflicts, version("1.30"), "", 400),
    ] {
        let length = format!("Content-Length: {}\r\n", body.len());
        let head = format!("{admin}{head}{length}");
        let answer = send(address, method, path, &head, body.as_bytes()).await;
        let answer = answer.expect("an answer");
        let shown = &path[..path.len().min(60)];
        assert_eq!(answer.status, status, "{method} {shown}: {answer:.300?}");
        let length = answer.body.len();
        assert!(length < 12_000, "{method} {shown}: {length} bytes");
    }
    let who = format!("X-Auth-Token: {long}\r\nX-Roles: admin\r\n");
    let answer = send(address, "GET", "/traits", &who, b"").await;
    assert_eq!(answer.expect("an answer").status, 401);
}

/// Goal: a body of broken chunks is malformed, not too long.
#[tokio::test(flavor = "multi_thread")]
async fn broken_chunks_are_malformed() {
    let (_member, address, _directory) = serve(|_| ()).await;
    let head = "X-Auth-Token: admin\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n";
    for (chunks, status) in [
        ("zz\r\n{}\r\n0\r\n\r\n", 400),
        ("2;name=value\r\n{}\r\n0\r\n\r\n", 400),
        (
            "1e\r\n{\"name\":\"made of good chunks\"}\r\n0\r\nTrailer: x\r\n\r\n",
            201,
        ),
    ] {
        let body = chunks.as_bytes();
        let answer = send(address, "POST", "/resource_providers", head, body).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, status, "{chunks:?}: {answer:?}");
    }
}

/// Goal: long bodies that do not come do not keep others from being answered, and are given up.
/// Method: more of them than may be on their way, and a short one beside.
#[tokio::test(flavor = "multi_thread")]
async fn long_bodies_that_do_not_come_hold_nobody_up() {
    let (_member, address, _directory) = serve(|config| config.request_timeout_ms = 2_000).await;
    let mut slow = Vec::new();
    for _ in 0..24 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let head = "POST /allocations HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n\
                    Content-Type: application/json\r\nConnection: close\r\n\
                    OpenStack-API-Version: placement 1.39\r\nContent-Length: 4000000\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.expect("sent");
        slow.push(stream);
    }
    let body = json!({"name": "short"});
    let begun = Instant::now();
    let answer = ask(address, "POST", "/resource_providers", Some(body)).await;
    assert_eq!(answer.expect("an answer").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(20));
    let mut refused = [0, 0];
    for mut stream in slow {
        let answer = rest_of(&mut stream).await;
        match answer.get(..12) {
            Some("HTTP/1.1 408") => refused[0] += 1,
            Some("HTTP/1.1 503") => refused[1] += 1,
            _ => panic!("{answer}"),
        }
    }
    assert!(refused[0] >= 16, "{refused:?}");
}

/// Goal: numbers of any size are judged as Placement does: an amount beyond every inventory is a
/// conflict, and a generation beyond every counter is a late one. Of an inventory that is wrong
/// twice, that the class does not exist is told first.
#[tokio::test(flavor = "multi_thread")]
async fn great_numbers_are_judged_like_others() {
    let (_member, address, _directory) = serve(|_| ()).await;
    let (provider, consumer) = (Uuid::new_v4(), Uuid::new_v4());
    let told = |method: &'static str, path: String, body: serde_json::Value| async move {
        let answer = ask(address, method, &path, Some(body)).await;
        answer.expect("an answer").status
    };
    let path = format!("/resource_providers/{provider}");
    let body = json!({"name": "p", "uuid": provider});
    assert_eq!(told("POST", "/resource_providers".into(), body).await, 200);
    let body = json!({"resource_class": "VCPU", "total": 8});
    assert_eq!(told("POST", format!("{path}/inventories"), body).await, 201);
    for amount in [json!(1e20), json!(u64::MAX), json!(1_u64 << 63), json!(9)] {
        let body = json!({
            "allocations": {provider.to_string(): {"resources": {"VCPU": amount}}},
            "project_id": "p", "user_id": "u", "consumer_generation": null,
            "consumer_type": "INSTANCE",
        });
        let both = json!({consumer.to_string(): body, Uuid::new_v4().to_string(): body});
        let status = told("PUT", format!("/allocations/{consumer}"), body).await;
        assert_eq!(status, 409, "{amount}");
        let status = told("POST", "/allocations".into(), both).await;
        assert_eq!(status, 409, "{amount}");
    }
    let body = json!({"total": 1, "resource_provider_generation": 1e20});
    let one = |class: &str| format!("{path}/inventories/{class}");
    assert_eq!(told("PUT", one("VCPU"), body).await, 409);
    let body = |generation| {
        json!({
            "total": 1, "reserved": 2, "resource_provider_generation": generation,
        })
    };
    assert_eq!(told("PUT", one("CUSTOM_NONE"), body(1)).await, 404);
    assert_eq!(told("PUT", one("CUSTOM_NONE"), body(7)).await, 409);
    assert_eq!(told("PUT", one("VCPU"), body(1)).await, 400);
}
