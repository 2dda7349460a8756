//! What an answer promises: done, not done or unknown, whatever happens to the cluster meanwhile.
//!
//! Method: real members over loopback, whose replicas are made to stand still, stopped or killed
//! while writes are under way; each answer is compared with the state after everything has settled.

#![allow(unreachable_pub, reason = "the modules are those of one test")]

mod fault;
mod source;
mod world;
mod write;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_state::State;
use tokio::task::JoinSet;

use fault::Fault;
use world::World;
use write::{Api, Kind, Stated, Write, make_pool};

/// How often each fault happens, unless this variable says another number.
const ROUNDS: usize = 1;
const ROUNDS_VARIABLE: &str = "BERTH_PROMISE_ROUNDS";
/// A time for requests that ends before an election begins.
const HASTY: Duration = Duration::from_millis(300);
/// A time for requests in which elections begin and end.
const PATIENT: Duration = Duration::from_secs(6);

/// A write, what its answer stated, and the answer.
type Sent = (Write, Stated, String);
/// How many answers stated this, at the leader or at a follower.
type Counts = BTreeMap<(Fault, Api, bool, Stated), usize>;

/// Sends a write of each kind by each API to each of these members, all at once.
fn send(world: &World, members: &[usize]) -> JoinSet<Sent> {
    let mut sent = JoinSet::new();
    for (kind, api) in Kind::ALL.iter().flat_map(|k| Api::ALL.map(|a| (*k, a))) {
        for member in members {
            let write = Write::new(kind, api, *member);
            let addresses = world.addresses.clone();
            sent.spawn(async move {
                let (stated, answer) = write.send(&addresses).await;
                (write, stated, answer)
            });
        }
    }
    sent
}

/// Returns a line for every answer that the state contradicts.
fn contradictions(fault: Fault, sent: &[Sent], state: &State) -> Vec<String> {
    let wrong = sent.iter().filter(|(write, stated, _)| match stated {
        Stated::Done => !write.is_in(state),
        Stated::NotDone => write.is_in(state),
        Stated::Unknown => false,
    });
    wrong.map(|sent| format!("{fault:?}: {sent:?}")).collect()
}

/// Goal: a forwarded write that is under way when the member's time for it ends is not reported as
/// not done, and neither is one that the leader itself got. Method: the leader's replica stands
/// still for as long as requests have.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_write_under_way_at_the_timeout_is_not_reported_as_not_done() {
    let mut world = World::start(3, HASTY).await;
    make_pool(&world.addresses).await;
    let sent = Fault::LeaderSlow.happen(&mut world, send).await;
    let wrong = contradictions(Fault::LeaderSlow, &sent, &world.settled().await);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Goal: no answer states what the later state contradicts, whatever fails, by whichever API and
/// at whichever member. Method: each fault while writes of all kinds are under way by all APIs at
/// the leader and at followers; prints how many answers stated what.
#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn every_answer_is_true_whatever_fails() {
    let begun = Instant::now();
    let rounds = std::env::var(ROUNDS_VARIABLE);
    let rounds = rounds.map_or(ROUNDS, |text| text.parse().expect("a number"));
    let mut counts = Counts::new();
    let mut wrong = Vec::new();
    for timeout in [HASTY, PATIENT] {
        let mut world = World::start(5, timeout).await;
        make_pool(&world.addresses).await;
        let faults = Fault::ALL.repeat(rounds);
        let is_due = |fault: &Fault| fault.is_patient() == (timeout == PATIENT);
        for fault in faults.into_iter().filter(is_due) {
            let leader = world.leader().await;
            let sent = fault.happen(&mut world, send).await;
            wrong.extend(contradictions(fault, &sent, &world.settled().await));
            for (write, stated, _) in sent {
                let direct = write.member == leader;
                *counts
                    .entry((fault, write.api, direct, stated))
                    .or_default() += 1;
            }
        }
    }
    let total: usize = counts.values().sum();
    for ((fault, api, direct, stated), count) in &counts {
        let route = if *direct { "leader" } else { "follower" };
        println!("{fault:?}\t{api:?}\t{route}\t{stated:?}\t{count}");
    }
    println!("{total} answers in {:.1} s", begun.elapsed().as_secs_f64());
    assert!(
        wrong.is_empty(),
        "{} of {total} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    check_coverage(&counts);
}

/// Checks that every fault met writes that it could break.
fn check_coverage(counts: &Counts) {
    let of = |fault: Fault, stated: Stated| -> usize {
        let of = |(f, api, _, s): &(Fault, Api, bool, Stated)| {
            (*f, *s) == (fault, stated) && api.is_patient()
        };
        let counts = counts.iter().filter(|(key, _)| of(key));
        counts.map(|(_, count)| count).sum()
    };
    for fault in Fault::ALL {
        let met = match fault {
            Fault::None => of(fault, Stated::Done).min(of(fault, Stated::NotDone)),
            // Everything may be decided before or after.
            Fault::Transfer => 1,
            Fault::LeaderSlow
            | Fault::QueueFull
            | Fault::LeadershipLost
            | Fault::LeaderStopped
            | Fault::LeaderKilled
            | Fault::FollowerStopped
            | Fault::FollowerKilled => of(fault, Stated::Unknown),
        };
        assert!(met > 0, "{fault:?} met no write under way");
    }
}
