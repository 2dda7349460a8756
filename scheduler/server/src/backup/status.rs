//! How the scheduled backups of this member went last.

use std::sync::{Arc, Mutex, PoisonError};

/// How they went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackupStatus {
    /// When the last one was made, by this machine's clock in milliseconds since 1970; absent if none
    /// was made since the member started.
    pub(crate) last_ms: Option<u64>,
    /// The index at which the last one ends.
    pub(crate) last_index: u64,
    /// Why the last attempt failed; absent if it did not.
    pub(crate) failure: Option<String>,
    /// How many attempts have failed.
    pub(crate) failures: u64,
}

/// The status, shared between the schedule, which writes it, and those who read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStatus(Arc<Mutex<BackupStatus>>);

impl SharedStatus {
    /// Returns the status.
    pub(crate) fn get(&self) -> BackupStatus {
        // It is whole between any two statements.
        let status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        status.clone()
    }

    /// Records that one was made; returns the failure that has ended.
    pub(crate) fn record_success(&self, at_ms: u64, index: u64) -> Option<String> {
        // As above.
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        status.last_ms = Some(at_ms);
        status.last_index = index;
        status.failure.take()
    }

    /// Records that one was not made; returns whether the reason is another one than before.
    pub(crate) fn record_failure(&self, why: &str) -> bool {
        // As above.
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The names of files have the index in them, which is another one with each attempt.
        let reason = |why: &str| why.replace(|c: char| c.is_ascii_digit(), "");
        let is_new = status.failure.as_deref().map(reason) != Some(reason(why));
        status.failure = Some(why.to_owned());
        status.failures += 1;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a reason is new once, whatever the index in the name of the file, and again after a success.
    #[test]
    fn a_reason_is_new_once() {
        let status = SharedStatus::default();
        let full = |index| format!("berth-c-m1-{index:020}-full.backup: no space is left");
        assert!(status.record_failure(&full(12)));
        assert!(!status.record_failure(&full(13)));
        assert!(status.record_failure("the directory cannot be used"));
        assert!(status.record_failure(&full(14)));
        let ended = status.record_success(1, 15);
        assert_eq!(ended, Some(full(14)));
        assert!(status.record_failure(&full(16)));
        assert_eq!(status.get().failures, 5);
    }
}
