//! Booting: the VM, its claim and its operation begin together, and end together.

use std::sync::Arc;

use berth_domain::bound::vms_max;
use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::constraint::Demand;
use berth_domain::first_boot::FirstBoot;
use berth_domain::id::{Generation, OperationId, VmUid};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Kind, Operation, Outcome};
use berth_domain::ownership::ProjectName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{Event, Metadata, RestartPolicy, Restarts, State, Vm, VmSpec};

use super::claim::Purpose;
use super::metadata::examine_metadata;
use super::operation::{transition, with_claim};
use super::restart::examine_policy;
use crate::command::LeaseRequest;
use crate::refusals::{exists, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// What a boot begins with.
pub(super) struct Begin<'a> {
    pub(super) operation: OperationId,
    pub(super) vm: &'a VmName,
    pub(super) uid: VmUid,
    pub(super) spec: &'a VmSpec,
    pub(super) requested_host: Option<&'a HostName>,
    pub(super) claim: &'a Claim,
    pub(super) lease: &'a LeaseRequest,
    pub(super) project: Option<&'a ProjectName>,
    pub(super) restart: RestartPolicy,
    pub(super) first_boot: Option<&'a Arc<FirstBoot>>,
    pub(super) metadata: &'a Metadata,
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn begin_boot(&mut self, begin: &Begin<'_>) -> Result<Reply, Refusal> {
        if self.state.vm(begin.vm).is_some() {
            return Err(exists("vm", begin.vm));
        }
        self.examine_vm_count()?;
        examine_policy(&begin.restart)?;
        examine_metadata(begin.metadata)?;
        if begin.spec.has_seed() != begin.first_boot.is_some() {
            let message = "a seed and what is to be on it are given together";
            return Err(precondition("SEED_MISMATCH", message));
        }
        self.examine_new_operation(begin.operation, begin.lease)?;
        self.state.examine_macs(&begin.spec.nics)?;
        self.examine_images(begin.spec)?;
        self.examine_networks(begin.spec)?;
        self.state.examine_group(begin.spec)?;
        let purpose = Purpose {
            vm: begin.vm,
            owner: Owner::Vm,
            demand: &self.demand_of_boot(begin.vm, begin.spec)?,
            requested_host: begin.requested_host,
        };
        self.examine_claim(begin.claim, &purpose)?;
        let created_at = self.now();
        // Before its claim, which is counted in the VM's server group.
        self.put_vm(Vm {
            name: begin.vm.clone(),
            uid: begin.uid,
            spec: begin.spec.clone(),
            state: State::Building,
            host: Some(begin.claim.host.clone()),
            claim: Some(begin.claim.id),
            remains_on: None,
            trouble: None,
            restarts: Restarts {
                policy: begin.restart,
                ..Restarts::default()
            },
            operation: Some(begin.operation),
            error: None,
            generation: Generation(1),
            created_at,
            metadata: begin.metadata.clone(),
            ownership: self.ownership(begin.project),
            first_boot: begin.first_boot.cloned(),
        });
        let claim = self.hold(begin.claim);
        let operation = self.new_operation(begin.operation, Kind::Boot, begin.vm, begin.lease);
        Ok(Reply::Operation(self.put_operation(Operation {
            requested_host: begin.requested_host.cloned(),
            ..with_claim(operation, &claim)
        })))
    }

    /// Refuses one more VM where there are as many as there may be. Claims bound only those that hold
    /// some: VMs that are shelved, or whose boot failed, hold none.
    fn examine_vm_count(&self) -> Result<(), Refusal> {
        let max = vms_max(self.state.hosts.len());
        let may_begin = self.state.vms.len() < max;
        if may_begin || !self.may_write(ServiceVersion::BOUNDED_RECORDS) {
            return Ok(());
        }
        Err(Refusal::new(
            Code::ResourceExhausted,
            "TOO_MANY_VMS",
            format!("the cluster has {max} VMs, as many as there may be"),
        )
        .with_hint("delete VMs that failed to boot or are shelved: berth vm list")
        .with("max", max))
    }

    /// Returns what a new VM demands of its host.
    pub(super) fn demand_of_boot(&self, vm: &VmName, spec: &VmSpec) -> Result<Demand, Refusal> {
        self.state.with_relations(Demand::boot(spec)?, vm, spec)
    }

    pub(super) fn complete_boot(&mut self, operation: &mut Operation) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let state = transition(&vm, Event::Booted)?;
        let claim = operation.claim.and_then(|id| self.state.claim(id)).cloned();
        let claim = claim.ok_or_else(|| precondition("NO_CLAIM", "the boot holds no claim"))?;
        self.put_claim(Claim {
            state: ClaimState::Active,
            ..(*claim).clone()
        });
        self.put_vm(Vm {
            state,
            operation: None,
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Succeeded);
        Ok(())
    }

    pub(super) fn fail_boot(
        &mut self,
        operation: &mut Operation,
        refusal: &Refusal,
    ) -> Result<(), Refusal> {
        let vm = self.vm_of(operation);
        let state = transition(&vm, Event::BootFailed)?;
        if let Some(claim) = operation.claim {
            self.release(claim);
        }
        self.put_vm(Vm {
            state,
            host: None,
            claim: None,
            operation: None,
            error: Some(refusal.clone()),
            generation: vm.generation.next(),
            ..(*vm).clone()
        });
        self.end(operation, Outcome::Failed(refusal.clone()));
        Ok(())
    }
}
