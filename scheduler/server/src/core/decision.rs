//! What deciding on a request came to.

use berth_domain::refusal::Refusal;
use berth_selection::Choice;
use berth_state::Reply;
use berth_state::command::Envelope;

use super::chooser::Unexplained;

/// What deciding on a request came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Replicate this, and answer with its outcome.
    Command(Box<Proposal>),
    /// Nothing is to be changed: this is the answer.
    Answer(Box<Answer>),
    /// No, and nothing is to be changed.
    Refuse(Box<Refusal>),
    /// No, by every host; why is to be worked out.
    Explain(Box<Unexplained>),
}

/// A command to replicate.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The command.
    pub envelope: Envelope,
    /// Which host was chosen and what was looked at, where one was.
    pub choice: Option<Choice>,
}

/// An answer without a command: a retry of a request that was carried out, or an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What the command answered, or would.
    pub reply: Reply,
    /// Which host would be chosen, where one would.
    pub choice: Option<Choice>,
}

impl Decision {
    /// Returns the refusal as a decision.
    #[must_use]
    pub fn refuse(refusal: Refusal) -> Self {
        Self::Refuse(Box::new(refusal))
    }

    /// Returns the decision with the reason worked out, where it is a "no".
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
