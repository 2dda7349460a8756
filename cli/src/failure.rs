//! The failure of what a command has waited for: an operation, or a migration.
//!
//! Invariant: it is none of the command's own calls, whatever the operation did not reach itself.

use berth_domain::refusal::Refusal;

/// What a command has waited for has failed.
#[derive(Debug, thiserror::Error)]
#[error("it has failed")]
pub struct Failed;

/// What has failed was reported already, with that of others.
#[derive(Debug, thiserror::Error)]
#[error("it was reported")]
pub struct Reported;

/// Returns the failure of what a command has waited for.
#[must_use]
pub fn failed(why: Refusal) -> anyhow::Error {
    anyhow::Error::new(why).context(Failed)
}

#[cfg(test)]
mod tests {
    use berth_domain::refusal::Code;

    use super::*;

    /// Goal: an operation that did not reach a host is not taken for a cluster that was not reached, and its
    /// reason is shown all the same.
    #[test]
    fn a_failure_that_was_waited_for_is_no_lost_connection() {
        let why = Refusal::new(Code::Unavailable, "HOST_UNREACHABLE", "host h1");
        let error = failed(why.clone());
        assert!(error.is::<Failed>());
        assert_eq!(error.downcast_ref::<Refusal>(), Some(&why));
    }
}
