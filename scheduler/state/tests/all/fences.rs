//! Hosts that were fenced.

use berth_domain::fence::{Method, OUTPUT_MAX, may_evacuate};
use berth_domain::host::Liveness;
use berth_domain::id::{Incarnation, TimeMs};
use berth_domain::operation::{Mark, Step};
use berth_domain::refusal::Refusal;
use berth_state::command::{Command, Effect};
use berth_testkit::state::*;

fn fence(world: &mut World, method: Method) -> Result<(), Refusal> {
    let incarnation = world.view("h1").host.report.incarnation;
    let fence = Command::FenceHost {
        host: host_name("h1"),
        method,
        by: "unverified:test".to_owned(),
        output: "off".to_owned(),
        incarnation,
    };
    world.run(fence).map(drop)
}

fn record_liveness(world: &mut World, liveness: Liveness) {
    let host = host_name("h1");
    world.run(Command::SetLiveness { host, liveness }).unwrap();
}

fn may(world: &World) -> Result<Method, String> {
    let verdict = may_evacuate(&world.view("h1").host, TimeMs(world.now));
    verdict.map(|p| p.fenced.method).map_err(|r| r.reason)
}

/// Goal: nobody's word counts against an agent that is heard of; a fence command, which does
/// something, does.
#[test]
fn a_host_that_is_heard_of_is_not_off() {
    let mut world = World::with_hosts(1);
    for method in [Method::Operator, Method::SelfFenced] {
        let refusal = fence(&mut world, method).unwrap_err();
        assert_eq!(refusal.reason, "HOST_IS_ALIVE", "{method:?}");
    }
    fence(&mut world, Method::FenceCommand).unwrap();
    assert_eq!(world.view("h1").host.liveness, Liveness::Down);
    assert_eq!(may(&world), Ok(Method::FenceCommand));
}

/// Goal: a proof ends for good when the host is heard of; it stays closed.
#[test]
fn a_proof_ends_when_the_host_is_heard_of() {
    let mut world = World::with_hosts(2);
    record_liveness(&mut world, Liveness::Down);
    assert_eq!(may(&world), Err("HOST_NOT_FENCED".to_owned()));
    fence(&mut world, Method::Operator).unwrap();
    assert_eq!(may(&world), Ok(Method::Operator));
    record_liveness(&mut world, Liveness::Up);
    assert_eq!(may(&world), Err("HOST_IS_ALIVE".to_owned()));
    let refusal = world.begin_boot("a", &pinned(1), "h1").unwrap_err();
    assert_eq!(refusal.reason, "HOST_FENCED");
    record_liveness(&mut world, Liveness::Down);
    assert_eq!(may(&world), Err("HOST_NOT_FENCED".to_owned()));
    fence(&mut world, Method::Operator).unwrap();
    assert_eq!(may(&world), Ok(Method::Operator), "said anew");
}

/// Goal: a lapsed lease is a proof only where the agent has promised to stop its guests by itself.
#[test]
fn only_a_promise_makes_a_lapsed_lease_a_proof() {
    let mut world = World::with_hosts(1);
    record_liveness(&mut world, Liveness::Down);
    let refusal = fence(&mut world, Method::SelfFenced).unwrap_err();
    assert_eq!(refusal.reason, "SELF_FENCE_NOT_PROMISED");
    let refusal = may_evacuate(&world.view("h1").host, TimeMs(world.now)).unwrap_err();
    assert_eq!(refusal.metadata["self_fence"], "not promised");
    let mut promising = report(topology(2, 3, 1));
    promising.self_fence_ms = 10_000;
    world.register("h1", promising).unwrap();
    let refusal = fence(&mut world, Method::SelfFenced).unwrap_err();
    assert_eq!(refusal.reason, "HOST_IS_ALIVE");
    record_liveness(&mut world, Liveness::Down);
    let refusal = may_evacuate(&world.view("h1").host, TimeMs(world.now)).unwrap_err();
    assert_eq!(refusal.metadata["self_fence"], "promised");
    fence(&mut world, Method::SelfFenced).unwrap();
    assert_eq!(may(&world), Ok(Method::SelfFenced));
}

/// Goal: an agent that stops what arrives only a moment after it has is no proof while something may
/// arrive, and nothing sets out for a host that is proven dead.
#[test]
fn nobody_is_on_the_way_to_a_host_whose_lease_has_lapsed() {
    for (sets_out_before, refused) in [(true, "GUEST_ARRIVES"), (false, "HOST_FENCED")] {
        let mut world = World::with_hosts(2);
        let mut promising = report(topology(2, 3, 1));
        promising.self_fence_ms = 10_000;
        world.register("h1", promising).unwrap();
        world.boot("a", &pinned(1), "h2");
        let operation = world.begin_migration("a", "h1").unwrap();
        world.prepare(operation);
        let begin = |world: &mut World| {
            let effect = Effect::BeginTransfer;
            world.advance(operation, Step::LiveMigration, Mark::Started, effect)
        };
        if sets_out_before {
            begin(&mut world).unwrap();
        }
        record_liveness(&mut world, Liveness::Down);
        let refusal = match fence(&mut world, Method::SelfFenced) {
            Ok(()) => begin(&mut world).unwrap_err(),
            Err(refusal) => refusal,
        };
        assert_eq!(refusal.reason, refused);
        fence(&mut world, Method::Operator).unwrap();
    }
}

/// Goal: a fence command that ran while the agent was started again proves nothing.
#[test]
fn a_proof_is_about_one_run_of_the_agent() {
    let mut world = World::with_hosts(1);
    record_liveness(&mut world, Liveness::Down);
    let mut report = report(topology(2, 3, 1));
    report.incarnation = Incarnation(uuid(9, 9));
    let old = world.view("h1").host.report.incarnation;
    world.register("h1", report).unwrap();
    let stale = Command::FenceHost {
        host: host_name("h1"),
        method: Method::FenceCommand,
        by: String::new(),
        output: String::new(),
        incarnation: old,
    };
    assert_eq!(world.run(stale).unwrap_err().reason, "AGENT_RESTARTED");
    let long = Command::FenceHost {
        host: host_name("h1"),
        method: Method::FenceCommand,
        by: String::new(),
        output: "x".repeat(OUTPUT_MAX + 1),
        incarnation: Incarnation(uuid(9, 9)),
    };
    assert_eq!(world.run(long).unwrap_err().reason, "INVALID_FENCE");
}
