//! The attempts that the log of an operation consists of: a step, or its undo, on one claimed host,
//! from its first entry to its last.
//!
//! Not here: what is attempted next ([`super::table`], and the saga).
//!
//! Invariant: the attempt of an entry, and of the calls that are made for it, follows from the entries
//! before it. So all who read the log name an attempt alike, while it goes on and afterwards.

use super::{Entry, Mark, Operation, Step};
use crate::id::TimeMs;
use crate::name::HostName;
use crate::refusal::Refusal;

/// Names an attempt within its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The step.
    pub step: Step,
    /// Whether the step is undone.
    pub is_undo: bool,
    /// How many hosts were claimed before.
    pub claims: u32,
    /// How often the step was recorded as failed since the last claim.
    pub failures: u32,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<'a> {
    /// The log has no end of it.
    Open,
    /// The step was done, or undone.
    Done,
    /// The step failed.
    Failed(&'a Refusal),
}

/// An attempt with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempted<'a> {
    /// Which one.
    pub attempt: Attempt,
    /// The host that it was about, where there was one.
    pub host: Option<&'a HostName>,
    /// When it was recorded as started; else when what came before it was recorded.
    pub begun_at: TimeMs,
    /// When its last entry was recorded; of one without an end, when what came after it was.
    pub ended_at: TimeMs,
    /// What became of it.
    pub ending: Ending<'a>,
}

impl Attempt {
    /// Returns the attempt to which a call for a step belongs, after these entries.
    #[must_use]
    pub fn of_call(log: &[Entry], step: Step, is_undo: bool) -> Self {
        let is_claim = |entry: &&Entry| entry.step == Step::Claim && entry.mark == Mark::Succeeded;
        let claims = log.iter().filter(is_claim).count();
        let failed = |entry: &&Entry| entry.step == step && entry.mark.refusal().is_some();
        let failures = match is_undo {
            true => 0,
            false => since_claim(log).iter().filter(failed).count(),
        };
        Self {
            step,
            is_undo,
            claims: u32::try_from(claims).unwrap_or(u32::MAX),
            failures: u32::try_from(failures).unwrap_or(u32::MAX),
        }
    }

    /// Returns the attempt to which an entry belongs, after these entries.
    #[must_use]
    pub fn of_entry(log: &[Entry], step: Step, mark: &Mark) -> Self {
        let is_undo = match mark {
            Mark::Started | Mark::Succeeded => false,
            Mark::UndoStarted | Mark::Undone => true,
            // Also what an undo failed with is recorded as a failure of the step.
            Mark::Failed(_) => since_claim(log)
                .iter()
                .any(|entry| entry.step == step && entry.mark == Mark::UndoStarted),
        };
        Self::of_call(log, step, is_undo)
    }

    /// Returns a number that no other attempt of the operation has.
    #[must_use]
    pub fn number(self) -> u64 {
        let position = Step::ALL.iter().position(|step| *step == self.step);
        let step = position.unwrap_or(Step::ALL.len()) as u64;
        let bounded = |number: u32| u64::from(number & 0xff_ffff);
        step << 49
            | u64::from(self.is_undo) << 48
            | bounded(self.claims) << 24
            | bounded(self.failures)
    }
}

/// Returns the entries after the last claim.
fn since_claim(log: &[Entry]) -> &[Entry] {
    let claimed = |entry: &Entry| entry.step == Step::Claim && entry.mark == Mark::Succeeded;
    let from = log.iter().rposition(claimed).map_or(0, |at| at + 1);
    &log[from..]
}

impl Operation {
    /// Returns its attempts in the order in which they began.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempted<'_>> {
        let mut all: Vec<Attempted<'_>> = Vec::new();
        for (at, entry) in self.log.iter().enumerate() {
            let before = &self.log[..at];
            let attempt = Attempt::of_entry(before, entry.step, &entry.mark);
            let known = all.iter_mut().find(|known| known.attempt == attempt);
            let attempted = match known {
                Some(known) => known,
                None => {
                    all.push(Attempted {
                        attempt,
                        host: entry.host.as_ref(),
                        begun_at: self.begun_at(before, entry),
                        ended_at: entry.at,
                        ending: Ending::Open,
                    });
                    let last = all.len() - 1;
                    &mut all[last]
                }
            };
            attempted.ending = match &entry.mark {
                Mark::Started | Mark::UndoStarted => Ending::Open,
                Mark::Succeeded | Mark::Undone => Ending::Done,
                Mark::Failed(refusal) => Ending::Failed(refusal),
            };
            let next = self.log.get(at + 1).map(|next| next.at);
            attempted.ended_at = match attempted.ending {
                Ending::Open => next.or(self.ended_at).unwrap_or(entry.at),
                Ending::Done | Ending::Failed(_) => entry.at,
            };
        }
        all
    }

    /// Returns when an attempt began of which this is the first entry, after those before.
    fn begun_at(&self, before: &[Entry], entry: &Entry) -> TimeMs {
        match entry.mark {
            Mark::Started | Mark::UndoStarted => entry.at,
            Mark::Succeeded | Mark::Failed(_) | Mark::Undone => {
                before.last().map_or(self.created_at, |before| before.at)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;

    fn refusal() -> Refusal {
        Refusal::new(Code::Internal, "HYPERVISOR", "it cannot be started")
    }

    /// The log of a boot: refused by one host, undone there, and done on another one.
    fn log() -> Vec<Entry> {
        let marks = [
            (Step::Claim, Mark::Succeeded),
            (Step::Spawn, Mark::Started),
            (Step::Spawn, Mark::Failed(refusal())),
            (Step::Spawn, Mark::UndoStarted),
            (Step::Spawn, Mark::Failed(refusal())),
            (Step::Spawn, Mark::Undone),
            (Step::Claim, Mark::Succeeded),
            (Step::Spawn, Mark::Started),
            (Step::Spawn, Mark::Succeeded),
        ];
        let entries = marks.into_iter().zip(1_u64..);
        let entry = |((step, mark), at)| Entry {
            step,
            mark,
            host: None,
            at: TimeMs(at * 10),
        };
        entries.map(entry).collect()
    }

    fn attempts(log: &[Entry]) -> Vec<Attempt> {
        let of =
            |(at, entry): (usize, &Entry)| Attempt::of_entry(&log[..at], entry.step, &entry.mark);
        log.iter().enumerate().map(of).collect()
    }

    #[test]
    fn each_host_and_each_undo_has_attempts_of_its_own() {
        let log = log();
        let attempts = attempts(&log);
        let summary: Vec<_> = attempts
            .iter()
            .map(|a| (a.step, a.is_undo, a.claims, a.failures))
            .collect();
        let (first, undo, second) = (
            (Step::Spawn, false, 1, 0),
            (Step::Spawn, true, 1, 0),
            (Step::Spawn, false, 2, 0),
        );
        let claim = |claims| (Step::Claim, false, claims, 0);
        let expected = [
            claim(0),
            first,
            first,
            undo,
            undo,
            undo,
            claim(1),
            second,
            second,
        ];
        assert_eq!(summary, expected);
        let mut numbers: Vec<u64> = attempts.iter().map(|a| a.number()).collect();
        numbers.dedup();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len(), count), (5, 5));
    }

    /// Goal: a call belongs to the attempt that the next entry about the step ends. Method: at every
    /// place of the log.
    #[test]
    fn calls_belong_to_the_attempt_that_is_recorded_next() {
        let log = log();
        for (at, attempt) in attempts(&log).into_iter().enumerate() {
            let call = Attempt::of_call(&log[..at], attempt.step, attempt.is_undo);
            assert_eq!(call, attempt, "before entry {at}");
        }
        // After a failure that is no end, as of a step that is repeated, the next attempt begins.
        let repeated = Attempt::of_call(&log[..3], Step::Spawn, false);
        assert_eq!((repeated.claims, repeated.failures), (1, 1));
    }
}
