//! The refusals that sagas themselves give, and how those of others are read.

use berth_domain::agent::Failure;
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::Operation;
use berth_domain::refusal::{Code, Refusal};

/// Another lease of the operation exists.
const STALE_EPOCH: &str = "STALE_EPOCH";
/// The call was meant for an earlier run of the agent.
const STALE_INCARNATION: &str = "STALE_INCARNATION";

/// What a failed call means for the saga.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Another conductor has the operation.
    LeaseLost,
    /// The agent was restarted: read its facts and call again.
    AgentRestarted(Refusal),
    /// It may have had its effects, now or later.
    OutcomeUnknown(NoOutcome),
    /// It had none.
    Refused(Refusal),
}

/// Why it is not known whether a call had its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoOutcome {
    /// Why, as a sentence.
    pub(crate) message: String,
    /// What the agent answered; absent where no answer came.
    pub(crate) answer: Option<Refusal>,
}

impl NoOutcome {
    /// No answer came.
    pub(crate) fn silence(message: String) -> Self {
        Self {
            message,
            answer: None,
        }
    }
}

/// Reads why an agent's answer is not there.
pub(crate) fn read(failure: Failure) -> Reading {
    match failure {
        Failure::Unreachable { message } => Reading::OutcomeUnknown(NoOutcome::silence(message)),
        Failure::Refused(refusal) if is_lease_lost(&refusal) => Reading::LeaseLost,
        Failure::Refused(refusal) if refusal.reason == STALE_INCARNATION => {
            Reading::AgentRestarted(refusal)
        }
        Failure::Refused(refusal) if is_outcome_unknown(&refusal) => {
            Reading::OutcomeUnknown(NoOutcome {
                message: refusal.message.clone(),
                answer: Some(refusal),
            })
        }
        Failure::Refused(refusal) => Reading::Refused(refusal),
    }
}

/// Returns whether it means that another conductor has the operation.
pub(crate) fn is_lease_lost(refusal: &Refusal) -> bool {
    refusal.code == Code::Aborted && refusal.reason == STALE_EPOCH
}

/// Returns whether the command may have been carried out all the same.
pub(crate) fn is_outcome_unknown(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::Unavailable | Code::DeadlineExceeded)
}

/// An agent did not answer, or answered that it cannot do it now, however often it was called.
pub(crate) fn unreachable(host: &HostName, why: &NoOutcome) -> Refusal {
    let refuse = |what: &str| {
        let message = format!("the agent of host {host} {what}: {}", why.message);
        Refusal::new(Code::Unavailable, "HOST_UNREACHABLE", message).with("host", host)
    };
    let Some(answer) = &why.answer else {
        return refuse("does not answer").with_hint(format!(
            "see whether the compute agent of host {host} runs and can be reached from the conductor"
        ));
    };
    // What helps is for the agent to say.
    Refusal {
        hint: answer.hint.clone(),
        ..refuse("cannot do it now").with("agent_reason", &answer.reason)
    }
}

/// An undo or a deletion waits for an agent; this is logged once.
pub(crate) fn stuck(host: &HostName, what: &str, why: &Refusal) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "WAITING_FOR_HOST",
        format!(
            "{what} on host {host} is repeated until it is done, and the claim stays until then: \
             {why}"
        ),
    )
    .with("host", host)
    .with_hint(format!("bring the compute agent of host {host} back"))
}

/// A user cancelled the operation.
pub(crate) fn cancelled(operation: &Operation) -> Refusal {
    Refusal::new(
        Code::Cancelled,
        "OPERATION_CANCELLED",
        format!("operation {} was cancelled", operation.id),
    )
}

/// A user cancelled the operation while the guest was on its way, and it stayed.
pub(crate) fn cancelled_on_the_way(
    operation: &Operation,
    vm: &VmName,
    error: Option<&str>,
) -> Refusal {
    let mut refusal = cancelled(operation);
    let why = error.unwrap_or("its transfer was never begun");
    refusal.message = format!("{}, and vm {vm} stays where it was: {why}", refusal.message);
    refusal.with("vm", vm)
}

/// A host that the operation needs is not known to the cluster.
pub(crate) fn host_unknown(host: &HostName) -> Refusal {
    Refusal::new(
        Code::NotFound,
        "HOST_NOT_FOUND",
        format!("host {host} is not part of this cluster"),
    )
    .with("host", host)
}

/// The state lacks something that the step needs.
pub(crate) fn inconsistent(message: impl Into<String>) -> Refusal {
    Refusal::new(Code::Internal, "OPERATION_INCONSISTENT", message)
}

/// An agent's answer does not belong to the question.
pub(crate) fn unexpected_answer(what: &str) -> Refusal {
    Refusal::new(
        Code::Internal,
        "UNEXPECTED_ANSWER",
        format!("the agent answered {what} with something else"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a call that was given up is reported with the hint that helps: the agent's own
    /// if it answered.
    #[test]
    fn an_agent_that_answered_says_what_helps() {
        let host = HostName::new("h1").unwrap();
        let given_up = |failure| {
            let Reading::OutcomeUnknown(why) = read(failure) else {
                panic!("its outcome is not known");
            };
            unreachable(&host, &why)
        };
        let (message, early) = ("no route".to_owned(), "it was made in the future");
        let silent = given_up(Failure::Unreachable { message });
        let answer = Refusal::new(Code::Unavailable, "GRANT_INVALID", early);
        let plain = given_up(Failure::Refused(answer.clone()));
        let hinted = given_up(Failure::Refused(answer.with_hint("compare the clocks")));
        for refusal in [&silent, &plain, &hinted] {
            assert_eq!(refusal.reason, "HOST_UNREACHABLE");
        }
        assert!(
            silent
                .hint
                .is_some_and(|hint| hint.contains("agent of host h1 runs"))
        );
        assert_eq!(plain.hint, None);
        assert_eq!(hinted.hint.as_deref(), Some("compare the clocks"));
        assert!(hinted.message.contains(early), "{hinted}");
    }
}
