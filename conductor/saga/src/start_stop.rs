//! What the operations that stop a guest and start it with the disks that it has have in common.

use berth_domain::agent::Call;
use berth_domain::claim::Claim;
use berth_domain::id::ClaimId;
use berth_domain::name::HostName;
use berth_domain::operation::STOP_TIMEOUT_MS;
use berth_domain::refusal::Refusal;
use berth_domain::vm::VmSpec;

use crate::plan::{Action, Context};
use crate::refusals;

/// Stops the guest on the host where the VM is; it may be started there again.
pub(crate) fn stop_here(context: &Context, last: bool) -> Result<Action, Refusal> {
    let vm = &context.facts.vm;
    let (Some(host), Some(claim)) = (vm.host.clone(), vm.claim) else {
        return Err(refusals::inconsistent(format!(
            "vm {} is on no host",
            vm.name
        )));
    };
    let call = Box::new(Call::StopVm {
        claim,
        timeout_ms: STOP_TIMEOUT_MS,
        last,
    });
    Ok(Action::CallAgent { host, call })
}

/// Starts the guest on a claim.
pub(crate) fn start_on(context: &Context, spec: &VmSpec, claim: &Claim) -> (HostName, Call) {
    let call = Call::StartVm {
        vm: context.facts.vm.name.clone(),
        spec: spec.clone(),
        claim: claim.clone(),
    };
    (claim.host.clone(), call)
}

/// Takes a start back: the guest, if it runs on that claim, is stopped at once, and is never
/// started on it again.
pub(crate) fn take_back(claim: &Claim) -> (HostName, Call) {
    let call = Call::StopVm {
        claim: claim.id,
        timeout_ms: 0,
        last: true,
    };
    (claim.host.clone(), call)
}

/// Returns the claim that the operation took.
pub(crate) fn taken(context: &Context) -> Result<&Claim, Refusal> {
    let claim = context.facts.claim.as_ref();
    claim.ok_or_else(|| {
        refusals::inconsistent(format!(
            "vm {} has no claim where it is to be started",
            context.facts.vm.name
        ))
    })
}

/// Returns one of the claims that the VM has.
pub(crate) fn one_of(context: &Context, id: ClaimId) -> Result<&Claim, Refusal> {
    context.facts.claims.get(&id).ok_or_else(|| {
        let vm = &context.facts.vm.name;
        refusals::inconsistent(format!("claim {id} of vm {vm} is not known"))
    })
}
