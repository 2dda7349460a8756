//! Three members of which one has a disk that does not answer.
//!
//! Goal: the healthy members go on, whichever member it is, and the one with the disk answers what
//! needs no disk. Method: the log's synchronisation is held. Waits are as long as a loaded machine
//! may need; that leadership changes within the promised time is shown with virtual time, in
//! `simulation`.

use std::time::Duration;

use berth_replication::Config;
use berth_replication::runtime::{Handle, ProposeError, Settings};
use berth_testkit::replication::group::{Group, settings};
use berth_testkit::replication::{Registers, set};
use tokio::time::{sleep, timeout};

/// As long as a loaded machine may need for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// An election timeout of a second: a machine under load does not call elections.
fn patient() -> Settings {
    let usual = settings();
    Settings {
        replica: Config {
            election_ticks: 100,
            heartbeat_ticks: 10,
            ..usual.replica
        },
        ..usual
    }
}

/// Writes at a healthy member that leads.
async fn write_elsewhere(group: &Group, hung: u64, name: &str) -> Handle<Registers> {
    let written = async {
        loop {
            for (_, running) in group.members.iter().filter(|(id, _)| **id != hung) {
                let written = running.handle.propose(set(name.to_owned(), 1)).await;
                if written.is_ok() {
                    return running.handle.clone();
                }
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, written)
        .await
        .expect("the healthy members take no write")
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("no answer of the hung member: {what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_hangs_is_replaced_and_answers() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start_with(folder.path(), 3, patient()).await;
    let leader = group.leader().await;
    let hung = leader.leader().id;
    leader.propose(set("before", 1)).await.expect("commit");
    let hold = group.hold(hung);
    hold.hold();
    let proposing = leader.clone();
    let proposed = tokio::spawn(async move { proposing.propose(set("doubtful", 1)).await });

    let next = write_elsewhere(&group, hung, "after").await;
    let ended = soon("the write in flight", proposed)
        .await
        .expect("no panic");
    assert!(matches!(ended, Err(ProposeError::Lost { .. })), "{ended:?}");
    soon("status", leader.status()).await.expect("it runs");
    let stale = soon("a stale read", leader.read_stale(Registers::count)).await;
    assert!(stale.is_ok_and(|count| count >= 1));
    let refused = soon("a write", leader.propose(set("late", 1))).await;
    assert!(
        matches!(refused, Err(ProposeError::NotLeader { .. })),
        "{refused:?}"
    );

    hold.release();
    group.wait_for_agreement().await;
    // It was in flight when leadership was lost: both outcomes are true, but one for all.
    let count = next.read(Registers::count).await.expect("read");
    assert!((2..=3).contains(&count), "{count}");
    assert_eq!(leader.read(Registers::count).await, Ok(count));
    group.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_disk_hangs_costs_nothing_and_answers() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut group = Group::start_with(folder.path(), 3, patient()).await;
    let leader = group.leader().await;
    let own = leader.leader().id;
    let hung = *group.members.keys().find(|id| **id != own).expect("one");
    let hold = group.hold(hung);
    hold.hold();
    for n in 0..100 {
        let name = format!("x{n}");
        leader.propose(set(name, n)).await.expect("commit");
    }
    let follower = group.members[&hung].handle.clone();
    soon("status", follower.status()).await.expect("it runs");
    let stale = soon("a stale read", follower.read_stale(Registers::count)).await;
    assert_eq!(stale, Ok(0), "it has applied nothing that is not durable");
    let refused = soon("a write", follower.propose(set("late", 1))).await;
    assert!(
        matches!(refused, Err(ProposeError::NotLeader { .. })),
        "{refused:?}"
    );
    hold.release();
    group.wait_for_agreement().await;
    assert_eq!(follower.read(Registers::count).await, Ok(100));
    group.stop().await;
}
