//! Changes of the membership that a replica refuses.
//!
//! Goal: no promotion and no removal costs the quorum, for each requester and moment. Method: three
//! members on disks in memory.

use berth_replication::{Addition, Change, Refused, Ticket};
use berth_store::Member;

use crate::trio::Trio;

const CHANGE: Ticket = Ticket(1 << 40);

/// A learner that has no process, and one that has stopped, must not get a vote: the others would
/// need one of them for every commit.
#[test]
fn a_learner_without_a_process_is_not_promoted() {
    let mut trio = Trio::new();
    trio.elect(1);
    trio.write(1, 5);
    trio.kill(3);
    let fourth = Member {
        address: "m4".to_owned(),
        disk: "disk-4".to_owned(),
        ..Member::default()
    };
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    let added = leader.add_member(CHANGE, fourth.clone());
    assert_eq!(added, Ok(Addition::Proposed(4)));
    trio.settle();
    assert_eq!(trio.changed, [CHANGE]);
    trio.pass(60);
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    assert_eq!(
        leader.add_member(CHANGE, fourth),
        Ok(Addition::Known(4)),
        "the same once more"
    );
    let promoted = leader.change_membership(CHANGE, &[Change::Promote(4)]);
    assert!(matches!(promoted, Err(Refused::Change(_))), "{promoted:?}");
    assert_eq!(trio.write(1, 5), 5, "two of three voters go on");
}

/// Two removals that were checked at the same time: each leaves a quorum, both may not.
#[test]
fn a_removal_is_made_in_the_membership_it_was_checked_against() {
    let mut trio = Trio::new();
    trio.elect(1);
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    let checked = leader.membership().clone();
    let first = leader.change_checked(CHANGE, &[Change::Remove(2)], &checked);
    assert_eq!(first, Ok(()));
    trio.settle();
    assert_eq!(trio.changed, [CHANGE]);
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    let second = leader.change_checked(CHANGE, &[Change::Remove(3)], &checked);
    assert_eq!(second, Err(Refused::ChangePending));
    let checked = leader.membership().clone();
    let again = leader.change_checked(CHANGE, &[Change::Remove(3)], &checked);
    assert_eq!(again, Ok(()));
}
