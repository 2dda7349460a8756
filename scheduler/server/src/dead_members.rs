//! The leader's removal of members that do not answer, as the policy `member.dead_timeout_s` says.
//!
//! A dead voter counts in the quorum as long as it is a member. After a replacement has joined, the
//! cluster tolerates fewer failures than it could until it is removed. Which one that is, is decided in
//! `berth_decide::quorum`.
//!
//! Invariant: a removal is made in the membership that it was decided for, and only by a leader that has
//! led for as long as the policy requires silence.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use berth_decide::quorum;
use berth_replication::runtime::Status;
use berth_state::State;
use tokio::time::{MissedTickBehavior, interval};

use crate::contact::Contacts;
use crate::service::Context;

const INTERVAL: Duration = Duration::from_secs(1);

/// Looks who answers, and removes who does not, until it is dropped.
pub(crate) async fn run(context: Context) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(status) = context.handle().status().await else {
            return;
        };
        let now = Instant::now();
        context.contacts().look(&status, now);
        if !status.role.deciding {
            continue;
        }
        let timeout = context.stale(|state: &State| state.policy().dead_member_timeout_s);
        let timeout = timeout.await.ok().flatten().map(Duration::from_secs);
        if let Some(timeout) = timeout {
            remove(&context, &status, now, timeout).await;
        }
    }
}

/// Removes the next member that has been silent for this long.
async fn remove(context: &Context, status: &Status, now: Instant, timeout: Duration) {
    let contacts = context.contacts();
    let Some(id) = next(status, contacts, now, timeout, context.leader_wait()) else {
        return;
    };
    let silent_s = contacts.silent(id, now).map(|silent| silent.as_secs());
    let membership = status.membership.clone();
    match context.handle().remove_member(id, membership).await {
        Ok(_) => tracing::warn!(member = id, silent_s, "member removed: it does not answer"),
        // It is tried again.
        Err(error) => tracing::debug!(member = id, %error, "removal of a dead member deferred"),
    }
}

/// Returns the member to remove: a learner that is dead, or a voter without which more failures are
/// tolerated.
fn next(
    status: &Status,
    contacts: &Contacts,
    now: Instant,
    timeout: Duration,
    heard_within: Duration,
) -> Option<u64> {
    let membership = &status.membership;
    let is_silent = |id: &u64| contacts.silent(*id, now).is_some_and(|s| s >= timeout);
    let dead: BTreeSet<u64> = membership.members.iter().map(|m| m.id).collect();
    let dead: BTreeSet<u64> = dead.into_iter().filter(is_silent).collect();
    let voters: BTreeSet<u64> = membership.voters.iter().copied().collect();
    let active = answering(status, contacts, now, heard_within);
    let learner = dead.iter().copied().find(|id| membership.is_learner(*id));
    learner.or_else(|| quorum::to_remove(&voters, &active, &dead))
}

/// Returns the voters that were heard within this time.
pub(crate) fn answering(
    status: &Status,
    contacts: &Contacts,
    now: Instant,
    heard_within: Duration,
) -> BTreeSet<u64> {
    let voters = status.membership.voters.iter().copied();
    let is_heard = |id: &u64| contacts.silent(*id, now).is_some_and(|s| s < heard_within);
    voters.filter(is_heard).collect()
}
