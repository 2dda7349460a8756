//! States of any size as the test kit makes them.
//!
//! Goal: what benchmarks measure on is a state as commands make it: sound, the same in every run, and
//! such that commands work on it. Method: small ones, checked from all sides.

use berth_domain::version::ServiceVersion;
use berth_state::State;
use berth_state::command::Command;
use berth_testkit::state::scale::{self, Size};
use berth_testkit::state::{World, pinned, rows};

const SIZE: Size = Size {
    hosts: 20,
    vms_per_host: 34,
    seed: 7,
    version: ServiceVersion::CURRENT,
};

#[test]
fn states_are_sound_and_put_together_from_their_rows() {
    for (hosts, vms_per_host) in [(0, 0), (1, 3), (2, 0), (20, 34), (101, 2)] {
        let size = Size {
            hosts,
            vms_per_host,
            ..SIZE
        };
        let state = scale::state(size);
        state.check().unwrap();
        assert_eq!(state.hosts().len() as u64, hosts);
        let numbers = 0..hosts * vms_per_host;
        assert!(
            numbers
                .into_iter()
                .all(|n| state.vm(&scale::vm(n)).is_some())
        );
        assert!(State::from_rows(state.rows()).unwrap() == state, "{size:?}");
    }
}

#[test]
fn a_seed_gives_one_state() {
    let state = scale::state(SIZE);
    assert!(scale::state(SIZE) == state);
    let other = scale::state(Size { seed: 8, ..SIZE });
    assert_ne!(rows(&other), rows(&state));
}

/// Goal: a state has of everything: pins, pages, functions, operations in progress, consumers, audit.
#[test]
fn states_have_of_everything() {
    let state = scale::state(SIZE);
    let assignments = || state.claims().values().map(|claim| &claim.assignment);
    assert!(assignments().any(|a| !a.pins().is_empty()));
    assert!(assignments().any(|a| a.pci.iter().flatten().next().is_some()));
    assert!(assignments().any(|a| a.cells.iter().any(|cell| cell.page_size_kib.is_some())));
    assert!(assignments().any(|a| a.cells.len() == 2));
    assert!(state.migrations().len() > 10);
    assert!(state.running_operations().count() > state.migrations().len());
    assert_eq!(state.consumers().len(), 40);
    assert_eq!(state.aggregates().len(), 1);
    assert!(state.audit().len() > 100);
}

/// Goal: commands do there what they do anywhere.
#[test]
fn commands_work_on_them() {
    let state = scale::state(SIZE);
    let mut world = World::of(state);
    world.boot("new", &pinned(2), scale::host(3).as_str());
    let other = scale::host(5);
    let moving = scale::vm(8 * SIZE.vms_per_host + 1);
    let operation = world.begin_migration(moving.as_str(), other.as_str());
    world.transfer(operation.unwrap());
    world.delete(scale::vm(9 * SIZE.vms_per_host + 2).as_str());
    world.delete("new");
}

/// Goal: what its agents report of a true state ends a recovery, and changes nothing but what was in
/// progress. Method: each host reports when none is quiet yet, and again when all are.
#[test]
fn reports_of_its_guests_end_a_recovery() {
    let hosts = 5;
    let before = scale::state(Size { hosts, ..SIZE });
    let mut world = World::of(before.clone()).recovered();
    for host in [0, 1, 2, 3, 4, 0, 1, 2, 3, 4].map(scale::host) {
        let report = world.view(host.as_str()).host.report.clone();
        world.register(host.as_str(), report).unwrap();
        let guests: Vec<_> = scale::guests(&before, &host).collect();
        world.report_guests(host.as_str(), &guests).unwrap();
    }
    let outcome = world.state.recovery_outcome().unwrap();
    assert_eq!(outcome.conflicts, []);
    let accept_conflicts = false;
    world
        .run(Command::EndRecovery { accept_conflicts })
        .unwrap();
    let placed = |state: &State| -> Vec<_> {
        let running = (0..hosts * SIZE.vms_per_host).map(scale::vm);
        let vm = |name| state.vm(&name).unwrap().clone();
        running
            .map(vm)
            .map(|vm| (vm.host.clone(), vm.claim))
            .collect()
    };
    assert_eq!(placed(&world.state), placed(&before));
}
