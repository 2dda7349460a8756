//! What a replay reports. Values alone: how they are shown is the command's.
//!
//! Invariant: what is described is bounded by the number of examples that was requested; what is
//! counted is counted in full.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::id::TimeMs;
use berth_domain::name::{FlavorName, HostName, VmName};
use berth_domain::refusal::Refusal;

use crate::decision::Kind;
use crate::usage::Usage;

/// A whole report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether the recorded policy leads to the recorded decisions.
    pub check: CheckReport,
    /// How full the recorded hosts are.
    pub recorded: Usage,
    /// What differs with the changes, if any were requested.
    pub what_if: Option<WhatIfReport>,
}

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

/// What differs with the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIfReport {
    /// Recorded decisions that were made with the changes.
    pub decisions: u64,
    /// Those with the recorded host.
    pub same_host: u64,
    /// Those with another host.
    pub other_host: u64,
    /// The first of these.
    pub moved: Vec<Elsewhere>,
    /// Those that are refused now, by reason.
    pub refused: BTreeMap<String, RefusedNow>,
    /// New VMs that are refused now, by flavor.
    pub refused_flavors: BTreeMap<FlavorName, u64>,
    /// Moves and unshelvings that cannot be made, as the VM is on another host or in another state than
    /// recorded; by reason.
    pub left_out: BTreeMap<String, u64>,
    /// Decisions and commands about VMs and operations that are not there, as they were refused.
    pub followers: u64,
    /// Other commands that cannot be carried out with the changes, by reason.
    pub not_followed: BTreeMap<String, NotFollowed>,
    /// Moves that are recorded.
    pub moves_recorded: u64,
    /// Moves that were begun with the changes.
    pub moves: u64,
    /// How full the hosts are.
    pub usage: Usage,
    /// Removed hosts that held VMs at the beginning, and so were only cordoned.
    pub cordoned: BTreeSet<HostName>,
    /// VMs that are on another host at the end than recorded.
    pub vms_elsewhere: u64,
    /// VMs at the end.
    pub vms: u64,
    /// VMs at the end of the recorded history.
    pub vms_recorded: u64,
}

impl WhatIfReport {
    /// Returns how many decisions are refused now.
    #[must_use]
    pub fn refused_in_all(&self) -> u64 {
        self.refused.values().map(|refused| refused.count).sum()
    }
}

/// A VM that gets another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The log index of the recorded command.
    pub index: u64,
    /// The VM.
    pub vm: VmName,
    /// What the host was chosen for.
    pub kind: Kind,
    /// The recorded host.
    pub recorded: HostName,
    /// The host now.
    pub host: HostName,
}

/// Decisions that are refused for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedNow {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub examples: Vec<RefusedDecision>,
}

/// A decision that is refused now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedDecision {
    /// The log index of the recorded command.
    pub index: u64,
    /// When it was requested, in replicated time.
    pub at: TimeMs,
    /// The VM.
    pub vm: VmName,
    /// Its flavor.
    pub flavor: Option<FlavorName>,
    /// What the host was chosen for.
    pub kind: Kind,
    /// Why, with the hosts that come nearest and their shortfall.
    pub refusal: Refusal,
}

/// Commands that cannot be carried out with the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFollowed {
    /// How many.
    pub count: u64,
    /// The log index of the first one.
    pub index: u64,
    /// Why the first one is refused.
    pub message: String,
}
