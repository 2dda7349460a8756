//! The audit in the log: what an agent carried out, and which calls were refused for who made them.
//! Lines of the target `audit`, with fields that can be searched for.
//!
//! Not here: the replicated audit of requests that change the state.
//!
//! Invariant: each refusal is in the log, by itself or in a count of its kind; a flood of refusals
//! gives a line of each kind once a minute at most, and of a limited number of kinds.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many kinds of refusals are distinguished: any caller can cause new ones.
const KINDS_MAX: usize = 256;

/// How often one kind is logged.
const PERIOD: Duration = Duration::from_secs(60);

/// What a line is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The method, as `DestroyVm`.
    pub method: String,
    /// Who called, as `conductor:c1`.
    pub caller: String,
    /// The VM, if the call was about one.
    pub vm: String,
    /// The operation, if the call belongs to one.
    pub operation: String,
}

/// Logs what was carried out, or tried.
pub fn done(line: &Line, outcome: &str) {
    let Line {
        method,
        caller,
        vm,
        operation,
    } = line;
    tracing::info!(target: "audit", method, caller, vm, operation, outcome);
}

/// Logs a refusal for who the caller is.
pub fn refused(line: &Line, reason: &str) {
    static REFUSALS: LazyLock<Mutex<Refusals>> = LazyLock::new(Mutex::default);
    // What it guards is whole between any two statements.
    let mut refusals = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(times) = refusals.record(Instant::now(), line, reason) else {
        return;
    };
    let Line {
        method,
        caller,
        vm,
        operation,
    } = line;
    tracing::warn!(target: "audit", method, caller, vm, operation, outcome = reason, times);
}

/// The kinds of refusals: when one was logged, and how many came since.
#[derive(Debug, Default)]
struct Refusals {
    kinds: HashMap<(String, String, String), (Instant, u64)>,
    others: u64,
}

impl Refusals {
    /// Counts a refusal, and returns how many a line of it is to state, if it is to be logged.
    fn record(&mut self, now: Instant, line: &Line, reason: &str) -> Option<u64> {
        let kind = (line.caller.clone(), line.method.clone(), reason.to_owned());
        if let Some((logged_at, unlogged)) = self.kinds.get_mut(&kind) {
            *unlogged += 1;
            if now.saturating_duration_since(*logged_at) < PERIOD {
                return None;
            }
            *logged_at = now;
            return Some(std::mem::take(unlogged));
        }
        if self.kinds.len() >= KINDS_MAX {
            // A kind without an unlogged refusal makes way.
            let is_over = |(logged_at, unlogged): &(Instant, u64)| {
                *unlogged == 0 && now.saturating_duration_since(*logged_at) >= PERIOD
            };
            self.kinds.retain(|_, kind| !is_over(kind));
        }
        if self.kinds.len() >= KINDS_MAX {
            self.others += 1;
            return None;
        }
        self.kinds.insert(kind, (now, 0));
        Some(1 + std::mem::take(&mut self.others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a flood gives few lines, and every refusal is in a count.
    #[test]
    fn a_flood_gives_few_lines_that_count_all() {
        let mut refusals = Refusals::default();
        let begun = Instant::now();
        let (mut lines, mut counted, mut came) = (0, 0, 0);
        for round in 0..4_u32 {
            for caller in 0..1_000 {
                let line = Line {
                    caller: format!("reader:{caller}"),
                    method: "DestroyVm".to_owned(),
                    ..Line::default()
                };
                came += 1;
                let logged = refusals.record(begun + PERIOD * round, &line, "ROLE_NOT_ALLOWED");
                lines += u32::from(logged.is_some());
                counted += logged.unwrap_or(0);
            }
            assert!(refusals.kinds.len() <= KINDS_MAX);
        }
        let unlogged: u64 = refusals.kinds.values().map(|(_, count)| count).sum();
        assert_eq!(counted + unlogged + refusals.others, came);
        assert!(lines <= 4 * u32::try_from(KINDS_MAX).unwrap(), "{lines}");
    }
}
