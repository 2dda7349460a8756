//! Telling who leads: one log line for each change, as this member sees it.
//!
//! Not for programs: they ask for the cluster's status, or are led to the leader.

use berth_replication::runtime::{Handle, Leader};
use tokio_util::sync::CancellationToken;

use crate::machine::Machine;

/// Who leads, and since which term; a term without a leader is nobody's.
type Seen = Option<(u64, u64)>;

fn seen(leader: &Leader) -> Seen {
    let id = leader.role.leader?;
    Some((id, leader.role.term))
}

/// Returns what there is to tell of a change.
fn told(own: u64, before: Seen, after: Seen) -> Option<&'static str> {
    let led = before.is_some_and(|(id, _)| id == own);
    match after {
        _ if before == after => None,
        Some((id, _)) if id == own => Some("this member leads"),
        Some(_) if led => Some("this member leads no more, another one does"),
        Some(_) => Some("another member leads"),
        None if led => Some("this member leads no more, and nobody else is known to"),
        None => Some("the leader is lost"),
    }
}

/// Tells every change until `stopping`.
pub(crate) async fn tell(handle: Handle<Machine>, stopping: CancellationToken) {
    let mut leader = handle.watch_leader();
    let mut before = None;
    loop {
        let now = leader.borrow_and_update().clone();
        let after = seen(&now);
        if let Some(what) = told(now.id, before, after) {
            let address = now.member.as_ref().map(|member| &*member.address);
            tracing::info!(
                leader = now.role.leader,
                address,
                term = now.role.term,
                "{what}"
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

    /// Goal: every change is told once and as what it is. Method: one member's story.
    #[test]
    fn each_change_of_the_leader_is_told_once() {
        let story = [
            (None, None),
            (Some((2, 3)), Some("another member leads")),
            (Some((2, 3)), None),
            (None, Some("the leader is lost")),
            (Some((1, 5)), Some("this member leads")),
            (
                Some((3, 6)),
                Some("this member leads no more, another one does"),
            ),
            (Some((3, 8)), Some("another member leads")),
            (Some((1, 9)), Some("this member leads")),
            (
                None,
                Some("this member leads no more, and nobody else is known to"),
            ),
        ];
        let mut before = None;
        for (after, expected) in story {
            assert_eq!(told(1, before, after), expected, "{before:?} {after:?}");
            before = after;
        }
    }
}
