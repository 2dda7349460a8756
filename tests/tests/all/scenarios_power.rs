//! Goal: the life of a VM on its own host, through the whole system: it is stopped, started,
//! rebooted, rebuilt and copied, keeps its claim all the while, and says what is done to it.
//! Method: schedulers, a conductor and simulated hosts in this process, each with a port of its
//! own, and the real command.

use std::ops::Deref;

use berth_tests::small::{Small, text};
use serde_json::Value;

use crate::PROGRAMS;

/// Two hosts, and a flavor with dedicated CPUs and room for a disk.
struct World(Small);

impl Deref for World {
    type Target = Small;

    fn deref(&self) -> &Small {
        &self.0
    }
}

impl World {
    fn new() -> Self {
        let world = Self(Small::with_hosts(PROGRAMS, 2));
        let size = ["--vcpus", "1", "--memory-mib", "64", "--disk-gib", "4"];
        let pinned = ["--spec", "hw:cpu_policy=dedicated"];
        world.done(&[&["flavor", "create", "small"][..], &size, &pinned].concat());
        world
    }

    /// Returns the reason of a refusal, which says what to do, too.
    #[track_caller]
    fn refused(&self, words: &[&str]) -> String {
        let told = self.0.refused(words);
        assert!(told["hint"].is_string(), "{told:#}");
        text(&told["reason"])
    }

    #[track_caller]
    fn boot(&self, vm: &str) -> Value {
        let words = ["vm", "create", vm, "--flavor", "small"];
        self.done(&[&words[..], &["--disk", "old.qcow2:4"]].concat())
    }
}

/// Asserts that a VM is in this state on the one claim that it had.
#[track_caller]
fn is(shown: &Value, state: &str, before: &Value) {
    assert_eq!(text(&shown["vm"]["state"]), state, "{shown:#}");
    assert_eq!(shown["vm"]["task"], Value::Null, "{shown:#}");
    for field in ["uid", "host", "claim"] {
        assert_eq!(shown["vm"][field], before["vm"][field], "{shown:#}");
    }
    let claims = shown["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 1, "{shown:#}");
    assert_eq!(claims[0]["state"], "Active", "{shown:#}");
    assert_eq!(
        claims[0]["assignment"], before["claims"][0]["assignment"],
        "{shown:#}"
    );
}

#[test]
fn a_vm_is_stopped_and_started_on_its_claim() {
    let world = World::new();
    let before = world.boot("a");
    is(&world.done(&["vm", "stop", "a"]), "Stopped", &before);
    assert_eq!(world.refused(&["vm", "stop", "a"]), "VM_STATE");
    assert_eq!(world.refused(&["vm", "reboot", "a"]), "VM_STATE");
    assert_eq!(world.refused(&["vm", "migrate", "a"]), "VM_NOT_ACTIVE");
    is(&world.done(&["vm", "start", "a"]), "Active", &before);
    // What runs already is started without effect.
    is(&world.done(&["vm", "start", "a"]), "Active", &before);
    let at_once = ["vm", "stop", "a", "--timeout", "0"];
    is(&world.done(&at_once), "Stopped", &before);
    world.done(&["vm", "delete", "a"]);
    let left = world.done(&["vm", "list"]);
    assert_eq!(left, Value::Array(Vec::new()));
}

#[test]
fn a_vm_is_rebooted_softly_and_hard() {
    let world = World::new();
    let before = world.boot("a");
    is(&world.done(&["vm", "reboot", "a"]), "Active", &before);
    is(
        &world.done(&["vm", "reboot", "a", "--hard"]),
        "Active",
        &before,
    );
    // Nothing of it is in the way of a move.
    let moved = world.done(&["vm", "migrate", "a"]);
    assert_eq!(text(&moved["vm"]["state"]), "Active");
    assert_ne!(moved["vm"]["host"], before["vm"]["host"]);
    is(&world.done(&["vm", "reboot", "a"]), "Active", &moved);
}

#[test]
fn a_vm_is_rebuilt_from_its_images_or_from_others() {
    let world = World::new();
    let before = world.boot("a");
    is(&world.done(&["vm", "rebuild", "a"]), "Active", &before);
    let other = ["vm", "rebuild", "a", "--image", "new.qcow2"];
    let rebuilt = world.done(&other);
    is(&rebuilt, "Active", &before);
    assert_eq!(rebuilt["vm"]["spec"]["disks"][0]["image"], "new.qcow2");
    world.done(&["vm", "stop", "a"]);
    is(&world.done(&["vm", "rebuild", "a"]), "Stopped", &before);
    let two = [&other[..], &["--image", "more.qcow2"]].concat();
    let answer = world.berth(&two).refused(1);
    assert!(answer.stderr.contains("INVALID_VM"), "{}", answer.stderr);
    let away = world.berth(&["vm", "rebuild", "a", "--image", "../x"]);
    assert!(away.refused(1).stderr.contains("INVALID_VM"));
}

#[test]
fn a_disk_is_copied_under_a_name_that_is_free() {
    let world = World::new();
    let before = world.boot("a");
    is(
        &world.done(&["vm", "snapshot", "a", "golden.qcow2"]),
        "Active",
        &before,
    );
    let again = world.berth(&["vm", "snapshot", "a", "golden.qcow2"]);
    assert!(again.refused(1).stderr.contains("IMAGE_EXISTS"));
    world.done(&["vm", "stop", "a"]);
    is(
        &world.done(&["vm", "snapshot", "a", "stopped.qcow2"]),
        "Stopped",
        &before,
    );
    let beyond = ["vm", "snapshot", "a", "x.qcow2", "--disk", "1"];
    assert_eq!(world.refused(&beyond), "NO_SUCH_DISK");
    let path = world.berth(&["vm", "snapshot", "a", "../x"]);
    assert!(path.refused(1).stderr.contains("INVALID_IMAGE"));
}
