//! `berth support bundle` and `berth --bundle`, as an operator types them.
//!
//! Goal: a bundle shows without a cluster what the cluster showed, and no secret is in it, with and without
//! the state, with and without names. Method: whole processes, with a secret in every place that has one;
//! the bytes of the file are searched, which are not compressed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use berth_backup::{Item, Reader};
use berth_proto::state::v1::Row;
use berth_proto::state::v1::row::Row as Kind;
use berth_tests::processes::{Answer, Cluster, Host, certs};
use berth_tls::Role;
use prost::Message as _;
use serde_json::Value;

use crate::PROGRAMS;
use crate::backup::back_up;

/// The secret in the command line of a kernel.
const PLANTED: &str = "planted-kernel-secret-4711";

fn offline(cluster: &Cluster, bundle: &Path, arguments: &[&str]) -> Answer {
    let mut command = cluster.programs.command("berth");
    command.stdin(Stdio::null());
    // No program answers there, and none is to be called.
    command.args(["--scheduler", "127.0.0.1:1", "--output", "json"]);
    command.arg("--bundle").arg(bundle).args(arguments);
    Answer::of(command)
}

#[track_caller]
fn read(cluster: &Cluster, bundle: &Path, arguments: &[&str]) -> Value {
    let answer = offline(cluster, bundle, arguments).with_status(0);
    assert!(answer.stderr.contains("\"bundle\""), "{answer:#?}");
    answer.json().unwrap_or_else(|seen| panic!("{seen}"))
}

#[track_caller]
fn refused(cluster: &Cluster, bundle: &Path, arguments: &[&str], reason: &str) {
    let answer = offline(cluster, bundle, arguments).with_status(1);
    let line = answer.stderr.lines().last().unwrap_or_default();
    let error: Value = serde_json::from_str(line).unwrap_or_default();
    assert_eq!(error["error"]["reason"], reason, "{answer:#?}");
}

/// Makes a bundle, and returns its bytes.
#[track_caller]
fn make(cluster: &Cluster, file: &Path, options: &[&str]) -> Vec<u8> {
    let file = file.to_str().expect("a path");
    let made = cluster.json(&[&["support", "bundle", file][..], options].concat());
    assert!(made["bytes"].as_u64() > Some(1_000), "{made:#}");
    let mode = fs::metadata(file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::read(file).expect("it is read")
}

/// Returns the keys by which grants are signed.
fn grant_keys(cluster: &Cluster, folder: &Path) -> Vec<Vec<u8>> {
    let path = folder.join("state");
    let _ = back_up(cluster, 0, &path, &[]);
    let bytes = fs::read(path).expect("it is read");
    let mut reader = Reader::new(&*bytes).expect("a backup");
    let mut keys = Vec::new();
    while let Some(item) = reader.next().expect("it is sound") {
        let Item::Row(row) = item else { continue };
        let row = Row::decode(&*row.value).expect("a row");
        if let Some(Kind::Header(header)) = row.row {
            keys.extend(header.grant_keys.into_iter().map(|key| key.seed.to_vec()));
        }
    }
    keys
}

/// Returns a line of every private key of the cluster.
fn private_keys(cluster: &Cluster) -> Vec<String> {
    let files = fs::read_dir(cluster.certificates().directory()).expect("a folder");
    let texts = files.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let keys = texts.filter(|text| text.contains("PRIVATE KEY"));
    let lines: Vec<String> = keys
        .filter_map(|text| Some(text.lines().nth(1)?.to_owned()))
        .collect();
    assert!(lines.len() > 2, "there are keys to look for");
    lines
}

/// Goal: who may only read gets a bundle without configuration and log lines, which says so, and no state.
fn a_reader_gets_the_rest(cluster: &Cluster, file: &Path) {
    let files = cluster.certificates().files(Role::Reader, "bob");
    let run = |options: &[&str]| {
        let mut command = cluster.programs.command("berth");
        command.args(["--scheduler", &cluster.addresses(), "--output", "json"]);
        for (flag, file) in certs::flags(&files) {
            command.arg(flag).arg(file);
        }
        command.args(["support", "bundle"]).arg(file).args(options);
        Answer::of(command)
    };
    let refused = run(&["--with-state"]).with_status(1);
    assert!(refused.stderr.contains("PERMISSION_DENIED"), "{refused:#?}");
    assert!(!file.exists(), "there is no bundle without the state");
    let made = run(&[]).json().unwrap_or_else(|seen| panic!("{seen}"));
    let missing = made["missing"].to_string();
    assert!(missing.contains("configuration and log lines"), "{made:#}");
    let hosts = read(cluster, file, &["host", "list"]);
    assert_eq!(hosts.as_array().map(Vec::len), Some(1), "{hosts:#}");
}

#[track_caller]
fn assert_absent(bundle: &[u8], secret: &[u8], what: &str) {
    let is_there = bundle.windows(secret.len()).any(|part| part == secret);
    assert!(!is_there, "{what} is in the bundle");
}

fn start() -> Cluster {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("host-of-alice"))
        .certified()
        .start();
    cluster.pinned_flavor("one", 1);
    let create = [
        "vm",
        "create",
        "vm-of-bob",
        "--flavor",
        "one",
        "--kernel",
        "k",
        "--initrd",
        "i",
        "--cmdline",
        PLANTED,
        "--project",
        "project-x",
    ];
    let _ = cluster.berth(&create).with_status(0);
    cluster
}

#[test]
fn a_bundle_shows_the_cluster_and_holds_no_secret() {
    let mut cluster = start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let keys = grant_keys(&cluster, folder.path());
    assert!(!keys.is_empty(), "there is a key to look for");
    let (plain, whole, hashed) = (file("plain.tar"), file("whole.tar"), file("hashed.tar"));
    let bundles = [
        make(&cluster, &plain, &[]),
        make(&cluster, &whole, &["--with-state"]),
        make(&cluster, &hashed, &["--with-state", "--hash-names"]),
    ];
    for bundle in &bundles {
        assert_absent(bundle, PLANTED.as_bytes(), "the command line of a kernel");
        for key in &keys {
            assert_absent(bundle, key, "a key of grants");
        }
        for line in private_keys(&cluster) {
            assert_absent(bundle, line.as_bytes(), "a private key");
        }
    }
    for name in ["host-of-alice", "vm-of-bob", "project-x", "conductor-1"] {
        assert_absent(&bundles[2], name.as_bytes(), name);
    }
    a_reader_gets_the_rest(&cluster, &file("reader.tar"));
    let log = "serving";
    let has_log = |bundle: &[u8]| String::from_utf8_lossy(bundle).contains(log);
    assert!(has_log(&bundles[0]) && !has_log(&bundles[2]));

    let vms = cluster.json(&["vm", "list"]);
    let live = |line: &[&str]| cluster.json(line);
    let same: [(&[&str], Value); 4] = [
        (&["operation", "list"], live(&["operation", "list"])),
        (&["policy", "show"], live(&["policy", "show"])),
        (&["cluster", "services"], live(&["cluster", "services"])),
        (&["audit", "list"], live(&["audit", "list"])),
    ];
    cluster.schedulers[0].kill();
    for (line, expected) in &same {
        assert_eq!(read(&cluster, &plain, line), *expected, "{line:?}");
    }
    let hosts = read(&cluster, &plain, &["host", "list"]);
    assert_eq!(hosts[0]["host"]["liveness"], "Up", "{hosts:#}");
    let status = read(&cluster, &plain, &["cluster", "status"]);
    assert_eq!(status["leader_id"], 1, "{status:#}");
    let memory = read(&cluster, &plain, &["cluster", "memory"]);
    assert!(memory["retained"].is_array(), "{memory:#}");
    refused(&cluster, &plain, &["vm", "list"], "NOT_IN_THE_BUNDLE");
    refused(
        &cluster,
        &plain,
        &["vm", "delete", "x"],
        "BACKUP_NOT_A_READ",
    );
    refused(&cluster, &plain, &["watch"], "NOT_IN_A_BACKUP");

    let shown = read(&cluster, &whole, &["vm", "list"]);
    let expected = vms.to_string().replace(PLANTED, "(removed)");
    assert_eq!(shown.to_string(), expected);
    let hosts = read(&cluster, &whole, &["host", "list"]);
    assert_eq!(hosts[0]["host"]["liveness"], "Up", "{hosts:#}");
    relations_stay(&cluster, &hashed);
    no_cluster_goes_on_with_it(&cluster, &whole, folder.path());
    bad_files(&cluster, &plain, folder.path());
}

/// Goal: when two of three schedulers are lost, which is when a bundle is made, the last one gives what it
/// has, and the bundle says what is missing.
#[test]
fn a_bundle_is_made_without_a_leader() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(3)
        .host(Host::new("h1"))
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let leader = cluster.leader();
    for lost in [leader, (leader + 1) % 3] {
        cluster.schedulers[lost].kill();
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lost.tar");
    let _ = make(&cluster, &path, &["--with-state"]);
    let vms = read(&cluster, &path, &["vm", "list"]);
    assert_eq!(vms[0]["name"], "a", "{vms:#}");
    let status = read(&cluster, &path, &["cluster", "status"]);
    // It may still take the lost one for the leader.
    assert_ne!(status["leader_id"], status["member_id"], "{status:#}");
    let members = status["members"].as_array().map(Vec::len);
    assert_eq!(members, Some(3), "{status:#}");
}

/// Goal: the state of a bundle can be read, and no cluster is made of it: its kernel command lines are gone.
fn no_cluster_goes_on_with_it(cluster: &Cluster, whole: &Path, folder: &Path) {
    let unpacked = std::process::Command::new("tar")
        .arg("-xf")
        .arg(whole)
        .arg("-C")
        .arg(folder)
        .arg("state.backup")
        .status();
    assert!(unpacked.is_ok_and(|status| status.success()));
    let (state, directory) = (folder.join("state.backup"), folder.join("new"));
    let mut command = cluster.programs.command("berth-scheduler");
    command.args(["--listen", "127.0.0.1:7100", "--data-dir"]);
    command.arg(&directory).arg("restore").arg(&state);
    let restored = Answer::of(command).with_status(1);
    assert!(restored.stderr.contains("support bundle"), "{restored:#?}");
    assert!(!directory.join("MEMBER").exists());
    let mut command = cluster.programs.command("berth");
    command.args(["--output", "json", "backup", "inspect"]);
    let shown = Answer::of({
        command.arg(&state);
        command
    });
    assert!(shown.stdout.contains("\"redacted\": true"), "{shown:#?}");
}

/// Goal: hashes stand for names everywhere alike.
fn relations_stay(cluster: &Cluster, hashed: &Path) {
    let vms = read(cluster, hashed, &["vm", "list"]);
    let hosts = read(cluster, hashed, &["host", "list"]);
    let (name, host) = (&vms[0]["name"], &vms[0]["host"]);
    assert_eq!(*host, hosts[0]["host"]["name"], "{vms:#} {hosts:#}");
    let name = name.as_str().expect("a name");
    let shown = read(cluster, hashed, &["vm", "show", name]);
    assert!(shown.is_object(), "{shown:#}");
    let audit = read(cluster, hashed, &["audit", "list"]);
    assert!(audit.to_string().contains(name), "{audit:#}");
}

/// Goal: each file that is no whole bundle is refused with its reason.
fn bad_files(cluster: &Cluster, good: &Path, folder: &Path) {
    let bytes = fs::read(good).expect("it is read");
    let bad = folder.join("bad.tar");
    let refused_with = |content: &[u8], reason: &str| {
        fs::write(&bad, content).expect("written");
        refused(cluster, &bad, &["cluster", "status"], reason);
    };
    refused_with(b"", "NOT_A_BUNDLE");
    refused_with(b"BERTHBKP and more", "NOT_A_BUNDLE");
    refused_with(&bytes[..bytes.len() / 2], "BUNDLE_CUT_SHORT");
    let mut changed = bytes.clone();
    let at = bytes.len() - 2_000;
    changed[at] ^= 1;
    refused_with(&changed, "BUNDLE_DAMAGED");
    refused(
        cluster,
        &folder.join("none"),
        &["cluster", "status"],
        "FILE_NOT_FOUND",
    );
}
