//! Full disks: `all/bad_input` for what takes a file system of its own.

use std::process::Command;

use berth_tests::lab::SmallDisk;
use berth_tests::processes::bench::{nothing_is_lost, used_member};
use berth_tests::processes::{Answer, Bench, eventually};
use serde_json::Value;

use crate::PROGRAMS;

/// Goal: a member whose disk is full does not start, says so and loses nothing; a new one leaves
/// nothing behind that is in the way once there is room, neither there nor in the cluster.
pub(crate) fn a_full_disk_is_told_at_the_start() {
    let disk = SmallDisk::make().expect("it was looked for");
    let mut cluster = used_member(PROGRAMS);
    let mut bench = Bench::new(PROGRAMS);
    let [address, joining] = [(); 2].map(|()| bench.addresses.free());
    let new = disk.path("new");
    let begin = ["--data-dir", &new, "--listen", &address, "--bootstrap"];
    for left_mib in [0, 20] {
        let _filler = disk.fill(left_mib);
        let answer = bench.run("berth-scheduler", &begin).with_status(1);
        let full = ["is full", "No space left"]
            .iter()
            .any(|word| answer.stderr.contains(word));
        assert!(full && answer.stderr.contains(&new), "{answer:#?}");
    }
    let mut part = bench.member(&begin);
    answers(&bench, &address, &["cluster", "status"]);

    let join = disk.path("join");
    let join = [
        "--data-dir",
        &join,
        "--listen",
        &joining,
        "--join",
        &address,
    ];
    let filler = disk.fill(20);
    let answer = bench.run("berth-scheduler", &join).with_status(1);
    let _ = answer.saying(&["is full", "MiB are free", "MiB are needed"]);
    let status = answers(&bench, &address, &["cluster", "status"]);
    assert_eq!(
        status["members"].as_array().map(Vec::len),
        Some(1),
        "{status:#}"
    );
    drop(filler);
    part.kill();

    // A member that has a state.
    let used = disk.path("used");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(cluster.data_dir(0))
        .arg(&used)
        .status();
    assert!(copied.expect("cp runs").success());
    let address = cluster.schedulers[0].address.clone();
    let again = ["--data-dir", &used, "--listen", &address];
    let filler = disk.fill(0);
    let answer = bench.run("berth-scheduler", &again).with_status(1);
    let _ = answer.saying(&["is full", "MiB are free", "MiB are needed", &used]);
    drop(filler);
    let mut part = bench.member(&again);
    answers(&bench, &address, &["flavor", "show", "kept"]);
    part.kill();
    nothing_is_lost(&mut cluster);
}

/// Waits until a scheduler answers this, and returns the answer.
#[track_caller]
fn answers(bench: &Bench, address: &str, arguments: &[&str]) -> Value {
    eventually("an answer", || {
        let mut command = bench.programs.command("berth");
        command.args(["--output", "json", "--scheduler", address]);
        command.args(arguments);
        Answer::of(command).json()
    })
}
