//! Operations on the VM's own host, on the claim that it has: stop, start, reboot, rebuild and
//! snapshot.
//!
//! ```text
//!   stop      Stop
//!   start     Start
//!   reboot    Stop ─▶ Start
//!   rebuild   Stop ─▶ MakeDisks ─▶ Start
//!   snapshot  CopyDisk ─▶ PublishImage
//! ```
//!
//! A soft reboot is a stop with time for the guest, and a hard one a stop without, each with a start
//! after it: that a guest that was asked to reboot by itself has done so cannot be seen from
//! outside, and here every step has an end that can.
//!
//! Nothing of what was done to a guest is turned back: starting a guest that was to be stopped, or
//! the other way round, would be another thing that nobody asked for. The undo asks the host to
//! end what the operation has under way there and to say where the guest is, and that is what the
//! VM is from then on. So it never says of a VM what is not so, and the claim stays whatever comes.
//!
//! Invariant: a step that has succeeded is not done again by a conductor that takes over, as a guest
//! that has been started would be stopped.

use berth_domain::agent::{Call, DomainState, Reply};
use berth_domain::claim::Claim;
use berth_domain::name::HostName;
use berth_domain::operation::{Effect, GuestPower, Kind, Step};
use berth_domain::refusal::Refusal;
use berth_domain::version::{ServiceVersion, power_gate};
use berth_domain::vm::{self, VmSpec};

use crate::journal::Journal;
use crate::plan::{Ask, Context, Script, StepPlan, Undo};
use crate::refusals;

/// An operation on the VM's own host.
pub(crate) struct Power {
    steps: &'static [StepPlan],
}

/// The stop of a guest.
pub(crate) static STOP: Power = Power { steps: &[STOPPING] };
/// The start of a guest.
pub(crate) static START: Power = Power { steps: &[STARTING] };
/// A reboot, soft or hard.
pub(crate) static REBOOT: Power = Power {
    steps: &[STOPPING, STARTING],
};
/// The rebuild of a guest.
pub(crate) static REBUILD: Power = Power {
    steps: &[STOPPING, MAKING_DISKS, STARTING],
};
/// A snapshot of a disk.
pub(crate) static SNAPSHOT: Power = Power {
    steps: &[COPYING, PUBLISHING],
};

/// Asked twice, a guest is stopped once. It may have been stopped also where no answer came, so the
/// undo asks where it is; afterwards the host refuses a stop that comes late.
const STOPPING: StepPlan = StepPlan {
    step: Step::Stop,
    side_effects: true,
    undo: Undo::AskAgent,
};

/// After the stop, since a disk is not made anew below a guest that runs. Its start is committed
/// together with the new images: from there on the old disks count as gone, and only its success
/// makes the new ones whole. Where it fails the VM is in ERROR, and keeps host and claim for another
/// rebuild. It may be repeated, as nothing runs on the disks yet.
const MAKING_DISKS: StepPlan = StepPlan {
    step: Step::MakeDisks,
    side_effects: true,
    undo: Undo::AskAgent,
};

/// The claim goes with the call, as when the VM was booted. Last, since what it builds on is done.
/// A guest that cannot be started is off with its disks whole: the VM is STOPPED then.
const STARTING: StepPlan = StepPlan {
    step: Step::Start,
    side_effects: true,
    undo: Undo::AskAgent,
};

/// To a draft under a name that nobody uses, so that half a copy is never taken for an image. The
/// guest is as it was. The undo removes the draft, and afterwards the host refuses what comes late.
const COPYING: StepPlan = StepPlan {
    step: Step::CopyDisk,
    side_effects: true,
    undo: Undo::AskAgent,
};

/// A step of its own, since a conductor that asks again must be able to tell a name that the draft
/// has got from one that was taken before. Its undo finds out which it is: a draft that has got its
/// name is an image, somebody may use it already, and it stays; then the operation has succeeded.
const PUBLISHING: StepPlan = StepPlan {
    step: Step::PublishImage,
    side_effects: true,
    undo: Undo::AskAgent,
};

impl Power {
    /// Returns the VM's host, if its agent is new enough. It is asked before every call: an agent
    /// may have been started anew, at another version.
    fn host(context: &Context) -> Result<HostName, Refusal> {
        let host = own_host(context)?;
        let facts = context.facts.hosts.get(&host);
        let facts = facts.ok_or_else(|| refusals::host_unknown(&host))?;
        power_gate(&host, facts.service_version)?;
        Ok(host)
    }

    /// Returns what the guest's call is.
    fn call(step: Step, context: &Context) -> Result<Call, Refusal> {
        let (vm, kind) = (&context.facts.vm, &context.operation.kind);
        Ok(match (step, kind) {
            (Step::Stop, _) => Call::StopVm {
                claim: own_claim(context)?.id,
                timeout_ms: grace_ms(kind),
                last: false,
            },
            (Step::MakeDisks, _) => Call::MakeDisks {
                vm: vm.name.clone(),
                spec: spec(context)?,
                claim: own_claim(context)?.clone(),
            },
            (Step::Start, _) => Call::StartVm {
                vm: vm.name.clone(),
                spec: spec(context)?,
                claim: own_claim(context)?.clone(),
            },
            (Step::CopyDisk, Kind::Snapshot { disk, image }) => Call::CopyDisk {
                vm: vm.name.clone(),
                spec: vm.spec.clone(),
                disk: *disk,
                image: image.clone(),
            },
            (Step::PublishImage, Kind::Snapshot { image, .. }) => Call::PublishImage {
                image: image.clone(),
            },
            (
                Step::CopyDisk
                | Step::PublishImage
                | Step::Claim
                | Step::Spawn
                | Step::CheckDestination
                | Step::CheckSource
                | Step::FitDestination
                | Step::PreLiveMigration
                | Step::LiveMigration
                | Step::Settle
                | Step::Destroy
                | Step::StopSource
                | Step::StartDestination
                | Step::StopDestination
                | Step::StartSource
                | Step::FetchDisks
                | Step::DropSource
                | Step::DropDestination,
                _,
            ) => {
                return Err(refusals::inconsistent(format!(
                    "step {step:?} does not belong to a {kind:?}"
                )));
            }
        })
    }

    /// Returns the meaning of a step's success.
    fn success(&self, step: Step, context: &Context) -> Effect {
        if self.steps.last().map(|plan| plan.step) != Some(step) {
            return Effect::None;
        }
        let power = match &context.operation.kind {
            Kind::Stop { .. } => GuestPower::Off,
            Kind::Rebuild { .. } if !is_to_run(context) => GuestPower::Off,
            Kind::Start | Kind::Reboot { .. } | Kind::Rebuild { .. } => GuestPower::On,
            Kind::Snapshot { .. }
            | Kind::Boot
            | Kind::Delete
            | Kind::LiveMigrate { .. }
            | Kind::ColdMigrate { .. }
            | Kind::RevertResize { .. }
            | Kind::ConfirmResize { .. }
            | Kind::Evacuate { .. }
            | Kind::Shelve
            | Kind::Unshelve => GuestPower::Unchanged,
        };
        Effect::EndPower {
            power,
            refusal: None,
        }
    }
}

fn own_host(context: &Context) -> Result<HostName, Refusal> {
    let vm = &context.facts.vm;
    let host = vm.host.clone();
    host.ok_or_else(|| refusals::inconsistent(format!("vm {} is on no host", vm.name)))
}

fn own_claim(context: &Context) -> Result<&Claim, Refusal> {
    let vm = &context.facts.vm;
    let claim = vm.claim.and_then(|id| context.facts.claims.get(&id));
    claim.ok_or_else(|| refusals::inconsistent(format!("vm {} has no claim", vm.name)))
}

/// Returns how long the guest may take to power off. What a rebuild is about to throw away needs
/// none.
fn grace_ms(kind: &Kind) -> u64 {
    match kind {
        Kind::Stop { timeout_ms } | Kind::Reboot { timeout_ms } => *timeout_ms,
        Kind::Rebuild { .. }
        | Kind::Start
        | Kind::Snapshot { .. }
        | Kind::Boot
        | Kind::Delete
        | Kind::LiveMigrate { .. }
        | Kind::ColdMigrate { .. }
        | Kind::RevertResize { .. }
        | Kind::ConfirmResize { .. }
        | Kind::Evacuate { .. }
        | Kind::Shelve
        | Kind::Unshelve => 0,
    }
}

/// Returns the specification, with the images of a rebuild: the facts may be older than its begin.
fn spec(context: &Context) -> Result<VmSpec, Refusal> {
    let spec = &context.facts.vm.spec;
    match &context.operation.kind {
        Kind::Rebuild { images } => spec
            .with_images(images)
            .map_err(|faults| berth_domain::fault::refusal("vm", &faults)),
        Kind::Boot
        | Kind::Delete
        | Kind::LiveMigrate { .. }
        | Kind::ColdMigrate { .. }
        | Kind::RevertResize { .. }
        | Kind::ConfirmResize { .. }
        | Kind::Evacuate { .. }
        | Kind::Shelve
        | Kind::Unshelve
        | Kind::Stop { .. }
        | Kind::Start
        | Kind::Reboot { .. }
        | Kind::Snapshot { .. } => Ok(spec.clone()),
    }
}

/// Whether the guest runs once it is rebuilt: one that was stopped stays so.
fn is_to_run(context: &Context) -> bool {
    context.facts.vm.state != vm::State::Stopped
}

impl Script for Power {
    fn steps(&self) -> &'static [StepPlan] {
        self.steps
    }

    fn can_give_up(&self) -> bool {
        true
    }

    fn resumes(&self) -> bool {
        true
    }

    fn start_effect(&self, step: Step) -> Effect {
        if step == Step::MakeDisks {
            Effect::BeginRebuild
        } else {
            Effect::None
        }
    }

    fn ask(&self, step: Step, context: &Context) -> Result<Ask, Refusal> {
        let host = Self::host(context)?;
        let is_rebuild = matches!(context.operation.kind, Kind::Rebuild { .. });
        if step == Step::Start && is_rebuild && !is_to_run(context) {
            return Ok(Ask::Nothing(self.success(step, context)));
        }
        let call = Box::new(Self::call(step, context)?);
        Ok(Ask::Agent { host, call })
    }

    fn answered(
        &self,
        step: Step,
        _reply: Reply,
        context: &mut Context,
    ) -> Result<Effect, Refusal> {
        Ok(self.success(step, context))
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        let host = own_host(context)?;
        let version = context.facts.hosts.get(&host).map(|h| h.service_version);
        let call = match &context.operation.kind {
            Kind::Snapshot { image, .. } => Call::DropImage {
                image: image.clone(),
            },
            // An agent that was started anew at an older version has nothing under way.
            Kind::Stop { .. }
            | Kind::Start
            | Kind::Reboot { .. }
            | Kind::Rebuild { .. }
            | Kind::Boot
            | Kind::Delete
            | Kind::LiveMigrate { .. }
            | Kind::ColdMigrate { .. }
            | Kind::RevertResize { .. }
            | Kind::ConfirmResize { .. }
            | Kind::Evacuate { .. }
            | Kind::Shelve
            | Kind::Unshelve => match version {
                Some(version) if version < ServiceVersion::VM_POWER => Call::GetDomain,
                Some(_) | None => Call::SettleVm,
            },
        };
        Ok((host, call))
    }

    fn undone(&self, reply: &Reply, context: &Context, cause: Refusal) -> Result<Effect, Refusal> {
        let power = match reply {
            Reply::Image { published } => {
                // A name that was taken before anything was published is another's.
                let journal = Journal::of(&context.operation.log);
                let ours = *published && journal.has_started(Step::PublishImage);
                return Ok(Effect::EndPower {
                    power: GuestPower::Unchanged,
                    refusal: (!ours).then_some(cause),
                });
            }
            Reply::Domain(status) => match status.state {
                DomainState::Absent | DomainState::Stopped => off_as(context),
                DomainState::Running
                | DomainState::Starting
                | DomainState::Paused
                | DomainState::MigratingOut
                | DomainState::MigratingIn
                | DomainState::PostCopyBroken
                | DomainState::Prepared => GuestPower::On,
            },
            Reply::Done | Reply::Destination(_) | Reply::MigrateData(_) | Reply::Fit { .. } => {
                return Err(refusals::unexpected_answer("where the guest is"));
            }
        };
        Ok(Effect::EndPower {
            power,
            refusal: Some(cause),
        })
    }

    fn is_candidates_fault(&self, _step: Step) -> bool {
        false
    }

    /// Nothing was started.
    fn give_up(&self, refusal: Refusal) -> Effect {
        Effect::EndPower {
            power: GuestPower::Unchanged,
            refusal: Some(refusal),
        }
    }
}

/// Returns how a guest is that does not run: whether its disks are whole, the log tells.
fn off_as(context: &Context) -> GuestPower {
    let journal = Journal::of(&context.operation.log);
    let was_broken = context.facts.vm.state == vm::State::Error;
    let made = journal.was_done(Step::MakeDisks);
    match (journal.has_started(Step::MakeDisks) || was_broken, made) {
        (true, false) => GuestPower::Broken,
        (true, true) | (false, _) => GuestPower::Off,
    }
}
