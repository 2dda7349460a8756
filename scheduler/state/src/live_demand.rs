//! What a running VM demands of the host that it is moved to: the one rule that the choice and the
//! command that begins the move share.

use berth_domain::constraint::Demand;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::Vm;

use crate::State;

impl State {
    /// Returns what a running VM demands of the host that it is moved to.
    ///
    /// # Errors
    ///
    /// It is on no host; or its group, or what its host and its functions can do, forbids the move.
    pub fn live_demand(&self, vm: &Vm) -> Result<Demand, Refusal> {
        let claim = vm.claim.and_then(|id| self.claim(id));
        let source = claim.and_then(|claim| Some((claim, self.host(&claim.host)?)));
        let Some((claim, source)) = source else {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                "VM_WITHOUT_HOST",
                format!("vm {} is on no host from which it could be moved", vm.name),
            )
            .with("vm", &vm.name));
        };
        let demand = Demand::migration(&vm.spec, claim, &source.host)?;
        self.with_relations(demand, &vm.name, &vm.spec)
    }
}
