//! What this agent knows of its guests, beside what the hypervisor reports.
//!
//! Invariant: every guest that holds anything here, or may come to hold it through a call that
//! was taken, is in this map with its assignment; so that a fit never counts on its CPUs or pages.

use std::collections::BTreeMap;

use berth_domain::agent::DomainState;
use berth_domain::id::{MigrationId, TimeMs, VmUid};
use berth_domain::numa::HostUsage;
use berth_domain::topology::HostTopology;
use berth_domain::transfer::TransferPolicy;
use berth_driver_api::{DomainSpec, Known, Token};

/// How far a guest is, as far as this agent knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is being started, or it is not known whether that worked.
    Starting,
    /// It runs.
    Running,
    /// It is expected or being received; the migration is not known after a restart.
    Incoming(Option<MigrationId>),
    /// It is being sent away.
    Sending(Transfer),
}

impl Phase {
    /// Returns whether a guest that was waited for runs, as the hypervisor reports this state. One that is
    /// being received may be paused before it is complete.
    pub(super) fn has_come(&self, state: DomainState, is_spawning: bool) -> bool {
        let runs = state == DomainState::Running;
        match self {
            Self::Starting => !is_spawning && (runs || state == DomainState::Paused),
            Self::Incoming(_) => runs,
            Self::Running | Self::Sending(_) => false,
        }
    }

    pub(super) fn is_sending(&self) -> bool {
        match self {
            Self::Sending(_) => true,
            Self::Starting | Self::Running | Self::Incoming(_) => false,
        }
    }
}

/// A transfer that this agent ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// The driver's work.
    pub(super) token: Token,
    /// When it began.
    pub(super) began_at: TimeMs,
    /// How it may be done.
    pub(super) policy: TransferPolicy,
    /// An order to the driver is under way.
    pub(super) ordering: bool,
    /// When it got the first order, since it took too long.
    pub(super) ordered_at: Option<TimeMs>,
    /// The time limit, once it has been exceeded and the transfer is stopped for it.
    pub(super) overrun_ms: Option<u64>,
}

/// A transfer of an earlier run of the agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    /// The first tick of this run.
    pub(super) since: Option<TimeMs>,
    /// An order to stop it is under way.
    pub(super) ordering: bool,
}

/// A guest.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    /// The domain as the driver got it.
    pub(super) domain: DomainSpec,
    /// How far it is.
    pub(super) phase: Phase,
    /// Why the last transfer failed.
    pub(super) migration_error: Option<String>,
    /// It was being sent away when the agent started, by an earlier run of which nothing is known; and
    /// since when this run has known of it.
    pub(super) leaving: Option<Leaving>,
}

/// All guests.
pub(super) type Guests = BTreeMap<VmUid, Guest>;

/// Takes up what the hypervisor had when the agent started.
pub(super) fn adopt(known: Vec<Known>) -> Guests {
    let guest = |known: Known| {
        let leaving = (known.state == DomainState::MigratingOut).then(Leaving::default);
        let phase = match known.state {
            DomainState::Absent | DomainState::Starting => Phase::Starting,
            DomainState::Prepared | DomainState::MigratingIn => Phase::Incoming(None),
            DomainState::Running
            | DomainState::Paused
            | DomainState::MigratingOut
            | DomainState::PostCopyBroken
            | DomainState::Stopped => Phase::Running,
        };
        let guest = Guest {
            domain: known.domain,
            phase,
            migration_error: None,
            leaving,
        };
        (guest.domain.uid, guest)
    };
    known.into_iter().map(guest).collect()
}

/// Returns what all guests but `vm` take.
pub(super) fn usage_of_others(guests: &Guests, topology: &HostTopology, vm: VmUid) -> HostUsage {
    let others = guests
        .iter()
        .filter(|(uid, _)| **uid != vm)
        .map(|(_, guest)| &guest.domain.assignment);
    HostUsage::sum(topology, others)
}
