//! The audit in the log: what an agent carried out, and which calls were refused for who made them.
//! Lines of the target `audit`, with fields that can be searched for.
//!
//! Not here: the replicated audit of requests that change the state.
//!
//! Invariant: each refusal is in the log, by itself or in a count of its kind; a flood of refusals
//! gives a line of each kind once a minute at most, and of a limited number of kinds.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use berth_tls::Identity;

use super::UNVERIFIED;
use crate::kinds::Kinds;

/// What a line is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The method, as `DestroyVm`.
    pub method: String,
    /// Who called, as `conductor:c1`.
    pub caller: String,
    /// The VM, if the call was about one.
    pub vm: String,
    /// The operation, if the call belongs to one.
    pub operation: String,
}

impl Line {
    /// Returns what is said of a call that is about no VM and belongs to no operation.
    #[must_use]
    pub fn of(method: &str, caller: Option<&Identity>) -> Self {
        Self {
            method: method.to_owned(),
            caller: caller.map_or_else(|| UNVERIFIED.to_owned(), Identity::principal),
            ..Self::default()
        }
    }
}

/// Logs what was carried out, or tried.
pub fn done(line: &Line, outcome: &str) {
    let Line {
        method,
        caller,
        vm,
        operation,
    } = line;
    tracing::info!(target: "audit", method, caller, vm, operation, outcome);
}

/// Logs a refusal for who the caller is.
pub fn refused(line: &Line, reason: &str) {
    /// By caller, method and reason.
    static REFUSALS: LazyLock<Mutex<Kinds<(String, String, String)>>> =
        LazyLock::new(Mutex::default);
    // What it guards is whole between any two statements.
    let mut refusals = REFUSALS.lock().unwrap_or_else(PoisonError::into_inner);
    let kind = (line.caller.clone(), line.method.clone(), reason.to_owned());
    let times = refusals.record(Instant::now(), &kind);
    drop(refusals);
    let Some(times) = times else {
        return;
    };
    let Line {
        method,
        caller,
        vm,
        operation,
    } = line;
    tracing::warn!(target: "audit", method, caller, vm, operation, outcome = reason, times);
}
