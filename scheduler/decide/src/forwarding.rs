//! A command on its way to the leader, from its attempts to the response of its client.
//!
//! An attempt without a response may have been executed, or may be later. It is retried with the same
//! request id, at the same leader or at the next one, and the state's record of requests returns the
//! first response again. So every response is for one execution.
//!
//! A refusal is a response to one attempt: it is not in that record, and an earlier attempt that
//! arrives late can still be executed. So it is returned only while no other attempt is in doubt.
//!
//! Not here: which member leads, how an attempt travels, how long is waited.
//!
//! Invariant: a command that may be executed, now or later, is never reported as not executed.
//! [`Forwarding::response`] alone makes a response, and looks at the [`Doubt`] first.

use berth_domain::refusal::Refusal;
use berth_state::Reply;
use berth_state::request::{CLUSTER_RESTORED, OUTCOME_FORGOTTEN};

use super::doubt::{Attempt, Doubt};

/// Refusals of an attempt that do not say what came of an earlier one: the record of requests does
/// not reach back far enough, the outcome is forgotten, or (before outcomes were recorded) what the
/// request made is not there any more.
const RECALLED: [&str; 4] = [
    "REQUEST_ID_FORGOTTEN",
    CLUSTER_RESTORED,
    OUTCOME_FORGOTTEN,
    "ANSWER_GONE",
];

/// The outcome of a command.
pub type Outcome = Result<Reply, Refusal>;

/// What is known of one attempt when it has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Attempted {
    /// What the command came to.
    Outcome(Outcome),
    /// Nothing was done: the member does not lead, or nothing was sent to it.
    NotDone,
    /// Nothing was done, and a retry would be rejected as well.
    Rejected,
    /// It may be executed, now or later.
    Unknown,
    /// As [`Self::Unknown`], and a retry is useless.
    UnknownForGood,
}

/// What follows an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Another attempt.
    Retry,
    /// The end, with the outcome of this attempt.
    Outcome(Outcome),
    /// The end without one.
    GiveUp,
}

/// What the client gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// The outcome of the one execution, or a refusal while nothing was executed.
    Outcome(Outcome),
    /// It may be executed, now or later.
    InDoubt,
    /// Nothing was done, and nothing will be.
    NotDone,
}

/// A command that is being forwarded.
#[derive(Debug, Default)]
pub struct Forwarding {
    doubt: Doubt,
}

impl Forwarding {
    /// Records an attempt, before anything of it can leave this member.
    pub fn begin(&mut self) -> Attempt {
        self.doubt.begin()
    }

    /// Takes what is known of an attempt. One that is dropped instead stays in doubt.
    pub fn end(&mut self, attempt: Attempt, attempted: Attempted) -> Next {
        match attempted {
            Attempted::Outcome(outcome) => {
                self.doubt.close(attempt);
                Next::Outcome(outcome)
            }
            Attempted::NotDone => {
                self.doubt.close(attempt);
                Next::Retry
            }
            Attempted::Rejected => {
                self.doubt.close(attempt);
                Next::GiveUp
            }
            Attempted::Unknown => Next::Retry,
            Attempted::UnknownForGood => Next::GiveUp,
        }
    }

    /// Returns whether to stop waiting for a leader. What is in doubt is retried for as long as the
    /// client waits: the next leader knows what came of it.
    #[must_use]
    pub fn is_hopeless(&self, knows_leader: bool, has_waited: bool) -> bool {
        !knows_leader && has_waited && !self.doubt.is_open()
    }

    /// Returns what the client gets: with the outcome of the last attempt, or without one.
    #[must_use]
    pub fn response(&self, outcome: Option<Outcome>) -> Response {
        match outcome {
            // The attempts are one execution: this is its outcome.
            Some(Ok(reply)) => Response::Outcome(Ok(reply)),
            Some(Err(_)) | None if self.doubt.is_open() => Response::InDoubt,
            Some(Err(refusal)) if RECALLED.contains(&&*refusal.reason) => Response::InDoubt,
            Some(Err(refusal)) => Response::Outcome(Err(refusal)),
            None => Response::NotDone,
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::refusal::Code;

    use super::*;

    fn refused(reason: &str) -> Outcome {
        Err(Refusal::new(Code::Aborted, reason, "no"))
    }

    fn every_end() -> [Attempted; 7] {
        [
            Attempted::Outcome(Ok(Reply::None)),
            Attempted::Outcome(refused("CONFLICT")),
            Attempted::Outcome(refused(OUTCOME_FORGOTTEN)),
            Attempted::NotDone,
            Attempted::Rejected,
            Attempted::Unknown,
            Attempted::UnknownForGood,
        ]
    }

    /// Goal: after any attempts, a response that says "not done" or "refused" is given only when none
    /// of them may take effect. Method: all sequences of up to four attempts, each of which may also be
    /// cut off.
    #[test]
    fn nothing_that_may_be_executed_is_reported_as_not_executed() {
        let mut sequences = 0;
        let mut open = vec![Vec::new()];
        while let Some(sequence) = open.pop() {
            check(&sequence);
            sequences += 1;
            if sequence.len() < 4 {
                let ends = every_end().map(Some).into_iter().chain([None]);
                open.extend(ends.map(|end| [sequence.clone(), vec![end]].concat()));
            }
        }
        assert_eq!(sequences, 1 + 8 + 64 + 512 + 4096);
    }

    fn check(attempts: &[Option<Attempted>]) {
        let mut forwarding = Forwarding::default();
        let (mut may_take_effect, mut last) = (false, None);
        for attempted in attempts {
            let attempt = forwarding.begin();
            last = None;
            let Some(attempted) = attempted.clone() else {
                may_take_effect = true;
                continue;
            };
            may_take_effect |= matches!(attempted, Attempted::Unknown | Attempted::UnknownForGood);
            if let Next::Outcome(outcome) = forwarding.end(attempt, attempted) {
                last = Some(outcome);
            }
        }
        let recalled = matches!(&last, Some(Err(refusal)) if refusal.reason == OUTCOME_FORGOTTEN);
        let expected = match last.clone() {
            Some(Ok(reply)) => Response::Outcome(Ok(reply)),
            Some(Err(_)) | None if may_take_effect || recalled => Response::InDoubt,
            Some(Err(refusal)) => Response::Outcome(Err(refusal)),
            None => Response::NotDone,
        };
        assert_eq!(forwarding.response(last), expected, "{attempts:?}");
        assert_eq!(forwarding.is_hopeless(false, true), !may_take_effect);
    }
}
