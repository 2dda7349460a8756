//! Refused starts of one member: configuration, addresses, and directories that are not its own.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use berth_process::Encryption;
use berth_scheduler::Start;
use berth_scheduler::stop::Reason;
use berth_tls::Role;
use berth_tls::authority::{self, Authority, CertificateSpec, Pair};

use super::single::{Single, stops};
use crate::common::process::{PROGRAM, Process, addresses};
use crate::common::{Member, config, eventually};

pub(super) async fn unknown_key() {
    let mut single = Single::used().await;
    let wrong = single.file(
        "wrong.toml",
        "lissten = \"127.0.0.1:1\"\nraft_tick_ms = 0\n",
    );
    let error = single
        .stops(Reason::Configuration, &["--config", &wrong])
        .await;
    assert!(error.starts_with("error: "), "{error}");
    let file = single.file("right.toml", "raft_tick_ms = 20\n");
    single.serves(&["--config", &file]).await;
}

pub(super) async fn unknown_flag() {
    let mut single = Single::used().await;
    let error = single.stops(Reason::Configuration, &["--lissten"]).await;
    assert!(error.contains("--lissten"), "{error}");
    single.serves(&[]).await;
}

pub(super) async fn certificates() {
    let single = Single::new();
    let folder = single.path("certificates");
    let pair = Pair::named(&folder, "scheduler-s1");
    let file = |path: &Path| path.to_str().expect("a name").to_owned();
    let [ca, cert, key] = [&folder.join("ca.pem"), &pair.cert, &pair.key].map(|path| file(path));
    let more = [
        "--bootstrap",
        "--tls-ca",
        &ca,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    single.stops(Reason::Certificates, &more).await;

    // What `berth certs init` and `issue` do.
    let made = authority::init(&folder, "test", 1).expect("an authority");
    let spec = CertificateSpec {
        role: Role::Scheduler,
        name: "s1".into(),
        dns: Vec::new(),
        ips: vec!["127.0.0.1".parse().expect("an address")],
        validity: authority::days(1),
    };
    let authority = Authority::open(&made.cert, &made.key).expect("an authority");
    authority.issue(&spec, &pair).expect("a certificate");
    let mut config = config(&single.directory(), Start::Bootstrap);
    config.listening.encryption = Encryption {
        ca: Some(made.cert),
        cert: Some(pair.cert),
        key: Some(pair.key),
    };
    // A client would need a certificate of its own; leading shows that it serves.
    let member = Member::start(config).await;
    eventually("a leader", || async {
        member.handle.leader().role.deciding.then_some(())
    })
    .await;
    member.stop().await.expect("it stops");
}

pub(super) async fn tokens() {
    let mut single = Single::used().await;
    let rest = addresses(1).remove(0);
    let token = |hash: &str| {
        format!(
            "[[token]]\nsha256 = \"{hash}\"\nuser = \"u\"\nproject = \"p\"\nroles = [\"admin\"]\n"
        )
    };
    let file = single.file("tokens.toml", &token("none"));
    let more = ["--placement-listen", &rest, "--placement-tokens", &file];
    single.stops(Reason::Tokens, &more).await;
    single.file("tokens.toml", &token(&"0a".repeat(32)));
    single.serves(&more).await;
}

pub(super) async fn address_in_use() {
    let mut single = Single::used().await;
    let listener = TcpListener::bind(&single.address).expect("it is free");
    let error = single.stops(Reason::AddressInUse, &[]).await;
    assert!(error.contains(&single.address), "{error}");
    drop(listener);
    single.serves(&[]).await;
}

pub(super) async fn address_of_another_machine() {
    let mut single = Single::used().await;
    // 192.0.2.0/24 is for documents (RFC 5737).
    let foreign = Process::spawn(
        &single.directory(),
        "192.0.2.1:7100",
        &["--insecure-listen"],
    );
    let error = stops(Reason::AddressUnusable, foreign).await;
    assert!(error.contains("192.0.2.1:7100"), "{error}");
    single.serves(&[]).await;
}

pub(super) async fn empty_directory() {
    let mut single = Single::new();
    single.stops(Reason::NoMember, &[]).await;
    single.serves(&["--bootstrap"]).await;
}

pub(super) async fn used_directory() {
    let mut single = Single::used().await;
    // The first start of a new cluster may be repeated until it has a state.
    single.stops(Reason::AlreadyMember, &["--bootstrap"]).await;
    single.serves(&[]).await;
}

pub(super) async fn other_cluster_id() {
    let mut single = Single::used().await;
    let other = "6d1a9c1e-5b5f-4a77-9a3c-0d9a2f1b7c11";
    let error = single
        .stops(Reason::OtherCluster, &["--cluster-id", other])
        .await;
    assert!(error.contains(other), "{error}");
    single.serves(&[]).await;
}

pub(super) async fn other_cluster_joined() {
    let mut other = Single::new();
    let running = other.serves(&["--bootstrap"]).await;
    let mut single = Single::used().await;
    let join = ["--join", other.address.as_str()];
    single.stops(Reason::OtherCluster, &join).await;
    single.serves(&[]).await;
    drop(running);
}

pub(super) async fn foreign_file() {
    let mut single = Single::new();
    fs::create_dir(single.directory()).expect("a folder");
    let foreign = single.directory().join("thesis.txt");
    fs::write(&foreign, "mine").expect("a file");
    single
        .stops(Reason::DirectoryOccupied, &["--bootstrap"])
        .await;
    fs::rename(&foreign, single.path("thesis.txt")).expect("it is moved away");
    single.serves(&["--bootstrap"]).await;
}

pub(super) async fn directory_in_use() {
    let mut single = Single::new();
    let running = single.serves(&["--bootstrap"]).await;
    let second = Process::spawn(&single.directory(), &addresses(1)[0], &[]);
    let error = stops(Reason::DirectoryInUse, second).await;
    let directory = single.directory();
    assert!(
        error.contains(directory.to_str().expect("a name")),
        "{error}"
    );
    drop(running);
    single.serves(&[]).await;
}

/// Puts a file in the place of a folder of the directory, and the folder back.
async fn file_as(name: &str, put_back: bool) {
    let mut single = Single::used().await;
    let place = single.directory().join(name);
    fs::rename(&place, single.path("aside")).expect("it is moved away");
    fs::write(&place, "a file").expect("a file");
    let error = single.stops(Reason::FileInTheWay, &[]).await;
    assert!(error.contains(place.to_str().expect("a name")), "{error}");
    fs::remove_file(&place).expect("it is moved away");
    if put_back {
        fs::rename(single.path("aside"), &place).expect("it is put back");
    }
    single.serves(&[]).await;
}

pub(super) async fn file_as_table() {
    file_as(berth_store::folders::TABLE, false).await;
}

pub(super) async fn file_as_checkpoints() {
    file_as(berth_store::folders::CHECKPOINTS, true).await;
}

pub(super) async fn file_as_log() {
    file_as(berth_store::folders::LOG, true).await;
}

pub(super) async fn folder_as_witness() {
    let mut single = Single::used().await;
    let place = single.directory().join(berth_store::folders::WITNESS);
    fs::rename(&place, single.path("aside")).expect("it is moved away");
    fs::create_dir(&place).expect("a folder");
    let error = single.stops(Reason::FileInTheWay, &[]).await;
    assert!(error.contains(place.to_str().expect("a name")), "{error}");
    fs::remove_dir(&place).expect("it is moved away");
    fs::rename(single.path("aside"), &place).expect("it is put back");
    single.serves(&[]).await;
}

/// A start that opens one would wait for ever.
pub(super) async fn fifo_as_file() {
    use berth_store::folders::{CHECKPOINTS, LOG, TABLE, WITNESS};
    let mut single = Single::used().await;
    let first = |folder: &str| {
        let mut entries = fs::read_dir(single.directory().join(folder)).expect("a folder");
        entries.next().expect("a file").expect("a file").path()
    };
    let in_folders = [first(LOG), first(CHECKPOINTS), first(TABLE)];
    let files = ["MEMBER", "FORMAT", WITNESS].map(|name| single.directory().join(name));
    for place in files.into_iter().chain(in_folders) {
        fs::rename(&place, single.path("aside")).expect("it is moved away");
        let made = Command::new("mkfifo").arg(&place).status();
        assert!(made.expect("mkfifo").success());
        let error = single.stops(Reason::FileInTheWay, &[]).await;
        assert!(error.contains(place.to_str().expect("a name")), "{error}");
        fs::remove_file(&place).expect("it is moved away");
        fs::rename(single.path("aside"), &place).expect("it is put back");
    }
    single.serves(&[]).await;
}

pub(super) async fn file_as_directory() {
    let mut single = Single::new();
    fs::write(single.directory(), "a file").expect("a file");
    single.stops(Reason::FileInTheWay, &["--bootstrap"]).await;
    fs::remove_file(single.directory()).expect("it is moved away");
    single.serves(&["--bootstrap"]).await;
}

pub(super) async fn few_descriptors() {
    let mut single = Single::used().await;
    let mut command = Command::new("sh");
    // Whatever else the tests were started with would count.
    let close = "exec 3>&- 4>&- 5>&- 6>&- 7>&-";
    let limited = format!("{close}; ulimit -n 8; exec \"$0\" \"$@\"");
    command.args(["-c", &limited, PROGRAM]);
    let limited = Process::run(command, &single.directory(), &single.address, &[]);
    stops(Reason::NoResources, limited).await;
    single.serves(&[]).await;
}

/// Goal: a panic in the replica's task is a reason of its own with the panic's message, and nothing
/// acknowledged is lost. Method: the real `serve` within this process, since nothing outside it
/// reaches an assertion that holds.
pub(super) async fn panic_in_the_replica() {
    let mut single = Single::used().await;
    let member = Member::start(config(&single.directory(), Start::Restart)).await;
    let read = member
        .handle
        .read_stale(|_| -> u64 { panic!("17 is not 18") });
    assert!(read.await.is_err());
    let error = member.ended().await.expect_err("it panicked");
    assert_eq!(Reason::of(&error), Reason::Panicked);
    assert_eq!(error.to_string(), "the replica panicked: 17 is not 18");
    single.serves(&[]).await;
}
