//! The listener for metrics and health: what it answers, and what hostile clients get.
//!
//! Method: the listener on a real socket, with a program whose values and checks are given. Requests are
//! written as bytes, so that a client can break every rule.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use berth_process::metrics::{Check, Definition, Exposition, Observed, Program, serve};
use berth_process::{BoxFuture, listening};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

static THINGS: Definition = Definition::counter("test_things_total", &["of"], "Things.");

/// A program that is well, or hangs.
#[derive(Default)]
struct Sample {
    is_sick: AtomicBool,
}

impl Observed for Sample {
    fn expose<'a>(&'a self, out: &'a mut Exposition) -> BoxFuture<'a, ()> {
        Box::pin(async { out.add(&THINGS, ["x"], 7_u64) })
    }

    fn live(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async { vec![Check::new("work", Ok(()))] })
    }

    fn ready(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async {
            let is_well = !self.is_sick.load(Ordering::Relaxed);
            vec![Check::holds("work", is_well, "it is sick")]
        })
    }
}

struct Listener {
    address: SocketAddr,
    sample: Arc<Sample>,
    _stop: DropGuard,
}

impl Listener {
    async fn start() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listener, address) = listening::bind(any).await.unwrap();
        let (stop, sample) = (CancellationToken::new(), Arc::<Sample>::default());
        let program = Program {
            name: "test",
            service_version: 3,
        };
        let served = serve(listener, None, program, sample.clone(), stop.clone());
        tokio::spawn(served);
        Self {
            address,
            sample,
            _stop: stop.drop_guard(),
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends these bytes, and returns everything that comes back until the connection ends.
    async fn send(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        // It may be refused before its end.
        let _ = stream.write_all(request).await;
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        String::from_utf8(bytes).unwrap()
    }

    async fn get(&self, path: &str, more: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{more}\r\n");
        self.send(request.as_bytes()).await
    }
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or("none")
}

#[tokio::test]
async fn metrics_come_in_the_format_that_is_accepted() {
    let listener = Listener::start().await;
    let open = listener.get("/metrics", "").await;
    assert_eq!(status(&open), "200", "{open}");
    for part in [
        "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n",
        "# TYPE test_things counter\ntest_things_total{of=\"x\"} 7\n",
        "berth_build_info{program=\"test\",",
        "process_resident_memory_bytes ",
    ] {
        assert!(open.contains(part), "{part}\n{open}");
    }
    assert!(open.ends_with("# EOF\n"), "{open}");
    let classic = listener.get("/metrics", "accept: text/plain\r\n").await;
    let is_classic = classic.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n")
        && classic.contains("# TYPE test_things_total counter\n");
    assert!(is_classic && !classic.contains("EOF"), "{classic}");
}

#[tokio::test]
async fn health_states_its_reasons() {
    let listener = Listener::start().await;
    let well = listener.get("/readyz", "").await;
    assert!(
        status(&well) == "200" && well.ends_with("\r\n\r\nok"),
        "{well}"
    );
    let verbose = listener.get("/readyz?verbose", "").await;
    assert!(
        verbose.ends_with("[+]work ok\nreadyz check passed\n"),
        "{verbose}"
    );
    listener.sample.is_sick.store(true, Ordering::Relaxed);
    let sick = listener.get("/readyz", "").await;
    assert_eq!(status(&sick), "503", "{sick}");
    let expected = "[-]work failed: it is sick\nreadyz check failed\n";
    assert!(sick.ends_with(expected), "{sick}");
    assert_eq!(status(&listener.get("/livez", "").await), "200");
}

/// Goal: requests that break rules get an error or nothing, and none reads or changes anything.
#[tokio::test]
async fn requests_that_break_rules_are_refused() {
    let listener = Listener::start().await;
    let long = "a".repeat(1 << 20);
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(), "404"),
        ("GET /metrics/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(), "404"),
        ("POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc".to_owned(), "405"),
        ("DELETE /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(), "405"),
        ("GET /metrics HTTP/1.0\r\n\r\n".to_owned(), "200"),
        (format!("GET /{long} HTTP/1.1\r\nhost: x\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n"), "431"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
    ] {
        let response = listener.send(request.as_bytes()).await;
        // A connection with unread data is reset, and the reason may be lost with it.
        let is_lost = response.is_empty() && request.len() > 1 << 16;
        let shown = &request[..request.len().min(60)];
        assert!(status(&response) == expected || is_lost, "{shown}: {response}");
    }
    let head = listener
        .send(b"HEAD /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert!(
        status(&head) == "200" && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

/// Goal: clients that send nothing, or half a head, delay no other one, and one caller never has all
/// connections: those beyond its share are refused with the reason.
#[tokio::test]
async fn silent_clients_hold_a_bounded_share() {
    let listener = Listener::start().await;
    let mut silent = Vec::new();
    for number in 0..24 {
        let mut stream = listener.connect().await;
        if number % 2 == 0 {
            stream.write_all(b"GET /metrics HTT").await.unwrap();
        }
        silent.push(stream);
    }
    assert_eq!(status(&listener.get("/livez", "").await), "200");
    for _ in 0..100 {
        silent.push(listener.connect().await);
    }
    let mut refused = 0;
    for stream in silent.iter_mut().rev().take(10) {
        let mut bytes = [0; 32];
        let read = stream.read(&mut bytes).await.unwrap_or(0);
        refused += usize::from(bytes[..read].starts_with(b"HTTP/1.1 503"));
    }
    assert_eq!(refused, 10, "the last ones are beyond the share");
    drop(silent);
    loop {
        let response = listener.get("/livez", "").await;
        if status(&response) == "200" {
            break;
        }
        tokio::task::yield_now().await;
    }
}
