//! What a VM demands that is to be started with the disks that it has: elsewhere, at another size, or
//! after it was shelved. The choice of a host and the command that claims it both ask here.

use berth_domain::constraint::{Demand, RestartReason};
use berth_domain::name::HostName;
use berth_domain::operation::{ClaimPurpose, Operation};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{Vm, VmSpec};

use crate::state::State;

impl State {
    /// Returns what a VM of this size demands of its next host; it may stay where it is, or not.
    ///
    /// # Errors
    ///
    /// The size is not valid, or the host that had the disks is not part of this cluster any more.
    pub fn cold_demand(
        &self,
        vm: &Vm,
        spec: &VmSpec,
        why: RestartReason,
    ) -> Result<Demand, Refusal> {
        // While a host is claimed for a shelved VM it "is" there already, but its disks are not.
        let host = vm.remains_on.as_ref().or(vm.host.as_ref());
        let Some(source) = host.and_then(|name| self.host(name)) else {
            return Err(disks_unknown(vm));
        };
        let demand = Demand::cold(spec, &source.host, why)?;
        let demand = self.with_relations(demand, &vm.name, spec)?;
        Ok(match why {
            RestartReason::Evacuation => self.without_those_left(demand, &source.host.name),
            RestartReason::Move | RestartReason::Resize | RestartReason::Unshelving => demand,
        })
    }

    /// Returns whether a VM has disks that another host does not see.
    #[must_use]
    pub fn are_apart(&self, vm: &Vm, source: &HostName, destination: &HostName) -> bool {
        let storage = |host| self.host(host).map(|v| &v.host.report.storage_id);
        !vm.spec.disks.is_empty() && storage(source) != storage(destination)
    }

    /// Returns what the host of a running operation has to give, the next or the one claimed for it.
    ///
    /// # Errors
    ///
    /// As [`Self::cold_demand`].
    pub fn next_cold_demand(&self, operation: &Operation, vm: &Vm) -> Result<Demand, Refusal> {
        let migration = operation.kind.claiming();
        let migration = migration.and_then(|id| self.migration(id));
        let resize = migration.and_then(|m| m.resize.as_deref());
        let spec = resize.map_or(&vm.spec, |resize| &resize.after);
        let why = match operation.kind.plan().claims {
            Some(ClaimPurpose::Unshelving) => RestartReason::Unshelving,
            Some(ClaimPurpose::Evacuation) => RestartReason::Evacuation,
            Some(
                ClaimPurpose::ColdMigration | ClaimPurpose::Boot | ClaimPurpose::LiveMigration,
            )
            | None => RestartReason::of_move(false, resize.is_some()),
        };
        self.cold_demand(vm, spec, why)
    }
}

fn disks_unknown(vm: &Vm) -> Refusal {
    let message = format!(
        "the host that had the disks of vm {} is not part of this cluster any more",
        vm.name
    );
    Refusal::new(Code::FailedPrecondition, "DISKS_UNKNOWN", message).with("vm", &vm.name)
}
