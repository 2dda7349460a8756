//! What is done to a transfer that takes too long.
//!
//! Decided here and nowhere else: the agent has a clock, and does it also when no conductor can be
//! heard. An agent that is started anew while a guest leaves no longer knows the transfer's policy; it
//! gives it the time that it is set up with, and then stops it.
//!
//! ```text
//!   begun ──limit──▶ the policy's action ──again as long──▶ abort
//! ```
//!
//! Invariant: a guest is never stopped by this; an abort of a transfer whose guest runs on the other
//! side already is refused by the driver.

use berth_domain::id::TimeMs;
use berth_domain::transfer::{TimeoutAction, TransferPolicy};
use berth_driver::Force;

/// What the driver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// To stop the transfer.
    Abort,
    /// To end it soon.
    Force(Force),
}

/// Returns what is done now to a transfer that began then.
pub(super) fn order(
    policy: &TransferPolicy,
    began_at: TimeMs,
    now: TimeMs,
    limit_ms: u64,
) -> Option<Order> {
    let elapsed_ms = now.0.saturating_sub(began_at.0);
    if elapsed_ms <= limit_ms {
        return None;
    }
    // What was to end it soon has not.
    if elapsed_ms > limit_ms.saturating_mul(2) {
        return Some(Order::Abort);
    }
    let soon = if policy.post_copy {
        Force::PostCopy
    } else {
        Force::Pause
    };
    Some(match policy.timeout_action {
        TimeoutAction::Abort => Order::Abort,
        TimeoutAction::ForceComplete => Order::Force(soon),
        TimeoutAction::PostCopy if policy.post_copy => Order::Force(Force::PostCopy),
        TimeoutAction::PostCopy => Order::Abort,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every action, before, at and after the limit. Method: the full table.
    #[test]
    fn every_action_has_its_time() {
        use TimeoutAction as A;
        let pause = Some(Order::Force(Force::Pause));
        let post_copy = Some(Order::Force(Force::PostCopy));
        let abort = Some(Order::Abort);
        let table = [
            (A::Abort, false, abort),
            (A::Abort, true, abort),
            (A::ForceComplete, false, pause),
            (A::ForceComplete, true, post_copy),
            (A::PostCopy, false, abort),
            (A::PostCopy, true, post_copy),
        ];
        for (timeout_action, allowed, expected) in table {
            let policy = TransferPolicy {
                timeout_action,
                post_copy: allowed,
                ..TransferPolicy::default()
            };
            let at = |ms: u64| order(&policy, TimeMs(500), TimeMs(500 + ms), 1_000);
            assert_eq!(at(0), None);
            assert_eq!(at(1_000), None);
            assert_eq!(at(1_001), expected, "{timeout_action:?} {allowed}");
            assert_eq!(at(2_000), expected, "{timeout_action:?} {allowed}");
            assert_eq!(at(2_001), abort, "{timeout_action:?} {allowed}");
        }
        // A clock that was set back does nothing.
        let policy = TransferPolicy::default();
        assert_eq!(order(&policy, TimeMs(500), TimeMs(0), 0), None);
        assert_eq!(order(&policy, TimeMs(0), TimeMs(u64::MAX), u64::MAX), None);
    }
}
