//! Disks that travel while their guest is off, between hosts that keep them to themselves.

use std::path::Path;
use std::process::Command;

use berth_domain::vm;

use super::cluster::{PATIENCE, System};
use super::verdict::{domains, hosts_agree, runs_on};

/// Says whether two disks have the same contents, images below them included, as a guest sees them.
#[track_caller]
fn assert_equal(one: &Path, other: &Path) {
    let mut command = Command::new("qemu-img");
    command.args(["compare", "-U", "-f", "qcow2", "-F", "qcow2"]);
    let compared = command.arg(one).arg(other).output().expect("qemu-img");
    assert!(compared.status.success(), "{compared:?}");
}

/// Returns what a layer says of the image that it lies over.
#[track_caller]
fn image_of(disk: &Path) -> String {
    let mut command = Command::new("qemu-img");
    command.args(["info", "-U", "--output=json"]).arg(disk);
    let told = command.output().expect("qemu-img").stdout;
    let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
    told["full-backing-filename"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// A guest has written something; it is there after a cold migration to a host that does not see where it
/// was written, and after the way back.
pub(crate) fn they_travel_and_are_kept_until_it_is_confirmed(system: &System) {
    let head = ["vm", "create", "d", "--flavor", "pinned-disk"];
    let place = ["--host", "host-a", "--disk", "disk.qcow2:1"];
    system.json(&[&head[..], &place].concat());
    let boots = |host: &str| {
        let console = system.console("d");
        console.wait_for("disk vda", PATIENCE).unwrap();
        console.wait_for_count_above(2, PATIENCE).unwrap();
        assert!(domains(system, host).contains("d"));
    };
    boots("host-a");
    assert_eq!(system.ask_guest("d", "host-a", "store berth"), "stored");
    let (here, there) = (
        system.directory("d", "host-a"),
        system.directory("d", "host-b"),
    );
    assert!(here.join("disk0.qcow2").exists() && !there.exists());

    system.json(&[
        "vm", "migrate", "d", "--cold", "--verify", "--host", "host-b",
    ]);
    assert_eq!(system.vm("d").vm.state, vm::State::Resized);
    boots("host-b");
    assert_eq!(system.ask_guest("d", "host-b", "recall"), "berth");
    let (old, new) = (here.join("disk0.qcow2"), there.join("disk0.qcow2"));
    assert_equal(&old, &new);
    assert!(
        image_of(&new).ends_with("images/disk.qcow2"),
        "{}",
        image_of(&new)
    );
    system.json(&["vm", "confirm-resize", "d"]);
    assert!(!here.exists(), "{} is left", here.display());
    runs_on(system, "d", "host-b");
    hosts_agree(system);

    assert_eq!(system.ask_guest("d", "host-b", "store quay"), "stored");
    // A guest of this test does not power off by itself, and a move would wait for that.
    system.json(&["vm", "stop", "d", "--timeout", "0"]);
    system.json(&["vm", "migrate", "d", "--cold"]);
    system.json(&["vm", "start", "d"]);
    boots("host-a");
    assert_eq!(system.ask_guest("d", "host-a", "recall"), "quay");
    assert!(!there.exists(), "{} is left", there.display());
    runs_on(system, "d", "host-a");
    hosts_agree(system);
}
