//! Operations on the VM's own host: stop, start, reboot, rebuild, snapshot.
//!
//! They take no claim: the VM's own stays as it is, whatever comes of them. What the VM is at their
//! end is what its guest was found to be.
//!
//! A rebuild that fails half-way leaves the VM in ERROR with its host and its claim: its disks are
//! neither old nor new, but they are there, and so is its place for another rebuild. No other VM
//! may take it, as with a VM that is stopped.

use berth_domain::claim::Claim;
use berth_domain::constraint::{self, Demand, Violation};
use berth_domain::cpu_model::CpuDemand;
use berth_domain::fault::refusal as faults;
use berth_domain::host::Liveness;
use berth_domain::id::{ClaimId, OperationId};
use berth_domain::image::ImageFile;
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Advice, GuestPower, Kind, Operation, Outcome};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{ServiceVersion, power_gate};
use berth_domain::vm::{Event, State, Vm, VmSpec, check_image_name};

use super::metadata::examine_protection;
use super::operation::transition;
use super::recovery::{GUEST_RUNS_TWICE, VOLUME_TAKEN};
use crate::command::LeaseRequest;
use crate::refusals::{invalid, precondition, vm_busy};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Begins what a user requested. A user who has it started knows of its restarts: they are counted
    /// from the beginning.
    pub(super) fn begin_requested_power(
        &mut self,
        id: OperationId,
        name: &VmName,
        kind: &Kind,
        lease: &LeaseRequest,
    ) -> Result<Reply, Refusal> {
        let reply = self.begin_power(id, name, kind, lease)?;
        if matches!(kind, Kind::Start | Kind::Reboot { .. }) {
            self.reset_restarts(name);
        }
        Ok(reply)
    }

    pub(super) fn begin_power(
        &mut self,
        id: OperationId,
        name: &VmName,
        kind: &Kind,
        lease: &LeaseRequest,
    ) -> Result<Reply, Refusal> {
        let vm = self.state.vm(name).cloned();
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        if let Some(operation) = vm.operation {
            return Err(vm_busy(name, operation));
        }
        if !kind.is_power() {
            return Err(invalid("KIND_NOT_ALLOWED", "it is begun otherwise"));
        }
        let host = examine_state(&vm, kind)?;
        if matches!(kind, Kind::Rebuild { .. }) {
            examine_protection(&vm, "rebuilt")?;
        }
        self.examine_host(host)?;
        if !matches!(kind, Kind::Stop { .. } | Kind::Snapshot { .. }) {
            self.examine_orphans(&vm, kind)?;
        }
        self.examine_wish(&vm, kind)?;
        self.examine_new_operation(id, lease)?;
        match kind {
            Kind::Start => self.renew_cpu(&vm)?,
            Kind::Reboot { .. } | Kind::Rebuild { .. } if vm.state == State::Active => {
                self.examine_recorded_cpu(&vm, vm.claim, "stop and start it")?;
            }
            Kind::Reboot { .. }
            | Kind::Rebuild { .. }
            | Kind::Stop { .. }
            | Kind::Snapshot { .. }
            | Kind::Boot
            | Kind::Delete
            | Kind::LiveMigrate { .. }
            | Kind::ColdMigrate { .. }
            | Kind::RevertResize { .. }
            | Kind::ConfirmResize { .. }
            | Kind::Evacuate { .. }
            | Kind::Shelve
            | Kind::Unshelve
            | Kind::DrainHost(_) => {}
        }
        let operation = self.new_operation(id, kind.clone(), name, lease);
        let (state, error) = match resumes(&vm, kind) {
            true => (State::Stopped, None),
            false => (vm.state, vm.error.clone()),
        };
        self.put_vm(Vm {
            state,
            error,
            operation: Some(id),
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        Ok(Reply::Operation(self.put_operation(operation)))
    }

    /// Refuses to restart a guest on a claim where its host does not give it the recorded CPU any more: it
    /// would be stopped, and not start. `remedy` is what helps where the host gives it another CPU.
    pub(super) fn examine_recorded_cpu(
        &self,
        vm: &Vm,
        claim: Option<ClaimId>,
        remedy: &str,
    ) -> Result<(), Refusal> {
        let Some(claim) = claim.and_then(|id| self.state.claim(id)) else {
            return Ok(());
        };
        let view = self.state.host(&claim.host);
        let view = view.ok_or_else(|| Refusal::not_found("host", &claim.host))?;
        let recorded = CpuDemand::running(claim.cpu.as_ref());
        let own = view.host.report.cpu.as_deref();
        let Err(mismatch) = recorded.check(own) else {
            return Ok(());
        };
        let refusal = Violation::Cpu(mismatch).to_refusal(&claim.host);
        let demand = Demand::boot(&vm.spec).and_then(|demand| self.state.with_cpu(demand));
        let gives_another =
            demand.is_ok_and(|demand| constraint::cpu::check(view, &demand).is_ok());
        Err(match gives_another {
            true => refusal.with_hint(format!("{remedy}: it gets the CPU that its host gives now")),
            false => refusal,
        }
        .with("vm", &vm.name))
    }

    /// Has the claim of a guest that is to be started record the CPU that its host gives now: since it
    /// ran, the host may have got another hypervisor or firmware, and the baseline other hosts.
    pub(super) fn renew_cpu(&mut self, vm: &Vm) -> Result<(), Refusal> {
        let claim = vm.claim.and_then(|id| self.state.claim(id)).cloned();
        let Some(claim) = claim else {
            return Ok(());
        };
        let view = self.state.host(&claim.host).cloned();
        let view = view.ok_or_else(|| Refusal::not_found("host", &claim.host))?;
        let demand = self.state.with_cpu(Demand::boot(&vm.spec)?)?;
        constraint::cpu::check(&view, &demand)
            .map_err(|violation| violation.to_refusal(&claim.host))?;
        let cpu = constraint::cpu::given(&view.host.report, &demand.cpu);
        if cpu != claim.cpu {
            self.put_claim(Claim {
                cpu,
                ..(*claim).clone()
            });
        }
        Ok(())
    }

    /// Checks whether the host can be called now: an operation that waits for a dead one would keep
    /// others from the VM for nothing.
    fn examine_host(&self, name: &HostName) -> Result<(), Refusal> {
        let view = self.state.host(name);
        let host = &view.ok_or_else(|| Refusal::not_found("host", name))?.host;
        power_gate(name, host.report.service_version)?;
        match host.liveness {
            Liveness::Up => Ok(()),
            Liveness::Down => Err(precondition(
                "HOST_DOWN",
                format!("host {name} has not been heard of for a while"),
            )
            .with("host", name)
            .with_hint(format!("bring the compute agent of host {name} back"))),
        }
    }

    /// Checks whether the requested operation makes sense for this VM.
    fn examine_wish(&self, vm: &Vm, kind: &Kind) -> Result<(), Refusal> {
        if let Kind::Rebuild { images } = kind {
            let spec = vm.spec.with_images(images);
            spec.map(|_: VmSpec| ())
                .map_err(|found| faults("vm", &found))?;
            return images
                .iter()
                .try_for_each(|file| self.examine_image_file(file));
        }
        let Kind::Snapshot { disk, image } = kind else {
            return Ok(());
        };
        let disks = vm.spec.disks.len();
        let at = usize::try_from(*disk).unwrap_or(usize::MAX);
        let Some(copied) = vm.spec.disks.get(at) else {
            let message = format!("vm {} has {disks} disks, and no disk {disk}", vm.name);
            return Err(invalid("NO_SUCH_DISK", message)
                .with_hint("disks are counted from 0; see `berth vm show`"));
        };
        // Its image could be read by any guest, and what is on it is for this one alone.
        if copied.seed {
            let message = format!("disk {disk} of vm {} is its seed", vm.name);
            return Err(invalid("DISK_IS_SEED", message)
                .with_hint("name another disk (--disk N); see `berth vm show`"));
        }
        check_image_name("image", image).map_err(|found| faults("image", &found))?;
        if self.may_write(ServiceVersion::IMAGES) && image.parse::<ImageFile>().is_ok() {
            let message = format!("{image:?} is a name of files of the cluster's images");
            return Err(
                invalid("INVALID_IMAGE", message).with_hint("give the snapshot a name without '@'")
            );
        }
        self.examine_image(image)
    }

    /// One operation makes an image of a name: hosts that share their image directory could not
    /// tell whose it is.
    fn examine_image(&self, name: &str) -> Result<(), Refusal> {
        let running = self.state.operations().values().filter(|o| !o.is_done());
        let mut makes =
            running.filter(|o| matches!(&o.kind, Kind::Snapshot { image, .. } if image == name));
        match makes.next() {
            None => Ok(()),
            Some(other) => Err(Refusal::new(
                Code::AlreadyExists,
                "IMAGE_EXISTS",
                format!("an image {name:?} is being made by operation {}", other.id),
            )
            .with_hint("give the new image another name")),
        }
    }

    /// From here on the old disks are gone.
    pub(super) fn begin_rebuild(&mut self, operation: &Operation) -> Result<(), Refusal> {
        let Kind::Rebuild { images } = &operation.kind else {
            return Err(invalid("EFFECT_NOT_ALLOWED", "it is no rebuild"));
        };
        let vm = self.vm_of(operation);
        let spec = vm.spec.with_images(images);
        let spec = spec.map_err(|found| faults("vm", &found))?;
        self.put_vm(Vm {
            spec,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        Ok(())
    }

    pub(super) fn end_power(
        &mut self,
        operation: &mut Operation,
        power: GuestPower,
        refusal: Option<&Refusal>,
    ) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        // A restart by policy that failed is tried again, until they are used up.
        let is_retried = operation.kind == Kind::Start && vm.restarts.began(operation.created_at);
        let (state, error) = match power {
            GuestPower::Unchanged => (vm.state, vm.error.clone()),
            GuestPower::Off if is_retried => (vm.state, vm.error.clone()),
            GuestPower::On => (transition(&vm, Event::PoweredOn)?, None),
            GuestPower::Off => (transition(&vm, Event::PoweredOff)?, None),
            GuestPower::Broken => {
                let why = refusal.cloned().ok_or_else(|| {
                    invalid("EFFECT_NOT_ALLOWED", "a broken guest needs a reason")
                })?;
                (transition(&vm, Event::Broke)?, Some(why))
            }
        };
        self.put_vm(Vm {
            state,
            error,
            operation: None,
            trouble: vm.trouble.clone().filter(|_| power != GuestPower::On),
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        let outcome = refusal.map_or(Outcome::Succeeded, |why| Outcome::Failed(why.clone()));
        self.end(operation, outcome);
        Ok(())
    }
}

/// Returns whether a VM in ERROR is started because it ran twice: once the other guest is removed, it
/// goes on where it is recorded, if its guest does not run there already.
fn resumes(vm: &Vm, kind: &Kind) -> bool {
    let ran_twice = (vm.error.as_ref()).is_some_and(|why| why.reason == GUEST_RUNS_TWICE);
    vm.state == State::Error && ran_twice && *kind == Kind::Start
}

/// Says whether this may be begun as the VM is, and returns its host.
fn examine_state<'v>(vm: &'v Vm, kind: &Kind) -> Result<&'v HostName, Refusal> {
    let held = vm.host.as_ref().filter(|_| vm.claim.is_some());
    if let Some(host) = held
        && (kind.works_in(vm.state) || resumes(vm, kind))
    {
        return Ok(host);
    }
    let name = &vm.name;
    let verb = match kind {
        Kind::Stop { .. } => "stopped",
        Kind::Start => "started",
        Kind::Reboot { .. } => "rebooted",
        Kind::Rebuild { .. } => "rebuilt",
        Kind::Snapshot { .. } => "copied",
        Kind::Boot
        | Kind::Delete
        | Kind::LiveMigrate { .. }
        | Kind::ColdMigrate { .. }
        | Kind::RevertResize { .. }
        | Kind::ConfirmResize { .. }
        | Kind::Evacuate { .. }
        | Kind::Shelve
        | Kind::Unshelve
        | Kind::DrainHost(_) => "taken",
    };
    let state = format!("{:?}", vm.state).to_uppercase();
    let message = format!("vm {name} is {state} and cannot be {verb}");
    if let Some(why) = vm.error.as_ref().filter(|why| why.reason == VOLUME_TAKEN) {
        return Err(without_volume(vm, why, &message));
    }
    let refusal = precondition("VM_STATE", message)
        .with("vm", name)
        .with("state", format!("{:?}", vm.state));
    let advice = Advice::new(vm.state, held.is_some(), kind);
    Err(match advice {
        Some(advice) => refusal.with_hint(advice.describe(vm)),
        None => refusal,
    })
}

/// Refuses what needs a volume that the VM gave up in a recovery.
fn without_volume(vm: &Vm, why: &Refusal, message: &str) -> Refusal {
    Refusal {
        hint: why.hint.clone(),
        metadata: why.metadata.clone(),
        ..precondition("VM_STATE", format!("{message}: {}", why.message))
    }
    .with("vm", &vm.name)
    .with("state", format!("{:?}", vm.state))
}
