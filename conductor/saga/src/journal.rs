//! An operation's replicated log, read.
//!
//! An *attempt* is the log from the last time a host was claimed on; what was tried on hosts
//! before is history. An operation that claims nothing has one attempt: its whole log.

use berth_domain::operation::{Entry, Mark, Step};
use berth_domain::refusal::Refusal;

/// The entries of the attempt in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Journal<'a> {
    entries: &'a [Entry],
}

impl<'a> Journal<'a> {
    /// Returns the attempt in progress.
    pub(crate) fn of(log: &'a [Entry]) -> Self {
        let start = log
            .iter()
            .rposition(|e| e.step == Step::Claim && e.mark == Mark::Succeeded)
            .unwrap_or(0);
        Self {
            entries: &log[start..],
        }
    }

    fn marks(self, step: Step) -> impl DoubleEndedIterator<Item = &'a Mark> {
        self.entries
            .iter()
            .filter(move |e| e.step == step)
            .map(|e| &e.mark)
    }

    /// Returns the latest mark of a step.
    pub(crate) fn last(self, step: Step) -> Option<&'a Mark> {
        self.marks(step).next_back()
    }

    /// Returns whether a step was ever started.
    pub(crate) fn has_started(self, step: Step) -> bool {
        self.marks(step).any(|m| *m == Mark::Started)
    }

    /// Returns whether a step succeeded, without a later entry about it.
    pub(crate) fn has_succeeded(self, step: Step) -> bool {
        self.last(step) == Some(&Mark::Succeeded)
    }

    /// Returns whether a step was ever done.
    pub(crate) fn was_done(self, step: Step) -> bool {
        self.marks(step).any(|m| *m == Mark::Succeeded)
    }

    /// Returns whether the undo of a step was started.
    pub(crate) fn is_undo_started(self, step: Step) -> bool {
        self.marks(step).any(|m| *m == Mark::UndoStarted)
    }

    /// Returns whether a step was undone.
    pub(crate) fn is_undone(self, step: Step) -> bool {
        self.marks(step).any(|m| *m == Mark::Undone)
    }

    /// Returns the step that failed first, and why: the cause of an undo. Later failures are
    /// those of the undo itself.
    pub(crate) fn failure(self) -> Option<(Step, &'a Refusal)> {
        self.entries.iter().find_map(|e| match &e.mark {
            Mark::Failed(refusal) => Some((e.step, refusal)),
            Mark::Started | Mark::Succeeded | Mark::UndoStarted | Mark::Undone => None,
        })
    }

    /// Returns the latest logged failure of a step.
    pub(crate) fn last_failure(self, step: Step) -> Option<&'a Refusal> {
        self.marks(step).rev().find_map(|mark| match mark {
            Mark::Failed(refusal) => Some(refusal),
            Mark::Started | Mark::Succeeded | Mark::UndoStarted | Mark::Undone => None,
        })
    }

    /// Returns how many entries a step has.
    pub(crate) fn count(self, step: Step) -> usize {
        self.marks(step).count()
    }
}
