//! The request that led to a recorded command.
//!
//! A command holds what was chosen and all that was requested, with two exceptions: the destination
//! that a conductor planned for an evacuation, and the transfer settings of one migration, which the
//! command holds as they resulted. Not here: deciding.

use berth_decide::{
    Action, MoveDrained, Preferred, ScheduleMigration, ScheduleMove, ScheduleUnshelve, ScheduleVm,
};
use berth_domain::claim::Claim;
use berth_domain::id::{MigrationId, OperationId};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::LeaseRequest;
use berth_domain::policy::MigrationPolicy;
use berth_domain::transfer::TransferOverrides;
use berth_state::State;
use berth_state::command::{Command, Effect};

/// What a host was chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A new VM.
    Boot,
    /// A live migration.
    LiveMigration,
    /// A move of a stopped VM.
    ColdMigration,
    /// Another size of a VM.
    Resize,
    /// A VM of a dead host.
    Evacuation,
    /// A shelved VM.
    Unshelve,
    /// The next attempt of an operation whose host refused.
    NextHost,
}

impl Kind {
    /// Returns the kind as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::LiveMigration => "live-migration",
            Self::ColdMigration => "cold-migration",
            Self::Resize => "resize",
            Self::Evacuation => "evacuation",
            Self::Unshelve => "unshelve",
            Self::NextHost => "next-host",
        }
    }

    /// Returns whether a VM leaves one host for another.
    #[must_use]
    pub fn is_move(self) -> bool {
        match self {
            Self::LiveMigration | Self::ColdMigration | Self::Resize | Self::Evacuation => true,
            Self::Boot | Self::Unshelve | Self::NextHost => false,
        }
    }
}

/// A recorded decision, and the request that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDecision {
    /// What the host was chosen for.
    pub kind: Kind,
    /// The VM.
    pub vm: VmName,
    /// The operation that began with it, or went on.
    pub operation: OperationId,
    /// What was chosen.
    pub claim: Claim,
    /// The host that the user named; the scheduler chose only what to take of it.
    pub named: Option<HostName>,
    /// The drain that the move is part of.
    pub drain: Option<OperationId>,
    /// The request.
    pub action: Action,
}

impl RecordedDecision {
    /// Returns the decision that a command records; nothing for one that chooses no host for a VM.
    /// `state` is the one before the command.
    #[must_use]
    pub fn of(state: &State, command: &Command) -> Option<Self> {
        if let Command::MoveDrained {
            drain,
            epoch,
            begin,
        } = command
        {
            let inner = Self::begun(begin)?;
            let (migration, lease) = moved_by(begin)?;
            let action = Action::MoveDrained(MoveDrained {
                drain: *drain,
                epoch: *epoch,
                vm: inner.vm.clone(),
                operation: inner.operation,
                migration,
                claim: inner.claim.id,
                lease,
            });
            return Some(Self {
                drain: Some(*drain),
                action,
                ..inner
            });
        }
        if let Command::Advance {
            operation,
            epoch,
            effect: Effect::HoldClaim(claim),
            ..
        } = command
        {
            let action = Action::ScheduleNext {
                operation: *operation,
                epoch: *epoch,
                claim: claim.id,
            };
            let known = state.operation(*operation);
            let named = known.and_then(|known| known.requested_host.as_ref());
            return Some(Self::new(Kind::NextHost, *operation, claim, named, action));
        }
        Self::begun(command)
    }

    fn new(
        kind: Kind,
        operation: OperationId,
        claim: &Claim,
        named: Option<&HostName>,
        action: Action,
    ) -> Self {
        Self {
            kind,
            vm: claim.vm.clone(),
            operation,
            claim: claim.clone(),
            named: named.cloned(),
            drain: None,
            action,
        }
    }

    fn begun(command: &Command) -> Option<Self> {
        if let Some(boot) = boot(command) {
            return Some(boot);
        }
        if let Command::BeginMigration {
            operation,
            migration,
            vm,
            requested_host,
            claim,
            lease,
            policy,
        } = command
        {
            let action = Action::ScheduleMigration(ScheduleMigration {
                operation: *operation,
                migration: *migration,
                vm: vm.clone(),
                claim: claim.id,
                host: requested_host.clone(),
                lease: lease.clone(),
                transfer: transfer(policy),
            });
            let (kind, named) = (Kind::LiveMigration, requested_host.as_ref());
            return Some(Self::new(kind, *operation, claim, named, action));
        }
        cold(command)
    }

    /// Returns the request of the move alone, as a what-if makes it: a drain there moves other VMs.
    #[must_use]
    pub fn outside_drain(&self, command: &Command, preferred: Option<Preferred>) -> Action {
        let Command::MoveDrained { begin, .. } = command else {
            return self.action.clone();
        };
        let action = Self::begun(begin).map_or_else(|| self.action.clone(), |inner| inner.action);
        match action {
            Action::ScheduleMove(params) => Action::ScheduleMove(ScheduleMove {
                preferred,
                ..params
            }),
            Action::ScheduleVm(_)
            | Action::ScheduleMigration(_)
            | Action::ScheduleUnshelve(_)
            | Action::MoveDrained(_)
            | Action::ScheduleNext { .. }
            | Action::SetPolicy { .. }
            | Action::CreateVolume(_)
            | Action::Plain(_) => action,
        }
    }
}

fn boot(command: &Command) -> Option<RecordedDecision> {
    if let Command::BeginBoot {
        operation,
        vm,
        uid,
        spec,
        requested_host,
        claim,
        lease,
        project,
        restart,
        first_boot,
        metadata,
    } = command
    {
        let disks = spec.disks.iter().filter(|disk| !disk.seed);
        let action = Action::ScheduleVm(ScheduleVm {
            operation: *operation,
            vm: vm.clone(),
            uid: *uid,
            claim: claim.id,
            flavor: spec.flavor.name.clone(),
            boot: spec.boot.clone(),
            disks: disks.cloned().collect(),
            nics: spec.nics.iter().map(Into::into).collect(),
            image_properties: spec.image_properties.clone(),
            hints: spec.hints.clone(),
            volumes: spec.volumes.clone(),
            host: requested_host.clone(),
            lease: lease.clone(),
            project: project.clone(),
            restart: *restart,
            first_boot: first_boot.clone(),
            metadata: metadata.clone(),
        });
        let (kind, named) = (Kind::Boot, requested_host.as_ref());
        return Some(RecordedDecision::new(
            kind, *operation, claim, named, action,
        ));
    }
    None
}

fn cold(command: &Command) -> Option<RecordedDecision> {
    if let Command::BeginMove {
        operation,
        migration,
        vm,
        spec,
        requested_host,
        verify,
        evacuate,
        claim,
        lease,
    } = command
    {
        let kind = match (evacuate, spec) {
            (true, _) => Kind::Evacuation,
            (false, Some(_)) => Kind::Resize,
            (false, None) => Kind::ColdMigration,
        };
        let action = Action::ScheduleMove(ScheduleMove {
            operation: *operation,
            migration: *migration,
            vm: vm.clone(),
            claim: claim.id,
            flavor: spec.as_ref().map(|spec| spec.flavor.name.clone()),
            host: requested_host.clone(),
            preferred: None,
            verify: *verify,
            evacuate: *evacuate,
            lease: lease.clone(),
        });
        let named = requested_host.as_ref();
        return Some(RecordedDecision::new(
            kind, *operation, claim, named, action,
        ));
    }
    if let Command::BeginUnshelve {
        operation,
        vm,
        requested_host,
        claim,
        lease,
    } = command
    {
        let action = Action::ScheduleUnshelve(ScheduleUnshelve {
            operation: *operation,
            vm: vm.clone(),
            claim: claim.id,
            host: requested_host.clone(),
            lease: lease.clone(),
        });
        let (kind, named) = (Kind::Unshelve, requested_host.as_ref());
        return Some(RecordedDecision::new(
            kind, *operation, claim, named, action,
        ));
    }
    None
}

/// Returns the attempt and the lease of a move.
fn moved_by(command: &Command) -> Option<(MigrationId, LeaseRequest)> {
    if let Command::BeginMigration {
        migration, lease, ..
    }
    | Command::BeginMove {
        migration, lease, ..
    } = command
    {
        return Some((*migration, lease.clone()));
    }
    None
}

/// Returns overrides that lead to the recorded transfer settings, whatever the policy is.
fn transfer(policy: &MigrationPolicy) -> TransferOverrides {
    let transfer = &policy.transfer;
    TransferOverrides {
        bandwidth_mib_per_s_max: transfer.bandwidth_mib_per_s_max,
        downtime_ms_max: transfer.downtime_ms_max,
        auto_converge: Some(transfer.auto_converge),
        post_copy: Some(transfer.post_copy),
        timeout_ms: transfer.timeout_ms,
        timeout_action: Some(transfer.timeout_action),
    }
}

/// Returns the command without what it records of the transfer: it says nothing of the placement, and
/// part of what it follows from is not recorded.
pub(crate) fn without_transfer(mut command: Command) -> Command {
    clear_transfer(&mut command);
    command
}

fn clear_transfer(command: &mut Command) {
    if let Command::MoveDrained { begin, .. } = command {
        clear_transfer(begin);
    } else if let Command::BeginMigration { policy, .. } = command {
        *policy = MigrationPolicy::default();
    }
}
