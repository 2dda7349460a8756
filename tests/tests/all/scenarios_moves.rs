//! Goal: a VM that is moved while it does not run keeps its place until it has another, through the
//! whole system, and finds its way back. Method: schedulers, a conductor and simulated hosts in
//! this process, each with a port of its own, and the real command.

use std::ops::Deref;

use berth_tests::small::{Small, text};
use serde_json::Value;

use crate::PROGRAMS;

/// A Berth with a small and a large flavor.
struct World(Small);

impl Deref for World {
    type Target = Small;

    fn deref(&self) -> &Small {
        &self.0
    }
}

impl World {
    fn with_hosts(hosts: u16) -> Self {
        let world = Self(Small::with_hosts(PROGRAMS, hosts));
        for (name, vcpus) in [("small", "1"), ("large", "3")] {
            let pinned = ["--spec", "hw:cpu_policy=dedicated"];
            let size = ["--vcpus", vcpus, "--memory-mib", "64"];
            world.done(&[&["flavor", "create", name][..], &size, &pinned].concat());
        }
        world
    }

    #[track_caller]
    fn boot(&self, vm: &str, more: &[&str]) -> Value {
        let kernel = ["--kernel", "vmlinuz", "--initrd", "initrd.gz"];
        let words = ["vm", "create", vm, "--flavor", "small"];
        self.done(&[&words[..], &kernel, more].concat())
    }

    #[track_caller]
    fn show(&self, vm: &str) -> Value {
        self.done(&["vm", "show", vm])
    }

    /// Returns the state of each claim of a VM.
    #[track_caller]
    fn claims(&self, vm: &str) -> Vec<String> {
        let shown = self.show(vm);
        let claims = shown["claims"].as_array().unwrap().iter();
        claims.map(|c| text(&c["state"])).collect()
    }
}

fn is(shown: &Value, state: &str, flavor: &str) {
    let vm = &shown["vm"];
    assert_eq!(text(&vm["state"]), state, "{shown:#}");
    assert_eq!(text(&vm["spec"]["flavor"]["name"]), flavor, "{shown:#}");
}

#[test]
fn a_cold_migration_ends_elsewhere_and_leaves_nothing_behind() {
    let world = World::with_hosts(2);
    let first = text(&world.boot("a", &[])["vm"]["host"]);
    let moved = world.done(&["vm", "migrate", "a", "--cold"]);
    is(&moved, "Active", "small");
    assert_ne!(text(&moved["vm"]["host"]), first);
    assert_eq!(world.claims("a"), ["Active"]);
    let back = world.done(&["vm", "migrate", "a", "--cold", "--host", &first]);
    assert_eq!(text(&back["vm"]["host"]), first);
    // Where it is already it cannot go.
    let refused = world.refused(&["vm", "migrate", "a", "--cold", "--host", &first]);
    assert_eq!(text(&refused["reason"]), "SAME_HOST", "{refused:#}");
    // Its guest is moved while it runs, too, afterwards: nothing of the moves is in the way.
    is(&world.done(&["vm", "migrate", "a"]), "Active", "small");
}

#[test]
fn a_resize_is_confirmed_or_reverted() {
    let world = World::with_hosts(2);
    let host = text(&world.boot("a", &[])["vm"]["host"]);
    let cpus = world.show("a")["claims"][0]["assignment"].clone();
    let resized = world.done(&["vm", "resize", "a", "--flavor", "large"]);
    is(&resized, "Resized", "large");
    let mut states = world.claims("a");
    states.sort();
    assert_eq!(states, ["Active", "Held"]);
    let refused = world.refused(&["vm", "migrate", "a"]);
    assert_eq!(text(&refused["reason"]), "VM_NOT_ACTIVE", "{refused:#}");

    let back = world.done(&["vm", "revert-resize", "a"]);
    is(&back, "Active", "small");
    assert_eq!(text(&back["vm"]["host"]), host);
    assert_eq!(back["claims"][0]["assignment"], cpus, "the very CPUs");
    assert_eq!(world.claims("a"), ["Active"]);

    world.done(&["vm", "resize", "a", "--flavor", "large"]);
    is(
        &world.done(&["vm", "confirm-resize", "a"]),
        "Active",
        "large",
    );
    assert_eq!(world.claims("a"), ["Active"]);
    let refused = world.refused(&["vm", "confirm-resize", "a"]);
    assert_eq!(text(&refused["reason"]), "VM_STATE", "{refused:#}");
    let same = world.refused(&["vm", "resize", "a", "--flavor", "large"]);
    assert_eq!(text(&same["reason"]), "SAME_FLAVOR", "{same:#}");
    let small = ["vm", "resize", "a", "--flavor", "small", "--no-verify"];
    is(&world.done(&small), "Active", "small");
    assert_eq!(world.claims("a"), ["Active"]);
}

/// Goal: while a VM is RESIZED people see which of its claims is on the host that it left, and what empties
/// that host.
#[test]
fn a_resized_vm_shows_where_it_came_from_and_how_to_keep_it() {
    let world = World::with_hosts(2);
    let from = text(&world.boot("a", &[])["vm"]["host"]);
    let to = text(&world.done(&["vm", "resize", "a", "--flavor", "large"])["vm"]["host"]);
    assert_ne!(from, to);
    let shown = world.shown(&["vm", "show", "a"]).with_status(0).stdout;
    let claims = shown.split("\nclaim ").skip(1);
    let sides: Vec<(bool, bool)> = claims
        .map(|claim| {
            (
                claim.contains("on the source of"),
                claim.contains(&format!(" on {from}, ")),
            )
        })
        .collect();
    assert_eq!(sides, [(true, true), (false, false)], "{shown}");
    for (host, owner) in [
        (&from, "a (HELD, kept by migration "),
        (&to, "a (ACTIVE, NUMA node"),
    ] {
        let shown = world.shown(&["host", "show", host]).with_status(0).stdout;
        assert!(shown.contains(owner), "{host}: {shown}");
    }
    let drain = world
        .shown(&["host", "drain", &from, "--validate-only"])
        .with_status(1);
    let _ = drain.saying(&["hint for a: `berth vm confirm-resize a` releases the claim"]);
    let state = world.refused(&["host", "drain", &from, "--validate-only"]);
    assert_eq!(text(&state["reason"]), "VMS_STAY", "{state:#}");
}

#[test]
fn a_resize_that_fits_nowhere_is_refused_and_explained_and_changes_nothing() {
    let world = World::with_hosts(1);
    world.boot("a", &[]);
    let huge = ["--vcpus", "64", "--memory-mib", "64"];
    let pinned = ["--spec", "hw:cpu_policy=dedicated"];
    world.done(&[&["flavor", "create", "huge"][..], &huge, &pinned].concat());
    let refused = world.refused(&["vm", "resize", "a", "--flavor", "huge"]);
    assert_eq!(text(&refused["reason"]), "NO_VALID_HOST", "{refused:#}");
    assert!(
        !refused["hosts"].as_array().unwrap().is_empty(),
        "{refused:#}"
    );
    is(&world.show("a"), "Active", "small");
    let unknown = world.refused(&["vm", "resize", "a", "--flavor", "none"]);
    assert_eq!(text(&unknown["reason"]), "FLAVOR_NOT_FOUND", "{unknown:#}");
    // On its own host there is room for both.
    is(
        &world.done(&["vm", "resize", "a", "--flavor", "large"]),
        "Resized",
        "large",
    );
    is(
        &world.done(&["vm", "revert-resize", "a"]),
        "Active",
        "small",
    );
}

#[test]
fn a_shelved_vm_gives_its_host_back_and_finds_another() {
    let world = World::with_hosts(2);
    let host = text(&world.boot("a", &[])["vm"]["host"]);
    let shelved = world.done(&["vm", "shelve", "a"]);
    is(&shelved, "Shelved", "small");
    assert!(world.claims("a").is_empty());
    for refused in [&["vm", "migrate", "a"][..], &["vm", "shelve", "a"]] {
        let refused = world.refused(refused);
        assert!(text(&refused["message"]).contains("SHELVED"), "{refused:#}");
    }
    world.done(&["host", "cordon", &host]);
    let back = world.done(&["vm", "unshelve", "a"]);
    is(&back, "Active", "small");
    assert_ne!(text(&back["vm"]["host"]), host);
    world.done(&["vm", "shelve", "a"]);
    world.done(&["vm", "delete", "a"]);
    let gone = world.refused(&["vm", "show", "a"]);
    assert_eq!(text(&gone["reason"]), "VM_NOT_FOUND", "{gone:#}");
}

#[test]
fn nothing_is_evacuated_without_proof() {
    let world = World::with_hosts(2);
    world.boot("a", &[]);
    let refused = world.refused(&["vm", "evacuate", "a"]);
    assert_eq!(text(&refused["reason"]), "HOST_IS_ALIVE", "{refused:#}");
    assert!(!text(&refused["hint"]).is_empty(), "{refused:#}");
}

fn is_cordoned(world: &World, host: &str) -> bool {
    let shown = world.done(&["host", "show", host]);
    shown["host"]["cordoned"] == Value::Bool(true)
}

/// Goal: what a drain or an evacuation cordons is stated with the command that lifts it, and what is
/// refused or only planned cordons nothing. Method: both commands, of hosts with and without VMs.
#[test]
fn what_a_drain_cordons_is_stated_and_a_refusal_cordons_nothing() {
    let world = World::with_hosts(2);
    let host = text(&world.boot("a", &[])["vm"]["host"]);
    for more in [&[][..], &["--dry-run"]] {
        let refused = world.refused(&[&["host", "evacuate", &host][..], more].concat());
        assert_eq!(text(&refused["reason"]), "HOST_IS_ALIVE", "{refused:#}");
        assert!(!is_cordoned(&world, &host), "{more:?}");
    }
    let planned = world.done(&["host", "drain", &host, "--dry-run"]);
    assert_eq!(planned["cordoned"], Value::Bool(false), "{planned:#}");
    assert!(!is_cordoned(&world, &host));

    let uncordon = format!("berth host uncordon {host}");
    for times in 1..=2 {
        let drained = world.berth(&["host", "drain", &host]).with_status(0);
        let said = drained.saying(&["cordoned", &uncordon]);
        assert_eq!(said.json().unwrap()["cordoned"], Value::Bool(true));
        assert!(is_cordoned(&world, &host), "drain {times}");
    }
    // The other host has none to which it could go.
    let other = text(&world.show("a")["vm"]["host"]);
    let stayed = world.berth(&["host", "drain", &other]).with_status(1);
    let _ = stayed.saying(&["VMS_STAY", &format!("berth host uncordon {other}")]);
    assert!(is_cordoned(&world, &other));
}

/// Goal: a drain empties its host, says first what it will do, and keeps what cannot be moved.
#[test]
fn a_drain_says_its_plan_and_keeps_to_its_limit() {
    let world = World::with_hosts(3);
    let host = text(&world.boot("a", &[])["vm"]["host"]);
    // It waits for a decision of its user, so it is not moved.
    world.boot("e", &["--host", &host]);
    let pinned = ["--spec", "hw:cpu_policy=dedicated"];
    let size = ["--vcpus", "2", "--memory-mib", "64"];
    world.done(&[&["flavor", "create", "two"][..], &size, &pinned].concat());
    world.done(&["vm", "resize", "e", "--flavor", "two", "--host", &host]);
    for vm in ["b", "c"] {
        world.boot(vm, &["--host", &host]);
    }
    let planned = world.berth(&["host", "drain", &host, "--dry-run"]);
    let plan: Value = serde_json::from_str(&planned.with_status(1).stdout).unwrap();
    assert_eq!(plan["plan"].as_array().unwrap().len(), 3, "{plan:#}");
    assert_eq!(text(&plan["stayed"][0]["vm"]), "e", "{plan:#}");
    assert_eq!(text(&world.show("a")["vm"]["host"]), host, "nothing moved");

    let drained = world.berth(&["host", "drain", &host, "--parallel", "2"]);
    let drained: Value = serde_json::from_str(&drained.with_status(1).stdout).unwrap();
    assert_eq!(drained["moved"].as_array().unwrap().len(), 3, "{drained:#}");
    for vm in ["a", "b", "c"] {
        assert_ne!(text(&world.show(vm)["vm"]["host"]), host);
    }
    world.done(&["vm", "confirm-resize", "e"]);
    let rest = world.done(&["host", "drain", &host]);
    assert_eq!(rest["moved"].as_array().unwrap().len(), 1, "{rest:#}");
    let empty = world.done(&["host", "drain", &host]);
    assert_eq!(empty["plan"].as_array().unwrap().len(), 0, "{empty:#}");
    let alive = world.refused(&["host", "remove", &host]);
    assert_eq!(text(&alive["reason"]), "HOST_IS_ALIVE", "{alive:#}");
    let unknown = world.refused(&["host", "drain", "nowhere"]);
    assert_eq!(text(&unknown["reason"]), "HOST_NOT_FOUND", "{unknown:#}");
}
