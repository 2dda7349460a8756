//! A drain: the operation that moves every VM of a host away, and what became of each of them.
//!
//! Not here: the moves, which are operations of their own, and who begins them. What follows from a
//! record is the state's.
//!
//! ```text
//!            begins             ended, the VM is elsewhere
//! Waiting ───────────▶ Moving ──────────────────────────▶ Moved
//!   │ ▲                  │
//!   │ └──────────────────┤ busy, or failed on its way: tried again, so many times
//!   └────────────────────┴─────────────────────────────▶ Stays, Gone
//! ```
//!
//! Invariant: [`Moved`](Progress::Moved), [`Gone`](Progress::Gone) and [`Stays`](Progress::Stays) are
//! left only if the VM is on the host again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{OperationId, VmUid};
use crate::name::{HostName, VmName};
use crate::numa::Assignment;
use crate::refusal::{Code, Refusal, cut};

/// The most VMs of a host that one drain moves.
pub const DRAINED_MAX: usize = 1024;
/// The most moves of a drain that are in progress at the same time.
pub const PARALLEL_MAX: u32 = 64;
/// How many moves are in progress at the same time by default.
pub const PARALLEL: u32 = 4;
/// How many times a VM is tried that another operation works on, or whose hosts cannot be reached.
pub const ATTEMPTS_MAX: u32 = 20;
/// How many times a VM is tried whose move began and failed: the next one may go to another host.
pub const FAILED_ATTEMPTS_MAX: u32 = 3;
/// The longest principal that is kept with a drain, in bytes.
pub const BY_MAX: usize = 256;
/// The longest message of a refusal that is kept with a VM, in bytes.
pub const MESSAGE_MAX: usize = 512;

/// How the VMs of a host are moved away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DrainSpec {
    /// The host is dead, and its VMs are started elsewhere.
    pub evacuate: bool,
    /// VMs that cannot be moved while they run are stopped, moved and started.
    pub cold: bool,
    /// How many moves are in progress at the same time.
    pub parallel: u32,
    /// Only the VMs are started elsewhere of which the restart policy says so, and the host is not
    /// cordoned afterwards.
    #[serde(default)]
    pub by_policy: bool,
}

/// Where a VM goes, as planned together with all the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlannedPlace {
    /// The host.
    pub host: HostName,
    /// The CPUs and pages there.
    pub assignment: Assignment,
}

/// What became of a VM of a host that is drained.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Progress {
    /// It is to be moved.
    Waiting,
    /// It is being moved.
    Moving {
        /// What moves it.
        operation: OperationId,
    },
    /// It is on another host.
    Moved {
        /// The host.
        host: HostName,
    },
    /// It is on no host: it was deleted or shelved.
    Gone,
    /// It is where it was.
    Stays {
        /// Why it was not moved.
        refusal: Refusal,
    },
}

/// A VM of a host that is drained.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DrainedVm {
    /// The VM.
    pub vm: VmName,
    /// Which life of that name.
    pub uid: VmUid,
    /// Where it goes, for the guest of a dead host, until it has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub planned: Option<PlannedPlace>,
    /// How many attempts have failed.
    pub attempts: u32,
    /// What became of it.
    pub progress: Progress,
}

/// A host that is drained.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Drain {
    /// The host.
    pub host: HostName,
    /// Who requested it.
    pub by: String,
    /// Whether the host was cordoned before it began.
    pub was_cordoned: bool,
    /// Its VMs, in the order in which they are moved.
    pub vms: Vec<DrainedVm>,
}

/// How many VMs of a drain are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// To be moved.
    pub waiting: usize,
    /// Being moved.
    pub moving: usize,
    /// On another host.
    pub moved: usize,
    /// On no host.
    pub gone: usize,
    /// Where they were.
    pub stay: usize,
}

impl DrainedVm {
    /// Returns a VM that is to be moved.
    #[must_use]
    pub fn new(vm: VmName, uid: VmUid, planned: Option<PlannedPlace>) -> Self {
        Self {
            vm,
            uid,
            planned,
            attempts: 0,
            progress: Progress::Waiting,
        }
    }
}

impl Drain {
    /// Returns a VM of the drain.
    #[must_use]
    pub fn vm(&self, name: &VmName) -> Option<&DrainedVm> {
        self.vms.iter().find(|drained| drained.vm == *name)
    }

    /// Returns the moves in progress.
    pub fn moving(&self) -> impl Iterator<Item = (&VmName, OperationId)> {
        self.vms
            .iter()
            .filter_map(|drained| match &drained.progress {
                Progress::Moving { operation } => Some((&drained.vm, *operation)),
                Progress::Waiting
                | Progress::Moved { .. }
                | Progress::Gone
                | Progress::Stays { .. } => None,
            })
    }

    /// Returns the VMs that are to be moved, in order.
    pub fn waiting(&self) -> impl Iterator<Item = &DrainedVm> {
        let waits = |drained: &&DrainedVm| drained.progress == Progress::Waiting;
        self.vms.iter().filter(waits)
    }

    /// Returns how many VMs are where.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for drained in &self.vms {
            *match drained.progress {
                Progress::Waiting => &mut tally.waiting,
                Progress::Moving { .. } => &mut tally.moving,
                Progress::Moved { .. } => &mut tally.moved,
                Progress::Gone => &mut tally.gone,
                Progress::Stays { .. } => &mut tally.stay,
            } += 1;
        }
        tally
    }
}

/// Returns whether a VM that is refused for this reason is tried again: nothing of it speaks against
/// the move itself.
#[must_use]
pub fn is_temporary(refusal: &Refusal) -> bool {
    refusal.code == Code::Unavailable || refusal.reason == "VM_BUSY"
}

/// Returns how many times a VM is tried altogether whose move has failed for this reason.
///
/// A move that the scheduler refused to begin is refused again, unless that is
/// [temporary](is_temporary). One that began was fit to succeed: its destination or its conductor may
/// have died, or its transfer broke.
#[must_use]
pub fn attempts_max(refusal: &Refusal, has_begun: bool) -> u32 {
    match refusal.code {
        _ if is_temporary(refusal) => ATTEMPTS_MAX,
        // A user cancelled this move.
        Code::Cancelled => 1,
        // The guest runs on neither host any more.
        Code::Internal if ["GUEST_LOST", "GUEST_ENDED"].contains(&&*refusal.reason) => 1,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::PermissionDenied
        | Code::Unimplemented
        | Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Internal => match has_begun {
            true => FAILED_ATTEMPTS_MAX,
            false => 1,
        },
    }
}

/// Returns a refusal as it is kept with a VM: without what every host said, and of bounded length.
#[must_use]
pub fn shortened(refusal: &Refusal) -> Refusal {
    let mut kept = Refusal {
        hosts: Vec::new(),
        causes: BTreeMap::new(),
        metadata: BTreeMap::new(),
        ..refusal.as_record(false)
    };
    let texts = [&mut kept.reason, &mut kept.message];
    for text in texts.into_iter().chain(&mut kept.hint) {
        cut(text, MESSAGE_MAX);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_refusal_is_short_whatever_was_refused() {
        let long = "ä".repeat(4_000);
        let refusal = Refusal::new(Code::Aborted, "DRAWN", long.clone())
            .with_hint(long)
            .with("vm", "a");
        let kept = shortened(&refusal);
        assert!(kept.message.len() <= MESSAGE_MAX && kept.message.len() > MESSAGE_MAX - 6);
        assert!(kept.hint.as_ref().is_some_and(|h| h.len() <= MESSAGE_MAX));
        assert_eq!((kept.reason.as_str(), kept.hosts.len()), ("DRAWN", 0));
        assert_eq!(shortened(&kept), kept, "repeated");
    }
}
