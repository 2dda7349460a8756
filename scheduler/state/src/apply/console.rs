//! A user types on the console of a guest.
//!
//! Not here: what is typed, which only the agent sees. The state records nothing of it but the entry of
//! the audit, which every command has.

use berth_domain::name::VmName;
use berth_domain::refusal::Refusal;
use berth_domain::version::Feature;
use berth_domain::vm::State;

use crate::refusals::precondition;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Refuses a VM without a guest, and one with an agent that cannot do it.
    pub(super) fn open_console(&self, name: &VmName) -> Result<Reply, Refusal> {
        let vm = self.state.vm(name);
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        let has_guest = match vm.state {
            State::Building
            | State::Active
            | State::Migrating
            | State::Deleting
            | State::Error
            | State::Resized => true,
            State::Stopped | State::Shelved => false,
        };
        let Some(host) = vm.host.as_ref().filter(|_| has_guest) else {
            return Err(no_console(name, vm.state));
        };
        if let Some(record) = self.state.host(host) {
            let gate = Feature::ConsoleInput.gate_host(record.host.report.service_version);
            gate.map_err(|old| old.of_agent(host))?;
        }
        Ok(Reply::None)
    }
}

/// The guest is off.
fn no_console(vm: &VmName, state: State) -> Refusal {
    let hint = match state {
        State::Stopped => format!("`berth vm start {vm}` starts it"),
        State::Shelved => format!("`berth vm unshelve {vm}` starts it"),
        State::Building
        | State::Active
        | State::Migrating
        | State::Deleting
        | State::Error
        | State::Resized => format!("`berth vm show {vm}` shows what it waits for"),
    };
    let state = state.as_str();
    precondition(
        "NO_CONSOLE",
        format!("vm {vm} is {state}, so its guest has no console"),
    )
    .with_hint(hint)
    .with("vm", vm)
    .with("state", state)
}
