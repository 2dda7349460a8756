//! Goal: a download is the whole file of a server that may be reached, or nothing, whatever the server does;
//! and no message has more of a URL than its server.
//!
//! Method: a server on loopback that does everything wrong that a server can, in a table; the directory is
//! looked at after each case.

mod server;

use std::fs;
use std::path::Path;

use berth_domain::id::{ClusterId, ImageUid, TimeMs};
use berth_domain::image::{ImageFile, Sha256};
use berth_domain::vm::DiskFormat;
use ring::digest::{SHA256, digest};
use tempfile::TempDir;
use uuid::Uuid;

use self::server::{Act, Server, certified};
use super::*;

const MIB: u64 = 1 << 20;
const BYTES: &[u8] = b"the bytes of a raw image";

const LIMITS: Limits = Limits {
    connect: Duration::from_secs(2),
    idle: Duration::from_millis(250),
    total: Duration::from_secs(20),
};

fn sum(bytes: &[u8]) -> Sha256 {
    Sha256(digest(&SHA256, bytes).as_ref().try_into().unwrap())
}

/// Allows 127.0.0.1, and no other address of loopback.
fn settings() -> Settings {
    Settings {
        allow_addresses: vec!["127.0.0.1".parse().unwrap()],
        download_mib_max: 1,
        ..Settings::default()
    }
}

fn download(directory: &Path, url: &str, settings: Settings) -> Download {
    let host = HostName::new("h1").unwrap();
    let download = ImageDownload {
        url: url.parse().unwrap(),
        sha256: None,
    };
    Download {
        host: host.clone(),
        settings,
        limits: LIMITS,
        store: ImageStore::new(directory.to_owned(), host),
        grant: ImageGrant {
            cluster: ClusterId(Uuid::from_u128(1)),
            file: ImageFile::new("data".parse().unwrap(), ImageUid(Uuid::from_u128(7))),
            format: DiskFormat::Raw,
            content: None,
            download: Some(download.clone()),
            conductor: "c1".parse().unwrap(),
            issued_at: TimeMs(0),
            expires_at: TimeMs(0),
        },
        download,
        stopping: CancellationToken::new(),
    }
}

async fn turn() -> OwnedSemaphorePermit {
    let turns = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
    turns.acquire_owned().await.unwrap()
}

async fn run(download: &Download) -> Result<ImageContent, Refusal> {
    let (sender, _receiver) = mpsc::channel(1);
    download
        .run(turn().await, &Progress::default(), &sender)
        .await
}

/// Returns the names of all files, those that are not complete among them.
fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

fn send(text: &str) -> Act {
    Act::Send(text.as_bytes().to_vec())
}

fn ok(headers: &str, body: &[u8]) -> Vec<Act> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
    vec![send(&head), Act::Send(body.to_vec())]
}

fn whole(bytes: &[u8]) -> Vec<Act> {
    ok(&format!("Content-Length: {}\r\n", bytes.len()), bytes)
}

fn redirect(location: &str) -> Vec<Act> {
    vec![send(&format!(
        "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    ))]
}

/// A way in which a server does not send an image: the path, what it does, the reason, and what the message says.
type Case = (&'static str, Vec<Act>, &'static str, &'static str);

const FAILED: &str = "IMAGE_DOWNLOAD_FAILED";
const REFUSED: &str = "IMAGE_URL_REFUSED";

/// What is wrong with bodies.
fn bodies() -> Vec<Case> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let long = MIB + 1;
    let stalls = |mut acts: Vec<Act>| {
        acts.push(Act::Stall);
        acts
    };
    let endless = |act: Act| vec![send(&format!("HTTP/1.1 200 OK\r\n{chunked}\r\n")), act];
    let block = [b"10000\r\n", &[1; 0x10000][..], b"\r\n"].concat();
    vec![
        (
            "short",
            ok("Content-Length: 30\r\n", BYTES),
            FAILED,
            "broke off",
        ),
        (
            "no-body",
            ok("Content-Length: 30\r\n", b""),
            FAILED,
            "broke off",
        ),
        (
            "no-last-chunk",
            ok(chunked, b"3\r\nabc\r\n"),
            FAILED,
            "broke off",
        ),
        (
            "half-a-chunk",
            ok(chunked, b"9\r\nabc"),
            FAILED,
            "broke off",
        ),
        ("no-chunk", ok(chunked, b"xyz\r\n"), FAILED, "broke off"),
        (
            "stalls",
            stalls(ok("Content-Length: 30\r\n", BYTES)),
            FAILED,
            "sends nothing",
        ),
        (
            "endless",
            endless(Act::Repeat(block, Duration::ZERO)),
            "IMAGE_TOO_LARGE",
            "more than 1 MiB",
        ),
        (
            "announces-too-much",
            stalls(ok(&format!("Content-Length: {long}\r\n"), b"")),
            "IMAGE_TOO_LARGE",
            "more than 1 MiB",
        ),
        ("no-length", ok("", BYTES), FAILED, "how long"),
    ]
}

/// What is wrong with what is in bodies.
fn contents() -> Vec<Case> {
    vec![
        (
            "gzip",
            ok("Content-Length: 3\r\nContent-Encoding: gzip\r\n", b"abc"),
            FAILED,
            "compressed",
        ),
        (
            "gzip-for-the-way",
            ok(
                "Transfer-Encoding: gzip, chunked\r\n",
                b"3\r\nabc\r\n0\r\n\r\n",
            ),
            FAILED,
            "encoding",
        ),
        ("empty", whole(b""), "IMAGE_REFUSED", "empty"),
        (
            "another-format",
            whole(b"QFI\xfb\0\0\0\x03"),
            "IMAGE_REFUSED",
            "qcow2",
        ),
    ]
}

/// What is wrong with heads.
fn heads() -> Vec<Case> {
    let length = "Content-Length: 3\r\n";
    let status = |line: &str| vec![send(&format!("HTTP/1.1 {line}\r\n{length}\r\nabc"))];
    let many: String = (0..1000).map(|at| format!("X-{at}: x\r\n")).collect();
    let long = format!("X: {}\r\n{length}", "x".repeat(100 << 10));
    let forever = Act::Repeat(b"X: x\r\n".to_vec(), Duration::from_millis(1));
    vec![
        ("none", vec![], FAILED, "does not send"),
        ("silent", vec![Act::Stall], FAILED, "does not answer"),
        (
            "not-http",
            vec![send("SSH-2.0-OpenSSH\r\n\r\n")],
            FAILED,
            "does not send",
        ),
        ("404", status("404 Not Found"), FAILED, "404"),
        ("500", status("500 Internal Server Error"), FAILED, "500"),
        ("401", status("401 Unauthorized"), FAILED, "401"),
        ("206", status("206 Partial Content"), FAILED, "206"),
        ("204", status("204 No Content"), FAILED, "204"),
        ("304", status("304 Not Modified"), FAILED, "304"),
        ("long-head", ok(&long, b"abc"), FAILED, "does not send"),
        (
            "many-headers",
            ok(&format!("{many}{length}"), b"abc"),
            FAILED,
            "does not send",
        ),
        (
            "head-without-end",
            vec![send("HTTP/1.1 200 OK\r\n"), forever],
            FAILED,
            "does not",
        ),
        (
            "two-lengths",
            ok(&format!("{length}Content-Length: 4\r\n"), b"abcd"),
            FAILED,
            "does not send",
        ),
        (
            "no-number",
            ok("Content-Length: -3\r\n", b"abc"),
            FAILED,
            "does not send",
        ),
    ]
}

/// What is wrong with redirections. None of these is followed to a server that is not allowed.
fn redirections() -> Vec<Case> {
    let none = send("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n");
    vec![
        ("loop", redirect("/secret-loop"), FAILED, "more than 5"),
        ("to-nothing", vec![none], FAILED, "without a URL"),
        (
            "to-a-file",
            redirect("file:///etc/passwd"),
            REFUSED,
            "must begin with",
        ),
        (
            "to-ftp",
            redirect("ftp://127.0.0.1/secret"),
            REFUSED,
            "must begin with",
        ),
        (
            "to-credentials",
            redirect("http://a:secret@127.0.0.1/"),
            REFUSED,
            "user name",
        ),
        (
            "to-loopback",
            redirect("http://127.0.0.2/secret"),
            REFUSED,
            "loopback",
        ),
        (
            "to-loopback-6",
            redirect("http://[::1]/secret"),
            REFUSED,
            "loopback",
        ),
        (
            "to-mapped",
            redirect("http://[::ffff:127.0.0.2]/secret"),
            REFUSED,
            "loopback",
        ),
        (
            "to-the-link",
            redirect("http://169.254.169.254/secret"),
            REFUSED,
            "link-local",
        ),
        (
            "to-unspecified",
            redirect("//0.0.0.0/secret"),
            REFUSED,
            "unspecified",
        ),
        (
            "to-multicast",
            redirect("http://224.0.0.1/secret"),
            REFUSED,
            "multicast",
        ),
    ]
}

fn cases() -> Vec<Case> {
    [bodies(), contents(), heads(), redirections()].concat()
}

/// Goal: a server that does not send an image is refused with its own reason, and nothing is left.
#[tokio::test]
async fn what_a_server_does_wrong_leaves_nothing() {
    let server = Server::start(None, |path, _| {
        let name = path.strip_prefix("/secret-").unwrap();
        let mut all = cases().into_iter();
        all.find(|case| case.0 == name).unwrap().1
    });
    let server = server.await;
    let mut running = tokio::task::JoinSet::new();
    for (name, _, reason, says) in cases() {
        let url = format!("http://{}/secret-{name}", server.address);
        running.spawn(async move {
            let directory = TempDir::new().unwrap();
            let download = download(directory.path(), &url, settings());
            let refusal = run(&download).await.expect_err(name);
            assert_eq!(refusal.reason, reason, "{name}: {refusal}");
            assert!(refusal.message.contains(says), "{name}: {refusal}");
            assert!(
                !format!("{refusal:?}").contains("secret"),
                "{name}: {refusal}"
            );
            assert_eq!(files(directory.path()), [""; 0], "{name}");
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// Goal: what is sent in any proper way is the image, with its holes.
#[tokio::test]
async fn what_a_server_does_right_is_the_image() {
    let mut bytes = vec![7; 100_000];
    bytes.resize(700_000, 0);
    bytes.extend_from_slice(b"the end");
    let body = bytes.clone();
    let server = Server::start(None, move |path, address| {
        let chunks = body.chunks(9_999);
        let chunk =
            |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let chunks: Vec<u8> = chunks.flat_map(chunk).collect();
        let chunked = |end: &[u8]| ok("Transfer-Encoding: chunked\r\n", &[&chunks, end].concat());
        match path {
            "/length" => whole(&body),
            "/chunked" => chunked(b"0\r\n\r\n"),
            "/trailers" => chunked(b"0\r\nX: y\r\n\r\n"),
            "/continue" => {
                let first = vec![send("HTTP/1.1 100 Continue\r\n\r\n")];
                [first, whole(&body)].concat()
            }
            "/close" => ok("", &body),
            "/5" => redirect(&format!("http://{address}/4")),
            "/4" => redirect("3"),
            "/3" => redirect("?2"),
            "/3?2" => redirect("a/../1"),
            "/1" => redirect("/length#x"),
            path => panic!("{path}"),
        }
    });
    let server = server.await;
    for path in ["length", "chunked", "trailers", "continue", "5", "close"] {
        let directory = TempDir::new().unwrap();
        let url = format!("http://{}/{path}", server.address);
        let mut download = download(directory.path(), &url, settings());
        // Where the end is not known otherwise, the checksum says whether that was all.
        download.download.sha256 = (path == "close").then(|| sum(&bytes));
        let progress = Progress::default();
        let (sender, _receiver) = mpsc::channel(1);
        let content = download.run(turn().await, &progress, &sender).await;
        let content = content.unwrap_or_else(|refusal| panic!("{path}: {refusal}"));
        assert_eq!(content.sha256, sum(&bytes), "{path}");
        let [file] = &files(directory.path())[..] else {
            panic!("{path}");
        };
        let file = directory.path().join(file);
        assert!(fs::read(&file).unwrap() == bytes, "{path}");
        let taken = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
        assert!(taken < 400_000, "{path}: {taken}");
        let received = progress.received.load(Ordering::Relaxed);
        assert_eq!(received, bytes.len() as u64, "{path}");
        // A second one is refused, and the first one stays.
        let refusal = run(&download).await.unwrap_err();
        assert_eq!(refusal.reason, "IMAGE_EXISTS", "{path}");
        assert_eq!(files(directory.path()).len(), 1, "{path}");
        download.download.sha256 = Some(sum(b"another"));
        let refusal = run(&download).await.unwrap_err();
        assert_eq!(refusal.reason, "IMAGE_CHECKSUM", "{path}");
    }
}

/// Goal: no way to write a loopback address leads there. Method: the forms that the C library reads.
#[tokio::test]
async fn no_form_of_an_address_is_a_way_around() {
    let server = Server::start(None, |_, _| whole(BYTES)).await;
    let port = server.address.port();
    let directory = TempDir::new().unwrap();
    let all_allowed = Settings {
        refuse_addresses: vec!["127.0.0.0/8".parse().unwrap()],
        ..settings()
    };
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::]",
    ] {
        let url = format!("http://{host}:{port}/secret");
        for settings in [Settings::default(), all_allowed.clone()] {
            let download = download(directory.path(), &url, settings);
            let refusal = run(&download).await.expect_err(host);
            assert_eq!(refusal.reason, REFUSED, "{host}: {refusal}");
        }
    }
    assert_eq!(server.connections(), 0);
    assert_eq!(files(directory.path()), [""; 0]);
}

/// Goal: a server with https proves its name to an authority that is trusted, and is not left for http.
#[tokio::test]
async fn servers_prove_their_names() {
    let directory = TempDir::new().unwrap();
    let sub = |name: &str| directory.path().join(name);
    let images = TempDir::new().unwrap();
    let plain = Server::start(None, |_, _| whole(BYTES)).await;
    let plain_address = plain.address;
    let acts = move |path: &str, _| match path {
        "/down" => redirect(&format!("http://{plain_address}/x")),
        _ => whole(BYTES),
    };
    let (right, right_ca) = certified(&sub("right"), "127.0.0.1");
    let (wrong, wrong_ca) = certified(&sub("wrong"), "other.example");
    let right = Server::start(Some(right), acts).await;
    let wrong = Server::start(Some(wrong), acts).await;
    let none = sub("none.pem");
    for (server, path, ca, expected) in [
        (&right, "x", &wrong_ca, Err((FAILED, "certificate"))),
        (&wrong, "x", &wrong_ca, Err((FAILED, "not valid for name"))),
        (&plain, "x", &right_ca, Err((FAILED, "does not send"))),
        (
            &right,
            "down",
            &right_ca,
            Err((REFUSED, "from https to http")),
        ),
        (&right, "x", &none, Err((FAILED, "images.download_ca"))),
        (&right, "x", &right_ca, Ok(())),
    ] {
        let url = format!("https://{}/{path}", server.address);
        let settings = Settings {
            download_ca: Some(ca.clone()),
            ..settings()
        };
        let outcome = run(&download(images.path(), &url, settings)).await;
        match (outcome, expected) {
            (Ok(content), Ok(())) => assert_eq!(content.sha256, sum(BYTES)),
            (Err(refusal), Err((reason, says))) => {
                assert_eq!(refusal.reason, reason, "{refusal}");
                assert!(refusal.message.contains(says), "{refusal}");
                assert_eq!(files(images.path()), [""; 0]);
            }
            (outcome, expected) => panic!("{outcome:?} {expected:?}"),
        }
    }
}

/// Goal: a download ends, and leaves nothing, when the caller disconnects, when the agent stops, and when a
/// server sends a little now and then. Method: a server that never comes to the end, and never stalls.
#[tokio::test]
async fn a_download_that_is_broken_off_leaves_nothing() {
    let drip = || {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        let bytes = Act::Repeat(vec![1; 1000], Duration::from_millis(20));
        vec![send(head), bytes]
    };
    let server = Server::start(None, move |_, _| drip()).await;
    let url = format!("http://{}/secret", server.address);
    for (case, reason) in [
        ("caller", "IMAGE_INCOMPLETE"),
        ("stopping", "AGENT_STOPPING"),
        ("time", FAILED),
    ] {
        let directory = TempDir::new().unwrap();
        let mut download = download(directory.path(), &url, settings());
        if case == "time" {
            download.limits.total = Duration::from_millis(500);
        }
        let stopping = download.stopping.clone();
        let progress = Progress::default();
        let (sender, receiver) = mpsc::channel(1);
        // Connected until the end of each case but its own.
        let mut receiver = Some(receiver);
        let breaking = async {
            // A thread of its own makes the file.
            while files(directory.path()).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            match case {
                "caller" => drop(receiver.take()),
                "stopping" => stopping.cancel(),
                _ => tokio::time::sleep(Duration::from_millis(600)).await,
            }
        };
        let running = download.run(turn().await, &progress, &sender);
        let (outcome, ()) = tokio::join!(running, breaking);
        let refusal = outcome.unwrap_err();
        assert_eq!(refusal.reason, reason, "{case}: {refusal}");
        assert_eq!(files(directory.path()), [""; 0], "{case}");
    }
}

/// Goal: the caller gets how far it is, and what is in the image at the end.
#[tokio::test]
async fn the_caller_gets_the_end() {
    let server = Server::start(None, |_, _| whole(BYTES)).await;
    let directory = TempDir::new().unwrap();
    let url = format!("http://{}/x", server.address);
    let (sender, mut receiver) = mpsc::channel(2);
    let download = download(directory.path(), &url, settings());
    download.serve(turn().await, sender).await;
    let mut last = None;
    while let Some(message) = receiver.recv().await {
        last = message.unwrap().event;
    }
    let Some(Event::Content(content)) = last else {
        panic!("{last:?}");
    };
    assert_eq!(content.length_bytes, BYTES.len() as u64);
}
