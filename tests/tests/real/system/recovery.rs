//! All schedulers are lost, and a new group begins with a backup that is older than the hypervisors.
//!
//! Goal: the guests of libvirt go on, none started again: one that moved after the backup is where it is,
//! one that was booted after it is a VM again, with what it holds, and what was deleted is not run.
//! Method: the documented commands; CPUs are read from the kernel.
//!
//! Leaves the VMs where it finds them: `a` on `host-a`, `b` and `d` on `host-b`.

use std::collections::BTreeMap;

use berth_domain::vm::State;
use serde_json::json;

use super::cluster::{System, eventually, list};
use super::verdict::{domains, hosts_agree, runs_on};

/// Where guests are when the schedulers are lost.
const PLACES: [(&str, &str); 4] = [
    ("a", "host-a"),
    ("d", "host-a"),
    ("b", "host-b"),
    ("f", "host-b"),
];

pub(crate) fn a_lost_cluster_is_restored(system: &mut System) {
    let recorded = runs_on(system, "d", "host-b");
    system.boot("e", "host-a");
    let lost = runs_on(system, "e", "host-a");
    let backup = system.lab.directory().join("restore.backup");
    let backup = backup.to_str().expect("a plain path").to_owned();
    system.json(&["cluster", "backup", &backup]);
    system.json(&["vm", "delete", "e"]);
    system.json(&["vm", "migrate", "d", "--host", "host-a"]);
    system.boot("f", "host-b");
    let before = guests(system);
    assert_eq!(before["d"].0, lost, "it holds what the backup has for e");
    assert_eq!(
        before["f"].0, recorded,
        "it holds what the backup has for d"
    );

    let restored = system.restore(&backup).with_status(0);
    assert!(
        restored.stdout.contains("2 hosts and 4 VMs"),
        "{restored:?}"
    );
    eventually("the end of the recovery", || {
        let status = system.ask(&["cluster", "recovery", "status"])?;
        let ended = !status["recovery"]["end_time"].is_null();
        ended.then_some(()).ok_or_else(|| format!("{status:#}"))
    });
    assert_eq!(guests(system), before);
    let e = system.vm("e");
    assert_eq!((e.vm.state, e.vm.claim), (State::Error, None), "{e:?}");
    assert!(!domains(system, "host-a").contains("e"));
    hosts_agree(system);

    system.add_schedulers();
    system.json(&["vm", "delete", "e"]);
    system.json(&["vm", "delete", "f"]);
    system.json(&["vm", "migrate", "d", "--host", "host-b"]);
    runs_on(system, "d", "host-b");
    assert_eq!(list(&system.json(&["vm", "list"])).len(), 3);
    assert_eq!(system.json(&["migration", "list", "--vm", "f"]), json!([]));
    hosts_agree(system);
    system.schedulers_agree();
}

/// Returns the CPU and the process of each guest, which runs nowhere else and was never started again.
fn guests(system: &System) -> BTreeMap<&'static str, (u32, String)> {
    let guests = PLACES.into_iter().map(|(vm, host)| {
        let cpu = runs_on(system, vm, host);
        let pid = system.machine(host).qemu_pid(vm).unwrap().to_string();
        (vm, (cpu, pid))
    });
    guests.collect()
}
