//! A migration up to the point of no return: begun with a claim on the destination, given up, or
//! let go. What comes after is in `settle`.

use std::sync::Arc;

use berth_domain::claim::{Claim, Owner};
use berth_domain::id::{Generation, MigrationId, OperationId};
use berth_domain::migration::{self, Event, Migration, State};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Kind, Mark, Operation, Outcome};
use berth_domain::policy::MigrationPolicy;
use berth_domain::refusal::Refusal;
use berth_domain::transfer::{HOSTS_TRIED_MAX, Tried};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{self, Vm};

use super::claim::Purpose;
use super::log::attempt;
use super::operation::{advised, transition, with_claim};
use crate::command::LeaseRequest;
use crate::refusals::{exists, precondition, vm_busy};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// What a migration begins with.
pub(super) struct Begin<'a> {
    pub(super) operation: OperationId,
    pub(super) migration: MigrationId,
    pub(super) vm: &'a VmName,
    pub(super) requested_host: Option<&'a HostName>,
    pub(super) claim: &'a Claim,
    pub(super) lease: &'a LeaseRequest,
    pub(super) policy: &'a MigrationPolicy,
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn begin_migration(&mut self, begin: &Begin<'_>) -> Result<Reply, Refusal> {
        let vm = self.state.vm(begin.vm).cloned();
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", begin.vm))?;
        if let Some(operation) = vm.operation {
            return Err(vm_busy(&vm.name, operation));
        }
        let kind = Kind::LiveMigrate {
            migration: begin.migration,
        };
        if vm.state == vm::State::Stopped {
            return Err(advised(&vm, &kind, "there is nothing to move live"));
        }
        let state = transition(&vm, vm::Event::MigrationBegan)
            .map_err(|_| advised(&vm, &kind, "it cannot be moved while it runs"))?;
        let (Some(source), Some(source_claim)) = (&vm.host, vm.claim) else {
            return Err(precondition(
                "NO_CLAIM",
                format!("vm {} is on no host", vm.name),
            ));
        };
        self.examine_orphans(&vm, &kind)?;
        self.examine_new_operation(begin.operation, begin.lease)?;
        if self.state.migration(begin.migration).is_some() {
            return Err(exists("migration", begin.migration));
        }
        let purpose = Purpose {
            vm: begin.vm,
            owner: Owner::Migration(begin.migration),
            demand: &self.state.live_demand(&vm)?,
            requested_host: begin.requested_host,
        };
        self.examine_claim(begin.claim, &purpose)?;
        let before = self.state.claim(source_claim).map(|c| c.assignment.clone());
        let claim = self.hold(begin.claim);
        let created_at = self.now();
        self.put_migration(Migration {
            id: begin.migration,
            vm: vm.name.clone(),
            source: source.clone(),
            source_claim,
            requested: begin.requested_host.cloned(),
            destination: Some(claim.host.clone()),
            destination_claim: Some(claim.id),
            state: State::Preparing,
            error: None,
            assignment_before: before.unwrap_or_default(),
            assignment_after: Some(claim.assignment.clone()),
            operation: begin.operation,
            generation: Generation(1),
            created_at,
            ended_at: None,
            kind: migration::Kind::Live,
            was_stopped: false,
            verify: false,
            resize: None,
            transfer: begin.policy.transfer.clone(),
            hosts_tried_max: begin.policy.hosts_tried_max,
            tried: Vec::new(),
            fetches_disks: false,
        });
        self.put_vm(Vm {
            state,
            operation: Some(begin.operation),
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        let operation = self.new_operation(begin.operation, kind, begin.vm, begin.lease);
        Ok(Reply::Operation(self.put_operation(Operation {
            requested_host: begin.requested_host.cloned(),
            ..with_claim(operation, &claim)
        })))
    }

    /// Points a migration at the host of another claim.
    pub(super) fn aim_migration(&mut self, id: MigrationId, claim: &Claim) {
        self.change_migration(id, |migration| {
            migration.destination = Some(claim.host.clone());
            migration.destination_claim = Some(claim.id);
            migration.assignment_after = Some(claim.assignment.clone());
        });
    }

    /// Records that a migration's claim was released; the host stays recorded until there is another.
    pub(super) fn unaim_migration(&mut self, id: MigrationId) {
        self.change_migration(id, |migration| migration.destination_claim = None);
    }

    /// Keeps why a host was not taken, if it was the one that refused: what this attempt's log says.
    pub(super) fn record_tried(&mut self, id: MigrationId, operation: &Operation, host: &HostName) {
        if !self.may_write(ServiceVersion::RECORDED_REFUSALS) {
            return;
        }
        let cause = attempt(&operation.log).iter().find_map(|e| match &e.mark {
            Mark::Failed(refusal) => Some((e.host.as_ref(), refusal)),
            Mark::Started | Mark::Succeeded | Mark::UndoStarted | Mark::Undone => None,
        });
        let Some((Some(refused_by), refusal)) = cause else {
            return;
        };
        if refused_by != host || operation.cancelled {
            return;
        }
        let tried = Tried {
            host: host.clone(),
            refusal: refusal.clone(),
        };
        self.change_migration(id, |migration| {
            if migration.tried.len() < HOSTS_TRIED_MAX as usize {
                migration.tried.push(tried);
            }
        });
    }

    pub(super) fn begin_transfer(&mut self, operation: &Operation) -> Result<(), Refusal> {
        let migration = self.migration_of(operation)?;
        let state = move_on(&migration, Event::Begin)?;
        // No guest may come to a host that is proven dead, as its guests are started elsewhere.
        let host = migration.destination.as_ref();
        if let Some(view) = host.and_then(|name| self.state.host(name))
            && view.host.fenced.is_some()
        {
            let name = &view.host.name;
            let message = format!("host {name} was fenced, so nothing is sent there");
            return Err(precondition("HOST_FENCED", message).with("host", name));
        }
        self.change_migration(migration.id, |migration| migration.state = state);
        Ok(())
    }

    pub(super) fn refuse_migration(
        &mut self,
        operation: &mut Operation,
        refusal: &Refusal,
    ) -> Result<(), Refusal> {
        let migration = self.migration_of(operation)?;
        let state = move_on(&migration, Event::Refuse)?;
        let vm = self.vm_of(operation);
        let vm_state = match migration.kind {
            migration::Kind::Live => transition(&vm, vm::Event::MigrationEnded)?,
            // It is where it was, as it was.
            migration::Kind::Cold | migration::Kind::Evacuation => vm.state,
        };
        if let Some(claim) = operation.claim {
            if let Some(host) = self.state.claim(claim).map(|c| c.host.clone()) {
                self.record_tried(migration.id, operation, &host);
            }
            self.release(claim);
        }
        self.end_migration(&migration, state, Some(refusal.clone()));
        self.put_vm(Vm {
            state: vm_state,
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Failed(refusal.clone()));
        Ok(())
    }

    /// Returns the migration that an operation carries out.
    pub(super) fn migration_of(&self, operation: &Operation) -> Result<Arc<Migration>, Refusal> {
        let Some(migration) = operation.kind.migration() else {
            return Err(precondition(
                "EFFECT_NOT_ALLOWED",
                format!("operation {} is no migration", operation.id),
            ));
        };
        let migration = self.state.migration(migration);
        Ok(migration
            .expect("a migration is not forgotten before it ends")
            .clone())
    }

    /// Ends a migration; from here on it holds no claim.
    pub(super) fn end_migration(
        &mut self,
        migration: &Migration,
        state: State,
        error: Option<Refusal>,
    ) {
        let ended_at = Some(self.now());
        self.change_migration(migration.id, |migration| {
            migration.state = state;
            migration.error = error;
            migration.destination_claim = None;
            migration.ended_at = ended_at;
        });
    }

    pub(super) fn change_migration(
        &mut self,
        id: MigrationId,
        change: impl FnOnce(&mut Migration),
    ) {
        let migration = self.state.migration(id);
        let migration = migration.expect("a migration is not forgotten before it ends");
        let mut migration = (**migration).clone();
        change(&mut migration);
        migration.generation = migration.generation.next();
        self.put_migration(migration);
    }
}

/// Returns the state of a migration after an event.
pub(super) fn move_on(migration: &Migration, event: Event) -> Result<State, Refusal> {
    migration.state.transition(event).map_err(|refused| {
        precondition(
            "MIGRATION_STATE",
            format!("migration {}: {refused}", migration.id),
        )
        .with("migration", migration.id)
        .with("state", format!("{:?}", migration.state))
    })
}
