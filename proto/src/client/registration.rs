//! The first words of a program to the schedulers: why it is not registered is known at once.
//!
//! Not here: the registration itself, and how often it is tried, which are the program's.

use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use tonic::Status;

use super::{Policy, SchedulerChannel};
use crate::status;

/// The reason of a refusal that was made here because what answers is no scheduler.
pub const NOT_A_SCHEDULER: &str = "NOT_A_SCHEDULER";

impl SchedulerChannel {
    /// Returns the same channel for the first attempt, which ends once each endpoint was tried: further ones
    /// wait for schedulers that are being started, and an address that is wrong would be noticed as late.
    #[must_use]
    pub fn without_patience(self) -> Self {
        let policy = Policy {
            silence_max: Duration::ZERO,
            ..self.policy
        };
        self.with_policy(policy)
    }

    /// Returns why a registration failed. A server of another kind knows no method of a scheduler, and says
    /// nothing else.
    #[must_use]
    pub fn not_registered(&self, status: &Status) -> Refusal {
        let refusal = status::from_status(status);
        if status.code() != tonic::Code::Unimplemented || refusal.hint.is_some() {
            return refusal;
        }
        let message = format!("the server at {} is no scheduler", self.current());
        Refusal::new(Code::Unimplemented, NOT_A_SCHEDULER, message).with_hint(
            "a conductor or an agent may listen there: name the schedulers with --scheduler, or as \
             `schedulers` in the configuration",
        )
    }
}
