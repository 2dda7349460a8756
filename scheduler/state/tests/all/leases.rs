//! Who may carry an operation out, and when another may.

use berth_domain::id::Epoch;
use berth_domain::operation::{Mark, Step};
use berth_state::command::{Command, Effect, LeaseRequest};
use berth_testkit::state::*;

#[test]
fn leases_are_fenced_by_growing_epochs() {
    let mut world = World::with_hosts(1);
    let operation = world.begin_boot("a", &pinned(1), "h1").unwrap();
    let take = |name: &str| Command::TakeLease {
        operation,
        lease: LeaseRequest {
            conductor: conductor(name),
            ttl_ms: 5_000,
        },
    };
    let renew = |name: &str, epoch| Command::RenewLeases {
        conductor: conductor(name),
        leases: vec![(operation, epoch)],
        ttl_ms: 5_000,
    };
    assert_eq!(reason(&world.run(take("c2"))), "LEASE_HELD");
    world.now += 9_999;
    assert_eq!(
        world
            .state
            .expired_leases(berth_domain::id::TimeMs(world.now))
            .count(),
        0
    );
    assert_eq!(reason(&world.run(take("c2"))), "LEASE_HELD");
    world.now += 1;
    assert_eq!(
        world
            .state
            .expired_leases(berth_domain::id::TimeMs(world.now))
            .count(),
        1
    );
    world.run(take("c2")).unwrap();
    assert_eq!(world.epoch(operation), Epoch(2));
    let advance = |epoch| Command::Advance {
        operation,
        epoch,
        step: Step::Spawn,
        mark: Mark::Started,
        effect: Effect::None,
    };
    assert_eq!(reason(&world.run(advance(Epoch(1)))), "STALE_EPOCH");
    assert_eq!(reason(&world.run(advance(Epoch(3)))), "STALE_EPOCH");
    assert_eq!(reason(&world.run(advance(Epoch(2)))), "ok");
    let held = |outcome| match outcome {
        Ok(berth_state::Reply::Leases(held)) => held,
        other => panic!("{other:?}"),
    };
    assert_eq!(held(world.run(renew("c1", Epoch(1)))), []);
    assert_eq!(held(world.run(renew("c2", Epoch(1)))), []);
    world.now += 6_000;
    assert_eq!(
        held(world.run(renew("c2", Epoch(2)))),
        [operation],
        "expired, but nobody took it"
    );
    assert_eq!(reason(&world.run(take("c1"))), "LEASE_HELD");
    world.run(take("c2")).unwrap();
    assert_eq!(
        world.epoch(operation),
        Epoch(3),
        "one's own may be taken again"
    );
}

#[test]
fn time_never_runs_backwards() {
    let mut world = World::with_hosts(1);
    let now = world.now;
    world.now = 5;
    world.begin_boot("a", &pinned(1), "h1").unwrap();
    assert_eq!(world.state.time().0, now);
}
