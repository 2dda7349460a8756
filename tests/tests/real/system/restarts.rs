//! Restart policies on real hypervisors: how a guest ended is read in the log that libvirt writes, since a
//! guest that has ended is gone from libvirt.
//!
//! Leaves `host-a` as it finds it, empty.

use berth_domain::reality::Absence;
use berth_domain::vm::State;

use super::cluster::{PATIENCE, System, eventually};
use super::verdict::domains;

/// A guest whose process is killed is started again; one that shuts itself down stays off.
pub(crate) fn guests_are_started_again(system: &System) {
    system.boot("c", "host-a");
    system.json(&["vm", "set-restart", "c", "--on-crash", "restart"]);
    let pid = system.machine("host-a").qemu_pid("c").unwrap().to_string();
    system.machine("host-a").run(&["kill", "-9", &pid]).unwrap();
    eventually("it runs again", || {
        let vm = system.vm("c").vm;
        let runs = vm.state == State::Active && vm.trouble.is_none() && vm.operation.is_none();
        (runs && vm.restarts.begun_at.len() == 1)
            .then_some(())
            .ok_or_else(|| format!("{vm:?}"))
    });
    assert!(domains(system, "host-a").contains("c"));
    assert_ne!(
        system.machine("host-a").qemu_pid("c").unwrap().to_string(),
        pid
    );
    let console = system.console("c");
    console.wait_for_count_above(2, PATIENCE).unwrap();
    assert_eq!(system.ask_guest("c", "host-a", "off"), "off");
    eventually("that is noticed", || {
        let vm = system.vm("c").vm;
        let absence = vm.trouble.as_ref().map(|trouble| trouble.absence);
        (absence == Some(Absence::ShutDown) && vm.restarts.begun_at.len() == 1)
            .then_some(())
            .ok_or_else(|| format!("{vm:?}"))
    });
    system.json(&["vm", "delete", "c"]);
}
