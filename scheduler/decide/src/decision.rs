//! The outcome of deciding on a request.

use berth_domain::refusal::Refusal;
use berth_selection::Choice;
use berth_state::Reply;
use berth_state::command::Envelope;

use super::chooser::Unexplained;

/// The outcome of deciding on a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Replicate this command, and respond with its outcome.
    Command(Box<Proposal>),
    /// Nothing has to be changed: this is the response.
    Answer(Box<Answer>),
    /// Refused, and nothing is changed.
    Refuse(Box<Refusal>),
    /// Unschedulable host fits; the explanation is still to be computed.
    Explain(Box<Unexplained>),
}

/// A command to replicate.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The command.
    pub envelope: Envelope,
    /// The chosen host and the examined candidates, where a host was chosen.
    pub choice: Option<Choice>,
}

/// A response without a command: a retry of a completed request, or an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The command's reply, or what it would be.
    pub reply: Reply,
    /// The host that would be chosen, where one would.
    pub choice: Option<Choice>,
}

impl Decision {
    /// Returns the refusal as a decision.
    #[must_use]
    pub fn refuse(refusal: Refusal) -> Self {
        Self::Refuse(Box::new(refusal))
    }

    /// Returns the decision with its refusal explained, if it is one.
    #[must_use]
    pub fn explained(self) -> Self {
        match self {
            Self::Explain(unexplained) => Self::refuse(unexplained.explain()),
            Self::Command(_) | Self::Answer(_) | Self::Refuse(_) => self,
        }
    }

    /// Returns the reply as a decision.
    #[must_use]
    pub fn answer(reply: Reply, choice: Option<Choice>) -> Self {
        Self::Answer(Box::new(Answer { reply, choice }))
    }
}
