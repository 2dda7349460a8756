//! Goal: whoever begins with a list and applies what the feed tells has, at every revision, exactly
//! what the state has; nothing is left out, told twice or told in another order.
//!
//! Method: the random sequences of commands with which the state is tested, applied in batches of
//! random sizes; readers begin at random revisions and compare after every revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_codec as codec;
use berth_domain::event::{Change, Name, Record};
use berth_domain::id::TimeMs;
use berth_replication::effects::{AppliedBatch, AppliedCommand, Position};
use berth_replication::runtime::Event;
use berth_scheduler::Machine;
use berth_scheduler::feed::{Feed, Limits};
use berth_state::State;
use berth_state::command::Envelope;
use berth_testkit::state::World;
use berth_testkit::state::draw::{Draw, draws, play};
use proptest::prelude::*;
use tokio::sync::broadcast;

pub(crate) type Records = BTreeMap<Name, Record>;

/// Everything of a state that is told.
pub(crate) fn records(state: &State) -> Records {
    let vms = state.vms().values().cloned().map(Record::Vm);
    let migrations = state.migrations().values().cloned().map(Record::Migration);
    let hosts = state.hosts().values().map(|v| Record::Host(v.host.clone()));
    let claims = state.claims().values().cloned().map(Record::Claim);
    let operations = state.operations().values().cloned().map(Record::Operation);
    let all = vms.chain(migrations).chain(hosts);
    let all = all.chain(claims).chain(operations);
    all.map(|record| (record.name(), record)).collect()
}

/// A history: the state after each command, and the batches in which they were applied.
struct Played {
    /// By revision; the first is the state before the first command.
    states: BTreeMap<u64, State>,
    batches: Vec<AppliedBatch<Machine>>,
}

fn played(draws: &[Draw], sizes: &[usize]) -> Played {
    let (_, commands) = play(draws);
    let mut state = World::with_hosts(3).state;
    let mut states = BTreeMap::from([(state.revision(), state.clone())]);
    let mut applied = Vec::new();
    for (number, (request, now, command)) in commands.into_iter().enumerate() {
        let envelope = Envelope {
            at: TimeMs(now),
            principal: "unverified:test".to_owned(),
            request,
            audit: None,
            command,
        };
        // Not every entry of a log is a command.
        let index = state.revision() + 1 + u64::from(number % 5 == 3);
        let done = state.apply(index, &envelope);
        states.insert(index, state.clone());
        applied.push(AppliedCommand {
            index,
            outcome: done.outcome,
            changes: done.changes.iter().map(codec::encode_change).collect(),
        });
    }
    let mut batches = Vec::new();
    let mut sizes = sizes.iter().cycle();
    while !applied.is_empty() {
        let size = applied.len().min(*sizes.next().unwrap());
        let commands: Vec<_> = applied.drain(..size).collect();
        let position = Position {
            // A batch may end with entries that are no commands.
            index: commands[size - 1].index + 1,
            ..Position::default()
        };
        batches.push(AppliedBatch {
            commands,
            position,
            membership: Arc::default(),
        });
    }
    Played { states, batches }
}

/// Returns the feed after all batches.
fn feed(played: &Played, limits: Limits) -> Feed {
    let feed = Feed::new(*played.states.keys().next().unwrap(), limits);
    let (sender, receiver) = broadcast::channel(1024);
    for batch in &played.batches {
        let batch = Arc::new(batch.clone());
        assert!(sender.send(Event::Applied(batch)).is_ok());
    }
    drop(sender);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    runtime.block_on(feed.clone().follow(receiver));
    feed
}

/// Reads on from a list taken at this revision, and compares after every revision.
fn read_on(played: &Played, feed: &Feed, from: u64) {
    let mut records_now = records(&played.states[&from]);
    let (mut told, mut known) = (from, from);
    loop {
        let part = feed.events(known).unwrap();
        for revision in &part.revisions {
            assert!(revision.revision > told, "told twice, or out of order");
            // What is not told has changed nothing.
            let silent = told + 1..revision.revision;
            for (at, state) in played.states.range(silent) {
                assert_eq!(records(state), records_now, "changes of {at} were left out");
            }
            for noted in &revision.changes {
                match noted.read().unwrap() {
                    Change::Put(record) => drop(records_now.insert(record.name(), record)),
                    Change::Deleted(name) => {
                        assert!(records_now.remove(&name).is_some(), "{name} was not there");
                    }
                }
            }
            told = revision.revision;
            assert_eq!(records_now, records(&played.states[&told]), "at {told}");
        }
        assert!(part.revision >= told && part.revision >= known);
        known = part.revision;
        if !part.is_more {
            break;
        }
    }
    let (last, state) = played.states.last_key_value().unwrap();
    assert_eq!((known, &records_now), (*last, &records(state)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_and_what_is_told_make_the_state(
        draws in draws(),
        sizes in proptest::collection::vec(1_usize..6, 1..8),
        picks in proptest::collection::vec(any::<proptest::sample::Index>(), 3),
    ) {
        let played = played(&draws, &sizes);
        let feed = feed(&played, Limits { changes: 1 << 20, bytes: 1 << 30 });
        let revisions: Vec<u64> = played.states.keys().copied().collect();
        for pick in picks {
            read_on(&played, &feed, *pick.get(&revisions));
        }
    }

    /// What was forgotten is refused with the first revision that was not, and from there on
    /// everything is told.
    #[test]
    fn what_is_forgotten_is_refused_and_nothing_else(
        draws in draws(),
        sizes in proptest::collection::vec(1_usize..6, 1..8),
        changes in 1_usize..40,
    ) {
        let played = played(&draws, &sizes);
        let feed = feed(&played, Limits { changes, bytes: 1 << 30 });
        for from in played.states.keys() {
            match feed.events(*from) {
                Ok(_) => read_on(&played, &feed, *from),
                Err(refusal) => {
                    prop_assert_eq!(&refusal.reason, "REVISION_NOT_KEPT");
                    let first: u64 = refusal.metadata["first_revision"].parse().unwrap();
                    prop_assert!(*from < first);
                    read_on(&played, &feed, first);
                }
            }
        }
    }
}
