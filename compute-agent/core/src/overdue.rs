//! What is done to a transfer that takes too long.
//!
//! Decided here and nowhere else: the agent has a clock, and does it also when no conductor can be
//! reached. An agent that is restarted while a guest leaves no longer knows the transfer's policy; it
//! allows it the configured time, and then stops it.
//!
//! ```text
//!   begun ──limit──▶ the policy's action ──again as long──▶ abort
//! ```
//!
//! Invariant: a guest is never stopped by this; an abort of a transfer whose guest runs on the other
//! side already is refused by the driver.

use berth_domain::id::TimeMs;
use berth_domain::transfer::{TimeoutAction, TransferPolicy};
use berth_driver_api::Force;

/// An order to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// To stop the transfer.
    Abort,
    /// To end it soon.
    Force(Force),
}

/// Returns what is done now to a transfer that began then, and to which something was done first then.
pub(super) fn order(
    policy: &TransferPolicy,
    began_at: TimeMs,
    ordered_at: Option<TimeMs>,
    now: TimeMs,
    limit_ms: u64,
) -> Option<Order> {
    let is_over = |since: TimeMs| now.0.saturating_sub(since.0) > limit_ms;
    if !is_over(began_at) {
        return None;
    }
    // What was to end it soon has not.
    if ordered_at.is_some_and(is_over) {
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
            let at = |ordered: Option<u64>, ms: u64| {
                let ordered = ordered.map(|ms| TimeMs(500 + ms));
                order(&policy, TimeMs(500), ordered, TimeMs(500 + ms), 1_000)
            };
            let what = format!("{timeout_action:?} {allowed}");
            assert_eq!(at(None, 0), None);
            assert_eq!(at(None, 1_000), None);
            assert_eq!(at(None, 1_001), expected, "{what}");
            assert_eq!(at(None, 2_001), expected, "{what}, looked at late");
            assert_eq!(at(Some(1_500), 2_500), expected, "{what}");
            assert_eq!(at(Some(1_500), 2_501), abort, "{what}");
        }
        // A clock that was set back does nothing.
        let policy = TransferPolicy::default();
        assert_eq!(order(&policy, TimeMs(500), None, TimeMs(0), 0), None);
        let end = TimeMs(u64::MAX);
        assert_eq!(order(&policy, TimeMs(0), None, end, u64::MAX), None);
    }
}
