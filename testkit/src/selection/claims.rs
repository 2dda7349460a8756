//! Claims of what was chosen.

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::id::ClaimId;
use berth_domain::name::VmName;
use berth_selection::Choice;
use uuid::Uuid;

/// Returns the claim that a choice leads to.
pub fn claim(choice: &Choice) -> Claim {
    Claim {
        id: ClaimId(Uuid::nil()),
        vm: VmName::new("v").unwrap(),
        owner: Owner::Vm,
        host: choice.host.clone(),
        state: State::Held,
        resources: choice.resources.clone(),
        assignment: choice.assignment.clone(),
        erasures: Default::default(),
        cpu: None,
    }
}
