//! What the leader requires of the liveness of a host before it proposes a command.
//!
//! No invariant of the state depends on it, so members do not check it again when they apply the command:
//! a host may die, or come back, a moment later in any case. What the state itself requires is there.

use berth_domain::fence::may_evacuate;
use berth_domain::host::Liveness;
use berth_domain::name::{HostName, VmName};
use berth_domain::refusal::{Code, Refusal};
use berth_state::State;
use berth_state::command::Command;

/// Refuses a command that would harm because a host is up, or because it is not.
///
/// # Errors
///
/// `HOST_IS_ALIVE`, `HOST_DOWN` or `HOST_FENCED`, with what to do first.
pub(super) fn examine(state: &State, command: &Command) -> Result<(), Refusal> {
    if let Command::RemoveHost { host } = command {
        return examine_removal(state, host);
    }
    if let Command::BeginRevertResize { vm, .. } = command {
        return examine_return(state, vm);
    }
    Ok(())
}

/// Refuses to remove a host whose agent reports: it would register the host again, without the cordon
/// that kept new VMs off.
fn examine_removal(state: &State, name: &HostName) -> Result<(), Refusal> {
    let is_up = state.host(name).map(|view| view.host.liveness) == Some(Liveness::Up);
    if !is_up {
        return Ok(());
    }
    let message = format!("the agent of host {name} is running, and would register it again");
    let hint = format!(
        "stop its agent, and remove the host once `berth host list` shows that {name} is DOWN"
    );
    Err(refusal("HOST_IS_ALIVE", message, name).with_hint(hint))
}

/// Refuses to revert a resize onto a host that starts no guest now: the VM would be stopped where it runs,
/// and wait for that host.
fn examine_return(state: &State, vm: &VmName) -> Result<(), Refusal> {
    let resize = state.verified_resize(vm);
    let Some(host) = resize.and_then(|resize| state.host(&resize.source)) else {
        return Ok(());
    };
    let name = &host.host.name;
    let (reason, why) = match (host.host.liveness, &host.host.fenced) {
        (Liveness::Up, None) => return Ok(()),
        (Liveness::Up, Some(_)) => ("HOST_FENCED", "is fenced"),
        (Liveness::Down, _) => ("HOST_DOWN", "is DOWN"),
    };
    let message = format!("host {name}, to which vm {vm} would return, {why} and starts no guest");
    let keep = format!("`berth vm confirm-resize {vm}` keeps the vm as it is");
    // A confirmation removes what is left on the host, and waits for it until it is proven dead.
    let hint = match may_evacuate(&host.host, state.time()) {
        Ok(_) => keep,
        Err(_) if host.host.liveness == Liveness::Up => "wait until its fence is lifted".to_owned(),
        Err(_) => format!(
            "bring its agent back; if the host is dead: `berth host fence {name}`, then {keep}"
        ),
    };
    Err(refusal(reason, message, name)
        .with_hint(hint)
        .with("vm", vm))
}

fn refusal(reason: &str, message: String, host: &HostName) -> Refusal {
    Refusal::new(Code::FailedPrecondition, reason, message).with("host", host)
}
