//! Moves of a VM while it does not run: a cold migration, a resize, an evacuation; and how a resize
//! is confirmed or taken back.
//!
//! ```text
//!              source's claim          destination's claim      VM is on
//!   begun      VM's, ACTIVE            migration's, HELD        source
//!   done       released                VM's, ACTIVE             destination
//!   to verify  migration's, HELD       VM's, ACTIVE             destination
//!   confirmed  released                VM's, ACTIVE             destination
//!   reverted   VM's, ACTIVE            released                 source
//! ```
//!
//! Invariant: what a VM had is given back only once it cannot come back to it.

use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::constraint::RestartReason;
use berth_domain::fence::may_evacuate;
use berth_domain::id::{Generation, MigrationId, OperationId};
use berth_domain::migration::{self, Migration, Resize, State};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Kind, Operation, Outcome};
use berth_domain::refusal::Refusal;
use berth_domain::transfer::TransferPolicy;
use berth_domain::version::power_gate;
use berth_domain::vm::{self, Vm, VmSpec};

use super::claim::Purpose;
use super::migration::move_on;
use super::operation::{advised, transition, with_claim};
use crate::command::LeaseRequest;
use crate::refusals::{exists, invalid, precondition, vm_busy};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// What a move begins with.
pub(super) struct Begin<'a> {
    pub(super) operation: OperationId,
    pub(super) migration: MigrationId,
    pub(super) vm: &'a VmName,
    pub(super) spec: Option<&'a VmSpec>,
    pub(super) requested_host: Option<&'a HostName>,
    pub(super) verify: bool,
    pub(super) evacuate: bool,
    pub(super) claim: &'a Claim,
    pub(super) lease: &'a LeaseRequest,
}

impl Begin<'_> {
    fn kind(&self) -> Kind {
        let migration = self.migration;
        match self.evacuate {
            true => Kind::Evacuate { migration },
            false => Kind::ColdMigrate { migration },
        }
    }
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn begin_move(&mut self, begin: &Begin<'_>) -> Result<Reply, Refusal> {
        let kind = begin.kind();
        let vm = self.idle_vm(begin.vm, &kind)?;
        let (Some(source), Some(source_claim)) = (&vm.host, vm.claim) else {
            let message = format!("vm {} is on no host", vm.name);
            return Err(precondition("NO_CLAIM", message).with("vm", &vm.name));
        };
        self.examine_orphans(&vm, &kind)?;
        self.examine_new_operation(begin.operation, begin.lease)?;
        if self.state.migration(begin.migration).is_some() {
            return Err(exists("migration", begin.migration));
        }
        if let Some(spec) = begin.spec {
            is_another_size(&vm.spec, spec)?;
        }
        if begin.evacuate {
            let host = self.state.host(source).map(|view| &view.host);
            let host = host.expect("a host is not forgotten while it has claims");
            may_evacuate(host, self.now())?;
        } else {
            self.can_stop_and_start(source)?;
        }
        let spec = begin.spec.unwrap_or(&vm.spec);
        let why = RestartReason::of_move(begin.evacuate, begin.spec.is_some());
        let purpose = Purpose {
            vm: begin.vm,
            owner: Owner::Migration(begin.migration),
            demand: &self.state.cold_demand(&vm, spec, why)?,
            requested_host: begin.requested_host,
        };
        self.examine_claim(begin.claim, &purpose)?;
        let before = self.state.claim(source_claim).map(|c| c.assignment.clone());
        let created_at = self.now();
        let fetches_disks = !begin.evacuate && self.state.are_apart(&vm, source, &begin.claim.host);
        let resize = begin.spec.map(|after| {
            let (before, after) = (vm.spec.clone(), after.clone());
            Box::new(Resize { before, after })
        });
        // Before its claim, as the size of the claim depends on it.
        self.put_migration(Migration {
            id: begin.migration,
            vm: vm.name.clone(),
            source: source.clone(),
            source_claim,
            requested: begin.requested_host.cloned(),
            destination: Some(begin.claim.host.clone()),
            destination_claim: Some(begin.claim.id),
            state: State::Preparing,
            error: None,
            assignment_before: before.unwrap_or_default(),
            assignment_after: Some(begin.claim.assignment.clone()),
            operation: begin.operation,
            generation: Generation(1),
            created_at,
            ended_at: None,
            kind: match begin.evacuate {
                true => migration::Kind::Evacuation,
                false => migration::Kind::Cold,
            },
            was_stopped: vm.state == vm::State::Stopped,
            verify: begin.verify,
            resize,
            transfer: self.fetch_policy(fetches_disks),
            hosts_tried_max: self.state.policy().migration.hosts_tried_max,
            tried: Vec::new(),
            fetches_disks,
        });
        let claim = self.hold(begin.claim);
        if begin.evacuate {
            self.separate(&vm);
        }
        self.occupy(&vm, begin.operation);
        let operation = self.new_operation(begin.operation, kind, begin.vm, begin.lease);
        Ok(Reply::Operation(self.put_operation(Operation {
            requested_host: begin.requested_host.cloned(),
            ..with_claim(operation, &claim)
        })))
    }

    pub(super) fn complete_move(&mut self, operation: &mut Operation) -> Result<(), Refusal> {
        let migration = self.migration_of(operation)?;
        let (vm_event, event) = match migration.verify {
            true => (vm::Event::Resized, migration::Event::Resized),
            false => (vm::Event::Moved, migration::Event::Moved),
        };
        let vm = self.vm_of(operation);
        let vm_state = transition(&vm, vm_event)?;
        let state = move_on(&migration, event)?;
        let claim = self.claim_of_migration(&migration)?;
        if migration.verify {
            self.keep_for(&migration)?;
        } else {
            self.release(migration.source_claim);
        }
        let spec = migration.resize.as_deref().map(|r| r.after.clone());
        self.put_vm(Vm {
            state: vm_state,
            spec: spec.unwrap_or_else(|| vm.spec.clone()),
            host: Some(claim.host.clone()),
            claim: Some(claim.id),
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.put_claim(Claim {
            owner: Owner::Vm,
            state: ClaimState::Active,
            ..(*claim).clone()
        });
        if state.is_ended() {
            self.end_migration(&migration, state, None);
        } else {
            self.change_migration(migration.id, |migration| migration.state = state);
        }
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }

    /// The source's claim is the migration's from here on: nothing runs on it, no other request takes it.
    fn keep_for(&mut self, migration: &Migration) -> Result<(), Refusal> {
        let claim = self.state.claim(migration.source_claim).cloned();
        let claim = claim.ok_or_else(|| without_claim(migration))?;
        self.put_claim(Claim {
            owner: Owner::Migration(migration.id),
            state: ClaimState::Held,
            ..(*claim).clone()
        });
        Ok(())
    }

    fn claim_of_migration(&self, migration: &Migration) -> Result<Arc<Claim>, Refusal> {
        let claim = migration.destination_claim;
        let claim = claim.and_then(|id| self.state.claim(id)).cloned();
        claim.ok_or_else(|| without_claim(migration))
    }

    /// Returns what of the cluster's policy is heeded where disks are fetched: their guest does not
    /// run. Where they are not, the record is what it was before they could be.
    pub(super) fn fetch_policy(&self, fetches_disks: bool) -> TransferPolicy {
        let policy = &self.state.policy().migration.transfer;
        match fetches_disks {
            true => TransferPolicy {
                bandwidth_mib_per_s_max: policy.bandwidth_mib_per_s_max,
                timeout_ms: policy.timeout_ms,
                ..TransferPolicy::default()
            },
            false => TransferPolicy::default(),
        }
    }

    // ---- confirm and revert ---------------------------------------------------------------

    /// Keeps what a cold migration brought: at once, or by an operation that deletes the disks on the
    /// source first, where there are any.
    pub(super) fn confirm_resize(
        &mut self,
        name: &VmName,
        deleter: Option<(OperationId, &LeaseRequest)>,
    ) -> Result<Reply, Refusal> {
        let (vm, migration) = self.resized_vm(name)?;
        if migration.fetches_disks {
            let Some((id, lease)) = deleter else {
                let message = format!("vm {name} has disks on host {} too", migration.source);
                return Err(precondition("CONDUCTOR_NEEDED", message)
                    .with("vm", name)
                    .with_hint("ask a conductor: it has them deleted"));
            };
            self.examine_new_operation(id, lease)?;
            self.occupy(&vm, id);
            let migration = migration.id;
            let operation = self.new_operation(id, Kind::ConfirmResize { migration }, name, lease);
            return Ok(Reply::Operation(self.put_operation(operation)));
        }
        let state = self.keep_resize(&vm, &migration)?;
        self.put_vm(Vm {
            state,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        Ok(Reply::None)
    }

    /// The disks on the source are gone.
    pub(super) fn complete_confirm(&mut self, operation: &mut Operation) -> Result<(), Refusal> {
        let migration = self.migration_of(operation)?;
        let vm = self.vm_of(operation);
        let state = self.keep_resize(&vm, &migration)?;
        self.put_vm(Vm {
            state,
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }

    /// Gives back what a resized VM had before, and returns what state it is in now.
    fn keep_resize(&mut self, vm: &Vm, migration: &Migration) -> Result<vm::State, Refusal> {
        let vm_state = transition(vm, ended(migration))?;
        let state = move_on(migration, migration::Event::Confirmed)?;
        self.release(migration.source_claim);
        self.end_migration(migration, state, None);
        Ok(vm_state)
    }

    /// A VM that is deleted while its resize waits keeps nothing of what it had before.
    pub(super) fn forget_resize(&mut self, vm: &Vm) -> Result<(), Refusal> {
        if let Some(migration) = self.resize_of(vm) {
            self.keep_resize(vm, &migration)?;
        }
        Ok(())
    }

    pub(super) fn begin_revert_resize(
        &mut self,
        id: OperationId,
        name: &VmName,
        lease: &LeaseRequest,
    ) -> Result<Reply, Refusal> {
        let (vm, migration) = self.resized_vm(name)?;
        self.examine_new_operation(id, lease)?;
        for host in migration.destination.iter().chain([&migration.source]) {
            self.can_stop_and_start(host)?;
        }
        let remedy = "keep the resize (berth vm confirm-resize), and move it back";
        self.examine_recorded_cpu(&vm, Some(migration.source_claim), remedy)?;
        self.occupy(&vm, id);
        let migration = migration.id;
        let operation = self.new_operation(id, Kind::RevertResize { migration }, name, lease);
        Ok(Reply::Operation(self.put_operation(operation)))
    }

    pub(super) fn complete_revert(&mut self, operation: &mut Operation) -> Result<(), Refusal> {
        let migration = self.migration_of(operation)?;
        let vm = self.vm_of(operation);
        let vm_state = transition(&vm, ended(&migration))?;
        let state = move_on(&migration, migration::Event::Reverted)?;
        let claim = self.state.claim(migration.source_claim).cloned();
        let claim = claim.ok_or_else(|| without_claim(&migration))?;
        if let Some(claim) = vm.claim {
            self.release(claim);
        }
        let spec = migration.resize.as_deref().map(|r| r.before.clone());
        self.put_vm(Vm {
            state: vm_state,
            spec: spec.unwrap_or_else(|| vm.spec.clone()),
            host: Some(claim.host.clone()),
            claim: Some(claim.id),
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.put_claim(Claim {
            owner: Owner::Vm,
            state: ClaimState::Active,
            ..(*claim).clone()
        });
        self.end_migration(&migration, state, None);
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }

    fn resized_vm(&self, name: &VmName) -> Result<(Arc<Vm>, Arc<Migration>), Refusal> {
        let vm = self.state.vm(name).cloned();
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        if let Some(operation) = vm.operation {
            return Err(vm_busy(name, operation));
        }
        match self.resize_of(&vm) {
            Some(migration) if vm.state == vm::State::Resized => Ok((vm, migration)),
            Some(_) | None => Err(wrong_state(
                &vm,
                "has no resize to be confirmed or reverted",
            )),
        }
    }

    /// Returns the migration for which what the VM had before is kept.
    pub(super) fn resize_of(&self, vm: &Vm) -> Option<Arc<Migration>> {
        self.state.verified_resize(&vm.name).cloned()
    }

    // ---- what these operations have in common ---------------------------------------------

    /// Returns a VM on which this kind of operation may begin.
    pub(super) fn idle_vm(&self, name: &VmName, kind: &Kind) -> Result<Arc<Vm>, Refusal> {
        let vm = self.state.vm(name).cloned();
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        if let Some(operation) = vm.operation {
            return Err(vm_busy(name, operation));
        }
        match kind.works_in(vm.state) {
            true => Ok(vm),
            false => Err(advised(&vm, kind, "this is not done to it then")),
        }
    }

    /// Refuses a host whose agent is too old to stop and start guests.
    pub(super) fn can_stop_and_start(&self, host: &HostName) -> Result<(), Refusal> {
        match self.state.host(host) {
            Some(view) => power_gate(host, view.host.report.service_version),
            None => Ok(()),
        }
    }

    /// Notes that an operation works on a VM, whose state stays as it is.
    pub(super) fn occupy(&mut self, vm: &Vm, operation: OperationId) {
        self.put_vm(Vm {
            operation: Some(operation),
            generation: vm.generation.next(),
            ..vm.clone()
        });
    }
}

/// Only the size changes, not what was given to this VM alone.
fn is_another_size(before: &VmSpec, after: &VmSpec) -> Result<(), Refusal> {
    let same = before.boot == after.boot
        && before.disks == after.disks
        && before.nics == after.nics
        && before.image_properties == after.image_properties
        && before.hints == after.hints
        && before.volumes == after.volumes;
    match same {
        true => Ok(()),
        false => Err(invalid(
            "NOT_A_RESIZE",
            "a resize changes the flavor, and nothing else",
        )),
    }
}

fn ended(migration: &Migration) -> vm::Event {
    match migration.was_stopped {
        true => vm::Event::ResizeEndedStopped,
        false => vm::Event::ResizeEndedRunning,
    }
}

fn wrong_state(vm: &Vm, why: &str) -> Refusal {
    let message = format!("vm {} is {:?}: {why}", vm.name, vm.state);
    precondition("VM_STATE", message)
        .with("vm", &vm.name)
        .with("state", format!("{:?}", vm.state))
}

fn without_claim(migration: &Migration) -> Refusal {
    let message = format!("migration {} lacks a claim that it needs", migration.id);
    precondition("NO_CLAIM", message).with("migration", migration.id)
}
