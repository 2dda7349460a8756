//! The refusal of a caller that holds as much of a resource as it may: as a status, and in the log.
//!
//! Invariant: a caller is in the log once a minute at most, with the number of its refusals; of callers
//! beyond a limited number the refusals are counted together.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::table::{Resource, Tier};
use crate::kinds::Kinds;

/// The reason of the refusal of a body that does not arrive in time.
pub const BODY_TOO_SLOW: &str = "BODY_TOO_SLOW";
/// The reason of the refusal of a message that is longer than the server reads.
pub const MESSAGE_TOO_LARGE: &str = "MESSAGE_TOO_LARGE";
/// The reason of the refusal of a body that is no message.
pub const MALFORMED_REQUEST: &str = "MALFORMED_REQUEST";

/// Whose bound was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// That of the caller.
    Caller,
    /// That of all callers of its tier together.
    Tier(Tier),
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What there is no more of.
    pub resource: Resource,
    /// Whose bound was reached.
    pub scope: Scope,
    /// The caller, as `reader:bob`.
    pub caller: String,
    /// The bound.
    pub bound: u64,
}

impl Refused {
    /// Returns the status.
    #[must_use]
    pub fn to_status(&self) -> Status {
        let (what, bound) = (self.resource.as_str(), self.bound);
        let (owner, hint) = match self.scope {
            Scope::Caller => (
                self.caller.as_str(),
                "end some of them, or repeat the request later",
            ),
            Scope::Tier(tier) => (
                tier.as_str(),
                "repeat the request later, or send it to another server",
            ),
        };
        let message = format!("too many {what}: {bound} of {owner} at most");
        refusal(
            Code::ResourceExhausted,
            self.resource.reason(),
            &message,
            hint,
            &[("bound", what), ("of", owner), ("max", &bound.to_string())],
        )
    }
}

/// Returns a refusal that no method has made: its reason for programs, and its hint.
#[must_use]
pub fn refusal(
    code: Code,
    reason: &str,
    message: &str,
    hint: &str,
    metadata: &[(&str, &str)],
) -> Status {
    let pairs = metadata.iter().copied().chain([("hint", hint)]);
    let metadata: HashMap<String, String> = pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let details = ErrorDetails::with_error_info(reason, "berth", metadata);
    Status::with_error_details(code, message, details)
}

/// The refusals of a server, for the log.
#[derive(Debug, Default)]
pub(super) struct RefusalLog(Mutex<Kinds<String>>);

impl RefusalLog {
    pub(super) fn record(&self, caller: &str, status: &Status) {
        // What it guards is whole between any two statements.
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = kinds.record(Instant::now(), &caller.to_owned());
        drop(kinds);
        if let Some(times) = times {
            let reason = status.get_details_error_info().map(|info| info.reason);
            let reason = reason.unwrap_or_default();
            tracing::warn!(caller, reason, times, why = status.message(), "refused");
        }
    }
}
