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
//! after it: that a guest that was requested to reboot by itself has done so cannot be seen from
//! outside, and here every step has an end that can.
//!
//! Nothing of what was done to a guest is turned back: starting a guest that was to be stopped, or
//! the other way round, would be a change that no user requested. The undo calls on the host to
//! end what the operation has in progress there and to report the guest's state, and that is what the
//! VM is from then on. So the VM's record is always true, and the claim stays whatever comes.
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
use crate::plan::{Action, Context, Script};
use crate::refusals;

/// An operation on the VM's own host.
pub(crate) struct Power;

impl Power {
    /// Returns the VM's host, if its agent is new enough. It is checked before every call: an agent
    /// may have been restarted at another version.
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
        if step == Step::Stop {
            return Ok(Call::StopVm {
                claim: own_claim(context)?.id,
                timeout_ms: grace_ms(kind),
                last: false,
            });
        }
        if step == Step::MakeDisks {
            return Ok(Call::MakeDisks {
                vm: vm.name.clone(),
                spec: spec(context)?,
                claim: own_claim(context)?.clone(),
            });
        }
        if step == Step::Start {
            return Ok(Call::StartVm {
                vm: vm.name.clone(),
                spec: spec(context)?,
                claim: own_claim(context)?.clone(),
            });
        }
        if let Kind::Snapshot { disk, image } = kind {
            if step == Step::CopyDisk {
                return Ok(Call::CopyDisk {
                    vm: vm.name.clone(),
                    spec: vm.spec.clone(),
                    disk: *disk,
                    image: image.clone(),
                });
            }
            if step == Step::PublishImage {
                let image = image.clone();
                return Ok(Call::PublishImage { image });
            }
        }
        Err(refusals::inconsistent(format!(
            "step `{}` does not belong to a {}",
            step.title(),
            kind.plan().title
        )))
    }

    /// Returns the meaning of a step's success.
    fn success(step: Step, context: &Context) -> Effect {
        if !context.plan().is_last(step, context.conditions()) {
            return Effect::None;
        }
        let stays_off =
            matches!(context.operation.kind, Kind::Rebuild { .. }) && !is_to_run(context);
        let power = if step == Step::Stop || stays_off {
            GuestPower::Off
        } else if step == Step::Start {
            GuestPower::On
        } else {
            GuestPower::Unchanged
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
    if let Kind::Stop { timeout_ms } | Kind::Reboot { timeout_ms } = kind {
        return *timeout_ms;
    }
    0
}

/// Returns the specification, with the images of a rebuild: the facts may be older than its begin.
fn spec(context: &Context) -> Result<VmSpec, Refusal> {
    let spec = &context.facts.vm.spec;
    let Kind::Rebuild { images } = &context.operation.kind else {
        return Ok(spec.clone());
    };
    let spec = spec.with_images(images);
    spec.map_err(|faults| berth_domain::fault::refusal("vm", &faults))
}

/// Whether the guest runs once it is rebuilt: one that was stopped stays so.
fn is_to_run(context: &Context) -> bool {
    context.facts.vm.state != vm::State::Stopped
}

impl Script for Power {
    fn action(&self, step: Step, context: &Context) -> Result<Action, Refusal> {
        let host = Self::host(context)?;
        let is_rebuild = matches!(context.operation.kind, Kind::Rebuild { .. });
        if step == Step::Start && is_rebuild && !is_to_run(context) {
            return Ok(Action::Complete(Self::success(step, context)));
        }
        Ok((host, Self::call(step, context)?).into())
    }

    fn answered(
        &self,
        step: Step,
        _reply: Reply,
        context: &mut Context,
    ) -> Result<Effect, Refusal> {
        Ok(Self::success(step, context))
    }

    fn undo(&self, _step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        let host = own_host(context)?;
        let version = context.facts.hosts.get(&host).map(|h| h.service_version);
        // An agent that was restarted at an older version has nothing in progress.
        let is_old = version.is_some_and(|version| version < ServiceVersion::VM_POWER);
        let call = if let Kind::Snapshot { image, .. } = &context.operation.kind {
            let image = image.clone();
            Call::DropImage { image }
        } else if is_old {
            Call::GetDomain
        } else {
            Call::SettleVm
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
}

/// Returns the state of a guest that does not run: the log shows whether its disks are whole.
fn off_as(context: &Context) -> GuestPower {
    let journal = Journal::of(&context.operation.log);
    let was_broken = context.facts.vm.state == vm::State::Error;
    let made = journal.was_done(Step::MakeDisks);
    match (journal.has_started(Step::MakeDisks) || was_broken, made) {
        (true, false) => GuestPower::Broken,
        (true, true) | (false, _) => GuestPower::Off,
    }
}
