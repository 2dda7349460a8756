//! A user types on the console of a guest.
//!
//! Not here: what is typed, which only the agent sees. The state records nothing of it but the entry of
//! the audit, which every command has.

use berth_domain::name::VmName;
use berth_domain::refusal::Refusal;
use berth_domain::version::Feature;

use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Refuses a VM without a guest, and one with an agent that cannot do it.
    pub(super) fn open_console(&self, name: &VmName) -> Result<Reply, Refusal> {
        let vm = self.state.vm(name);
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        let Some(host) = vm.host.as_ref().filter(|_| vm.state.may_have_guest()) else {
            return Err(vm.no_console());
        };
        if let Some(record) = self.state.host(host) {
            let gate = Feature::ConsoleInput.gate_host(record.host.report.service_version);
            gate.map_err(|old| old.of_agent(host))?;
        }
        Ok(Reply::None)
    }
}
