//! What a search for allocation candidates yields, and what bounds it.

use std::collections::BTreeMap;

use berth_domain::allocation::Resources;
use berth_domain::id::ProviderId;

use crate::candidates::query::Suffix;

/// One way to serve a whole query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// What to take from which provider.
    pub allocations: BTreeMap<ProviderId, Resources>,
    /// Which providers serve which group, in the order of their identifiers.
    pub mappings: BTreeMap<Suffix, Vec<ProviderId>>,
}

/// All requested candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// The candidates, each of them once.
    pub candidates: Vec<Candidate>,
    /// Whether the search was stopped by its bounds while more were requested: there may be others.
    pub stopped: bool,
}

/// How much one search may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Providers that are looked at, each as often as it is. Some tens of millions take a second.
    pub steps: u64,
    /// Bytes of the candidates that are found, roughly.
    pub bytes: u64,
    /// Steps at one tree without a candidate, after which it is checked at each further step whether
    /// the rest can be completed. It changes the cost only.
    pub dead_ends: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            steps: 50_000_000,
            bytes: 256 << 20,
            dead_ends: 32,
        }
    }
}

/// A search was stopped before it was known what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the search for allocation candidates was stopped after {steps} steps and {bytes} bytes of \
     candidates ({candidates_total} found): {}",
    match limited {
        true => "ask for less, or narrow the groups by traits, aggregates or in_tree",
        false => "ask for fewer candidates with `limit`",
    }
)]
pub struct SearchBound {
    /// Steps that were done.
    pub steps: u64,
    /// Bytes of the candidates that were found.
    pub bytes: u64,
    /// How many candidates were found.
    pub candidates_total: u64,
    /// Whether the query has a limit.
    pub limited: bool,
}

impl SearchBound {
    /// The reason for programs.
    pub const REASON: &'static str = "SEARCH_BOUND";
}
