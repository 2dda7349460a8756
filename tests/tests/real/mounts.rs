//! Mounts of an agent as the kernel makes them: see `berth_compute_agent::volumes::kernel_checks`.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use berth_compute_agent::volumes::kernel_checks;
use berth_tests::lab::LoopDevice;

use crate::harness::{FINISHED, ROLE};

/// The roles of the checks that mount.
pub(crate) const COME_AND_GO: &str = "mounts/come-and-go";
pub(crate) const IN_USE: &str = "mounts/in-use";

pub(crate) fn real_mounts_come_and_go() {
    in_a_mount_namespace(COME_AND_GO);
}

pub(crate) fn a_loop_device_in_use_is_waited_for() {
    in_a_mount_namespace(IN_USE);
}

pub(crate) fn come_and_go() {
    on_a_device(kernel_checks::real_mounts_come_and_go);
}

pub(crate) fn in_use() {
    on_a_device(kernel_checks::a_loop_device_in_use_is_waited_for);
}

/// Plays a role in a mount namespace of its own: machines that other tests start copy the mounts that
/// they see, and keep what is mounted from its removal for as long as they run.
fn in_a_mount_namespace(role: &str) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(program)
        .env(ROLE, role)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    assert!(text.lines().any(|line| line == FINISHED));
}

/// Runs a check in an empty folder with a device of 128 MiB.
fn on_a_device(check: fn(&Path, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("device");
    File::create(&file).unwrap().set_len(128 << 20).unwrap();
    let device = LoopDevice::over(&file).unwrap();
    check(folder.path(), device.path());
}

pub(crate) fn what_looks_empty_and_was_given_away_is_not_formatted() {
    let folder = tempfile::tempdir().unwrap();
    kernel_checks::what_looks_empty_and_was_given_away_is_not_formatted(folder.path());
}
