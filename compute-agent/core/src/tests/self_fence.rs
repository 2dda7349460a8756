//! An agent that is not heard of stops its guests by itself, whatever it is doing to them.

use berth_domain::agent::DomainState;
use berth_domain::id::TimeMs;
use berth_domain::instance::PageSize;
use berth_driver::Kind;
use berth_driver::conformance::sample;
use berth_driver::sim::Behaviour;

use super::rig::{Guest, Rig, host};
use crate::{Event, Feeding, STOPPING_MS};

const LIMIT_MS: u64 = 10_000;

fn pinned() -> Guest {
    Guest::new("a", 1, sample::pinned_spec(1, PageSize::Unspecified))
}

fn heard(rig: &mut Rig, name: &str, sent_at: TimeMs) {
    let lease_ms = 60_000;
    let name = host(name);
    rig.step(&name, Event::HeartbeatAcknowledged { sent_at, lease_ms });
    let limit_ms = LIMIT_MS;
    rig.step(&name, Event::SelfFence { limit_ms });
}

fn runs(rig: &Rig, guest: &Guest) -> usize {
    rig.world.executing(guest.uid).len()
}

/// Goal: counted from when the report was sent, and not a moment too early; nothing is started until it
/// is heard of again.
#[test]
fn guests_are_stopped_when_the_lease_lapses() {
    let (mut rig, h1, guest) = (Rig::new(&[3]), host("h1"), pinned());
    rig.spawn(&h1, &guest, sample::pins(0, &[1], None)).unwrap();
    let sent_at = rig.now;
    rig.pass(4_000);
    heard(&mut rig, "h1", sent_at);
    rig.pass(LIMIT_MS - 4_000);
    assert!(rig.now.0 - sent_at.0 <= LIMIT_MS);
    assert_eq!(runs(&rig, &guest), 1);
    rig.pass(1_000);
    assert_eq!(runs(&rig, &guest), 0);
    let other = Guest::new("b", 2, guest.spec.clone());
    let refused = rig.spawn(&h1, &other, sample::pins(0, &[2], None));
    assert_eq!(refused.unwrap_err().reason, "AGENT_CUT_OFF");
    let now = rig.now;
    heard(&mut rig, "h1", now);
    rig.pass(1_000);
    rig.spawn(&h1, &other, sample::pins(0, &[2], None)).unwrap();
    assert_eq!((runs(&rig, &guest), runs(&rig, &other)), (0, 1));
}

#[test]
fn without_the_policy_guests_go_on() {
    let (mut rig, h1, guest) = (Rig::new(&[3]), host("h1"), pinned());
    rig.spawn(&h1, &guest, sample::pins(0, &[1], None)).unwrap();
    let now = rig.now;
    heard(&mut rig, "h1", now);
    rig.step(&h1, Event::SelfFence { limit_ms: 0 });
    rig.pass(100 * LIMIT_MS);
    assert_eq!(runs(&rig, &guest), 1);
}

/// Goal: what an earlier run has promised is kept by the next, which finds its guests.
#[test]
fn a_run_that_begins_too_late_stops_what_it_finds() {
    let (mut rig, h1, guest) = (Rig::new(&[3]), host("h1"), pinned());
    rig.spawn(&h1, &guest, sample::pins(0, &[1], None)).unwrap();
    let sent_at = rig.now;
    rig.pass(2 * LIMIT_MS);
    rig.restart_agent(&h1);
    heard(&mut rig, "h1", sent_at);
    rig.pass(1);
    assert_eq!(runs(&rig, &guest), 0);
}

/// Goal: a guest whose start was under way when the lease lapsed is stopped as soon as it is there.
#[test]
fn a_start_that_comes_too_late_is_stopped() {
    let (mut rig, h1, guest) = (Rig::new(&[3]), host("h1"), pinned());
    let now = rig.now;
    heard(&mut rig, "h1", now);
    let late = Behaviour::Late { by_ms: 30_000 };
    rig.world.script(&h1, Kind::Create, [late]);
    let call = guest.spawn_call(&h1, sample::pins(0, &[1], None));
    let id = rig.begin(&h1, &guest, call);
    rig.now = TimeMs(now.0 + LIMIT_MS + 1);
    let _ = rig.answer(id);
    assert_eq!(runs(&rig, &guest), 1, "the hypervisor did it");
    rig.pass(1_000);
    assert_eq!(runs(&rig, &guest), 0);
}

/// Goal: a guest that leaves stays or has left, and runs no more here. Method: the lease lapses in the
/// middle of its transfer.
#[test]
fn a_guest_that_leaves_is_stopped_too() {
    let (mut rig, h1, h2) = (Rig::new(&[3, 3]), host("h1"), host("h2"));
    let guest = pinned();
    rig.pass(2 * LIMIT_MS);
    rig.spawn(&h1, &guest, sample::pins(0, &[1], None)).unwrap();
    let data = rig.ready(&h1, &h2, &guest, sample::pins(0, &[1], None));
    let sent_at = TimeMs(rig.now.0.saturating_sub(LIMIT_MS));
    rig.send(&h1, &guest, 1, &data).unwrap();
    assert_eq!(rig.state(&h1, &guest), DomainState::MigratingOut);
    heard(&mut rig, "h1", sent_at);
    let now = TimeMs(rig.now.0 + 1);
    rig.step(&h1, Event::Tick { now });
    rig.settle();
    rig.pass(1_000);
    assert_eq!(runs(&rig, &guest), 0);
}

/// Returns a host with a watchdog, heard just now, on which a guest runs.
fn guarded(guest: &Guest) -> Rig {
    let (mut rig, h1) = (Rig::new(&[3]), host("h1"));
    rig.guard(&h1);
    rig.spawn(&h1, guest, sample::pins(0, &[1], None)).unwrap();
    let now = rig.now;
    heard(&mut rig, "h1", now);
    rig
}

fn fed(rig: &mut Rig) -> Vec<Feeding> {
    let mut fed = std::mem::take(&mut rig.fed);
    fed.dedup();
    fed
}

/// Goal: whoever promises waits until the watchdog runs, so the first order comes with the limit; and
/// it ends with it.
#[test]
fn the_watchdog_is_told_at_once() {
    let (mut rig, h1) = (guarded(&pinned()), host("h1"));
    assert_eq!(fed(&mut rig), [Feeding::Off, Feeding::Fed]);
    rig.step(&h1, Event::SelfFence { limit_ms: 0 });
    assert_eq!(fed(&mut rig), [Feeding::Off]);
}

/// Goal: one that has stopped its guests goes on to be fed, however long nobody hears of it.
#[test]
fn an_agent_that_stops_its_guests_is_not_reset() {
    let guest = pinned();
    let mut rig = guarded(&guest);
    let _ = fed(&mut rig);
    rig.live_on(10 * LIMIT_MS);
    assert_eq!(runs(&rig, &guest), 0);
    assert_eq!(fed(&mut rig), [Feeding::Fed]);
    assert!(rig.agents[&host("h1")].runs_nothing());
}

/// Goal: where guests cannot be stopped the watchdog starves, and not before stopping should be over.
/// Method: the hypervisor does not stop them for a while.
#[test]
fn guests_that_do_not_stop_starve_the_watchdog() {
    let (guest, h1) = (pinned(), host("h1"));
    let mut rig = guarded(&guest);
    let late = Behaviour::Late {
        by_ms: 3 * LIMIT_MS,
    };
    rig.world.script(&h1, Kind::Stop, [late]);
    let _ = fed(&mut rig);
    rig.live_on(LIMIT_MS + STOPPING_MS);
    assert_eq!(fed(&mut rig), [Feeding::Fed]);
    rig.live_on(2_000);
    assert_eq!(fed(&mut rig), [Feeding::Starved]);
    assert_eq!(runs(&rig, &guest), 1);
    assert!(!rig.agents[&h1].runs_nothing());
    rig.live_on(10 * LIMIT_MS);
    assert_eq!(runs(&rig, &guest), 0);
    assert_eq!(fed(&mut rig), [Feeding::Starved, Feeding::Fed]);
}

/// Goal: the agent's own belief that nothing runs is not enough. Method: the hypervisor does not
/// answer; then it names a guest that this agent does not know.
#[test]
fn the_hypervisor_must_say_that_nothing_runs() {
    let (guest, h1) = (pinned(), host("h1"));
    let mut rig = guarded(&guest);
    let silence = vec![Behaviour::TimeOut { effect: false }; 3];
    rig.world.script(&h1, Kind::Domains, silence);
    rig.live_on(LIMIT_MS + STOPPING_MS + 2_000);
    assert_eq!(runs(&rig, &guest), 0);
    assert_eq!(rig.fed.last(), Some(&Feeding::Starved));
    rig.live_on(1_000_000);
    assert_eq!(rig.fed.last(), Some(&Feeding::Fed));

    let mut rig = guarded(&guest);
    rig.forget_guests(&h1);
    rig.guard(&h1);
    let sent_at = rig.now;
    heard(&mut rig, "h1", sent_at);
    assert_eq!(runs(&rig, &guest), 1);
    rig.live_on(LIMIT_MS + STOPPING_MS + 2_000);
    assert_eq!(runs(&rig, &guest), 0);
    assert_eq!(rig.fed.last(), Some(&Feeding::Fed));
}

/// Goal: the next run of a dead agent does not prolong what has run out.
#[test]
fn a_run_that_begins_too_late_feeds_nothing_until_all_is_stopped() {
    let (guest, h1) = (pinned(), host("h1"));
    let mut rig = guarded(&guest);
    let sent_at = rig.now;
    rig.pass(LIMIT_MS + STOPPING_MS);
    rig.restart_agent(&h1);
    rig.guard(&h1);
    heard(&mut rig, "h1", sent_at);
    rig.fed.clear();
    rig.live_on(5_000);
    assert_eq!(runs(&rig, &guest), 0);
    assert_eq!(fed(&mut rig), [Feeding::Starved, Feeding::Fed]);
}
