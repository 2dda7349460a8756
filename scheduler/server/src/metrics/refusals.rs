//! How many requests were refused, by reason.
//!
//! Not here: the latest refusals themselves (`crate::refusals`).
//!
//! Invariant: at most [`REASONS_MAX`] reasons are distinguished. Reasons are constants of the program, but an
//! agent can bring others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use berth_process::metrics::{Definition, Exposition};

static REFUSALS: Definition = Definition::counter(
    "berth_refusals_total",
    &["reason"],
    "Refused requests that change the state, by reason; OTHER stands for what is no name or is beyond the \
     number of reasons that are distinguished.",
);

/// How many reasons are distinguished.
const REASONS_MAX: usize = 256;
/// The longest reason.
const REASON_MAX: usize = 64;

const OTHER: &str = "OTHER";

/// The refusals of a member. A refusal is explained before it is counted, which takes a thousand times
/// as long as this lock is held.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<BTreeMap<String, u64>>);

impl Refused {
    /// Counts a refusal.
    pub(crate) fn count(&self, reason: &str) {
        let mut counts = self.lock();
        if let Some(count) = counts.get_mut(reason) {
            *count += 1;
            return;
        }
        let is_distinguished = is_reason(reason) && counts.len() < REASONS_MAX;
        let reason = if is_distinguished { reason } else { OTHER };
        *counts.entry(reason.to_owned()).or_default() += 1;
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        let counts = self.lock().clone();
        // There is always a series, so that a first refusal is an increase.
        if !counts.contains_key(OTHER) {
            out.add(&REFUSALS, [OTHER], 0_u64);
        }
        for (reason, count) in counts {
            out.add_named(&REFUSALS, [reason.into()], count);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        // It is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_reason(reason: &str) -> bool {
    let is_of_reason = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !reason.is_empty() && reason.len() <= REASON_MAX && reason.chars().all(is_of_reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(refused: &Refused) -> String {
        let mut out = Exposition::default();
        refused.expose(&mut out);
        out.to_open_metrics()
    }

    #[test]
    fn reasons_are_bounded() {
        let refused = Refused::default();
        assert!(text(&refused).contains("{reason=\"OTHER\"} 0\n"));
        refused.count("NO_VALID_HOST");
        refused.count("NO_VALID_HOST");
        refused.count("\"} 7\n");
        for number in 0..2 * REASONS_MAX {
            refused.count(&format!("R{number}"));
        }
        let text = text(&refused);
        assert!(text.contains("{reason=\"NO_VALID_HOST\"} 2\n"), "{text}");
        assert_eq!(text.matches("_total{").count(), REASONS_MAX, "{text}");
        let counted = text.lines().filter(|line| line.starts_with("berth"));
        let counted = counted.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>());
        assert_eq!(counted.sum::<Result<usize, _>>(), Ok(3 + 2 * REASONS_MAX));
    }
}
