//! `berth --backup`: the same commands over files, without a cluster.
//!
//! Goal: what a running cluster shows, its backup shows too, at its end and at an earlier revision; nothing
//! is changed, nothing is called, and standard error says which state it is. Method: whole processes, which
//! are gone before the files are read; what commands print is compared as programs read it.

use std::path::Path;
use std::process::Stdio;

use berth_tests::processes::{Answer, Cluster, Host};
use serde_json::Value;

use crate::PROGRAMS;
use crate::backup::back_up;

/// Commands whose output does not depend on what only a leader has.
const SAME: &[&[&str]] = &[
    &["vm", "list"],
    &["vm", "show", "a"],
    &["flavor", "list"],
    &["operation", "list"],
    &["migration", "list"],
    &["policy", "show"],
    &["aggregate", "list"],
    &["availability-zone", "list"],
    &["provider", "list"],
    &["class", "list"],
    &["trait", "list"],
    &["server-group", "list"],
    &["cluster", "services"],
    &["cluster", "revoked-certificates"],
    &["volume", "list"],
];

/// Returns what a command prints over files, and what it states about them.
#[track_caller]
pub(crate) fn read(cluster: &Cluster, files: &[&Path], arguments: &[&str]) -> (Value, Value) {
    let answer = offline(cluster, files, arguments).with_status(0);
    let stated: Value = serde_json::from_str(answer.stderr.trim()).unwrap_or_default();
    let output = answer.json().unwrap_or_else(|seen| panic!("{seen}"));
    (output, stated["backup"].clone())
}

fn offline(cluster: &Cluster, files: &[&Path], arguments: &[&str]) -> Answer {
    let mut command = cluster.programs.command("berth");
    command.stdin(Stdio::null());
    // No program answers there, and none is to be called.
    command.args(["--scheduler", "127.0.0.1:1", "--output", "json"]);
    for file in files {
        command.arg("--backup").arg(file);
    }
    command.args(arguments);
    Answer::of(command)
}

#[track_caller]
fn refused(cluster: &Cluster, files: &[&Path], arguments: &[&str], reason: &str) {
    let answer = offline(cluster, files, arguments).with_status(1);
    let line = answer.stderr.lines().last().unwrap_or_default();
    let error: Value = serde_json::from_str(line).unwrap_or_default();
    assert_eq!(error["error"]["reason"], reason, "{answer:#?}");
    assert!(error["error"]["hint"].is_string(), "{answer:#?}");
}

#[test]
fn a_backup_shows_what_the_cluster_showed() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let folder = tempfile::tempdir().expect("a folder");
    let (full, later) = (folder.path().join("full"), folder.path().join("later"));
    let made = back_up(&cluster, 0, &full, &[]);
    cluster.pinned_flavor("two", 2);
    let since = full.to_str().expect("a path");
    let _ = back_up(&cluster, 0, &later, &["--since", since]);
    let before: Vec<Value> = SAME.iter().map(|line| cluster.json(line)).collect();
    let audit = cluster.json(&["audit", "list"]);
    cluster.schedulers[0].kill();

    let files = [full.as_path(), later.as_path()];
    for (line, expected) in SAME.iter().zip(&before) {
        let (shown, stated) = read(&cluster, &files, line);
        assert_eq!(shown, *expected, "{line:?}");
        assert!(stated["revision"].as_u64() > made["revision"].as_u64());
        assert_eq!(stated["files"].as_array().map(Vec::len), Some(2));
    }
    let (shown, _) = read(&cluster, &files, &["audit", "list"]);
    assert_eq!(shown, audit);
    let (hosts, _) = read(&cluster, &files, &["host", "list"]);
    assert_eq!(hosts[0]["host"]["liveness"], "Unknown", "{hosts:#}");
    let (status, _) = read(&cluster, &files, &["cluster", "status"]);
    assert_eq!(status["leader_id"], 0, "{status:#}");
    assert_eq!(status["members"].as_array().map(Vec::len), Some(1));

    let revision = made["revision"].to_string();
    let at = ["--at", &revision, "flavor", "list"];
    let (flavors, stated) = read(&cluster, &files, &at);
    assert_eq!(flavors.as_array().map(Vec::len), Some(1), "{flavors:#}");
    assert_eq!(stated["revision"], made["revision"]);
    refusals(&cluster, &full, &later);
}

/// Goal: encrypted copies are read without a file that is not encrypted: what decrypts one writes into a
/// pipe. Method: a shell with a stand-in for a cipher, which gives the bytes of each file once, in front
/// of every command that reads backups.
#[test]
fn encrypted_copies_are_read_through_pipes() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    let folder = tempfile::tempdir().expect("a folder");
    let shell = |line: String| {
        let directory = cluster.programs.directory().display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = std::process::Command::new("bash");
        command.current_dir(folder.path()).stdin(Stdio::null());
        command
            .env("PATH", format!("{directory}:{path}"))
            .env("LC_ALL", "C")
            .env("BERTH_SCHEDULER", &cluster.schedulers[0].address)
            .args(["-o", "pipefail", "-c", &line]);
        Answer::of(command).with_status(0)
    };
    let encrypt = r"tr '\000-\377' '\001-\377\000'";
    let decrypted = |name| format!(r"<(tr '\001-\377\000' '\000-\377' < {name})");
    let _ = shell(format!("berth cluster backup - | {encrypt} > full"));
    cluster.pinned_flavor("two", 2);
    let full = decrypted("full");
    let since = format!("berth cluster backup - --since {full}");
    let _ = shell(format!("{since} | {encrypt} > later"));
    let later = decrypted("later");

    let _ = shell("! berth backup verify full".to_owned());
    let answer = shell(format!("berth backup verify {full} {later}"));
    assert!(answer.stdout.contains("2 of 2 files"), "{answer:#?}");
    assert!(!answer.stderr.contains("warning"), "{answer:#?}");
    let answer = shell(format!("berth backup inspect {full} {later}"));
    assert!(answer.stdout.contains("increment"), "{answer:#?}");
    let read = format!("berth --backup {full} --backup {later} flavor list");
    let answer = shell(read);
    assert!(answer.stdout.contains("two"), "{answer:#?}");
    let answer = shell(format!("berth replay {full} {later}"));
    assert!(answer.stdout.contains("differ"), "{answer:#?}");
    let restore = "berth-scheduler --data-dir restored restore";
    let answer = shell(format!("{restore} {full} {later}"));
    assert!(answer.stdout.contains("1 hosts and 1 VMs"), "{answer:#?}");
}

/// Goal: each use that makes no sense is refused with its reason, also where the files would be refused.
fn refusals(cluster: &Cluster, full: &Path, later: &Path) {
    let missing = Path::new("/nowhere/x.backup");
    refused(
        cluster,
        &[missing],
        &["vm", "delete", "a"],
        "BACKUP_NOT_A_READ",
    );
    refused(cluster, &[missing], &["watch"], "NOT_IN_A_BACKUP");
    refused(cluster, &[missing], &["vm", "list"], "FILE_NOT_FOUND");
    refused(cluster, &[Path::new("/")], &["vm", "list"], "FILE_UNUSABLE");
    refused(cluster, &[later], &["vm", "list"], "BACKUP_WITHOUT_FULL");
    refused(
        cluster,
        &[full],
        &["audit", "show", "r1"],
        "NOT_IN_A_BACKUP",
    );
    refused(
        cluster,
        &[full],
        &["--stale", "vm", "list"],
        "OPTIONS_CONTRADICT",
    );
    refused(
        cluster,
        &[],
        &["--at", "1971-01-01T00:00:00Z", "vm", "list"],
        "OPTIONS_CONTRADICT",
    );
    for moment in [
        "1",
        "999999",
        "1971-01-01T00:00:00Z",
        "2971-01-01T00:00:00Z",
    ] {
        let arguments = ["--at", moment, "vm", "list"];
        refused(cluster, &[full], &arguments, "BACKUP_OUT_OF_RANGE");
    }
}
