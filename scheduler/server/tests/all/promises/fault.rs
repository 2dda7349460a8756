//! What happens to a cluster while writes are under way.
//!
//! Invariant: each fault ends with all members running, and with every write answered.

use tokio::task::JoinSet;

use super::Sent;
use super::world::{Stall, World};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    None,
    /// The leader stands still for longer than requests have.
    LeaderSlow,
    /// As [`Self::LeaderSlow`], and the queue of its replica is full.
    QueueFull,
    /// No quorum acknowledges until the leader has lost leadership.
    LeadershipLost,
    /// Leadership is handed over.
    Transfer,
    /// No quorum acknowledges, and the leader is shut down.
    LeaderStopped,
    /// No quorum acknowledges, and the leader is gone without a goodbye.
    LeaderKilled,
    /// No quorum acknowledges, and a follower that has forwarded writes is shut down.
    FollowerStopped,
    /// As [`Self::FollowerStopped`], without a goodbye.
    FollowerKilled,
}

/// Writes that a leader without a quorum has under way once some were forwarded: of the 3 kinds
/// that become commands, by the 3 APIs without deadlines at the leader, and by those 2 that a
/// follower or its client passes on.
const UNDER_WAY: usize = 3 * 3 + 3 * 2;
/// More requests than a replica's queue holds.
const QUEUE: usize = 5000;

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::LeaderSlow,
        Self::QueueFull,
        Self::LeadershipLost,
        Self::Transfer,
        Self::LeaderStopped,
        Self::LeaderKilled,
        Self::FollowerStopped,
        Self::FollowerKilled,
    ];

    /// Returns whether it needs requests that outlive an election.
    pub fn is_patient(self) -> bool {
        match self {
            Self::LeaderSlow | Self::QueueFull => false,
            Self::None
            | Self::LeadershipLost
            | Self::Transfer
            | Self::LeaderStopped
            | Self::LeaderKilled
            | Self::FollowerStopped
            | Self::FollowerKilled => true,
        }
    }

    /// Lets it happen to a cluster while writes are under way, and returns their answers.
    pub async fn happen(
        self,
        world: &mut World,
        send: fn(&World, &[usize]) -> JoinSet<Sent>,
    ) -> Vec<Sent> {
        let leader = world.leader().await;
        let others: Vec<usize> = (0..world.count()).filter(|n| *n != leader).collect();
        // Two that stay with the leader, or one: the others are a quorum that stands still.
        let (follower, rest) = others.split_first().expect("there are followers");
        let members = [leader, *follower, rest[0]];
        match self {
            Self::None => send(world, &members).join_all().await,
            Self::LeaderSlow => {
                let _stall = world.stall(leader).await;
                send(world, &members).join_all().await
            }
            Self::QueueFull => {
                let _stall = world.stall(leader).await;
                let _requests = fill(world, leader).await;
                send(world, &members).join_all().await
            }
            Self::Transfer => {
                let sent = send(world, &members);
                let handed_over = world.handle(leader).transfer_leader(None).await;
                handed_over.expect("another member can lead");
                sent.join_all().await
            }
            Self::LeadershipLost => {
                let (stalls, sent) = without_quorum(world, leader, rest, &members, send).await;
                let mut role = world.handle(leader).watch_leader();
                let lost = role.wait_for(|leader| !leader.role.deciding).await;
                drop(lost.expect("the member runs"));
                drop(stalls);
                sent.join_all().await
            }
            Self::LeaderStopped | Self::LeaderKilled => {
                let (stalls, sent) = without_quorum(world, leader, rest, &members, send).await;
                self.end(world, leader).await;
                drop(stalls);
                world.restart().await;
                sent.join_all().await
            }
            Self::FollowerStopped | Self::FollowerKilled => {
                let (stalls, sent) = without_quorum(world, leader, rest, &members, send).await;
                self.end(world, *follower).await;
                drop(stalls);
                world.restart().await;
                sent.join_all().await
            }
        }
    }

    /// Ends a member.
    async fn end(self, world: &mut World, number: usize) {
        match self {
            Self::LeaderStopped | Self::FollowerStopped => world.stop(number).await,
            Self::None
            | Self::LeaderSlow
            | Self::QueueFull
            | Self::LeadershipLost
            | Self::Transfer
            | Self::LeaderKilled
            | Self::FollowerKilled => world.kill(number).await,
        }
    }
}

/// Has all these members stand still, and waits until the leader has writes that it cannot commit.
async fn without_quorum(
    world: &World,
    leader: usize,
    stalled: &[usize],
    members: &[usize],
    send: fn(&World, &[usize]) -> JoinSet<Sent>,
) -> (Vec<Stall>, JoinSet<Sent>) {
    let mut stalls = Vec::new();
    for number in stalled {
        stalls.push(world.stall(*number).await);
    }
    let sent = send(world, members);
    world.pending(leader, UNDER_WAY).await;
    (stalls, sent)
}

/// Fills the queue of a replica that stands still.
async fn fill(world: &World, number: usize) -> JoinSet<()> {
    let mut requests = JoinSet::new();
    for _ in 0..QUEUE {
        let handle = world.handle(number);
        requests.spawn(async move { drop(handle.read_stale(|_| ()).await) });
    }
    requests
}
