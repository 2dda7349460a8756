//! Goal: what aggregates say of a host is what the choice sees, and no VM leaves the zone that it
//! asked for. Method: hand-made sequences; [`World`](berth_testkit::state::World) checks the invariants after each
//! command.

use std::collections::BTreeMap;

use berth_domain::aggregate::{Aggregate, AggregateChange};
use berth_domain::id::{AggregateId, Generation, TimeMs};
use berth_domain::name::{AggregateName, ZoneName};
use berth_domain::vm::VmSpec;
use berth_state::Reply;
use berth_state::command::Command;
use berth_testkit::state::*;

fn name(text: &str) -> AggregateName {
    AggregateName::new(text).unwrap()
}

fn metadata(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn create(number: u64, text: &str, entries: &[(&str, &str)]) -> Command {
    Command::CreateAggregate(Aggregate {
        name: name(text),
        id: AggregateId(uuid(40, number)),
        hosts: Default::default(),
        metadata: metadata(entries),
        generation: Generation(0),
        created_at: TimeMs(0),
    })
}

fn update(text: &str, change: AggregateChange) -> Command {
    Command::UpdateAggregate {
        aggregate: name(text),
        change,
    }
}

fn add(hosts: &[&str]) -> AggregateChange {
    AggregateChange {
        add_hosts: hosts.iter().map(|host| host_name(host)).collect(),
        ..AggregateChange::default()
    }
}

fn remove(hosts: &[&str]) -> AggregateChange {
    AggregateChange {
        remove_hosts: hosts.iter().map(|host| host_name(host)).collect(),
        ..AggregateChange::default()
    }
}

fn set(entries: &[(&str, &str)]) -> AggregateChange {
    AggregateChange {
        set: metadata(entries),
        ..AggregateChange::default()
    }
}

fn in_zone(zone: &str) -> VmSpec {
    let mut spec = floating(1);
    spec.hints.availability_zone = Some(ZoneName::new(zone).unwrap());
    spec
}

const ZONE: &str = "availability_zone";

/// Two zones of one host each, and one host in none.
fn world() -> World {
    let mut world = World::with_hosts(3);
    for (number, zone) in [(1, "east"), (2, "west")] {
        world.run(create(number, zone, &[(ZONE, zone)])).unwrap();
    }
    world.run(update("east", add(&["h1"]))).unwrap();
    world.run(update("west", add(&["h2"]))).unwrap();
    world
}

#[test]
fn a_host_is_in_one_zone_and_a_vm_in_the_one_that_it_asked_for() {
    let mut world = world();
    let second = world.run(update("east", add(&["h2"])));
    assert_eq!(
        second.unwrap_err().message,
        "host h2 is in availability zone west by aggregate west, and cannot be in zone east too"
    );
    let refused = |world: &mut World, host| {
        let refused = world.begin_boot("a", &in_zone("east"), host);
        refused.unwrap_err().message
    };
    assert_eq!(
        refused(&mut world, "h2"),
        "host h2: it is in availability zone west, the guest asks for east"
    );
    assert_eq!(
        refused(&mut world, "h3"),
        "host h3: it is in no availability zone, the guest asks for east"
    );
    world.boot("a", &in_zone("east"), "h1");
    world.boot("b", &floating(1), "h1");
    // Neither may its host leave the zone, nor the zone the host.
    let leaving = world.run(update("east", remove(&["h1"])));
    assert_eq!(
        leaving.unwrap_err().message,
        "host h1 holds vm a, which requested the availability zone that it would leave"
    );
    for change in [
        set(&[(ZONE, "north")]),
        AggregateChange {
            unset: [ZONE.to_owned()].into(),
            ..AggregateChange::default()
        },
    ] {
        let refused = world.run(update("east", change));
        assert_eq!(reason(&refused), "ZONE_IN_USE");
    }
    // A host that is in the zone by two aggregates may leave one of them.
    world.run(create(3, "spare", &[(ZONE, "east")])).unwrap();
    world.run(update("spare", add(&["h1"]))).unwrap();
    world.run(update("east", remove(&["h1"]))).unwrap();
    let away = world.begin_migration("a", "h2").unwrap_err();
    assert_eq!(away.reason, "AVAILABILITY_ZONE");
    world.run(update("east", add(&["h3"]))).unwrap();
    world.begin_migration("a", "h3").unwrap();
}

#[test]
fn a_flavor_asks_for_what_aggregates_say() {
    let mut world = World::with_hosts(2);
    let fast = |value: &str| {
        let key = "aggregate_instance_extra_specs:disk";
        spec(flavor("fast", 1, 64, &[(key, value)]))
    };
    let refused = world.begin_boot("a", &fast("ssd"), "h1").unwrap_err();
    assert_eq!(refused.reason, "AGGREGATE_METADATA");
    assert_eq!(
        refused.message,
        "host h1: none of its aggregates says disk=ssd"
    );
    world
        .run(create(1, "fast", &[("disk", "ssd, nvme")]))
        .unwrap();
    world.run(update("fast", add(&["h1"]))).unwrap();
    world.boot("a", &fast("nvme"), "h1");
    world.boot("b", &fast("<or> tape <or> ssd"), "h1");
    let refused = world.begin_boot("c", &fast("<or> tape <or> ssd"), "h2");
    assert_eq!(
        refused.unwrap_err().message,
        "host h2: none of its aggregates says disk=ssd or tape"
    );
    // A host that registers with another shape is still in it, and one that goes leaves it.
    let again = report(topology(3, 3, 1));
    world.register("h1", again).unwrap();
    world.boot("d", &fast("ssd"), "h1");
    world.run(update("fast", add(&["h2"]))).unwrap();
    let host = host_name("h2");
    world.run(Command::RemoveHost { host }).unwrap();
    let fast = world.state.aggregate(&name("fast")).unwrap();
    assert_eq!(fast.hosts, [host_name("h1")].into());
}

#[test]
fn changes_are_judged_as_a_whole() {
    let mut world = world();
    let provider = |world: &World| {
        let provider = world.view("h1").host.provider;
        world.state.provider(provider).unwrap().clone()
    };
    let before = provider(&world);
    assert_eq!(before.aggregates, [AggregateId(uuid(40, 1))].into());
    for (expected, command) in [
        ("AGGREGATE_EXISTS", create(9, "east", &[])),
        ("AGGREGATE_EXISTS", create(1, "other", &[])),
        ("INVALID_AGGREGATE", create(9, "bad", &[(ZONE, "a b")])),
        ("INVALID_AGGREGATE", update("east", set(&[("key", "")]))),
        ("HOST_NOT_FOUND", update("east", add(&["h9", "h3"]))),
        ("HOST_NOT_IN_AGGREGATE", update("east", remove(&["h3"]))),
        ("AGGREGATE_NOT_FOUND", update("nobody", add(&["h3"]))),
        (
            "AGGREGATE_GENERATION",
            update(
                "east",
                AggregateChange {
                    generation: Some(Generation(1)),
                    ..add(&["h3"])
                },
            ),
        ),
        (
            "AGGREGATE_IN_USE",
            Command::DeleteAggregate {
                aggregate: name("east"),
            },
        ),
    ] {
        assert_eq!(reason(&world.run(command)), expected);
    }
    let Ok(Reply::Aggregate(same)) = world.run(update("east", add(&["h1"]))) else {
        panic!("the same again");
    };
    assert_eq!(same.generation, Generation(2));
    world.run(update("east", remove(&["h1"]))).unwrap();
    let after = provider(&world);
    assert!(after.aggregates.is_empty() && after.generation > before.generation);
    let aggregate = name("east");
    world.run(Command::DeleteAggregate { aggregate }).unwrap();
}
