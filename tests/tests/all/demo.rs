//! `berth demo`: what it tells programs, and that its exit status can be relied on.

use std::collections::BTreeMap;

use berth_tests::processes::{Answer, Programs};
use serde::Deserialize;

use crate::PROGRAMS;

type Pins = BTreeMap<u32, u32>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Booted {
    vm: String,
    host: String,
    pins: Pins,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Migrated {
    vm: String,
    source: String,
    destination: String,
    pins_before: Pins,
    pins_after: Pins,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    vm: String,
    operation: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    booted: Vec<Booted>,
    migrated: Vec<Migrated>,
    refused: Vec<Refused>,
}

/// Goal: one object of the promised shape on standard output, the story elsewhere; a move that
/// had to take other CPUs, and one that was refused. The guests' places are followed through it.
#[test]
fn the_demo_tells_programs_what_happened() {
    let programs = Programs::new(PROGRAMS);
    let mut command = programs.command("berth");
    command.args(["demo", "--output", "json"]);
    let answer = Answer::of(command).with_status(0);
    let told: Told = serde_json::from_str(&answer.stdout).expect("one object of that shape");
    assert!(!answer.stderr.is_empty(), "the story is told all the same");

    let mut places: BTreeMap<String, (String, Pins)> = BTreeMap::new();
    for booted in told.booted {
        assert!(!booted.pins.is_empty(), "{} is pinned", booted.vm);
        places.insert(booted.vm, (booted.host, booted.pins));
    }
    for migrated in &told.migrated {
        assert_ne!(migrated.source, migrated.destination);
        let before = (migrated.source.clone(), migrated.pins_before.clone());
        let after = (migrated.destination.clone(), migrated.pins_after.clone());
        let place = places.insert(migrated.vm.clone(), after);
        assert_eq!(place, Some(before), "{migrated:?}");
    }
    let swapped = |m: &Migrated| m.pins_before != m.pins_after;
    assert!(told.migrated.iter().any(swapped), "{:?}", told.migrated);
    let refused = told.refused.iter().find(|r| r.operation == "migrate");
    let refused = refused.expect("a migration that does not fit");
    assert!(places.contains_key(&refused.vm));
    assert!(refused.reason.contains("NUMA node"), "{}", refused.reason);

    let mut taken = BTreeMap::new();
    for (vm, (host, pins)) in &places {
        for cpu in pins.values() {
            let before = taken.insert((host, cpu), vm);
            assert_eq!(before, None, "CPU {cpu} of {host} twice");
        }
    }
}
