//! The audit: the principal, time, request and decision of each command, with the reason.
//!
//! It holds a summary of each request, never the request: what a user wrote into an image's
//! properties or a disk's name has no place here.
//!
//! Invariant: bounded. A summary has at most [`SUMMARY_MAX`] bytes, a choice lists at most
//! [`RANKED_MAX`] hosts, a refusal is bounded by itself.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{OperationId, RequestId, TimeMs};
use crate::name::{HostName, VmName};
use crate::refusal::Refusal;

/// The longest summary, in bytes.
pub const SUMMARY_MAX: usize = 512;

/// How many hosts a choice lists, the chosen one first.
pub const RANKED_MAX: usize = 4;

/// A summary of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestSummary {
    /// The method, as `ScheduleVm`.
    pub method: String,
    /// The client's id of the request, if it gave one.
    pub request_id: Option<RequestId>,
    /// The VM that it is about, if any.
    pub vm: Option<VmName>,
    /// The host that it is about or that it names, if any.
    pub host: Option<HostName>,
    /// Its other parameters, as `flavor=small`.
    pub summary: String,
    /// How the host was chosen, where one was.
    pub choice: Option<Arc<Chosen>>,
}

/// A host that was chosen, and why that one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Chosen {
    /// The host.
    pub host: HostName,
    /// How many hosts were looked at.
    pub hosts: u32,
    /// How many of them passed the quick check of free resources.
    pub passed: u32,
    /// On how many of them all rules were tried.
    pub tried: u32,
    /// The chosen host and the next best, in this order. Empty where the user named the host.
    pub ranking: Vec<Ranked>,
}

/// The weights of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ranked {
    /// The host.
    pub host: HostName,
    /// The points from each used weigher, times its weight; the greatest sum wins.
    pub points: Vec<Points>,
}

/// What one weigher gave a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Points {
    /// The weigher, as `load`.
    pub weigher: Cow<'static, str>,
    /// Its value from 0 to 65,535, times its weight.
    pub points: u32,
}

impl Ranked {
    /// Returns the sum of what the weighers gave.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.points.iter().map(|p| u64::from(p.points)).sum()
    }
}

/// The weighers, by the names that are recorded.
const WEIGHERS: [&str; 5] = ["load", "numa", "fragmentation", "pci", "soft_affinity"];

/// Returns the name of a weigher as it is kept: of one that this build knows without a copy, since every
/// placement has a dozen.
#[must_use]
pub fn weigher_name(name: String) -> Cow<'static, str> {
    let known = WEIGHERS.iter().find(|known| **known == name);
    known.map_or(Cow::Owned(name), |known| Cow::Borrowed(known))
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done, or the operation that does it was begun.
    Accepted {
        /// The operation.
        operation: Option<OperationId>,
    },
    /// It was refused.
    Refused(Refusal),
}

/// An entry of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The revision of the command; it names the entry.
    pub revision: u64,
    /// When, in replicated time.
    pub at: TimeMs,
    /// The principal of the requests, as far as it is known.
    pub principal: String,
    /// The request.
    #[serde(rename = "asked")]
    pub request: RequestSummary,
    /// What was decided.
    pub outcome: Outcome,
}

/// Requests that were refused before they came into the log, alike and close to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Numbers them on the member that refused.
    pub number: u64,
    /// When it was refused first, by the clock of the member.
    pub first_at: TimeMs,
    /// When it was refused last.
    pub last_at: TimeMs,
    /// How often.
    pub count: u64,
    /// The principal of the requests, as far as it is known.
    pub principal: String,
    /// The latest of the requests.
    #[serde(rename = "asked")]
    pub request: RequestSummary,
    /// Why it was refused, the last time.
    pub refusal: Refusal,
}

/// Returns as much of a summary as may be kept.
#[must_use]
pub fn shortened(mut summary: String) -> String {
    if summary.len() > SUMMARY_MAX {
        let end = (0..=SUMMARY_MAX - 4).rev();
        let end = end.into_iter().find(|at| summary.is_char_boundary(*at));
        summary.truncate(end.unwrap_or(0));
        summary.push_str(" …");
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_shortened_between_characters() {
        assert_eq!(shortened("flavor=small".into()), "flavor=small");
        for fill in ["a", "é", "→", "🦀"] {
            let long = shortened(fill.repeat(SUMMARY_MAX + 1));
            assert!(long.len() <= SUMMARY_MAX && long.ends_with(" …"), "{long}");
            assert!(long.len() > SUMMARY_MAX - 8, "{}", long.len());
        }
    }
}
