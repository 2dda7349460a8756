//! Goal: what a guest wrote into persistent memory in the time that is lost is given to no other guest
//! unerased, and no namespace of a guest is erased.
//!
//! Method: what the state has of a namespace, by what the host has of it after the recovery; hosts that
//! report during the recovery and after it.

use berth_domain::agent::DomainState;
use berth_domain::claim::{Claim, State as ClaimState};
use berth_domain::name::PmemName;
use berth_domain::operation::Kind;
use berth_domain::recovery::ReportedGuest;
use berth_state::command::Command;
use berth_testkit::state::{World, host_name, report, topology, vm_name};

use super::guests_of;
use crate::pmem::{guest, namespace};
use crate::power;

const NAMESPACES: [&str; 2] = ["ns0", "ns1"];

fn register(world: &mut World) {
    let shape =
        topology(2, 3, 1).with_pmem(NAMESPACES.map(|name| namespace(name, "SMALL")).to_vec());
    world.register("h1", report(shape.unwrap())).unwrap();
}

/// What the state has of `ns0`.
#[derive(Clone, Copy, Debug)]
enum Before {
    Free,
    OfA,
    Erased,
}

/// What the host has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Nothing,
    OfA,
    OfB,
    /// A guest of which nothing is known.
    OfOrphan,
}

/// Returns what hosts report: the guests of a cluster in which that is so.
fn reported(past: &World, after: After) -> Vec<ReportedGuest> {
    let mut lost = past.clone();
    let has_a = lost.state.vm(&vm_name("a")).is_some();
    match after {
        After::Nothing | After::OfA => {}
        After::OfB | After::OfOrphan => {
            if has_a {
                lost.delete("a");
            }
            let erasing: Vec<Claim> = lost
                .state
                .claims()
                .values()
                .map(|c| (**c).clone())
                .collect();
            for claim in erasing.iter().filter(|claim| !claim.is_in_use()) {
                erase(&mut lost, claim);
            }
            lost.boot("b", &guest("SMALL"), "h1");
        }
    }
    let mut guests = guests_of(&lost.state, &host_name("h1"));
    for guest in &mut guests {
        guest.state = DomainState::Running;
        if after == After::OfOrphan {
            guest.spec = None;
        }
    }
    if after == After::Nothing {
        guests.clear();
    }
    guests
}

pub(super) fn erase(world: &mut World, claim: &Claim) {
    use berth_domain::claim::{ErasureProgress, ErasureReport};
    let reports = claim.erasures.keys().map(|namespace| ErasureReport {
        claim: claim.id,
        namespace: namespace.clone(),
        progress: ErasureProgress::Erased,
    });
    world
        .run(Command::NoteErasures {
            host: host_name("h1"),
            incarnation: world.view("h1").host.report.incarnation,
            reports: reports.collect(),
        })
        .unwrap();
}

/// Returns who has a namespace.
fn holder(world: &World, name: &str) -> String {
    let name = PmemName::new(name).unwrap();
    let mut holders = Vec::new();
    for claim in world.state.claims_of_host(&host_name("h1")) {
        if claim
            .assignment
            .pmem
            .iter()
            .any(|device| device.name == name)
        {
            holders.push(match claim.state {
                ClaimState::Releasing => "erased".to_owned(),
                ClaimState::Held | ClaimState::Active => claim.vm.to_string(),
            });
        }
    }
    assert_eq!(holders.len(), 1, "{name}: {holders:?}");
    holders.remove(0)
}

#[test]
fn namespaces_without_a_guest_are_erased() {
    for before in [Before::Free, Before::OfA, Before::Erased] {
        for after in [After::Nothing, After::OfA, After::OfB, After::OfOrphan] {
            if matches!((before, after), (Before::Free | Before::Erased, After::OfA)) {
                continue;
            }
            for is_late in [false, true] {
                examine(before, after, is_late);
            }
        }
    }
}

fn examine(before: Before, after: After, is_late: bool) {
    let mut past = World::with_hosts(0);
    register(&mut past);
    match before {
        Before::Free => {}
        Before::OfA => past.boot("a", &guest("SMALL"), "h1"),
        Before::Erased => {
            past.boot("a", &guest("SMALL"), "h1");
            past.delete("a");
        }
    }
    let guests = reported(&past, after);
    let mut world = match is_late {
        true => {
            let mut world = World::with_hosts(0).recovered();
            let accept_conflicts = false;
            world
                .run(Command::EndRecovery { accept_conflicts })
                .unwrap();
            register(&mut world);
            world.report_guests("h1", &guests).unwrap();
            world
        }
        false => {
            let mut world = past.recovered();
            for _ in 0..2 {
                world.report_guests("h1", &guests).unwrap();
            }
            let accept_conflicts = after == After::OfOrphan;
            world
                .run(Command::EndRecovery { accept_conflicts })
                .unwrap();
            world
        }
    };
    let what = format!("{before:?} {after:?} late: {is_late}");
    let expected = match (before, after) {
        // The late host is in no record.
        (Before::OfA, After::Nothing) if is_late => "erased",
        (Before::OfA, After::Nothing | After::OfA) => "a",
        (Before::OfA, After::OfOrphan) if !is_late => "a",
        (_, After::OfB) => "b",
        (_, After::OfA) => "a",
        (_, After::Nothing | After::OfOrphan) => "erased",
    };
    assert_eq!(holder(&world, "ns0"), expected, "{what}");
    assert_eq!(holder(&world, "ns1"), "erased", "{what}");
    // A guest that no VM could be given has it beside the claim: its agent does not erase it meanwhile.
    let mut erased: Vec<_> = (world.state.erasures_of(&host_name("h1")).into_iter())
        .map(|(_, device)| device.name.to_string())
        .collect();
    erased.sort();
    let both: &[&str] = if expected == "erased" {
        &NAMESPACES
    } else {
        &NAMESPACES[1..]
    };
    assert_eq!(erased, both, "{what}");
    assert!(
        world.begin_boot("c", &guest("SMALL"), "h1").is_err(),
        "{what}"
    );
    if expected == "a" && after == After::OfOrphan {
        let refused = power::begin(&mut world, "a", Kind::Start).unwrap_err();
        assert_eq!(refused.reason, "HELD_BY_UNKNOWN_GUEST", "{what}");
    }
}
