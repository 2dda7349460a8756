//! The cluster version in the state: raised once nobody is behind, never lowered, and what it
//! means for conductors and hosts.

use std::collections::BTreeSet;

use berth_domain::id::TimeMs;
use berth_domain::service::Service;
use berth_domain::version::ServiceVersion;
use berth_state::command::Command;
use berth_testkit::state::*;

fn raise(version: u32, gone: &[&str]) -> Command {
    Command::FinalizeUpgrade {
        version: ServiceVersion(version),
        gone: gone.iter().map(|name| conductor(name)).collect(),
    }
}

fn registered(name: &str, version: u32) -> Command {
    Command::RegisterService(Service {
        name: conductor(name),
        address: format!("http://{name}:1"),
        version: ServiceVersion(version),
        registered_at: TimeMs(0),
    })
}

/// Goal: a new state is at the oldest version; it rises when all conductors are new enough, or are
/// said to be gone; it never falls; the same again is no change.
#[test]
fn it_rises_when_nobody_is_behind_and_never_falls() {
    let mut world = World::before_upgrades(0);
    let version = |world: &World| world.state.header().cluster_version.0;
    assert_eq!(version(&world), 1);
    world.run(registered("c1", 3)).unwrap();
    world.run(registered("c2", 2)).unwrap();
    let refusal = world.run(raise(3, &[])).expect_err("c2 is behind");
    assert_eq!(refusal.reason, "UPGRADE_INCOMPLETE");
    assert!(refusal.message.contains("conductor c2 (2)"), "{refusal}");
    assert!(!refusal.message.contains("c1"), "{refusal}");
    assert_eq!(version(&world), 1);
    world.run(raise(2, &[])).unwrap();
    assert_eq!(version(&world), 2);
    world.run(raise(3, &["c2", "never-there"])).unwrap();
    assert_eq!(version(&world), 3);
    let names: BTreeSet<_> = world
        .state
        .services()
        .keys()
        .map(|n| n.to_string())
        .collect();
    assert_eq!(names, ["c1".to_owned()].into());
    world.run(raise(3, &[])).unwrap();
    let lower = world.run(raise(2, &[])).expect_err("it never falls");
    assert_eq!(lower.reason, "CLUSTER_VERSION_TOO_NEW");
    assert_eq!(version(&world), 3);
}

/// Goal: once the version is raised, a conductor that is older begins nothing and takes nothing
/// over; before, and without a registration, it does.
#[test]
fn an_older_conductor_gets_no_work() {
    let mut world = World::before_upgrades(2);
    world.run(registered("c1", 2)).unwrap();
    let operation = world.begin_boot("a", &floating(1), "h1").unwrap();
    world.run(raise(3, &["c1"])).unwrap();
    world.begin_boot("b", &floating(1), "h1").unwrap();
    world.run(registered("c1", 2)).unwrap();
    let refusal = world
        .begin_boot("c", &floating(1), "h1")
        .expect_err("too old");
    assert_eq!(refusal.reason, "SERVICE_VERSION_TOO_OLD");
    assert!(refusal.message.contains("conductor c1"), "{refusal}");
    let take = Command::TakeLease {
        operation,
        lease: world.lease(),
    };
    let refused = world.run(take.clone()).expect_err("too old");
    assert_eq!(refused.reason, "SERVICE_VERSION_TOO_OLD");
    world.run(registered("c1", 3)).unwrap();
    world.run(take).unwrap();
    world.begin_boot("c", &floating(1), "h1").unwrap();
}

/// Goal: a conductor is forgotten unless it holds a lease that has not run out.
#[test]
fn a_conductor_is_forgotten() {
    let mut world = World::before_upgrades(1);
    let forget = || Command::UnregisterService {
        service: conductor("c1"),
    };
    let missing = world.run(forget()).expect_err("there is none");
    assert_eq!(missing.reason, "SERVICE_NOT_FOUND");
    world.run(registered("c1", 3)).unwrap();
    world.begin_boot("a", &floating(1), "h1").unwrap();
    let busy = world.run(forget()).expect_err("it is at work");
    assert_eq!(busy.reason, "SERVICE_HOLDS_LEASES");
    world.now += 1_000_000;
    world.run(forget()).unwrap();
    assert_eq!(world.state.services().len(), 0);
}

/// Goal: a host notes the cluster version under which it registered, from the version on that
/// brought the note; the same report again is taken again then.
#[test]
fn a_host_notes_under_which_version_it_registered() {
    let mut world = World::before_upgrades(1);
    let noted = |world: &World| {
        world
            .state
            .host(&host_name("h1"))
            .unwrap()
            .host
            .registered_version
            .0
    };
    let again = |world: &mut World| {
        let report = world
            .state
            .host(&host_name("h1"))
            .unwrap()
            .host
            .report
            .clone();
        world.register("h1", report).unwrap();
    };
    world.run(raise(2, &[])).unwrap();
    again(&mut world);
    assert_eq!(noted(&world), 1);
    world.run(raise(3, &[])).unwrap();
    assert_eq!(noted(&world), 1);
    again(&mut world);
    assert_eq!(noted(&world), 3);
}
