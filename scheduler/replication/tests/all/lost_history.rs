//! Members that come back with an older disk, and what the others notice.
//!
//! Goal: no loss that a running member can contradict leads to two histories that are both
//! served. A log that is older than its witness never starts; an older directory as a whole starts,
//! and then either its owner or the member that knows better stops with a sentence. Method: three
//! members on disks in memory.

use berth_replication::{Fatal, Ticket};
use berth_testkit::replication::set;
use raft::eraftpb::{Entry, Message, MessageType};

use crate::trio::Trio;

#[test]
fn a_log_behind_its_witness_does_not_start() {
    let mut trio = Trio::new();
    let older = trio.three_hundred_writes();
    trio.kill(1);
    trio.kill(2);
    trio.disks[&2].put_back_log(&older);
    for _ in 0..2 {
        let error = trio.start(2).expect_err("it lost 200 entries");
        assert!(
            matches!(error, berth_store::recover::Error::Behind { .. }),
            "{error}"
        );
    }
}

/// The case that no witness on the disk shows. The two members with the shorter history go on,
/// since nothing running contradicts them; the one that knows better must not join in.
#[test]
fn an_older_directory_is_contradicted_by_the_member_that_knows_better() {
    for more in [0, 1, 50, 199, 200, 400] {
        let mut trio = Trio::new();
        let older = trio.three_hundred_writes();
        trio.kill(1);
        trio.kill(2);
        trio.disks[&2].put_back(&older);
        trio.start(2).expect("nothing on its disk is wrong");
        trio.start(3).expect("sound");
        trio.elect(2);
        assert_eq!(trio.write(2, more), more);
        trio.start(1).expect("sound");
        trio.pass(100);
        assert!(!trio.stopped.is_empty(), "after {more} more writes");
        for (id, fatal) in &trio.stopped {
            let expected = match id {
                1 => matches!(fatal, Fatal::OtherHistory { .. }),
                2 => matches!(fatal, Fatal::LeaderBehind { .. }),
                _ => false,
            };
            assert!(expected, "member {id} after {more} more writes: {fatal}");
        }
        let both = trio.running.contains_key(&1) && trio.running.contains_key(&2);
        assert!(!both, "two histories are served after {more} more writes");
    }
}

#[test]
fn a_leader_that_goes_on_notices_that_a_follower_forgot() {
    let mut trio = Trio::new();
    let older = trio.three_hundred_writes();
    trio.kill(2);
    trio.disks[&2].put_back(&older);
    trio.start(2).expect("nothing on its disk is wrong");
    trio.pass(60);
    let fatal = trio.stopped.get(&2).expect("it stops");
    assert!(matches!(fatal, Fatal::LogLost { leader: 1, .. }), "{fatal}");
    assert!(trio.running.contains_key(&1));
}

/// A leader must not count an index that it does not have: raft-rs would, and would commit its
/// later entries with it.
#[test]
fn a_leader_refuses_an_index_beyond_its_last_entry() {
    for kind in [
        MessageType::MsgAppendResponse,
        MessageType::MsgHeartbeatResponse,
    ] {
        let mut trio = Trio::new();
        trio.elect(1);
        trio.write(1, 5);
        let replica = &mut trio.running.get_mut(&1).expect("it leads").replica;
        let mut message = Message::default();
        message.set_msg_type(kind);
        message.from = 2;
        message.to = 1;
        message.term = replica.role().term;
        message.commit = replica.last_index() + 1;
        replica.step(message);
        trio.settle();
        let fatal = trio.stopped.get(&1).expect("it stops");
        assert!(
            matches!(fatal, Fatal::LeaderBehind { member: 2, .. }),
            "{fatal}"
        );
    }
}

/// A leader that no quorum answered has stepped down, and hears another leader of its term: both
/// have entries of that term, and where their indexes meet nothing else distinguishes them.
#[test]
fn a_leader_that_stepped_down_notices_another_of_its_term() {
    let mut trio = Trio::new();
    trio.elect(1);
    trio.write(1, 5);
    trio.kill(2);
    trio.kill(3);
    let replica = |trio: &mut Trio| trio.running.get(&1).expect("it runs").replica.role();
    let term = replica(&mut trio).term;
    for _ in 0..100 {
        if replica(&mut trio).leader.is_none() {
            break;
        }
        trio.pass(1);
    }
    let role = replica(&mut trio);
    assert_eq!((role.term, role.leader), (term, None));
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgHeartbeat);
    message.from = 3;
    message.to = 1;
    message.term = term;
    let leader = trio.running.get_mut(&1).expect("it runs");
    leader.replica.step(message);
    trio.settle();
    let fatal = trio.stopped.get(&1).expect("it stops");
    assert!(
        matches!(
            fatal,
            Fatal::TwoLeaders {
                one: 1,
                other: 3,
                ..
            }
        ),
        "{fatal}"
    );
}

/// A member that voted, and came back as it was before, votes again: two members lead in one term.
#[test]
fn two_leaders_of_one_term_are_noticed() {
    let mut trio = Trio::new();
    trio.elect(1);
    trio.write(1, 5);
    let replica = &mut trio.running.get_mut(&2).expect("it follows").replica;
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgHeartbeat);
    message.from = 3;
    message.to = 2;
    message.term = replica.role().term;
    replica.step(message);
    trio.settle();
    let fatal = trio.stopped.get(&2).expect("it stops");
    assert!(
        matches!(
            fatal,
            Fatal::TwoLeaders {
                one: 1,
                other: 3,
                ..
            }
        ),
        "{fatal}"
    );
}

/// A member that led, and came back as it was before, may lead the same term again, as the others vote for
/// it again. Its entries then have the indexes and the term of those that it made before.
#[test]
fn a_member_that_leads_one_term_twice_is_noticed() {
    let mut trio = Trio::new();
    trio.elect(1);
    trio.write(1, 5);
    let replica = &mut trio.running.get_mut(&2).expect("it follows").replica;
    let term = replica.role().term;
    let last = replica.position().index;
    let append = |data: &'static [u8]| {
        let mut entry = Entry::default();
        (entry.index, entry.term) = (last, term);
        entry.data = data.into();
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.from, message.to, message.term) = (1, 2, term);
        (message.index, message.log_term) = (last - 1, term);
        message.set_entries(vec![entry].into());
        message
    };
    replica.step(append(b"another command"));
    trio.settle();
    let fatal = trio.stopped.get(&2).expect("it stops");
    assert!(
        matches!(fatal, Fatal::LedTwice { leader: 1, index, .. } if *index == last),
        "{fatal}"
    );
}

/// How many writes the logs below have.
const WRITES: u64 = 6;

/// A group after so many writes in term 1: its leader, its follower and the index before the writes.
/// One write may be another than in other groups; checkpoints of both are taken behind these writes.
fn led(other: Option<u64>, leaders: &[u64], followers: &[u64]) -> (Trio, u64) {
    let mut trio = Trio::new();
    trio.elect(1);
    let before = trio.running[&1].replica.last_index();
    for write in 1..=WRITES {
        let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
        let command = set("r", write + 100 * u64::from(other == Some(write)));
        leader.propose(Ticket(write), command).expect("it decides");
        trio.settle();
        for (id, taken) in [(1, leaders), (2, followers)] {
            if taken.contains(&write) {
                trio.checkpoint(id);
            }
        }
    }
    (trio, before)
}

/// Returns the append of one more write to member 2.
fn next_append(trio: &mut Trio) -> Message {
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    let command = set("r", "more");
    leader.propose(Ticket(99), command).expect("it decides");
    let effects = leader
        .ready()
        .expect("it works")
        .expect("there is an append");
    let is_append = |m: &Message| m.to == 2 && m.get_msg_type() == MessageType::MsgAppend;
    effects
        .messages
        .into_iter()
        .find(is_append)
        .expect("an append")
}

/// Goal: entries of one index and term with other content are noticed by the first append that builds on
/// them, though the message with the other entries was lost; wherever they differ, and wherever the
/// two logs begin. Equal logs are never taken for different ones. Method: two groups have led the same term,
/// as one member does that came back with an older directory; the next append of the one goes
/// to the follower of the other. What a checkpoint of both has replaced is not compared.
#[test]
fn other_content_is_noticed_though_it_was_never_sent() {
    let checkpoints: [&[u64]; 4] = [&[], &[2], &[4], &[2, 4]];
    let mut noticed = [0, 0];
    for leaders in checkpoints {
        for followers in checkpoints {
            for other in (1..=WRITES).map(Some).chain([None]) {
                let (mut theirs, before) = led(other, leaders, &[]);
                let (mut ours, _) = led(None, &[], followers);
                let append = next_append(&mut theirs);
                assert_eq!(append.index, before + WRITES);
                let mut bare = append.clone();
                bare.context.clear();
                let follower = &mut ours.running.get_mut(&2).expect("it follows").replica;
                let last = follower.last_index();
                follower.step(append);
                // A log begins behind the checkpoint before the newest, and as a new one at 0.
                let mark = |taken: &[u64], back: usize| {
                    let at = taken.len().checked_sub(back);
                    at.map_or(0, |at| taken[at])
                };
                let begins = mark(followers, 2);
                let compared = [mark(leaders, 1), mark(leaders, 2)];
                let mut compared = compared.iter().filter(|start| **start >= begins);
                let expected = other.is_some_and(|other| compared.any(|start| *start < other));
                ours.settle();
                let case = format!("leader {leaders:?}, follower {followers:?}, other {other:?}");
                noticed[usize::from(expected)] += 1;
                match ours.stopped.get(&2) {
                    Some(Fatal::OtherContent {
                        leader: 1,
                        index,
                        after,
                        ..
                    }) => {
                        assert!(expected, "{case}");
                        let at = before + other.expect("they differ");
                        assert!(*after < at && at <= *index, "{case}: {after} to {index}");
                    }
                    Some(fatal) => panic!("{case}: {fatal}"),
                    None => assert!(!expected, "{case} is not noticed"),
                }
                // Without the hashes it goes on: they are what shows it.
                let (mut ours, _) = led(None, &[], followers);
                let follower = &mut ours.running.get_mut(&2).expect("it follows").replica;
                follower.step(bare);
                ours.settle();
                assert!(!ours.stopped.contains_key(&2), "{case}");
                assert_eq!(ours.running[&2].replica.last_index(), last + 1, "{case}");
            }
        }
    }
    println!("not noticed and noticed: {noticed:?}");
}
