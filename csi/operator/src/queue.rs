//! Which deployments need a pass, and when.
//!
//! ```text
//!   trigger ─▶ due soon ─▶ take ─▶ pass ─┬▶ clean: due after the resync period
//!                                         ├▶ wrote: the same; the own writes trigger it again
//!                                         └▶ failed: due after the backoff
//! ```
//!
//! Triggers of one deployment are merged while it waits. A trigger is served at once, unless the passes
//! before it failed or wrote: then after a time that doubles. So two managers that revert each other's
//! writes do not write without a pause, and drift after a quiet time is corrected at once.
//!
//! Not here: the clock, the random number, and the passes.
//!
//! Invariant: a deployment that was triggered is due until it is taken, and a taken one that is triggered
//! meanwhile is due again.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backoff;

/// How long triggers are collected: one change of a user is several events.
const COLLECT: Duration = Duration::from_millis(50);
/// How often the time to the next pass is doubled at most.
const DOUBLINGS_MAX: u32 = 6;

/// What came of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing differed.
    Clean,
    /// Something differed and was written.
    Wrote,
    /// It could not be finished, or the deployment is refused.
    Failed,
    /// It is to be repeated after this time, because something else is waited for.
    Waits(Duration),
    /// There is no such deployment any more.
    Gone,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// When the next pass is due, on the caller's clock.
    due: Option<Duration>,
    /// Failed passes in a row.
    failures: u32,
    /// Passes in a row that wrote.
    writes: u32,
}

/// The deployments that have passes.
#[derive(Clone, Debug)]
pub struct Queue<K> {
    entries: BTreeMap<K, Entry>,
    resync: Duration,
}

impl<K: Ord + Clone> Queue<K> {
    /// Returns an empty queue; a clean deployment has a pass after the resync period at the latest.
    #[must_use]
    pub fn new(resync: Duration) -> Self {
        Self {
            entries: BTreeMap::new(),
            resync,
        }
    }

    /// Records that a deployment may have changed.
    pub fn trigger(&mut self, key: K, now: Duration) {
        let entry = self.entries.entry(key).or_default();
        let doublings = (entry.failures + entry.writes).min(DOUBLINGS_MAX);
        let due = now + COLLECT * (1 << doublings);
        entry.due = Some(entry.due.map_or(due, |before| before.min(due)));
    }

    /// As [`Self::trigger`], for all deployments.
    pub fn trigger_all(&mut self, now: Duration) {
        let keys: Vec<K> = self.entries.keys().cloned().collect();
        for key in keys {
            self.trigger(key, now);
        }
    }

    /// Returns when the next pass is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.entries.values().filter_map(|entry| entry.due).min()
    }

    /// Takes the deployment that has been due for the longest time, if one is.
    pub fn take(&mut self, now: Duration) -> Option<K> {
        let due = self.entries.iter_mut().filter_map(|(key, entry)| {
            let due = entry.due.filter(|due| *due <= now)?;
            Some((due, key, entry))
        });
        let (_, key, entry) = due.min_by_key(|(due, key, _)| (*due, (*key).clone()))?;
        entry.due = None;
        Some(key.clone())
    }

    /// Records what came of the pass of a taken deployment; `random` is any number.
    pub fn record(&mut self, key: &K, outcome: Outcome, now: Duration, random: u32) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let next = match outcome {
            Outcome::Clean => {
                (entry.failures, entry.writes) = (0, 0);
                self.resync
            }
            Outcome::Wrote => {
                (entry.failures, entry.writes) = (0, entry.writes + 1);
                self.resync
            }
            Outcome::Waits(time) => {
                (entry.failures, entry.writes) = (0, 0);
                time
            }
            Outcome::Failed => {
                entry.failures += 1;
                backoff::delay(entry.failures, random)
            }
            Outcome::Gone => {
                // It may have been created again while its pass was made.
                if entry.due.is_none() {
                    self.entries.remove(key);
                }
                return;
            }
        };
        let due = now + next;
        entry.due = Some(entry.due.map_or(due, |before| before.min(due)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESYNC: Duration = Duration::from_secs(300);

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn queue() -> Queue<&'static str> {
        Queue::new(RESYNC)
    }

    #[test]
    fn triggers_are_merged_and_served_in_order() {
        let mut queue = queue();
        queue.trigger("b", at(0));
        queue.trigger("a", at(10));
        queue.trigger("b", at(40));
        assert_eq!(queue.next_due(), Some(at(50)));
        assert_eq!(queue.take(at(49)), None);
        assert_eq!(queue.take(at(60)), Some("b"));
        assert_eq!(queue.take(at(60)), Some("a"));
        assert_eq!(queue.take(at(9999)), None);
    }

    #[test]
    fn a_trigger_during_a_pass_is_not_lost() {
        let mut queue = queue();
        queue.trigger("a", at(0));
        assert_eq!(queue.take(at(50)), Some("a"));
        queue.trigger("a", at(60));
        queue.record(&"a", Outcome::Clean, at(100), 0);
        assert_eq!(queue.next_due(), Some(at(110)));
        queue.take(at(110));
        queue.trigger("a", at(120));
        queue.record(&"a", Outcome::Gone, at(130), 0);
        assert_eq!(queue.take(at(200)), Some("a"));
        queue.record(&"a", Outcome::Gone, at(210), 0);
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn a_clean_deployment_has_a_pass_after_the_period() {
        let mut queue = queue();
        queue.trigger("a", at(0));
        queue.take(at(50));
        queue.record(&"a", Outcome::Clean, at(60), 0);
        assert_eq!(queue.next_due(), Some(at(60) + RESYNC));
    }

    /// Goal: two managers that revert each other do not write without a pause, and once one gives up,
    /// drift is corrected at once.
    #[test]
    fn passes_that_write_in_a_row_are_spaced() {
        let mut queue = queue();
        let mut now = at(0);
        let mut gaps = Vec::new();
        for _ in 0..10 {
            queue.trigger("a", now);
            let due = queue.next_due().expect("it is due");
            gaps.push(due - now);
            now = due;
            queue.take(now);
            queue.record(&"a", Outcome::Wrote, now, 0);
        }
        assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]), "{gaps:?}");
        assert_eq!((gaps[0], gaps[9]), (at(50), at(3200)));
        queue.trigger("a", now);
        now = queue.next_due().expect("it is due");
        queue.take(now);
        queue.record(&"a", Outcome::Clean, now, 0);
        queue.trigger("a", now);
        assert_eq!(queue.next_due(), Some(now + at(50)));
    }

    #[test]
    fn failures_are_repeated_after_the_backoff() {
        let mut queue = queue();
        queue.trigger("a", at(0));
        for failures in 1..=20 {
            let now = queue.next_due().expect("it is due");
            assert_eq!(queue.take(now), Some("a"));
            queue.record(&"a", Outcome::Failed, now, 7);
            assert_eq!(queue.next_due(), Some(now + backoff::delay(failures, 7)));
        }
    }
}
