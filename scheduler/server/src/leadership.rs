//! Logs changes of leadership: one line for each change, as this member sees it.
//!
//! Not for programs: they query the cluster's status, or are redirected to the leader.

use std::sync::Arc;

use berth_replication::runtime::{Handle, Leader};
use tokio_util::sync::CancellationToken;

use crate::machine::Machine;
use crate::metrics::Metrics;

/// The leader and its term; `None` in a term without a leader.
type Leadership = Option<(u64, u64)>;

fn leadership(leader: &Leader) -> Leadership {
    let id = leader.role.leader?;
    Some((id, leader.role.term))
}

/// Returns the log message for a change.
fn describe_change(own: u64, before: Leadership, after: Leadership) -> Option<&'static str> {
    let led = before.is_some_and(|(id, _)| id == own);
    match after {
        _ if before == after => None,
        Some((id, _)) if id == own => Some("elected leader"),
        Some(_) if led => Some("lost leadership to another member"),
        Some(_) => Some("following leader"),
        None if led => Some("lost leadership"),
        None => Some("no leader"),
    }
}

/// Logs and counts every change until `stopping`.
pub(crate) async fn log_changes(
    handle: Handle<Machine>,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
) {
    let mut leader = handle.watch_leader();
    let mut before = None;
    loop {
        let now = leader.borrow_and_update().clone();
        let after = leadership(&now);
        if let Some(message) = describe_change(now.id, before, after) {
            metrics.leader_changes.increment();
            let address = now.member.as_ref().map(|member| &*member.address);
            tracing::info!(
                leader = now.role.leader,
                address,
                term = now.role.term,
                "{message}"
            );
        }
        before = after;
        tokio::select! {
            changed = leader.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = stopping.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every change is logged once with its message. Method: one member's history.
    #[test]
    fn each_change_of_the_leader_is_logged_once() {
        let history = [
            (None, None),
            (Some((2, 3)), Some("following leader")),
            (Some((2, 3)), None),
            (None, Some("no leader")),
            (Some((1, 5)), Some("elected leader")),
            (Some((3, 6)), Some("lost leadership to another member")),
            (Some((3, 8)), Some("following leader")),
            (Some((1, 9)), Some("elected leader")),
            (None, Some("lost leadership")),
        ];
        let mut before = None;
        for (after, expected) in history {
            assert_eq!(
                describe_change(1, before, after),
                expected,
                "{before:?} {after:?}"
            );
            before = after;
        }
    }
}
