//! Goal: whatever an operation was doing, and to whatever moment of it the cluster is restored, each
//! guest is its VM's afterwards, where it is, and nothing is left in progress.
//!
//! Method: each saga is played; the state is restored to each of its moments, and its hosts report the
//! guests of that moment and of each later one.

use std::collections::BTreeMap;

use berth_domain::agent::DomainState;
use berth_domain::id::{ClusterId, TimeMs};
use berth_domain::name::HostName;
use berth_domain::recovery::{Cause, ReportedGuest};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::State as VmState;
use berth_state::State;
use berth_state::command::{Command, Envelope};
use berth_state::recovery::Begin;
use berth_testkit::state::{uuid, vm_name};

use super::player::{Guests, Player, Refusals};
use super::scenario::{SCENARIOS, Scenario};

fn run(state: &mut State, command: Command) {
    let envelope = Envelope {
        at: state.time(),
        principal: "unverified:test".to_owned(),
        request: None,
        audit: None,
        command,
    };
    let name = format!("{:?}", envelope.command);
    let applied = state.apply(state.revision() + 1, &envelope);
    if let Err(refusal) = applied.outcome {
        panic!("{name}: {refusal}");
    }
}

fn here(guests: &Guests, host: &HostName) -> Vec<ReportedGuest> {
    let here = guests.iter().filter(|((at, _), _)| at == host);
    here.map(|(_, guest)| guest.clone()).collect()
}

/// Restores a state, whose hosts then report these guests.
fn recover(state: &State, guests: &Guests) -> State {
    let mut state = state.clone().recovered(&Begin {
        cluster: ClusterId(uuid(9, 9)),
        cause: Cause::Restored,
        at: TimeMs(state.time().0 + 5_000),
        index: state.revision() + 3,
        level: ServiceVersion::CURRENT,
    });
    state.check().expect("a recovering state is sound");
    let hosts: Vec<_> = state.hosts().keys().cloned().collect();
    for _ in 0..2 {
        let basis = state.revision();
        for host in &hosts {
            assert!(state.is_recovering(), "every host is compared");
            let report = Command::ReportGuests {
                host: host.clone(),
                incarnation: state.hosts()[host].host.report.incarnation,
                basis,
                guests: here(guests, host),
            };
            run(&mut state, report);
        }
    }
    let end = Command::EndRecovery {
        accept_conflicts: false,
    };
    run(&mut state, end);
    state.check().expect("a recovered state is sound");
    state
}

fn check(restored: &State, state: &State, guests: &Guests, seen: &str) {
    assert!(!state.is_recovering());
    assert_eq!(state.running_operations().count(), 0, "operations go on");
    let live = guests
        .iter()
        .filter(|(_, g)| g.state != DomainState::Prepared);
    let live: BTreeMap<_, _> = live.map(|((host, uid), g)| (uid, (host, g))).collect();
    for (uid, (host, guest)) in &live {
        let name = vm_name(&guest.domain.name);
        let vm = state
            .vm(&name)
            .unwrap_or_else(|| panic!("its guest runs: {seen}"));
        let claim = state.claim(vm.claim.expect("it has a claim")).unwrap();
        let runs = matches!(vm.state, VmState::Active | VmState::Resized);
        assert!(runs, "{:?}, {seen}", vm.state);
        assert_eq!((vm.uid, vm.host.as_ref()), (**uid, Some(*host)), "{seen}");
        assert_eq!(Some(claim.id), guest.domain.claim, "{seen}");
        assert_eq!(claim.assignment, guest.domain.held, "{seen}");
        let unknown = &state.host(host).unwrap().host.unknown;
        assert!(unknown.is_empty(), "{unknown:?}, {seen}");
    }
    for (name, vm) in restored.vms() {
        let now = state.vm(name).expect("no VM is forgotten");
        assert_eq!(now.uid, vm.uid);
        let is_live = live.contains_key(&vm.uid);
        let rests = match now.state {
            VmState::Active => is_live,
            VmState::Stopped | VmState::Error | VmState::Shelved => !is_live,
            // Whether it is off, a VM that waits to be verified does not show.
            VmState::Resized => true,
            VmState::Building | VmState::Migrating | VmState::Deleting => false,
        };
        let states = (vm.state, now.state);
        assert!(rests && now.operation.is_none(), "{states:?}, {seen}");
    }
    // What is prepared keeps what it holds until it is gone.
    let prepared = guests
        .iter()
        .filter(|(_, g)| g.state == DomainState::Prepared);
    for ((host, _), guest) in prepared {
        let unknown = &state.host(host).unwrap().host.unknown;
        assert!(unknown.contains(&guest.domain), "{unknown:?}, {seen}");
    }
}

/// Restores to each moment of a play, with the guests of that and of each later moment.
fn recover_all(scenario: &Scenario, player: Player, recoveries: &mut usize) {
    let before = (scenario.hosts().state, Guests::new());
    let moments: Vec<_> = std::iter::once(before).chain(player.moments).collect();
    for (at, (restored, _)) in moments.iter().enumerate() {
        for (later, (_, guests)) in moments.iter().enumerate().skip(at) {
            let seen = format!("{scenario:?}: moment {at}, guests of {later}: {guests:?}");
            let state = recover(restored, guests);
            check(restored, &state, guests, &seen);
            *recoveries += 1;
        }
    }
}

#[test]
fn every_saga_is_settled_from_every_moment_to_every_later_one() {
    let mut recoveries = 0;
    for scenario in SCENARIOS {
        let mut player = scenario.player();
        player.play();
        recover_all(scenario, player, &mut recoveries);
    }
    println!("{recoveries} recoveries");
    assert!(recoveries > 1_000, "only {recoveries}");
}

/// Method: the agent refuses the call of one step so often that the operation gives up where it can.
#[test]
fn every_saga_that_gives_up_is_settled_too() {
    let mut recoveries = 0;
    for scenario in SCENARIOS {
        let mut clean = scenario.player();
        clean.play();
        for step in clean.logged.clone() {
            let mut player = scenario.player();
            player.refusals = Some(Refusals { step, times: 4 });
            player.play();
            recover_all(scenario, player, &mut recoveries);
        }
    }
    println!("{recoveries} recoveries");
    assert!(recoveries > 5_000, "only {recoveries}");
}
