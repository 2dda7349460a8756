//! The failure of what a command has waited for, an operation or a migration; and failures as refusals, where a
//! command reports several.
//!
//! Invariant: what was waited for is none of the command's own calls, whatever the operation did not reach itself.

use berth_domain::refusal::{Code, Refusal};
use berth_process::error_chain;

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

/// Returns a failure as a refusal, also where no server was called: the command itself could not go on.
#[must_use]
pub fn refusal(error: &anyhow::Error) -> Refusal {
    let refusal = error.downcast_ref::<Refusal>().cloned();
    refusal.unwrap_or_else(|| {
        let why = error_chain(error.as_ref());
        Refusal::new(Code::InvalidArgument, "COMMAND_FAILED", why)
    })
}

/// Returns the one of several failures, all of which were reported, that the exit status is of: a server that was
/// not reached is above a refusal.
#[must_use]
pub fn worst(failures: Vec<anyhow::Error>) -> Option<anyhow::Error> {
    let is_unreachable = |error: &anyhow::Error| {
        let refusal = error.downcast_ref::<Refusal>();
        refusal.is_some_and(|refusal| refusal.code == Code::Unavailable) && !error.is::<Failed>()
    };
    let at = failures.iter().position(is_unreachable);
    let mut failures = failures.into_iter();
    let worst = failures.nth(at.unwrap_or(0));
    worst.map(|worst| worst.context(Reported))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_not_reached_is_the_worst() {
        let of = |code, message: &str| anyhow::Error::new(Refusal::new(code, "X", message));
        let refused = || of(Code::NotFound, "refused");
        let unreachable = || of(Code::Unavailable, "unreachable");
        let waited_for = || unreachable().context(Failed);
        for (failures, expected) in [
            (vec![], None),
            (vec![refused(), unreachable()], Some("unreachable")),
            (vec![unreachable(), refused()], Some("unreachable")),
            (vec![refused(), waited_for()], Some("refused")),
            (vec![anyhow::anyhow!("other"), refused()], Some("other")),
        ] {
            let worst = worst(failures);
            assert!(worst.as_ref().is_none_or(|worst| worst.is::<Reported>()));
            let message = worst.map(|worst| refusal(&worst).message);
            let of = message
                .as_deref()
                .map(|message| message.split(": ").last().unwrap_or(""));
            assert_eq!(of, expected);
        }
    }

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
