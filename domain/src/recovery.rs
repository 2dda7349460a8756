//! Recovery: what a cluster does whose state is older than its hosts.
//!
//! ```text
//!   restored from a backup,        every host is quiet,       no conflict,
//!   or formed of a survivor        and has reported           or an operator accepts them
//!   ──────────▶ RECOVERING ─────────────────────▶ compared ───────────────────▶ (ended)
//! ```
//!
//! Commands that were acknowledged after the state was made are not in it: guests may run that it
//! does not know, or elsewhere than it states. Until it has been compared with every host, nothing is
//! started, moved or deleted.
//!
//! Not here: what follows from the reports; the state decides that.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::agent::DomainState;
use crate::id::{ClaimId, Incarnation, TimeMs};
use crate::name::{HostName, VmName};
use crate::reality::Unknown;
use crate::vm::VmSpec;

/// How much greater the first revision and the first epoch of a recovered state are than a multiple of
/// this: the next multiple that is greater than the last one known. What the lost commands gave out is
/// smaller, unless there were a million million of them.
pub const JUMP: u64 = 1_000_000_000_000;

/// How much the generations of records grow, so that a client that knows one from a lost command does
/// not meet it again.
pub const GENERATION_JUMP: u64 = 1_000_000;

/// The most guests that one host reports.
pub const GUESTS_MAX: usize = 4096;

/// Why the state is older than the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// It comes from a backup.
    Restored,
    /// A majority of the members was lost, and one of the others formed a new group.
    QuorumLost,
}

/// The latest recovery of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recovery {
    /// Counts the recoveries of the cluster, from 1.
    pub number: u32,
    /// Why the state was older than the hosts.
    pub cause: Cause,
    /// When it began.
    pub began_at: TimeMs,
    /// The last revision of the state that it began with; what was committed after it is lost.
    pub last_revision: u64,
    /// The first revision of the recovered state.
    pub first_revision: u64,
    /// When it ended; absent while the cluster recovers.
    pub ended_at: Option<TimeMs>,
    /// Whether a volume becomes that of the guest that has it, where the state has it for a VM without one.
    /// Recoveries that earlier builds began go on as they began: what is in the log has the same outcome on
    /// every member.
    pub volumes_follow_guests: bool,
    /// Whether what it settled is [kept](SettledVm) when it ends. Not in recoveries that earlier builds began.
    pub keeps_settled: bool,
    /// How many VMs it settled otherwise than they were recorded, and conflicts that were accepted; once it
    /// has ended.
    pub settled: u32,
}

impl Recovery {
    /// Returns whether the cluster recovers now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.ended_at.is_none()
    }

    /// Returns whether a revision that a client has is one of the lost ones.
    #[must_use]
    pub fn has_lost(&self, revision: u64) -> bool {
        (self.last_revision + 1..self.first_revision).contains(&revision)
    }
}

/// Returns the least multiple of [`JUMP`] that is greater than a number.
#[must_use]
pub fn next_era(number: u64) -> u64 {
    (number / JUMP + 1).saturating_mul(JUMP)
}

/// Returns the first number of the era that a number belongs to.
#[must_use]
pub fn era_of(number: u64) -> u64 {
    number / JUMP * JUMP
}

/// What a recovery made of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// Removed: another guest has its name.
    Replaced,
    /// A conflict that an operator accepted: nothing was claimed for its guest.
    Conflict,
    /// In ERROR.
    Error,
    /// Recorded newly, as its host has the guest.
    Added,
    /// ACTIVE on a host where the state did not have it, or had it off.
    Active,
    /// STOPPED: no host runs its guest.
    Stopped,
}

/// The most of them that are kept of a recovery, those first that need an operator.
pub const SETTLED_MAX: usize = 1_000;

/// A VM that a recovery settled otherwise than it was recorded, as it is kept until the next recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledVm {
    /// Its place among those that are kept, from 0: in the order of their fates.
    pub number: u32,
    /// The VM; absent for a guest that is no VM.
    pub vm: Option<VmName>,
    /// What became of it.
    pub fate: Fate,
    /// Where it is, or where something of it may be left.
    pub host: Option<HostName>,
    /// Why, where it is in ERROR, was removed or is a conflict.
    pub message: String,
}

/// A guest as its host reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedGuest {
    /// The domain.
    pub domain: Unknown,
    /// Where it is.
    pub state: DomainState,
    /// What its VM's user specified; absent where the agent knows that a claim is for it.
    pub spec: Option<Box<VmSpec>>,
}

/// What a host reported of its guests while the cluster recovers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredHost {
    /// The host.
    pub host: HostName,
    /// The run of its agent that reported.
    pub incarnation: Incarnation,
    /// The revision from which on no call from before the recovery changes a guest there: its first
    /// report.
    pub quiet_at: u64,
    /// The revision of the state on which its latest report rests.
    pub basis: u64,
    /// The claims of the host on which their guests run as recorded.
    pub running: BTreeSet<ClaimId>,
    /// Its other guests that Berth made, in the order of their UUIDs.
    pub others: Vec<ReportedGuest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_is_greater_than_all_numbers_of_the_one_before() {
        assert_eq!(next_era(0), JUMP);
        assert_eq!(next_era(JUMP - 1), JUMP);
        assert_eq!(next_era(JUMP), 2 * JUMP);
        assert_eq!(next_era(2 * JUMP + 7), 3 * JUMP);
        assert_eq!(next_era(u64::MAX), u64::MAX);
        assert_eq!(
            [0, JUMP - 1, JUMP, 2 * JUMP + 7].map(era_of),
            [0, 0, JUMP, 2 * JUMP]
        );
    }

    #[test]
    fn lost_revisions_lie_between_the_two_states() {
        let recovery = Recovery {
            number: 1,
            cause: Cause::Restored,
            began_at: TimeMs(1),
            last_revision: 10,
            first_revision: JUMP,
            ended_at: None,
            volumes_follow_guests: true,
            keeps_settled: true,
            settled: 0,
        };
        let lost = [9, 10, 11, JUMP - 1, JUMP].map(|revision| recovery.has_lost(revision));
        assert_eq!(lost, [false, false, true, true, false]);
    }
}
