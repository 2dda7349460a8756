//! What is broken, wrong, long or slow.

use std::sync::Arc;

use rustls::version::TLS12;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Filtered, Place, pod};

/// Goal: the six situations of HTTP that PMEM-CSI's own tests know; GET and POST are the same.
#[tokio::test]
async fn paths_and_methods() {
    let place = Place::start(&[]).await;
    let named = r#"{"pod": { "metadata":{"name":"test-pod"}}, "nodes": {}}"#;
    let no_pod = r#"{"nodes": {}}"#;
    let no_nodes = r#"{"pod": { "metadata":{"name":"test-pod"}}}"#;
    for method in ["GET", "POST"] {
        for (path, body, status, error) in [
            ("/status", "", 200, None),
            ("/no-such-path", "", 404, None),
            ("/pod", "", 404, None),
            ("/filter/", "", 404, None),
            ("/filter", named, 200, Some("")),
            ("/filter", no_pod, 200, Some("incomplete parameters")),
            ("/filter", no_nodes, 200, Some("incomplete parameters")),
            ("/filter", "{}", 200, Some("incomplete parameters")),
        ] {
            let answer = place.client.send(method, path, body).await;
            assert_eq!(answer.status, status, "{method} {path} {body}: {answer:?}");
            if let Some(error) = error {
                assert_eq!(answer.json()["Error"], error, "{body}");
                assert_eq!(answer.kind, "application/json");
            }
        }
    }
    assert_eq!(place.client.send("GET", "/status", "").await.body, "ok");
    for method in ["PATCH", "PUT", "DELETE", "HEADERS", "OPTIONS"] {
        let answer = place.client.send(method, "/status", "").await;
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.body.starts_with(method), "{answer:?}");
    }
    place.end().await;
}

/// Goal: whatever comes, `filter` answers with 200 and a sentence, and the webhook never with 200
/// and nothing.
#[tokio::test]
async fn bodies_that_are_none() {
    let place = Place::start(&[]).await;
    let deep = "[".repeat(100_000);
    let named =
        |text: &str| format!(r#"{{"Pod":{{"metadata":{{"name":{text}}}}},"NodeNames":[]}}"#);
    for body in [
        String::new(),
        "\0\0\0".into(),
        "{".into(),
        "[]".into(),
        "null".into(),
        "\"text\"".into(),
        deep.clone(),
        format!(r#"{{"Pod":{deep}"#),
        named("5"),
        named("\"\u{0}\""),
        named(r#""\ud800""#),
        r#"{"Pod":[],"Nodes":{}}"#.into(),
        r#"{"Pod":{"metadata":{"name":"p"}},"Nodes":{"items":"x"}}"#.into(),
        r#"{"Pod":{"metadata":{"name":"p"},"spec":{"volumes":[{"csi":"x"}]}},"Nodes":{}}"#.into(),
        r#"{"Pod":{"metadata":{"name":"p"}},"NodeNames":[1]}"#.into(),
    ] {
        let shown: String = body.chars().take(60).collect();
        let answer = place.client.post("/filter", body.clone()).await;
        assert_eq!(answer.status, 200, "{shown}");
        let told = Filtered::of(&answer.json());
        assert!(
            told.error.starts_with("the body is not ExtenderArgs: "),
            "{shown}: {told:?}"
        );
        assert!(told.error.len() < 400, "{shown}: {told:?}");
        assert_eq!(
            place.client.post("/prioritize", body.clone()).await.status,
            400,
            "{shown}"
        );
        assert_eq!(
            place.client.post("/pod/mutate", body).await.status,
            400,
            "{shown}"
        );
    }
    let not_utf8 = place
        .client
        .post("/filter", &b"{\"Pod\":\"\xff\"}"[..])
        .await;
    assert!(
        not_utf8.json()["Error"]
            .as_str()
            .unwrap()
            .starts_with("the body is not")
    );
    place.end().await;
}

#[tokio::test]
async fn reviews_that_are_none() {
    let place = Place::start(&[]).await;
    let version = "admission.k8s.io/v1";
    for (review, told) in [
        (
            json!({}),
            "the body is \"\" of \"\", not an AdmissionReview",
        ),
        (
            json!({"kind": "Pod", "apiVersion": "v1"}),
            "the body is \"Pod\" of \"v1\", not",
        ),
        (
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v2", "request": {}}),
            "the body is \"AdmissionReview\" of \"admission.k8s.io/v2\", not",
        ),
        (
            json!({"kind": "AdmissionReview", "apiVersion": version}),
            "the AdmissionReview has no request",
        ),
        (
            json!({"kind": "AdmissionReview", "apiVersion": version, "request": 5}),
            "the body is not an AdmissionReview: ",
        ),
    ] {
        let answer = place.ask("/pod/mutate", &review).await;
        assert_eq!(answer.status, 400, "{review}");
        assert!(answer.body.starts_with(told), "{review}: {}", answer.body);
    }
    place.end().await;
}

/// Goal: what newer versions of Kubernetes add is passed over.
#[tokio::test]
async fn unknown_fields_are_passed_over() {
    let place = Place::start(&[]).await;
    let mut pod = pod(&[json!({"name": "new", "newSource": {"a": [1]}, "emptyDir": null})]);
    pod["spec"]["newThing"] = json!({"deep": [[{}]]});
    let node = json!({"metadata": {"name": "a", "new": 1}, "spec": {"new": null}});
    let args = json!({"Pod": pod, "Nodes": {"items": [node], "new": 1}, "NewArgument": [1, 2]});
    let told = place.ask("/filter", &args).await.json();
    assert_eq!(told["Nodes"]["items"], json!([node]));
    place.end().await;
}

/// Goal: a body that is too long is not read: not where its length is said, and not where it comes
/// in pieces.
#[tokio::test]
async fn long_bodies_are_not_read() {
    let place = Place::start_with(&[], |options| options.body_bytes_max = 1 << 20).await;
    let told = |answer: String| {
        let json = answer.split("\r\n\r\n").nth(1).unwrap().to_owned();
        serde_json::from_str::<Value>(&json).unwrap()["Error"].clone()
    };
    let expected =
        "the body is longer than the 1048576 bytes that are read (kubernetes.body_bytes_max)";
    // A hundred megabytes are announced; nobody waits for them.
    let mut stream = place.client.connect().await.unwrap();
    let head = "POST /filter HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(told(read(&mut stream).await), expected);

    let mut stream = place.client.connect().await.unwrap();
    let head = "POST /filter HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let piece = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..17 {
        stream.write_all(piece.as_bytes()).await.unwrap();
    }
    assert_eq!(told(read(&mut stream).await), expected);

    for path in ["/prioritize", "/pod/mutate"] {
        let mut stream = place.client.connect().await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(read(&mut stream).await.starts_with("HTTP/1.1 413 "));
    }
    place.end().await;
}

/// Reads what comes until the other end closes, or has answered.
async fn read(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = stream.read(&mut piece).await.unwrap_or(0);
        answer.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&answer);
        if count == 0 || text.contains("\r\n\r\n") && text.ends_with(['}', ')', 'k']) {
            return text.into_owned();
        }
    }
}

/// Goal: who connects and is slow is let go: in the handshake, in the head, in the body. Meanwhile
/// others are answered.
#[tokio::test]
async fn the_slow_are_let_go() {
    let place = Place::start_with(&[], |options| {
        options.client_timeout_ms = 100;
        options.idle_ms = 100;
    })
    .await;
    let mut silent = TcpStream::connect(place.address).await.unwrap();
    let mut no_head = place.client.connect().await.unwrap();
    no_head.write_all(b"POST /fil").await.unwrap();
    let mut no_body = place.client.connect().await.unwrap();
    let head = "POST /filter HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{";
    no_body.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read(&mut silent).await, "");
    let told = read(&mut no_head).await;
    assert!(
        told.is_empty() || told.starts_with("HTTP/1.1 408 "),
        "{told}"
    );
    assert!(
        read(&mut no_body)
            .await
            .contains("the body did not arrive in time")
    );
    place.end().await;
}

/// Goal: of connections there are only so many, and whoever waits is served when one ends.
#[tokio::test]
async fn connections_are_bounded() {
    let place = Place::start_with(&[], |options| options.connections_max = 1).await;
    let mut first = place.client.connect().await.unwrap();
    let mut second = Box::pin(place.client.send("GET", "/status", ""));
    let request = b"GET /status HTTP/1.1\r\nhost: x\r\n\r\n";
    first.write_all(request).await.unwrap();
    let answered = tokio::select! {
        biased;
        _ = &mut second => "second",
        answer = read(&mut first) => {
            assert!(answer.ends_with("ok"), "{answer}");
            "first"
        }
    };
    assert_eq!(answered, "first");
    drop(first);
    assert_eq!(second.as_mut().await.body, "ok");
    drop(second);
    place.end().await;
}

/// Goal: TLS 1.2 and 1.3 are spoken and nothing older, nor anything without TLS.
#[tokio::test]
async fn only_new_tls_is_spoken() {
    let place = Place::start(&[]).await;
    let mut old = place.authority.client();
    old = rustls::ClientConfig::builder_with_provider(old.crypto_provider().clone())
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots(&place))
        .with_no_client_auth();
    assert!(place.client.connect_with(Arc::new(old)).await.is_ok());
    // A hello of TLS 1.1, and HTTP.
    let hello = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x02";
    for begin in [
        &[&hello[..], &[0; 40]].concat()[..],
        b"GET /status HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(place.address).await.unwrap();
        stream.write_all(begin).await.unwrap();
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told).await;
        // An alert, or nothing.
        assert!(told.is_empty() || told[0] == 0x15, "{told:?}");
    }
    // Who does not trust our authority does not talk to us.
    let stranger = crate::support::authority::Authority::new().client();
    assert!(place.client.connect_with(Arc::new(stranger)).await.is_err());
    place.end().await;
}

fn roots(place: &Place) -> rustls::RootCertStore {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    let pem = place.authority.pem();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    roots
}
