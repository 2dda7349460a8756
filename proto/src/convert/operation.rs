//! Operations, their steps and effects.

use berth_domain::id::{Epoch, OperationId};
use berth_domain::migration::Event;
use berth_domain::operation::{
    Effect, Entry, GuestPower, Kind, Lease, LeaseRequest, Mark, Operation, Outcome,
    STOP_TIMEOUT_MS_MAX, Step, Subject,
};
use berth_domain::refusal::Refusal;
use berth_domain::vm::{DISKS_MAX, FILE_NAME_LENGTH_MAX as FILE_NAME_MAX};
use prost_types::Duration;

use super::field::{self, Invalid, LIST_MAX, choices};
use super::name::ResourceName;
use super::ownership::{self, write_project};
use crate::operation::v1;
use crate::operation::v1::effect::Effect as WireEffect;
use crate::operation::v1::mark::Kind as WireMark;
use crate::operation::v1::operation::{Kind as WireKind, Outcome as WireOutcome};
use crate::operation::v1::power_operation::Kind as WirePower;

choices!(Step => v1::Step {
    Claim,
    Spawn,
    CheckDestination,
    CheckSource,
    FitDestination,
    PreLiveMigration,
    LiveMigration,
    Settle,
    Destroy,
    StopSource,
    StartDestination,
    StopDestination,
    StartSource,
    Stop,
    MakeDisks,
    Start,
    CopyDisk,
    PublishImage,
    FetchDisks,
    DropSource,
    DropDestination,
});
choices!(GuestPower => v1::GuestPower { Unchanged, On, Off, Broken });
choices!(Event => v1::MigrationEvent {
    Refuse,
    Begin,
    Arrived,
    Stayed,
    Unknown,
    Lost,
    Moved,
    Resized,
    Confirmed,
    Reverted,
});

impl From<&Operation> for v1::Operation {
    fn from(operation: &Operation) -> Self {
        Self {
            name: operation.id.resource_name(),
            kind: Some(write_kind(&operation.kind)),
            vm: field::name_or_empty(operation.vm()),
            requested_host: field::name_or_empty(operation.requested_host.as_ref()),
            excluded_hosts: operation
                .excluded
                .iter()
                .map(ResourceName::resource_name)
                .collect(),
            claim: field::name_or_empty(operation.claim.as_ref()),
            lease: operation.lease.as_ref().map(Into::into),
            cancelled: operation.cancelled,
            log: operation.log.iter().map(Into::into).collect(),
            done: operation.is_done(),
            outcome: operation.outcome.as_ref().map(|outcome| match outcome {
                Outcome::Succeeded => WireOutcome::Succeeded(v1::Success {}),
                Outcome::Failed(refusal) => WireOutcome::Failed(refusal.into()),
            }),
            create_time: Some(field::timestamp(operation.created_at)),
            end_time: operation.ended_at.map(field::timestamp),
            force_complete: operation.force_complete,
            project: write_project(operation.ownership.project.as_ref()),
            creator: operation.ownership.creator.clone(),
            drain: operation.drain().map(Into::into),
        }
    }
}

impl TryFrom<v1::Operation> for Operation {
    type Error = Invalid;

    /// The log is not bounded here: schedulers write it, and what is stored must stay readable.
    fn try_from(wire: v1::Operation) -> Result<Self, Invalid> {
        let host = |name: String| ResourceName::from_resource_name(&name);
        let kind = read_kind(wire.kind)?;
        let outcome = match wire.outcome {
            None => None,
            Some(WireOutcome::Succeeded(v1::Success {})) => Some(Outcome::Succeeded),
            Some(WireOutcome::Failed(refusal)) => Some(Outcome::Failed(
                refusal
                    .try_into()
                    .map_err(|e: Invalid| e.within("failed"))?,
            )),
        };
        Ok(Self {
            id: field::name(&wire.name, "name")?,
            subject: read_subject(&kind, &wire.vm, wire.drain)?,
            kind,
            requested_host: field::optional_name(&wire.requested_host, "requested_host")?,
            excluded: field::each_by(wire.excluded_hosts, "excluded_hosts", LIST_MAX, host)?,
            claim: field::optional_name(&wire.claim, "claim")?,
            lease: field::optional(wire.lease, "lease")?,
            cancelled: wire.cancelled,
            log: field::each(wire.log, "log", usize::MAX)?,
            outcome,
            created_at: field::time(wire.create_time, "create_time")?,
            ended_at: field::optional_time(wire.end_time, "end_time")?,
            force_complete: wire.force_complete,
            ownership: ownership::read(&wire.project, wire.creator)?,
        })
    }
}

/// Reads what an operation works on: a host for a drain, and a VM for all others.
fn read_subject(kind: &Kind, vm: &str, drain: Option<v1::Drain>) -> Result<Subject, Invalid> {
    match (matches!(kind, Kind::DrainHost(_)), drain) {
        (true, drain) => Ok(Subject::Drain(Box::new(field::required(drain, "drain")?))),
        (false, None) => Ok(Subject::Vm(field::name(vm, "vm")?)),
        (false, Some(_)) => Err(Invalid::new(
            "drain",
            "must be absent, as it drains no host",
        )),
    }
}

fn write_kind(kind: &Kind) -> WireKind {
    match kind {
        Kind::Boot => WireKind::Boot(v1::BootOperation {}),
        Kind::Delete => WireKind::Delete(v1::DeleteOperation {}),
        Kind::LiveMigrate { migration } => WireKind::LiveMigrate(v1::LiveMigrateOperation {
            migration: migration.resource_name(),
        }),
        Kind::ColdMigrate { migration } => WireKind::ColdMigrate(v1::ColdMigrateOperation {
            migration: migration.resource_name(),
        }),
        Kind::RevertResize { migration } => WireKind::RevertResize(v1::RevertResizeOperation {
            migration: migration.resource_name(),
        }),
        Kind::Evacuate { migration } => WireKind::Evacuate(v1::EvacuateOperation {
            migration: migration.resource_name(),
        }),
        Kind::Shelve => WireKind::Shelve(v1::ShelveOperation {}),
        Kind::Unshelve => WireKind::Unshelve(v1::UnshelveOperation {}),
        Kind::Stop { timeout_ms } => WireKind::Stop(v1::StopOperation {
            timeout_ms: *timeout_ms,
        }),
        Kind::Start => WireKind::Start(v1::StartOperation {}),
        Kind::Reboot { timeout_ms } => WireKind::Reboot(v1::RebootOperation {
            timeout_ms: *timeout_ms,
        }),
        Kind::Rebuild { images } => WireKind::Rebuild(v1::RebuildOperation {
            images: images.clone(),
        }),
        Kind::Snapshot { disk, image } => WireKind::Snapshot(v1::SnapshotOperation {
            disk: *disk,
            image: image.clone(),
        }),
        Kind::ConfirmResize { migration } => WireKind::ConfirmResize(v1::ConfirmResizeOperation {
            migration: migration.resource_name(),
        }),
        Kind::DrainHost(spec) => WireKind::DrainHost(spec.into()),
    }
}

fn read_kind(wire: Option<WireKind>) -> Result<Kind, Invalid> {
    match wire {
        None => Err(Invalid::new("kind", "must be one that this build knows")),
        Some(WireKind::Boot(v1::BootOperation {})) => Ok(Kind::Boot),
        Some(WireKind::Delete(v1::DeleteOperation {})) => Ok(Kind::Delete),
        Some(WireKind::LiveMigrate(v1::LiveMigrateOperation { migration })) => {
            let migration = field::name(&migration, "live_migrate.migration")?;
            Ok(Kind::LiveMigrate { migration })
        }
        Some(WireKind::ColdMigrate(v1::ColdMigrateOperation { migration })) => {
            let migration = field::name(&migration, "cold_migrate.migration")?;
            Ok(Kind::ColdMigrate { migration })
        }
        Some(WireKind::RevertResize(v1::RevertResizeOperation { migration })) => {
            let migration = field::name(&migration, "revert_resize.migration")?;
            Ok(Kind::RevertResize { migration })
        }
        Some(WireKind::Evacuate(v1::EvacuateOperation { migration })) => {
            let migration = field::name(&migration, "evacuate.migration")?;
            Ok(Kind::Evacuate { migration })
        }
        Some(WireKind::Shelve(v1::ShelveOperation {})) => Ok(Kind::Shelve),
        Some(WireKind::Unshelve(v1::UnshelveOperation {})) => Ok(Kind::Unshelve),
        Some(WireKind::Stop(wire)) => Ok(Kind::Stop {
            timeout_ms: stop_timeout_ms(wire.timeout_ms).map_err(|e| e.within("stop"))?,
        }),
        Some(WireKind::Start(v1::StartOperation {})) => Ok(Kind::Start),
        Some(WireKind::Reboot(wire)) => Ok(Kind::Reboot {
            timeout_ms: stop_timeout_ms(wire.timeout_ms).map_err(|e| e.within("reboot"))?,
        }),
        Some(WireKind::Rebuild(wire)) => Ok(Kind::Rebuild {
            images: image_names(wire.images, "rebuild.images")?,
        }),
        Some(WireKind::Snapshot(wire)) => Ok(Kind::Snapshot {
            disk: wire.disk,
            image: field::text(wire.image, "snapshot.image", FILE_NAME_MAX)?,
        }),
        Some(WireKind::ConfirmResize(v1::ConfirmResizeOperation { migration })) => {
            let migration = field::name(&migration, "confirm_resize.migration")?;
            Ok(Kind::ConfirmResize { migration })
        }
        Some(WireKind::DrainHost(wire)) => {
            let spec = wire.try_into();
            Ok(Kind::DrainHost(
                spec.map_err(|e: Invalid| e.within("drain_host"))?,
            ))
        }
    }
}

/// Writes what an operation on the VM's own host is about; nothing for the other kinds.
#[must_use]
pub fn write_power(kind: &Kind) -> Option<v1::PowerOperation> {
    let kind = match write_kind(kind) {
        WireKind::Stop(wire) => WirePower::Stop(wire),
        WireKind::Start(wire) => WirePower::Start(wire),
        WireKind::Reboot(wire) => WirePower::Reboot(wire),
        WireKind::Rebuild(wire) => WirePower::Rebuild(wire),
        WireKind::Snapshot(wire) => WirePower::Snapshot(wire),
        WireKind::Boot(_)
        | WireKind::Delete(_)
        | WireKind::LiveMigrate(_)
        | WireKind::ColdMigrate(_)
        | WireKind::RevertResize(_)
        | WireKind::ConfirmResize(_)
        | WireKind::Evacuate(_)
        | WireKind::Shelve(_)
        | WireKind::Unshelve(_)
        | WireKind::DrainHost(_) => return None,
    };
    Some(v1::PowerOperation { kind: Some(kind) })
}

/// Reads what an operation on the VM's own host is about.
///
/// # Errors
///
/// When it is empty, or a field of it is not valid.
pub fn read_power(wire: Option<v1::PowerOperation>) -> Result<Kind, Invalid> {
    let Some(kind) = wire.and_then(|wire| wire.kind) else {
        let rule = "must be one of stop, start, reboot, rebuild, snapshot";
        return Err(Invalid::new("kind", rule));
    };
    read_kind(Some(match kind {
        WirePower::Stop(wire) => WireKind::Stop(wire),
        WirePower::Start(wire) => WireKind::Start(wire),
        WirePower::Reboot(wire) => WireKind::Reboot(wire),
        WirePower::Rebuild(wire) => WireKind::Rebuild(wire),
        WirePower::Snapshot(wire) => WireKind::Snapshot(wire),
    }))
}

/// Reads how long a guest may take to power off.
pub(crate) fn stop_timeout_ms(timeout_ms: u64) -> Result<u64, Invalid> {
    if timeout_ms <= STOP_TIMEOUT_MS_MAX {
        return Ok(timeout_ms);
    }
    let rule = format!("must be at most {STOP_TIMEOUT_MS_MAX} ms (an hour)");
    Err(Invalid::new("timeout_ms", rule))
}

/// Reads the file names of images; that they are good ones is for the VM's rules.
fn image_names(names: Vec<String>, field: &str) -> Result<Vec<String>, Invalid> {
    let name = |name: String| field::text(name, "image", FILE_NAME_MAX);
    field::each_by(names, field, DISKS_MAX, name)
}

impl From<&Lease> for v1::Lease {
    fn from(lease: &Lease) -> Self {
        Self {
            conductor: lease.conductor.resource_name(),
            epoch: lease.epoch.0,
            expire_time: Some(field::timestamp(lease.expires_at)),
        }
    }
}

impl TryFrom<v1::Lease> for Lease {
    type Error = Invalid;

    fn try_from(wire: v1::Lease) -> Result<Self, Invalid> {
        Ok(Self {
            conductor: field::name(&wire.conductor, "conductor")?,
            epoch: Epoch(wire.epoch),
            expires_at: field::time(wire.expire_time, "expire_time")?,
        })
    }
}

/// Reads the holder and the duration of a lease, from the fields `conductor` and `lease_ttl` that
/// several requests have.
///
/// # Errors
///
/// When one is absent or not valid.
pub fn lease_request(conductor: &str, ttl: Option<Duration>) -> Result<LeaseRequest, Invalid> {
    Ok(LeaseRequest {
        conductor: field::name(conductor, "conductor")?,
        ttl_ms: field::lease_ttl_ms(ttl, "lease_ttl")?,
    })
}

impl From<&Entry> for v1::Entry {
    fn from(entry: &Entry) -> Self {
        Self {
            step: v1::Step::from(entry.step).into(),
            mark: Some((&entry.mark).into()),
            host: field::name_or_empty(entry.host.as_ref()),
            time: Some(field::timestamp(entry.at)),
        }
    }
}

impl TryFrom<v1::Entry> for Entry {
    type Error = Invalid;

    fn try_from(wire: v1::Entry) -> Result<Self, Invalid> {
        Ok(Self {
            step: field::choice::<v1::Step, _>(wire.step, "step")?,
            mark: field::required(wire.mark, "mark")?,
            host: field::optional_name(&wire.host, "host")?,
            at: field::time(wire.time, "time")?,
        })
    }
}

impl From<&Mark> for v1::Mark {
    fn from(mark: &Mark) -> Self {
        let (kind, refusal) = match mark {
            Mark::Started => (WireMark::Started, None),
            Mark::Succeeded => (WireMark::Succeeded, None),
            Mark::Failed(refusal) => (WireMark::Failed, Some(refusal.into())),
            Mark::UndoStarted => (WireMark::UndoStarted, None),
            Mark::Undone => (WireMark::Undone, None),
        };
        Self {
            kind: kind.into(),
            refusal,
        }
    }
}

impl TryFrom<v1::Mark> for Mark {
    type Error = Invalid;

    fn try_from(wire: v1::Mark) -> Result<Self, Invalid> {
        let kind = WireMark::try_from(wire.kind).unwrap_or_default();
        if kind != WireMark::Failed && wire.refusal.is_some() {
            return Err(Invalid::new("refusal", "goes with KIND_FAILED only"));
        }
        match kind {
            WireMark::Unspecified => Err(Invalid::new(
                "kind",
                "must be one of KIND_STARTED, KIND_SUCCEEDED, KIND_FAILED, KIND_UNDO_STARTED, \
                 KIND_UNDONE",
            )),
            WireMark::Started => Ok(Self::Started),
            WireMark::Succeeded => Ok(Self::Succeeded),
            WireMark::Failed => Ok(Self::Failed(field::required(wire.refusal, "refusal")?)),
            WireMark::UndoStarted => Ok(Self::UndoStarted),
            WireMark::Undone => Ok(Self::Undone),
        }
    }
}

/// Writes what a step means; nothing for [`Effect::None`].
#[must_use]
pub fn write_effect(effect: &Effect) -> Option<v1::Effect> {
    let effect = match effect {
        Effect::None => return None,
        Effect::HoldClaim(claim) => WireEffect::HoldClaim(claim.into()),
        Effect::ConfirmClaim { claim } => WireEffect::ConfirmClaim(v1::ConfirmClaim {
            claim: claim.resource_name(),
        }),
        Effect::SwapClaim { claim, assignment } => WireEffect::SwapClaim(v1::SwapClaim {
            claim: claim.resource_name(),
            assignment: Some(assignment.into()),
        }),
        Effect::ReleaseClaim { claim, exclude } => WireEffect::ReleaseClaim(v1::ReleaseClaim {
            claim: claim.resource_name(),
            exclude: *exclude,
        }),
        Effect::CompleteBoot => WireEffect::CompleteBoot(v1::CompleteBoot {}),
        Effect::FailBoot(refusal) => WireEffect::FailBoot(refusal.into()),
        Effect::BeginTransfer => WireEffect::BeginTransfer(v1::BeginTransfer {}),
        Effect::RefuseMigration(refusal) => WireEffect::RefuseMigration(refusal.into()),
        Effect::Settle { event, refusal } => WireEffect::Settle(v1::Settle {
            event: v1::MigrationEvent::from(*event).into(),
            refusal: refusal.as_ref().map(Into::into),
        }),
        Effect::CompleteDelete => WireEffect::CompleteDelete(v1::CompleteDelete {}),
        Effect::CompleteMove => WireEffect::CompleteMove(v1::CompleteMove {}),
        Effect::CompleteRevert => WireEffect::CompleteRevert(v1::CompleteRevert {}),
        Effect::CompleteShelve => WireEffect::CompleteShelve(v1::CompleteShelve {}),
        Effect::CompleteUnshelve => WireEffect::CompleteUnshelve(v1::CompleteUnshelve {}),
        Effect::FailUnshelve(refusal) => WireEffect::FailUnshelve(refusal.into()),
        Effect::EndPower { power, refusal } => WireEffect::EndPower(v1::EndPower {
            power: v1::GuestPower::from(*power).into(),
            refusal: refusal.as_ref().map(Into::into),
        }),
        Effect::BeginRebuild => WireEffect::BeginRebuild(v1::BeginRebuild {}),
        Effect::CompleteConfirm => WireEffect::CompleteConfirm(v1::CompleteConfirm {}),
    };
    Some(v1::Effect {
        effect: Some(effect),
    })
}

/// Reads what a step means; [`Effect::None`] when absent.
///
/// # Errors
///
/// When a field of it is not valid.
pub fn read_effect(wire: Option<v1::Effect>) -> Result<Effect, Invalid> {
    let Some(effect) = wire.and_then(|e| e.effect) else {
        return Ok(Effect::None);
    };
    let refusal = |refusal: crate::types::v1::Refusal, field: &str| {
        Refusal::try_from(refusal).map_err(|e| e.within(field))
    };
    match effect {
        WireEffect::HoldClaim(claim) => claim
            .try_into()
            .map(Effect::HoldClaim)
            .map_err(|e: Invalid| e.within("hold_claim")),
        WireEffect::ConfirmClaim(wire) => Ok(Effect::ConfirmClaim {
            claim: field::name(&wire.claim, "confirm_claim.claim")?,
        }),
        WireEffect::SwapClaim(wire) => Ok(Effect::SwapClaim {
            claim: field::name(&wire.claim, "swap_claim.claim")?,
            assignment: field::required(wire.assignment, "swap_claim.assignment")?,
        }),
        WireEffect::ReleaseClaim(wire) => Ok(Effect::ReleaseClaim {
            claim: field::name(&wire.claim, "release_claim.claim")?,
            exclude: wire.exclude,
        }),
        WireEffect::CompleteBoot(v1::CompleteBoot {}) => Ok(Effect::CompleteBoot),
        WireEffect::FailBoot(wire) => refusal(wire, "fail_boot").map(Effect::FailBoot),
        WireEffect::BeginTransfer(v1::BeginTransfer {}) => Ok(Effect::BeginTransfer),
        WireEffect::RefuseMigration(wire) => {
            refusal(wire, "refuse_migration").map(Effect::RefuseMigration)
        }
        WireEffect::Settle(wire) => Ok(Effect::Settle {
            event: field::choice::<v1::MigrationEvent, _>(wire.event, "settle.event")?,
            refusal: field::optional(wire.refusal, "settle.refusal")?,
        }),
        WireEffect::CompleteDelete(v1::CompleteDelete {}) => Ok(Effect::CompleteDelete),
        WireEffect::CompleteMove(v1::CompleteMove {}) => Ok(Effect::CompleteMove),
        WireEffect::CompleteRevert(v1::CompleteRevert {}) => Ok(Effect::CompleteRevert),
        WireEffect::CompleteShelve(v1::CompleteShelve {}) => Ok(Effect::CompleteShelve),
        WireEffect::CompleteUnshelve(v1::CompleteUnshelve {}) => Ok(Effect::CompleteUnshelve),
        WireEffect::FailUnshelve(wire) => refusal(wire, "fail_unshelve").map(Effect::FailUnshelve),
        WireEffect::EndPower(wire) => Ok(Effect::EndPower {
            power: field::choice::<v1::GuestPower, _>(wire.power, "end_power.power")?,
            refusal: field::optional(wire.refusal, "end_power.refusal")?,
        }),
        WireEffect::BeginRebuild(v1::BeginRebuild {}) => Ok(Effect::BeginRebuild),
        WireEffect::CompleteConfirm(v1::CompleteConfirm {}) => Ok(Effect::CompleteConfirm),
    }
}

/// A step to be logged under a lease, with what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The operation.
    pub operation: OperationId,
    /// The lease under which it is done.
    pub epoch: Epoch,
    /// The step.
    pub step: Step,
    /// What happened to it.
    pub mark: Mark,
    /// What it means for the state.
    pub effect: Effect,
}

impl From<&Advance> for v1::AdvanceRequest {
    /// Leaves the request id open.
    fn from(advance: &Advance) -> Self {
        Self {
            operation: advance.operation.resource_name(),
            epoch: advance.epoch.0,
            step: v1::Step::from(advance.step).into(),
            mark: Some((&advance.mark).into()),
            effect: write_effect(&advance.effect),
            request_id: String::new(),
        }
    }
}

impl TryFrom<v1::AdvanceRequest> for Advance {
    type Error = Invalid;

    fn try_from(wire: v1::AdvanceRequest) -> Result<Self, Invalid> {
        Ok(Self {
            operation: field::name(&wire.operation, "operation")?,
            epoch: Epoch(wire.epoch),
            step: field::choice::<v1::Step, _>(wire.step, "step")?,
            mark: field::required(wire.mark, "mark")?,
            effect: read_effect(wire.effect).map_err(|e| e.within("effect"))?,
        })
    }
}
