//! The result of one check.

use berth_domain::host_check::CheckOutcome;
use berth_domain::refusal::Refusal;
use serde::Serialize;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was checked, as `leader`.
    pub(super) check: &'static str,
    /// Which of several, as an address; `-` where there is one.
    pub(super) of: String,
    /// How it ended.
    pub(super) outcome: CheckOutcome,
    /// What was observed.
    pub(super) message: String,
    /// What to do about it.
    pub(super) hint: Option<String>,
}

impl Finding {
    fn new(
        check: &'static str,
        outcome: CheckOutcome,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Self {
        Self {
            check,
            of: "-".to_owned(),
            outcome,
            message: message.into(),
            hint,
        }
    }

    /// Nothing is wrong.
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, CheckOutcome::Ok, message, None)
    }

    /// All works, but not for ever or not whatever happens.
    pub(super) fn warning(
        check: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(check, CheckOutcome::Warning, message, Some(hint.into()))
    }

    /// Something does not work.
    pub(super) fn failed(
        check: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(check, CheckOutcome::Failed, message, Some(hint.into()))
    }

    /// It could not be checked.
    pub(super) fn unknown(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, CheckOutcome::Unknown, message, None)
    }

    /// It could not be checked, because a request was refused.
    pub(super) fn refused(check: &'static str, refusal: &Refusal) -> Self {
        let message = refusal.message.clone();
        Self::new(check, CheckOutcome::Unknown, message, refusal.hint.clone())
    }

    /// Returns it with which of several it is of.
    pub(super) fn of(self, of: impl Into<String>) -> Self {
        Self {
            of: of.into(),
            ..self
        }
    }
}

/// Returns a number of things, as `1 host` or `3 hosts`.
pub(super) fn count(number: usize, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}
