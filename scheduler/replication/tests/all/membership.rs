//! Changes of the membership, and transfers of leadership.
//!
//! Goal: no promotion and no removal costs the quorum, for each requester and moment, and no transfer the
//! leader. Method: three
//! members on disks in memory.

use berth_replication::{Addition, Change, Refused, Ticket};
use berth_store::Member;
use raft::eraftpb::Message;

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

/// Goal: a removal that was acknowledged is in force after a loss of power everywhere, without the removed
/// member, which is gone with its directory. Method: each member in turn is the last of three.
#[test]
fn an_acknowledged_removal_outlives_a_loss_of_power() {
    for last in 1..=3 {
        let mut trio = Trio::new();
        trio.elect(last);
        assert_eq!(trio.write(last, 5), 5);
        let mut left = vec![1, 2, 3];
        for id in (1..=3).filter(|id| *id != last) {
            let leader = &mut trio.running.get_mut(&last).expect("it leads").replica;
            let removal = leader.change_membership(CHANGE, &[Change::Remove(id)]);
            assert_eq!(removal, Ok(()));
            trio.settle();
            assert_eq!(std::mem::take(&mut trio.changed), [CHANGE]);
            left.iter().for_each(|id| trio.kill(*id));
            left.retain(|member| *member != id);
            left.iter().for_each(|id| trio.start(*id).expect("sound"));
            trio.elect(last);
            assert_eq!(trio.write(last, 5), 5, "{left:?} of {id} and these");
        }
    }
}

/// Works until there is nothing to do, with a disk that answers at once.
fn work(trio: &mut Trio, id: u64) -> Vec<Message> {
    let replica = &mut trio.running.get_mut(&id).expect("it runs").replica;
    let mut messages = Vec::new();
    while let Some(effects) = replica.ready().expect("it works") {
        messages.extend(effects.messages);
        if let Some(persist) = effects.persist {
            replica.persisted(persist.number).expect("it works");
        }
    }
    messages
}

fn deliver(trio: &mut Trio, to: u64, messages: Vec<Message>) {
    let replica = &mut trio.running.get_mut(&to).expect("it runs").replica;
    let messages = messages.into_iter().filter(|m| m.to == to);
    messages.for_each(|message| replica.step(message));
}

/// Goal: neither the requester nor the removed member learns of a removal before the leader has its commit on
/// the disk: a removed member ends, and its directory may be deleted.
#[test]
fn a_removal_is_announced_when_its_commit_is_on_the_disk() {
    let mut trio = Trio::new();
    trio.elect(1);
    trio.write(1, 5);
    change(&mut trio, Change::Remove(2));
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    let removal = leader.change_membership(CHANGE, &[Change::Remove(3)]);
    assert_eq!(removal, Ok(()));
    let index = leader.last_index();
    let appends = work(&mut trio, 1);
    deliver(&mut trio, 3, appends);
    let acknowledged = work(&mut trio, 3);
    deliver(&mut trio, 1, acknowledged);
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    let says_so = |messages: &[Message]| messages.iter().any(|m| m.to == 3 && m.commit >= index);
    let mut numbers = Vec::new();
    while let Some(effects) = leader.ready().expect("it works") {
        assert_eq!(effects.changed, [], "the requester learns of it");
        assert!(
            !says_so(&effects.messages),
            "the removed member learns of it"
        );
        numbers.extend(effects.persist.map(|persist| persist.number));
    }
    assert_eq!(leader.committed(), index);
    let number = numbers.last().expect("the commit goes to the disk");
    leader.persisted(*number).expect("it works");
    let effects = leader.ready().expect("it works").expect("it is announced");
    assert_eq!(effects.changed, [CHANGE]);
    assert!(says_so(&effects.messages));
}

fn change(trio: &mut Trio, change: Change) {
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    assert_eq!(leader.change_membership(CHANGE, &[change]), Ok(()));
    trio.settle();
    assert_eq!(std::mem::take(&mut trio.changed), [CHANGE]);
}

/// Goal: whatever the target of a transfer of leadership is, the group decides again after at most two
/// election timeouts: under the target, or under the leader it had, at once where it is refused.
#[test]
fn a_transfer_of_leadership_ends_whatever_the_target_is() {
    /// The name, how it becomes so, the target, whether it is taken on, and who leads then.
    type Target = (&'static str, fn(&mut Trio), u64, bool, u64);
    let targets: [Target; 8] = [
        ("up to date", |_| {}, 3, true, 3),
        ("itself", |_| {}, 1, true, 1),
        ("absent", |_| {}, 9, false, 1),
        (
            "removed",
            |trio| change(trio, Change::Remove(3)),
            3,
            false,
            1,
        ),
        (
            "a learner",
            |trio| change(trio, Change::Demote(3)),
            3,
            false,
            1,
        ),
        ("without a process", |trio| trio.kill(3), 3, true, 1),
        (
            "lagging",
            |trio| {
                trio.kill(3);
                assert_eq!(trio.write(1, 300), 300);
                trio.start(3).expect("sound");
            },
            3,
            true,
            3,
        ),
        (
            "lagging and without a process",
            |trio| {
                trio.kill(3);
                assert_eq!(trio.write(1, 300), 300);
            },
            3,
            true,
            1,
        ),
    ];
    for (name, prepare, target, is_taken, next) in targets {
        let mut trio = Trio::new();
        trio.elect(1);
        trio.write(1, 5);
        prepare(&mut trio);
        let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
        let transfer = leader.transfer_leader(target);
        assert_eq!(transfer.is_ok(), is_taken, "{name}: {transfer:?}");
        trio.settle();
        if !is_taken {
            assert_eq!(trio.write(1, 1), 1, "{name}: not held up");
        }
        trio.pass(40);
        let deciding = |id: &u64| trio.running[id].replica.role().deciding;
        let leaders: Vec<u64> = trio.running.keys().copied().filter(deciding).collect();
        assert_eq!(leaders, [next], "{name}");
        assert_eq!(trio.write(next, 5), 5, "{name}");
    }
}

/// Goal: an address is recorded for each member in each role, and nothing else about it changes; all know
/// it, also after a loss of power. Method: every member x voter, learner or no process x leader or not.
#[test]
fn an_address_is_recorded_and_the_role_stays() {
    for id in 1..=3 {
        for (role, prepare) in [
            ("voter", (|_, _| {}) as fn(&mut Trio, u64)),
            ("learner", |trio, id| change(trio, Change::Demote(id))),
            ("without a process", |trio, id| trio.kill(id)),
        ] {
            if id == 1 && role != "voter" {
                continue;
            }
            let mut trio = Trio::new();
            trio.elect(1);
            trio.write(1, 5);
            prepare(&mut trio, id);
            let leader = &trio.running[&1].replica;
            let before = leader.membership().clone();
            let address = "elsewhere:1".to_owned();
            change(&mut trio, Change::Address { id, address });
            trio.pass(10);
            assert_eq!(trio.write(1, 5), 5, "{id} {role}");
            let running: Vec<u64> = trio.running.keys().copied().collect();
            running.iter().for_each(|id| trio.kill(*id));
            (1..=3).for_each(|id| trio.start(id).expect("sound"));
            trio.elect(1);
            trio.write(1, 5);
            trio.pass(60);
            let mut expected = before.as_ref().clone();
            let moved = expected.members.iter_mut().find(|member| member.id == id);
            moved.expect("a member").address = "elsewhere:1".to_owned();
            for (number, member) in &trio.running {
                let membership = member.replica.membership();
                assert_eq!(**membership, expected, "{id} {role}, at {number}");
            }
        }
    }
}

/// Goal: no two members have one address, and no address is recorded of a member that is none. A member's
/// own address, recorded again, is no conflict.
#[test]
fn an_address_has_one_member() {
    let mut trio = Trio::new();
    trio.elect(1);
    trio.write(1, 5);
    let address = "second:1".to_owned();
    change(&mut trio, Change::Address { id: 2, address });
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    let mut record = |id: u64, address: &str| {
        let address = address.to_owned();
        leader.change_membership(CHANGE, &[Change::Address { id, address }])
    };
    assert!(matches!(record(3, "second:1"), Err(Refused::Change(_))));
    assert!(matches!(record(4, "elsewhere:1"), Err(Refused::Change(_))));
    assert_eq!(record(2, "second:1"), Ok(()));
    trio.settle();
    let address = "third:1".to_owned();
    trio.changed.clear();
    change(&mut trio, Change::Address { id: 3, address });
    let at = |id, address: &str| Change::Address {
        id,
        address: address.to_owned(),
    };
    let leader = &mut trio.running.get_mut(&1).expect("it leads").replica;
    let one = [at(2, "third:1"), at(3, "fourth:1"), at(1, "fourth:1")];
    let refused = leader.change_membership(CHANGE, &one);
    assert!(matches!(refused, Err(Refused::Change(_))), "{refused:?}");
    let swap = [at(2, "third:1"), at(3, "second:1")];
    assert_eq!(leader.change_membership(CHANGE, &swap), Ok(()));
    trio.settle();
    let membership = trio.running[&1].replica.membership().clone();
    let addresses = [2, 3].map(|id| membership.get(id).expect("it").address.clone());
    assert_eq!(addresses, ["third:1", "second:1"]);
}
