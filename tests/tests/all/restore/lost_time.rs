//! What was deleted in the time that is lost, after a restore.
//!
//! Goal: a VM that was deleted can be started again; but not one whose volume went to another VM, which
//! stays there. Method: whole processes.

use std::path::Path;

use berth_tests::processes::{Cluster, Host};

use super::{await_end, guests, lose_schedulers, shown, state_of};
use crate::PROGRAMS;
use crate::backup::back_up;

/// Loses the schedulers, and restores a backup into a directory.
fn restore(cluster: &mut Cluster, backup: &Path, directory: &Path) {
    lose_schedulers(cluster, directory);
    let restored = cluster.schedulers[0].answer(&cluster.programs, &["restore", &shown(backup)]);
    let _ = restored.with_status(0);
    cluster.schedulers[0].start(&cluster.programs);
}

fn with_volume<'a>(vm: &'a str, volume: &'a str) -> Vec<&'a str> {
    [&Cluster::create(vm, "one")[..], &["--volume", volume]].concat()
}

#[test]
fn a_volume_stays_with_the_vm_that_has_it() {
    let host = |name| Host::new(name).with_volumes("sim", &["region0:4096@1"], "");
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(host("h1"))
        .host(host("h2"))
        .start();
    cluster.pinned_flavor("one", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let size = ["--size", "64M", "--host", "h1", "--wait"];
    let made = [&["volume", "create", "data"][..], &size].concat();
    let made = cluster.json(&made);
    let id = made["id"].as_str().expect("an id").to_owned();
    cluster.run(&with_volume("a", "data"));
    let full = folder.path().join("full");
    let _ = back_up(&cluster, 0, &full, &[]);
    cluster.run(&["vm", "delete", "a"]);
    cluster.run(&with_volume("b", "data"));
    let before = guests(&cluster);
    assert_eq!(before["b"], ["h1"]);

    restore(&mut cluster, &full, &folder.path().join("restored"));
    let ended = await_end(&cluster);
    assert_eq!(ended["conflict_count"], 0, "{ended:#}");
    assert_eq!(state_of(&cluster, "b"), ("Active".to_owned(), "h1".into()));
    let owner =
        |cluster: &Cluster| cluster.json(&["volume", "show", "data"])["attached_vm"].clone();
    assert_eq!(owner(&cluster), "b");
    let (state, _) = state_of(&cluster, "a");
    assert_eq!(state, "Error");
    let missing = [
        "VM_STATE",
        "data",
        &id,
        "vm b",
        "host h1",
        "berth vm delete a",
    ];
    let _ = cluster
        .berth(&["vm", "start", "a"])
        .refused(1)
        .saying(&missing);
    let log = cluster.schedulers[0].log();
    assert!(log.contains("vm recovered in ERROR"), "{log}");
    // Its deletion takes nothing from the other one.
    cluster.run(&["vm", "delete", "a"]);
    assert_eq!(guests(&cluster), before, "nothing was started or stopped");
    assert_eq!(owner(&cluster), "b");
    cluster.run(&["vm", "reboot", "b"]);
}

/// Goal: a VM that was deleted after the backup can be started again, once, on the claim that it has.
#[test]
fn a_vm_that_was_deleted_since_can_be_started() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .host(Host::new("h2"))
        .start();
    cluster.pinned_flavor("one", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let pins = cluster.boot("a", "one", "h1");
    let full = folder.path().join("full");
    let _ = back_up(&cluster, 0, &full, &[]);
    cluster.run(&["vm", "delete", "a"]);
    assert!(guests(&cluster).is_empty());

    restore(&mut cluster, &full, &folder.path().join("restored"));
    let _ = await_end(&cluster);
    assert_eq!(state_of(&cluster, "a"), ("Stopped".to_owned(), "h1".into()));
    assert!(guests(&cluster).is_empty(), "nothing is started by itself");
    for _ in 0..2 {
        cluster.run(&["vm", "start", "a"]);
        assert_eq!(state_of(&cluster, "a"), ("Active".to_owned(), "h1".into()));
        assert_eq!(guests(&cluster)["a"], ["h1"]);
        assert_eq!(cluster.pins_on("a", "h1"), pins);
        cluster.run(&["vm", "stop", "a"]);
    }
    cluster.run(&["vm", "delete", "a"]);
    assert!(guests(&cluster).is_empty());
}
