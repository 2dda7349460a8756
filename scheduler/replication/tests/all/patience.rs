//! States whose next command may take longer than an election timeout.
//!
//! Goal: a member that does nothing else for that long costs the group neither its leader nor the command, and one
//! that is lost is replaced all the same. Method: members that are busy get no ticks, and what is sent to them
//! waits; each case is also run without patience, where leadership changes.

use berth_replication::{Replica, Ticket};
use berth_testkit::replication::{Registers, set};

use crate::trio::Trio;

/// The most ticks that an election timeout has.
const TIMEOUT: u32 = 40;

/// Returns three members of which the first leads, in a state of this patience.
fn group(patience: u64) -> Trio {
    let mut trio = Trio::new();
    trio.elect(1);
    let leader = &mut trio.running.get_mut(&1).expect("it runs").replica;
    let command = set("patience", patience);
    leader.propose(Ticket(1_000), command).expect("it leads");
    trio.settle();
    // The followers learn that it is committed.
    trio.pass(4);
    trio
}

fn replica(trio: &mut Trio, id: u64) -> &mut Replica<Registers> {
    &mut trio.running.get_mut(&id).expect("it runs").replica
}

/// Lets time pass for these members alone, while the others are busy.
fn pass_for(trio: &mut Trio, ids: &[u64], ticks: u32) {
    let mut busy = std::mem::take(&mut trio.running);
    let (working, resting) = busy.into_iter().partition(|(id, _)| ids.contains(id));
    trio.running = working;
    busy = resting;
    trio.pass(ticks);
    trio.running.extend(busy);
}

fn leads_and_commits(trio: &mut Trio) -> bool {
    trio.pass(4);
    replica(trio, 1).role().deciding && trio.write(1, 1) == 1
}

#[test]
fn followers_wait_for_a_busy_leader() {
    for (patience, stays) in [(1, false), (20, true)] {
        let mut trio = group(patience);
        pass_for(&mut trio, &[2, 3], 10 * TIMEOUT);
        assert_eq!(leads_and_commits(&mut trio), stays, "patience {patience}");
    }
}

#[test]
fn a_leader_waits_for_busy_followers() {
    for (patience, stays) in [(1, false), (20, true)] {
        let mut trio = group(patience);
        pass_for(&mut trio, &[1], 10 * TIMEOUT);
        assert_eq!(leads_and_commits(&mut trio), stays, "patience {patience}");
    }
}

#[test]
fn a_lost_leader_is_replaced_later() {
    let mut trio = group(5);
    trio.kill(1);
    trio.pass(2 * TIMEOUT);
    let leads = |trio: &mut Trio| [2, 3].iter().any(|id| replica(trio, *id).role().deciding);
    assert!(!leads(&mut trio), "patience is for nothing");
    trio.pass(5 * TIMEOUT);
    assert!(leads(&mut trio), "it is never replaced");
}

/// Goal: a group that was started again in such a state elects as usual.
#[test]
fn without_a_leader_nothing_is_waited_for() {
    let mut trio = group(1_000);
    for id in 1..=3 {
        trio.kill(id);
        trio.start(id).expect("its disk is whole");
    }
    trio.pass(4 * TIMEOUT);
    let decides = (1..=3).any(|id| replica(&mut trio, id).role().deciding);
    assert!(decides, "nothing leads");
}

/// Goal: patience ends with the state that requires it. Method: the last command takes it away.
#[test]
fn it_ends_with_the_state() {
    let mut trio = group(1_000);
    let leader = replica(&mut trio, 1);
    leader
        .propose(Ticket(1_001), set("patience", 1))
        .expect("it leads");
    trio.settle();
    trio.pass(4);
    pass_for(&mut trio, &[1], 10 * TIMEOUT);
    assert!(!replica(&mut trio, 1).role().deciding, "it leads alone");
}

/// Goal: a leader waits for followers that apply the command which ended such a state, and no longer. Method: the
/// followers are busy from the moment when they learn that the command is committed.
#[test]
fn a_leader_waits_for_followers_that_apply_the_last_command() {
    for (patience, stays) in [(1, false), (20, true)] {
        let mut trio = group(patience);
        let leader = replica(&mut trio, 1);
        let command = set("patience", 1);
        leader.propose(Ticket(1_001), command).expect("it leads");
        let committed = replica(&mut trio, 1).position().index + 1;
        while replica(&mut trio, 1).position().index < committed {
            assert!(trio.work_once(), "it does not commit");
        }
        pass_for(&mut trio, &[1], 10 * TIMEOUT);
        let leads = replica(&mut trio, 1).role().deciding;
        assert_eq!(leads, stays, "patience {patience}");
        if stays {
            // They answer, and are waited for no more.
            trio.pass(4);
            pass_for(&mut trio, &[1], 10 * TIMEOUT);
            assert!(!replica(&mut trio, 1).role().deciding, "it leads alone");
        }
    }
}
