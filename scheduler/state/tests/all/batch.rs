//! Batches: several writes of counted placement, all or none.

use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_state::apply::MOVED_MAX;
use berth_state::command::{Command, Envelope};
use berth_state::{Reply, Row, State};
use berth_testkit::state::draw::{placement_draws, play};
use berth_testkit::state::placement::*;
use berth_testkit::state::*;
use proptest::prelude::*;

fn batch(writes: &[Command]) -> Command {
    Command::Batch {
        writes: writes.to_vec(),
    }
}

/// Returns everything but the header, which counts commands.
fn content(state: &State) -> Vec<Row> {
    let rows = state.rows();
    rows.filter(|row| !matches!(row, Row::Header(_))).collect()
}

/// Carries writes out one by one; returns the place and the reason of the first that is refused.
fn one_by_one(world: &World, writes: &[Command]) -> Result<World, (usize, Refusal)> {
    let mut world = world.clone();
    for (at, write) in writes.iter().enumerate() {
        world.run(write.clone()).map_err(|refusal| (at, refusal))?;
    }
    Ok(world)
}

/// Carries writes out as one command, and says whether they were refused.
fn together(world: &mut World, writes: &[Command]) -> Result<bool, TestCaseError> {
    let before = content(&world.state);
    let alone = one_by_one(world, writes);
    match (alone, world.run(batch(writes))) {
        (
            Ok(alone),
            Ok(Reply::Batch {
                providers,
                consumers,
            }),
        ) => {
            prop_assert_eq!(content(&world.state), content(&alone.state));
            for provider in providers {
                prop_assert_eq!(Some(&provider), alone.state.provider(provider.id));
            }
            for consumer in consumers {
                prop_assert_eq!(Some(&consumer), alone.state.consumer(consumer.id));
            }
            Ok(false)
        }
        (Err((at, refusal)), Err(refused)) => {
            prop_assert_eq!(content(&world.state), before);
            prop_assert_eq!(&refused.metadata["write"], &at.to_string());
            prop_assert_eq!(
                (refused.code, &refused.reason),
                (refusal.code, &refusal.reason)
            );
            prop_assert!(refused.message.ends_with(&refusal.message));
            Ok(true)
        }
        (alone, outcome) => {
            let alone = alone.map(drop);
            Err(TestCaseError::fail(format!(
                "{alone:?}, but together {outcome:?}"
            )))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, failure_persistence: None, ..ProptestConfig::default() })]

    /// The writes of a drawn sequence, cut into batches of some length: each leaves what its writes
    /// leave one by one, or nothing. What was refused is then tried one by one, so that the
    /// sequence goes on.
    #[test]
    fn a_batch_is_its_writes_or_nothing(draws in placement_draws(), length in 1..7_usize) {
        let (_, played) = play(&draws);
        let writes: Vec<Command> = played.into_iter().map(|(_, _, command)| command).collect();
        let writes: Vec<Command> = writes.into_iter().filter(Command::is_placement_write).collect();
        let mut world = World::with_hosts(3);
        for writes in writes.chunks(length) {
            if together(&mut world, writes)? {
                for write in writes {
                    let _ = world.run(write.clone());
                }
            }
        }
    }
}

/// Goal: the sequences above hold long batches that are carried out, and ones that are refused at
/// the first, at a later and at the last write. Method: count over fixed draws.
#[test]
fn batches_of_all_kinds_are_met() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let (mut done, mut refused_at) = (0, [0; 4]);
    for _ in 0..40 {
        let draws = placement_draws().new_tree(&mut runner).unwrap().current();
        let (_, played) = play(&draws);
        let writes: Vec<Command> = played.into_iter().map(|(_, _, command)| command).collect();
        let writes: Vec<Command> = writes
            .into_iter()
            .filter(Command::is_placement_write)
            .collect();
        let mut world = World::with_hosts(3);
        for writes in writes.chunks_exact(4) {
            match world.run(batch(writes)) {
                Ok(_) => done += 1,
                Err(refusal) => {
                    let at: usize = refusal.metadata["write"].parse().unwrap();
                    refused_at[at] += 1;
                    for write in writes {
                        let _ = world.run(write.clone());
                    }
                }
            }
        }
    }
    assert!(
        done > 10 && refused_at.iter().all(|count| *count > 10),
        "{done} {refused_at:?}"
    );
}

/// Goal: a whole host is made and taken from at once; what is answered is how it is afterwards.
#[test]
fn a_host_is_made_in_one_command() {
    let mut world = World::default();
    let taken = |amount| Command::SetAllocations {
        consumers: vec![update(1, None, &[(1, "VCPU", amount)])],
    };
    let writes = |amount| {
        [
            new_class("CUSTOM_GOLD"),
            new_trait("CUSTOM_FAST"),
            create(1, None),
            create(2, Some(1)),
            inventories(1, 0, &[("VCPU", 8), ("CUSTOM_GOLD", 1)]),
            traits(1, 1, &["CUSTOM_FAST"]),
            taken(amount),
        ]
    };
    let refused = world.run(batch(&writes(9))).unwrap_err();
    assert_eq!(
        (&*refused.reason, &*refused.metadata["write"]),
        ("INVENTORY_CONSTRAINTS", "6")
    );
    assert!(
        refused.message.starts_with("write 6 of the batch: "),
        "{refused}"
    );
    assert!(world.state.providers().is_empty() && world.state.classes().is_empty());

    let Ok(Reply::Batch {
        providers,
        consumers,
    }) = world.run(batch(&writes(8)))
    else {
        panic!("it has room");
    };
    let providers: Vec<_> = providers.iter().map(|p| (p.id, p.generation.0)).collect();
    assert_eq!(providers, [(provider(1), 3), (provider(2), 0)]);
    assert_eq!(consumers.len(), 1);
    assert_eq!(used(&world, 1, "VCPU"), 8);
}

/// Goal: a batch that is repeated is answered again, not carried out again, and one that was
/// refused stays so.
#[test]
fn a_repeated_batch_is_answered_again() {
    let mut world = World::default();
    let key = |number| Some(request(number, 1));
    let made = batch(&[create(1, None), create(2, None)]);
    let first = world.run_as(key(1), made.clone()).unwrap();
    assert_eq!(world.run_as(key(1), made).unwrap(), first);
    let refused = world.run_as(key(2), batch(&[create(3, None), create(1, None)]));
    world.run(delete(1)).unwrap();
    let again = world.run_as(key(2), batch(&[create(3, None), create(1, None)]));
    assert_eq!(reason(&again), "DUPLICATE_ID");
    assert_eq!(again, refused);
}

/// Goal: only writes of counted placement are in batches.
#[test]
fn what_is_no_write_of_placement_is_refused() {
    let mut world = World::default();
    let rename = Command::RenameClass {
        from: class("CUSTOM_A"),
        to: class("CUSTOM_B"),
    };
    let host = Command::RemoveHost {
        host: host_name("h1"),
    };
    for write in [rename, host, batch(&[])] {
        let outcome = world.run(batch(&[new_class("CUSTOM_A"), write]));
        assert_eq!(reason(&outcome), "NOT_FOR_BATCHES");
    }
    assert!(world.run(batch(&[])).is_ok());
}

/// Goal: moving large trees to and fro in one command cannot hold the members up. Method: a wide
/// tree, moved a few times within the bound, then once too often.
#[test]
fn moves_are_bounded() {
    let mut state = State::new();
    let mut index = 0;
    let mut apply = |command: Command| {
        index += 1;
        let envelope = Envelope {
            at: TimeMs(1),
            principal: "test".to_owned(),
            request: None,
            audit: None,
            command,
        };
        state.apply(index, &envelope)
    };
    let children = 999;
    let mut writes = vec![create(1, None), create(2, None), create(3, None)];
    writes.extend((0..children).map(|n| create(10 + n, Some(3))));
    assert!(apply(batch(&writes)).outcome.is_ok());
    let to_and_fro = |times: usize| -> Vec<Command> {
        let parents = [1, 2].into_iter().cycle().take(times);
        parents.map(|parent| place(3, Some(parent), true)).collect()
    };
    let times = MOVED_MAX / 1000;
    let applied = apply(batch(&to_and_fro(times)));
    assert!(applied.outcome.is_ok());
    // Each row once, however often it was written; and the header.
    assert_eq!(applied.changes.len(), 1000 + 1);
    let refused = apply(batch(&to_and_fro(times + 1)));
    let refused = refused.outcome.unwrap_err();
    assert_eq!(
        (&*refused.reason, &*refused.metadata["write"]),
        ("BATCH_MOVES_TOO_MUCH", "10")
    );
}
