//! Goal: an image that a user adds is where its guests start, is what it was when it was added, and is gone
//! once it is removed; one that is not what it is declared to be, or is broken off, leaves nothing; and
//! nothing of an image is taken, fetched or sent without a grant.
//!
//! Method: real processes on loopback with simulated hypervisors and real files; the files of every host
//! are compared after each step.

mod urls;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::agent::v1::put_image_request::{Open as PutOpen, Request as Put};
use berth_proto::agent::v1::{
    DownloadImageRequest, FetchImageRequest, PutImageRequest, ReadImageRequest,
};
use berth_proto::client::channel;
use berth_proto::conductor::v1::add_image_request::{Open, Request as Add};
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::conductor::v1::{AddImageRequest, AddImageResponse};
use berth_proto::image::v1::ImagePiece;
use berth_proto::image::v1::image_piece::{Done, Piece};
use berth_proto::operation::v1::SignedGrant;
use berth_proto::status::from_status;
use berth_proto::types::v1::disk::Format;
use berth_tests::processes::{Cluster, Host};
use serde_json::{Value, json};
use tonic::Status;

use crate::PROGRAMS;

const MIB: usize = 1 << 20;

fn cluster(hosts: u32) -> Cluster {
    let mut builder = Cluster::builder(PROGRAMS).schedulers(1).conductors(1);
    for number in 1..=hosts {
        builder = builder.host(Host::new(&format!("h{number}")));
    }
    let mut cluster = builder.start();
    cluster.wait();
    let flavor = ["flavor", "create", "small", "--vcpus", "1"];
    cluster.run(&[&flavor[..], &["--memory-mib", "64", "--disk-gib", "4"]].concat());
    cluster
}

/// Returns the bytes of a raw image: data, a hole and data again, of no whole number of pieces.
fn raw_image() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..2 * MIB).map(|at| (at % 251) as u8).collect();
    bytes.resize(5 * MIB, 0);
    bytes.extend_from_slice(b"the last bytes");
    bytes
}

fn file(cluster: &Cluster, name: &str, bytes: &[u8]) -> String {
    let path = cluster.folder().join(name);
    fs::write(&path, bytes).expect("a file");
    path.display().to_string()
}

/// Returns the files of a host's images, those that are not complete among them.
fn files(cluster: &Cluster, host: &str) -> Vec<PathBuf> {
    let directory = cluster.image_dir(host);
    let entries = fs::read_dir(directory).expect("a directory");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

fn show(cluster: &Cluster, image: &str) -> Value {
    cluster.json(&["image", "show", image])
}

#[track_caller]
fn refused(cluster: &Cluster, words: &[&str]) -> Value {
    let answer = cluster.berth(words).refused(1);
    let last = answer.stderr.lines().last().unwrap_or_default().to_owned();
    let printed: Value = serde_json::from_str(&last)
        .or_else(|_| serde_json::from_str(&answer.stderr))
        .unwrap_or_else(|error| panic!("{error}: {}", answer.stderr));
    printed["error"].clone()
}

/// Waits until the hosts have these numbers of files.
#[track_caller]
fn wait_for_files(cluster: &Cluster, hosts: &[&str], count: usize) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let there: Vec<_> = hosts.iter().map(|host| files(cluster, host)).collect();
        if there.iter().all(|files| files.len() == count) {
            return;
        }
        assert!(Instant::now() < end, "{there:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Checks that a host has an image with these bytes, and its holes.
#[track_caller]
fn has(cluster: &Cluster, host: &str, image: &Value, bytes: &[u8]) {
    let name = image["file_name"].as_str().expect("a file name");
    let path = cluster.image_dir(host).join(name);
    assert_eq!(files(cluster, host), std::slice::from_ref(&path));
    assert!(fs::read(&path).expect("a file") == bytes, "{path:?}");
    let taken = fs::metadata(&path).expect("a file").blocks() * 512;
    assert!(taken < 4 * MIB as u64, "{taken} bytes are taken");
}

#[test]
fn an_image_is_where_its_guests_are() {
    let cluster = cluster(4);
    let bytes = raw_image();
    let path = file(&cluster, "data.img", &bytes);
    let property = ["--image-property", "hw_cpu_policy=dedicated"];
    let add = ["image", "add", "data", "--file", &path, "--host", "h1"];
    let added = cluster.json(&[&add[..], &property].concat());
    assert_eq!(added["copies"], json!(["h1"]), "{added:#}");
    assert_eq!(added["length_bytes"], bytes.len(), "{added:#}");
    has(&cluster, "h1", &added, &bytes);

    // A guest takes it along: to its first host, in a live and in a cold migration, and to be rebuilt.
    let disk = ["--disk", "data:1"];
    let create = ["vm", "create", "a", "--flavor", "small", "--host", "h2"];
    cluster.run(&[&create[..], &disk].concat());
    let vm = cluster.json(&["vm", "show", "a"])["vm"].clone();
    assert_eq!(
        vm["spec"]["disks"][0]["image"], added["file_name"],
        "{vm:#}"
    );
    assert_eq!(vm["spec"]["image_properties"]["hw_cpu_policy"], "dedicated");
    has(&cluster, "h2", &added, &bytes);
    cluster.run(&["vm", "migrate", "a", "--host", "h3"]);
    has(&cluster, "h3", &added, &bytes);
    cluster.run(&["vm", "stop", "a"]);
    cluster.run(&["vm", "migrate", "a", "--cold", "--host", "h4"]);
    cluster.run(&["vm", "start", "a"]);
    has(&cluster, "h4", &added, &bytes);
    let now = show(&cluster, "data");
    assert_eq!(now["copies"], json!(["h1", "h2", "h3", "h4"]), "{now:#}");
    assert_eq!(now["vm_count"], 1);
    // What a host has lost it fetches again, and so what it has instead.
    let lost = files(&cluster, "h4");
    cluster.run(&["vm", "stop", "a"]);
    fs::remove_file(&lost[0]).expect("it is there");
    cluster.run(&["vm", "start", "a"]);
    has(&cluster, "h4", &added, &bytes);
    cluster.run(&["vm", "stop", "a"]);
    fs::write(&lost[0], b"something else").expect("a file");
    cluster.run(&["vm", "start", "a"]);
    has(&cluster, "h4", &added, &bytes);

    let other = file(&cluster, "other.img", b"another image");
    let second = cluster.json(&["image", "add", "other", "--file", &other, "--host", "h4"]);
    cluster.run(&["vm", "rebuild", "a", "--image", "other"]);
    let vm = cluster.json(&["vm", "show", "a"])["vm"].clone();
    assert_eq!(
        vm["spec"]["disks"][0]["image"], second["file_name"],
        "{vm:#}"
    );
    let in_use = refused(&cluster, &["image", "remove", "other"]);
    assert_eq!(in_use["reason"], "IMAGE_IN_USE", "{in_use:#}");

    // Removed, it goes from all hosts; another one of the name is another file.
    cluster.run(&["image", "remove", "data"]);
    wait_for_files(&cluster, &["h1", "h2", "h3"], 0);
    wait_for_files(&cluster, &["h4"], 1);
    let again = cluster.json(&["image", "add", "data", "--file", &other, "--host", "h1"]);
    assert_ne!(again["file_name"], added["file_name"]);
    let listed = cluster.json(&["image", "list"]);
    let names: Vec<_> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|i| &i["name"])
        .collect();
    assert_eq!(names, ["data", "other"]);
}

#[test]
fn an_image_is_copied_before_it_is_needed() {
    let mut cluster = cluster(4);
    let bytes = raw_image();
    let path = file(&cluster, "data.img", &bytes);
    let added = cluster.json(&["image", "add", "data", "--file", &path, "--host", "h1"]);
    let copied = cluster.json(&["image", "copy", "data", "h2", "h1"]);
    let mut copied = copied.as_array().expect("a list").clone();
    copied.sort_by_key(|one| one["host"].to_string());
    assert_eq!(
        copied[0],
        json!({"host": "h1", "fetched": false, "refusal": null})
    );
    assert_eq!(
        copied[1],
        json!({"host": "h2", "fetched": true, "refusal": null})
    );
    has(&cluster, "h2", &added, &bytes);

    // A copy that was changed is found when it is sent, and is another's from then on.
    let damaged = cluster
        .image_dir("h1")
        .join(added["file_name"].as_str().unwrap());
    let mut changed = bytes.clone();
    changed[1000] ^= 1;
    fs::write(&damaged, &changed).expect("a file");
    cluster.agents[1].kill();
    let copied = cluster.berth(&["image", "copy", "data", "h3"]).json_with(1);
    let failed = &copied.expect("a result")[0]["refusal"];
    assert_eq!(failed["reason"], "IMAGE_NOT_AVAILABLE", "{failed:#}");
    assert_eq!(show(&cluster, "data")["copies"], json!(["h2"]));
    assert_eq!(files(&cluster, "h3"), Vec::<PathBuf>::new());
    let programs = &cluster.programs;
    cluster.agents[1].start(programs);
    cluster.wait();
    cluster.run(&["image", "copy", "data", "h1"]);
    has(&cluster, "h1", &added, &bytes);

    // With the first one lost, the others go on.
    cluster.agents[0].kill();
    cluster.run(&["image", "copy", "data", "h3"]);
    has(&cluster, "h3", &added, &bytes);
    for number in [1, 2] {
        cluster.agents[number].kill();
    }
    #[rustfmt::skip]
    let create = |vm| ["vm", "create", vm, "--flavor", "small", "--disk", "data:1", "--host", "h4"];
    let failed = refused(&cluster, &create("a"));
    assert_eq!(failed["reason"], "IMAGE_NOT_AVAILABLE", "{failed:#}");
    assert_eq!(files(&cluster, "h4"), Vec::<PathBuf>::new());
    // A file that is copied by hand is the image, where its bytes are those of the image.
    let by_hand = cluster
        .image_dir("h4")
        .join(added["file_name"].as_str().unwrap());
    fs::write(&by_hand, &changed).expect("a file");
    let failed = refused(&cluster, &create("b"));
    assert_eq!(failed["reason"], "IMAGE_NOT_AVAILABLE", "{failed:#}");
    fs::write(&by_hand, &bytes).expect("a file");
    cluster.run(&create("c"));
    let refusal = refused(&cluster, &["image", "copy", "none", "--all"]);
    assert_eq!(refusal["reason"], "IMAGE_NOT_FOUND", "{refusal:#}");
}

/// A qcow2 header that names a file of the host as what it lies over.
fn with_backing_file() -> Vec<u8> {
    let mut bytes = vec![0; 128 << 10];
    bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    let secret = b"/etc/passwd";
    bytes[8..16].copy_from_slice(&512_u64.to_be_bytes());
    bytes[16..20].copy_from_slice(&u32::try_from(secret.len()).unwrap().to_be_bytes());
    bytes[20..24].copy_from_slice(&16_u32.to_be_bytes());
    bytes[24..32].copy_from_slice(&(1_u64 << 20).to_be_bytes());
    bytes[512..512 + secret.len()].copy_from_slice(secret);
    bytes
}

/// Goal: what is refused leaves nothing, and its name is free. Method: every way to add a bad image.
#[test]
fn a_bad_image_leaves_nothing() {
    let cluster = cluster(2);
    let raw = file(&cluster, "a.img", b"plain bytes");
    let layer = file(&cluster, "layer.qcow2", &with_backing_file());
    let named_raw = file(&cluster, "layer.img", &with_backing_file());
    let wrong = "00".repeat(32);
    let on_host = cluster.image_dir("h1").join("there.img");
    fs::write(&on_host, b"a file of the host").expect("a file");
    let cases: &[(&[&str], &str)] = &[
        (&["--file", &raw, "--sha256", &wrong], "IMAGE_CHECKSUM"),
        (&["--file", &raw, "--format", "qcow2"], "IMAGE_REFUSED"),
        (&["--file", &layer], "IMAGE_REFUSED"),
        (&["--file", &named_raw], "IMAGE_REFUSED"),
        (&["--file", &raw, "--host", "h9"], "HOST_NOT_FOUND"),
        (
            &["--host-file", "gone.img", "--host", "h1"],
            "IMAGE_FILE_NOT_FOUND",
        ),
        (
            &["--host-file", "../secret", "--host", "h1"],
            "INVALID_IMAGE",
        ),
        (
            &["--host-file", "/etc/passwd", "--host", "h1"],
            "INVALID_IMAGE",
        ),
        (
            &["--host-file", ".formats", "--host", "h1"],
            "INVALID_IMAGE",
        ),
        (
            &[
                "--host-file",
                "there.img",
                "--host",
                "h1",
                "--format",
                "qcow2",
            ],
            "IMAGE_REFUSED",
        ),
    ];
    for (words, expected) in cases {
        let refusal = refused(&cluster, &[&["image", "add", "bad"][..], words].concat());
        assert_eq!(refusal["reason"], *expected, "{words:?}: {refusal:#}");
        assert_eq!(cluster.json(&["image", "list"]), json!([]), "{words:?}");
        let mut there = files(&cluster, "h1");
        there.extend(files(&cluster, "h2"));
        there.retain(|path| path != &on_host);
        assert_eq!(there, Vec::<PathBuf>::new(), "{words:?}");
    }
    let empty = file(&cluster, "empty.img", b"");
    let refusal = refused(&cluster, &["image", "add", "bad", "--file", &empty]);
    assert_eq!(refusal["reason"], "IMAGE_REFUSED", "{refusal:#}");
    // What is wrong with the command itself is found before anything is called.
    for words in [
        &["--file", "-"][..],
        &["--file", "/none"],
        &["--host-file", "a.img"],
        &["--file", &raw, "--sha256", "12"],
        &[],
    ] {
        let add = [&["image", "add", "bad"][..], words].concat();
        let answer = cluster.berth(&add).refused(2);
        assert!(answer.stdout.is_empty(), "{words:?}");
    }
    cluster.run(&[
        "image",
        "add",
        "bad",
        "--host",
        "h1",
        "--host-file",
        "there.img",
    ]);

    // A disk has the format and at least the size of its image.
    let big = file(&cluster, "big.img", &[]);
    fs::File::options()
        .write(true)
        .open(Path::new(&big))
        .and_then(|file| file.set_len((2 << 30) + 1))
        .expect("a long file");
    cluster.run(&["image", "add", "big", "--file", &big]);
    let create = ["vm", "create", "a", "--flavor", "small", "--disk"];
    for (disk, field) in [
        ("big:2", "disks[0].size_gib"),
        ("big:3:qcow2", "disks[0].format"),
    ] {
        let refusal = refused(&cluster, &[&create[..], &[disk]].concat());
        assert_eq!(refusal["reason"], "INVALID_VM", "{refusal:#}");
        assert!(refusal["metadata"][field].is_string(), "{refusal:#}");
    }
    cluster.run(&[&create[..], &["big:3"]].concat());
}

fn piece(piece: Piece) -> Add {
    Add::Piece(ImagePiece { piece: Some(piece) })
}

/// Sends these messages to the conductor, and no more.
fn add(cluster: &Cluster, requests: Vec<Add>) -> Result<AddImageResponse, Status> {
    let address = format!("http://{}", cluster.conductors[0].address);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut conductor = ConductorServiceClient::new(channel(&address).expect("an address"));
        let requests: Vec<_> = requests
            .into_iter()
            .map(|request| AddImageRequest {
                request: Some(request),
            })
            .collect();
        let added = conductor.add_image(tokio_stream::iter(requests)).await;
        added.map(tonic::Response::into_inner)
    })
}

/// Goal: an image that is broken off, and what no client of ours sends, leaves nothing. Method: the
/// messages of a call in wrong order, too few and too long.
#[test]
fn a_call_that_is_broken_off_leaves_nothing() {
    let cluster = cluster(1);
    let open = |name: &str| {
        Add::Open(Open {
            name: format!("images/{name}"),
            format: Format::Raw.into(),
            ..Open::default()
        })
    };
    let data = || piece(Piece::Data(vec![1; 1000].into()));
    let done = || piece(Piece::Done(Done {}));
    let too_long = piece(Piece::Data(vec![1; MIB + 1].into()));
    let endless = piece(Piece::Zeros(u64::MAX));
    for (requests, expected) in [
        (vec![], "INVALID_FIELD"),
        (vec![data()], "INVALID_FIELD"),
        (vec![open("a/b"), done()], "INVALID_FIELD"),
        (vec![open("a")], "IMAGE_INCOMPLETE"),
        (vec![open("a"), data()], "IMAGE_INCOMPLETE"),
        (
            vec![open("a"), data(), open("a"), done()],
            "IMAGE_INCOMPLETE",
        ),
        (vec![open("a"), too_long, done()], "INVALID_IMAGE"),
        (vec![open("a"), endless, done()], "INVALID_IMAGE"),
        (
            vec![open("a"), piece(Piece::Zeros(0)), done()],
            "IMAGE_INCOMPLETE",
        ),
        (vec![open("a"), done()], "IMAGE_REFUSED"),
    ] {
        let refusal = from_status(&add(&cluster, requests).expect_err("it is refused"));
        assert_eq!(refusal.reason, expected, "{refusal}");
        assert_eq!(cluster.json(&["image", "list"]), json!([]), "{expected}");
        assert_eq!(files(&cluster, "h1"), Vec::<PathBuf>::new(), "{expected}");
    }
    // Of two of one name there is one.
    let outcomes = std::thread::scope(|scope| {
        let adding = || add(&cluster, vec![open("a"), data(), done()]);
        let both = [scope.spawn(adding), scope.spawn(adding)];
        both.map(|one| {
            one.join()
                .expect("no panic")
                .map_err(|s| from_status(&s).reason)
        })
    });
    let refused: Vec<_> = outcomes.iter().filter_map(|o| o.as_ref().err()).collect();
    assert_eq!(refused, ["IMAGE_EXISTS"], "{outcomes:?}");
    assert_eq!(files(&cluster, "h1").len(), 1);
}

/// Goal: an agent takes, fetches and sends nothing that was not granted. Method: each call without a grant,
/// and with one that no scheduler signed.
#[test]
fn nothing_is_done_without_a_grant() {
    let cluster = cluster(1);
    let invented = Some(SignedGrant {
        grant: vec![1, 2, 3].into(),
        key: 1,
        signature: vec![0; 64].into(),
    });
    let address = format!("http://{}", cluster.agents[0].address);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for (grant, expected) in [(None, "GRANT_MISSING"), (invented, "GRANT_INVALID")] {
        let statuses = runtime.block_on(async {
            let mut agent = ComputeAgentServiceClient::new(channel(&address).expect("an address"));
            let open = PutImageRequest {
                request: Some(Put::Open(PutOpen {
                    grant: grant.clone(),
                    ..PutOpen::default()
                })),
            };
            let fetch = FetchImageRequest {
                grant: grant.clone(),
                source: "hosts/h1".to_owned(),
                source_address: address.clone(),
            };
            let download = DownloadImageRequest {
                grant: grant.clone(),
            };
            [
                agent.put_image(tokio_stream::iter([open])).await.map(drop),
                agent.download_image(download).await.map(drop),
                agent.fetch_image(fetch).await.map(drop),
                agent.read_image(ReadImageRequest { grant }).await.map(drop),
            ]
        });
        for status in statuses {
            let refusal = from_status(&status.expect_err("it is refused"));
            assert_eq!(refusal.reason, expected, "{refusal}");
        }
    }
    assert_eq!(files(&cluster, "h1"), Vec::<PathBuf>::new());
}
