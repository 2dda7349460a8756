//! A Placement that answers oddly, or not at all. Method: a server that sends the responses that
//! are configured, one each connection, and records the requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_cli::placement::http::{Http, SOURCE_ANSWER, SOURCE_REFUSED, SOURCE_UNREACHABLE};
use berth_cli::placement::source::Source;
use berth_domain::refusal::{Code, Refusal};
use http::HeaderValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SECRET: &str = "gAAAAABsecret";

struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Gives these answers, the last one again and again; an empty one is a connection that is cut.
    async fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = requests.clone();
        tokio::spawn(async move {
            let mut answers = answers.into_iter().peekable();
            let mut answer = String::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => break,
                    }
                }
                recorded
                    .lock()
                    .unwrap()
                    .push(String::from_utf8(request).unwrap());
                answer = answers.next().unwrap_or(answer);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, requests }
    }

    fn http(&self) -> Http {
        let token = HeaderValue::from_static(SECRET);
        Http::new(&self.url, Some(token), None, Duration::from_secs(5)).unwrap()
    }

    async fn open(&self) -> Result<Source, Refusal> {
        let source = Source::open(self.http()).await;
        if let Err(refusal) = &source {
            assert!(!format!("{refusal:?}").contains(SECRET), "{refusal:?}");
        }
        source
    }
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn root(max_version: &str) -> String {
    let versions = format!(r#"{{"versions": [{{"id": "v1.0", "max_version": "{max_version}"}}]}}"#);
    answer("200 OK", &versions)
}

#[tokio::test]
async fn the_newest_common_version_is_spoken_and_old_servers_are_refused() {
    for (theirs, ours) in [
        ("1.28", "1.28"),
        ("1.36", "1.36"),
        ("1.39", "1.39"),
        ("1.55", "1.39"),
    ] {
        let server = Server::start(vec![root(theirs), answer("200 OK", r#"{"traits": []}"#)]).await;
        let source = server.open().await.unwrap();
        assert_eq!(source.version(), ours);
        assert_eq!(source.has_types(), theirs > "1.37");
        source.traits().await.unwrap();
        let requests = server.requests.lock().unwrap().clone();
        let version = format!("openstack-api-version: placement {ours}\r\n");
        assert!(requests[1].contains(&version), "{requests:?}");
        assert!(
            requests[1].contains(&format!("x-auth-token: {SECRET}")),
            "{requests:?}"
        );
    }
    let server = Server::start(vec![root("1.27")]).await;
    let old = server.open().await.err().unwrap();
    assert_eq!(old.reason, "SOURCE_TOO_OLD");
    assert!(
        old.message.contains("1.27") && old.message.contains("1.28"),
        "{old}"
    );
}

#[tokio::test]
async fn what_passes_is_requested_again() {
    let busy = answer("503 Service Unavailable", "");
    let server = Server::start(vec![busy, String::new(), root("1.39")]).await;
    server.open().await.unwrap();
    assert_eq!(server.requests.lock().unwrap().len(), 3);
}

/// Goal: the refusal names the address and its response, and what to do. Method: a
/// table of answers that do not pass.
#[tokio::test]
async fn what_does_not_pass_names_address_and_status() {
    let detail = r#"{"errors": [{"status": 403, "detail": "Policy does not\n\n allow it."}]}"#;
    let table = [
        (
            answer("401 Unauthorized", ""),
            SOURCE_REFUSED,
            Code::PermissionDenied,
            "401",
        ),
        (
            answer("403 Forbidden", detail),
            SOURCE_REFUSED,
            Code::PermissionDenied,
            "Policy does not allow it.",
        ),
        (
            answer("404 Not Found", ""),
            SOURCE_ANSWER,
            Code::FailedPrecondition,
            "404",
        ),
        (
            answer("200 OK", "<html>"),
            SOURCE_ANSWER,
            Code::FailedPrecondition,
            "expected value",
        ),
        (
            answer("200 OK", r#"{"versions": []}"#),
            SOURCE_ANSWER,
            Code::FailedPrecondition,
            "max_version",
        ),
    ];
    for (given, reason, code, words) in table {
        let server = Server::start(vec![given.clone()]).await;
        let refusal = server.open().await.err().unwrap();
        assert_eq!((&*refusal.reason, refusal.code), (reason, code), "{given}");
        assert!(refusal.message.contains(words), "{refusal}");
        assert!(refusal.message.contains(&server.url), "{refusal}");
        assert!(refusal.hint.is_some(), "{refusal}");
        assert_eq!(server.requests.lock().unwrap().len(), 1, "{given}");
    }
}

#[tokio::test]
async fn a_server_that_moved_names_its_new_address() {
    let moved = "HTTP/1.1 301 Moved Permanently\r\nLocation: https://c/placement\r\n\
                 Content-Length: 0\r\nConnection: close\r\n\r\n";
    let server = Server::start(vec![moved.to_owned()]).await;
    let refusal = server.open().await.err().unwrap();
    assert!(
        refusal
            .message
            .contains("301 Moved Permanently to https://c/placement"),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_server_that_goes_on_failing_is_given_up() {
    let server = Server::start(vec![String::new()]).await;
    let refusal = server.open().await.err().unwrap();
    assert_eq!(
        (&*refusal.reason, refusal.code),
        (SOURCE_UNREACHABLE, Code::Unavailable)
    );
    assert_eq!(refusal.metadata["attempts"], "4");
    assert_eq!(server.requests.lock().unwrap().len(), 4);
}
