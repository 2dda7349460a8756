//! How often things of each kind occurred, for a log that is bounded: a kind is logged when it first
//! occurs, and again with its count once a period at most.
//!
//! Invariant: each occurrence is in a count, and the number of kinds is limited.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How many kinds are distinguished: any caller can cause new ones.
pub(crate) const KINDS_MAX: usize = 256;

/// How often one kind is logged.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);

/// The kinds: when one was logged, and how many came since.
#[derive(Debug)]
pub(crate) struct Kinds<K> {
    kinds: HashMap<K, (Instant, u64)>,
    others: u64,
}

impl<K> Default for Kinds<K> {
    fn default() -> Self {
        Self {
            kinds: HashMap::new(),
            others: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> Kinds<K> {
    /// Counts one, and returns how many a line of its kind is to state, if it is to be logged.
    pub(crate) fn record(&mut self, now: Instant, kind: &K) -> Option<u64> {
        if let Some((logged_at, unlogged)) = self.kinds.get_mut(kind) {
            *unlogged += 1;
            if now.saturating_duration_since(*logged_at) < PERIOD {
                return None;
            }
            *logged_at = now;
            return Some(std::mem::take(unlogged));
        }
        if self.kinds.len() >= KINDS_MAX {
            // Those of an earlier period make way, and stay in a count.
            let others = &mut self.others;
            self.kinds.retain(|_, (logged_at, unlogged)| {
                let is_over = now.saturating_duration_since(*logged_at) >= PERIOD;
                if is_over {
                    *others += *unlogged;
                }
                !is_over
            });
        }
        if self.kinds.len() >= KINDS_MAX {
            self.others += 1;
            return None;
        }
        self.kinds.insert(kind.clone(), (now, 0));
        Some(1 + std::mem::take(&mut self.others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a flood gives few lines, and every occurrence is in a count.
    #[test]
    fn a_flood_gives_few_lines_that_count_all() {
        let mut kinds = Kinds::default();
        let begun = Instant::now();
        let (mut lines, mut counted, mut came) = (0, 0, 0);
        for round in 0..4_u32 {
            for caller in 0..1_000 {
                came += 1;
                let logged = kinds.record(begun + PERIOD * round, &format!("reader:{caller}"));
                lines += u32::from(logged.is_some());
                counted += logged.unwrap_or(0);
            }
            assert!(kinds.kinds.len() <= KINDS_MAX);
        }
        let unlogged: u64 = kinds.kinds.values().map(|(_, count)| count).sum();
        assert_eq!(counted + unlogged + kinds.others, came);
        assert!(lines <= 4 * u32::try_from(KINDS_MAX).unwrap(), "{lines}");
    }
}
