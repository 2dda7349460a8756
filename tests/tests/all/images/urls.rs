//! Goal: an image that a host downloads is one like any other; what is refused or broken off leaves nothing,
//! whichever process dies; and what may give access to a URL is written nowhere.
//!
//! Method: real processes, and a server on loopback, which only one of the two hosts is configured to reach.
//! What servers can do wrong is in the agent's own tests.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use berth_proto::image::v1::image_service_client::ImageServiceClient;
use berth_proto::image::v1::{CreateImageRequest, GrantImageRequest};
use berth_proto::types::v1::ImageDownload;

use super::*;

/// Starts a server of one image, and returns where it listens. It ends with the test.
fn serve(image: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let image = image.clone();
            // A client may disconnect at any time.
            thread::spawn(move || stream.and_then(|stream| answer(stream, &image)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, image: &[u8]) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let long = 9 * MIB;
    let (headers, body): (String, &[u8]) = match path {
        "/secret?token=secret" => ("Location: /image\r\n".to_owned(), b""),
        "/long" => (format!("Content-Length: {long}\r\n"), b""),
        _ => (format!("Content-Length: {}\r\n", image.len()), image),
    };
    let status = match headers.starts_with("Location") {
        true => "302 Found",
        false => "200 OK",
    };
    write!(stream, "HTTP/1.1 {status}\r\n{headers}\r\n")?;
    if path == "/stalls" {
        stream.write_all(&body[..MIB])?;
        // Until the client disconnects.
        let _ = stream.read(&mut [0]);
        return Ok(());
    }
    stream.write_all(body)
}

/// Starts a command that adds an image, and waits until the host has a part of it.
fn begin(cluster: &Cluster, address: &str, name: &str) -> Child {
    let before = files(cluster, "h1").len();
    let url = format!("http://{address}/stalls");
    let mut command = cluster.programs.command("berth");
    command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
    command.args(["image", "add", name, "--host", "h1", "--url", &url]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    wait_for_files(cluster, &["h1"], before + 1);
    child
}

/// Waits until a command ends, and returns the reason of its refusal.
fn reason(child: Child) -> String {
    let output = child.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = printed.lines().last().unwrap_or_default();
    let value: Value = serde_json::from_str(last)
        .or_else(|_| serde_json::from_str(&printed))
        .unwrap_or_else(|error| panic!("{error}: {printed}"));
    value["error"]["reason"]
        .as_str()
        .expect("a reason")
        .to_owned()
}

fn sum(path: &str) -> String {
    let output = Command::new("sha256sum").arg(path).output();
    let printed = String::from_utf8(output.expect("it runs").stdout).expect("text");
    printed.split(' ').next().unwrap_or_default().to_owned()
}

fn names(cluster: &Cluster) -> Vec<String> {
    let images = cluster.json(&["image", "list"]);
    let images = images.as_array().expect("a list").iter();
    images
        .map(|image| image["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Waits until the cluster has these images.
#[track_caller]
fn wait_for_names(cluster: &Cluster, expected: &[&str]) {
    let end = Instant::now() + Duration::from_secs(30);
    while names(cluster) != expected {
        assert!(Instant::now() < end, "{:?}", names(cluster));
        thread::sleep(Duration::from_millis(50));
    }
}

fn start() -> Cluster {
    let config = "\n[images]\nallow_addresses = [\"127.0.0.1\"]\ndownload_mib_max = 8\n";
    let builder = Cluster::builder(PROGRAMS).schedulers(1).conductors(1);
    let builder = builder.host(Host::new("h1").with_config(config));
    let mut cluster = builder.host(Host::new("h2")).start();
    cluster.wait();
    let flavor = ["flavor", "create", "small", "--vcpus", "1"];
    cluster.run(&[&flavor[..], &["--memory-mib", "64", "--disk-gib", "4"]].concat());
    cluster
}

#[test]
fn a_host_downloads_an_image() {
    let cluster = start();
    let bytes = raw_image();
    let address = serve(bytes.clone());
    let url = |path: &str| format!("http://{address}/{path}");
    let secret = url("secret?token=secret");
    let sum = sum(&file(&cluster, "image", &bytes));
    let add = ["image", "add", "data", "--host", "h1", "--url", &secret];
    let added = cluster.json(&[&add[..], &["--sha256", &sum]].concat());
    assert_eq!(added["sha256"], sum, "{added:#}");
    has(&cluster, "h1", &added, &bytes);
    let create = ["vm", "create", "a", "--flavor", "small", "--host", "h2"];
    cluster.run(&[&create[..], &["--disk", "data:1"]].concat());
    has(&cluster, "h2", &added, &bytes);

    let wrong = "00".repeat(32);
    let (image, long) = (url("image"), url("long"));
    for (words, expected) in [
        (&["--host", "h2", "--url", &image][..], "IMAGE_URL_REFUSED"),
        (
            &["--host", "h1", "--url", "http://127.0.0.2/x"],
            "IMAGE_URL_REFUSED",
        ),
        (&["--host", "h1", "--url", &long], "IMAGE_TOO_LARGE"),
        (
            &["--host", "h1", "--url", &image, "--sha256", &wrong],
            "IMAGE_CHECKSUM",
        ),
        (
            &["--host", "h1", "--url", &image, "--format", "qcow2"],
            "IMAGE_REFUSED",
        ),
    ] {
        let refusal = refused(&cluster, &[&["image", "add", "bad"][..], words].concat());
        assert_eq!(refusal["reason"], expected, "{words:?}: {refusal:#}");
        assert_eq!(names(&cluster), ["data"], "{words:?}");
        for host in ["h1", "h2"] {
            assert_eq!(files(&cluster, host).len(), 1, "{words:?}");
        }
    }
    for words in [
        &["--url", "ftp://a/secret"][..],
        &["--url", "https://user:secret@a/x"],
        &["--url", &image, "--file", "-"],
    ] {
        let answer = cluster.berth(&[&["image", "add", "bad"][..], words].concat());
        assert!(!answer.refused(2).stderr.contains("secret"), "{words:?}");
    }
    // What may give access is in no log and in no record.
    for part in [
        &cluster.schedulers[0],
        &cluster.conductors[0],
        &cluster.agents[0],
    ] {
        assert!(!part.log().contains("secret"));
    }
    let audit = cluster.json(&["audit", "list"]).to_string();
    assert!(!audit.contains("secret"), "{audit}");
}

/// Goal: each process may die in the middle, and what is left then is what the document says.
#[test]
fn a_download_that_is_broken_off_leaves_what_is_documented() {
    let mut cluster = start();
    let address = serve(raw_image());

    // The user.
    let mut child = begin(&cluster, &address, "a");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    wait_for_files(&cluster, &["h1"], 0);
    wait_for_names(&cluster, &[]);

    // The agent: it removes the part when it starts.
    let child = begin(&cluster, &address, "b");
    cluster.agents[0].kill();
    assert_eq!(reason(child), "HOST_UNREACHABLE");
    assert_eq!(names(&cluster), [""; 0]);
    assert_eq!(files(&cluster, "h1").len(), 1);
    let programs = &cluster.programs;
    cluster.agents[0].start(programs);
    cluster.wait();
    wait_for_files(&cluster, &["h1"], 0);

    // The conductor: a user removes the image.
    let child = begin(&cluster, &address, "c");
    cluster.conductors[0].kill();
    assert_eq!(reason(child), "OUTCOME_UNKNOWN");
    wait_for_files(&cluster, &["h1"], 0);
    assert_eq!(names(&cluster), ["c"]);
    cluster.run(&["image", "remove", "c"]);
    assert_eq!(names(&cluster), [""; 0]);
}

/// Goal: an agent connects to no other URL than the scheduler signed, and takes a download for nothing else.
/// Method: grants of the scheduler for the wrong call, and one with another URL in it.
#[test]
fn a_grant_is_for_its_url() {
    let cluster = start();
    let address = serve(b"an image".to_vec());
    let url = |path: &str| format!("http://{address}/{path}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let address_of = |part: &str| format!("http://{part}");
    let scheduler = address_of(&cluster.schedulers[0].address);
    let agent = address_of(&cluster.agents[0].address);
    runtime.block_on(async {
        let mut images = ImageServiceClient::new(channel(&scheduler).expect("an address"));
        let mut agent = ComputeAgentServiceClient::new(channel(&agent).expect("an address"));
        let create = CreateImageRequest {
            name: "images/a".to_owned(),
            format: Format::Raw.into(),
            ..CreateImageRequest::default()
        };
        images.create_image(create).await.expect("it is created");
        let mut grants = Vec::new();
        for download in [None, Some(url("image"))] {
            let download = download.map(|url| ImageDownload {
                url,
                ..ImageDownload::default()
            });
            let request = GrantImageRequest {
                name: "images/a".to_owned(),
                conductor: "services/conductor-1".to_owned(),
                download,
                ..GrantImageRequest::default()
            };
            let granted = images.grant_image(request).await.expect("it is granted");
            grants.push(granted.into_inner().grant.expect("grants are signed"));
        }
        let [upload, download] = &grants[..] else {
            unreachable!("two are granted");
        };
        let mut changed = download.clone();
        let mut bytes = changed.grant.to_vec();
        let at = bytes.windows(6).position(|part| part == b"/image");
        bytes[at.expect("it has the URL") + 1] = b'x';
        changed.grant = bytes.into();
        for grant in [upload, &changed] {
            let request = DownloadImageRequest {
                grant: Some(grant.clone()),
            };
            let status = agent.download_image(request).await.expect_err("refused");
            assert_eq!(from_status(&status).reason, "GRANT_INVALID", "{status}");
        }
        let put = PutImageRequest {
            request: Some(Put::Open(PutOpen {
                grant: Some(download.clone()),
                ..PutOpen::default()
            })),
        };
        let status = agent.put_image(tokio_stream::iter([put])).await;
        let status = status.expect_err("refused");
        assert_eq!(from_status(&status).reason, "GRANT_INVALID", "{status}");
        let request = DownloadImageRequest {
            grant: Some(download.clone()),
        };
        let mut events = agent
            .download_image(request)
            .await
            .expect("granted")
            .into_inner();
        while events.message().await.expect("it goes on").is_some() {}
    });
    assert_eq!(files(&cluster, "h1").len(), 1);
}
