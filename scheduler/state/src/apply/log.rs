//! The log of an operation: what it says of the current attempt, and how it grows.
//!
//! An attempt is what came after the latest claim: a host that refused ends one, and the next
//! claim begins another.

use std::mem::discriminant;

use berth_domain::id::TimeMs;
use berth_domain::name::HostName;
use berth_domain::operation::{Entry, Mark, Operation, Step};

pub use berth_domain::bound::LOG_MAX;

/// Returns the entries of the current attempt, its claim first.
pub(super) fn attempt(log: &[Entry]) -> &[Entry] {
    let claimed = |e: &Entry| e.step == Step::Claim && e.mark == Mark::Succeeded;
    let begin = log.iter().rposition(claimed).unwrap_or(0);
    &log[begin..]
}

/// Returns whether a step may have had effects in this attempt that were not undone.
pub(super) fn is_dirty(attempt: &[Entry], step: Step) -> bool {
    let started = attempt
        .iter()
        .any(|e| e.step == step && e.mark == Mark::Started);
    started && latest(attempt, step) != Some(&Mark::Undone)
}

/// Returns what was logged last of a step in this attempt.
pub(super) fn latest(attempt: &[Entry], step: Step) -> Option<&Mark> {
    attempt
        .iter()
        .rev()
        .find(|e| e.step == step)
        .map(|e| &e.mark)
}

/// Appends an entry. A step that fails again replaces its last failure, and what is repeated is
/// not recorded twice: retries over hours must not push the history out of the log.
pub(super) fn append(
    operation: &mut Operation,
    step: Step,
    mark: &Mark,
    host: Option<HostName>,
    at: TimeMs,
) {
    let log = &mut operation.log;
    if let Some(last) = log.last_mut()
        && last.step == step
        && last.host == host
    {
        let both_failed = matches!((&last.mark, mark), (Mark::Failed(_), Mark::Failed(_)));
        if last.mark == *mark || both_failed {
            last.mark = mark.clone();
            last.at = at;
            return;
        }
    }
    log.push(Entry {
        step,
        mark: mark.clone(),
        host,
        at,
    });
    if log.len() > LOG_MAX {
        drop_one(log);
    }
}

/// Drops the oldest entry of an earlier attempt, or of this one the oldest that is recorded again
/// later: which marks a step has in this attempt decides what may come next.
fn drop_one(log: &mut Vec<Entry>) {
    let begin = log.len() - attempt(log).len();
    let again = |i: usize| {
        let alike = |e: &Entry| {
            e.step == log[i].step && discriminant(&e.mark) == discriminant(&log[i].mark)
        };
        log[i + 1..].iter().any(alike)
    };
    let spare = if begin > 0 {
        0
    } else {
        (0..log.len())
            .find(|&i| again(i))
            .expect("a log is longer than steps times marks")
    };
    log.remove(spare);
}
