//! What a replay reports. Values alone: how they are shown is the command's.
//!
//! Invariant: what is described is bounded by the number of examples that was requested; what is
//! counted is counted in full.

use std::collections::BTreeMap;

use berth_domain::id::TimeMs;
use berth_domain::name::{HostName, VmName};
use berth_domain::refusal::Refusal;

use crate::decision::Kind;

/// Whether the recorded policy leads to the recorded decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Recorded commands of every kind.
    pub commands: u64,
    /// Decisions that were made again.
    pub decisions: u64,
    /// The same by kind.
    pub by_kind: BTreeMap<Kind, u64>,
    /// Decisions that were left out, as the user named the host.
    pub named: u64,
    /// Recorded decisions that were refused when they were applied.
    pub rejected: u64,
    /// Decisions with another result than the recorded one.
    pub differences: u64,
    /// The same by cause.
    pub by_cause: BTreeMap<Cause, u64>,
    /// The first differences.
    pub examples: Vec<Difference>,
}

impl CheckReport {
    /// Returns how many differences have no known cause.
    #[must_use]
    pub fn unexplained(&self) -> u64 {
        self.by_cause
            .get(&Cause::Unexplained)
            .copied()
            .unwrap_or_default()
    }
}

/// A decision with another result than the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The log index of the recorded command.
    pub index: u64,
    /// When it was decided, in replicated time.
    pub at: TimeMs,
    /// The VM.
    pub vm: VmName,
    /// What the host was chosen for.
    pub kind: Kind,
    /// The recorded host.
    pub recorded: HostName,
    /// The result now.
    pub replayed: Replayed,
    /// Why it may differ.
    pub cause: Cause,
}

/// Another result than the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// Another host is chosen.
    OtherHost(HostName),
    /// The same host is chosen, and something else is taken of it.
    OtherClaim,
    /// Host and claim are the same, and the rest of the command is not.
    OtherCommand,
    /// It is refused.
    Refused(Refusal),
    /// No command results.
    NoCommand,
}

/// Why a decision may differ although nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The evacuation followed a plan of the conductor, which no command records.
    UnrecordedPlan,
    /// Admission control refuses new VMs, and the leader may have had a proof from earlier that
    /// exceeds the budget of one decision.
    CachedProofs,
    /// None is known: another version of the program decided, or something is wrong.
    Unexplained,
}

impl Cause {
    /// Returns the cause as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnrecordedPlan => "unrecorded-plan",
            Self::CachedProofs => "cached-proofs",
            Self::Unexplained => "unexplained",
        }
    }
}
