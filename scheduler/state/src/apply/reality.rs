//! What agents find on their hosts.

use berth_domain::id::Incarnation;
use berth_domain::name::HostName;
use berth_domain::reality::Comparison;
use berth_domain::refusal::Refusal;

use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn take_reality(
        &mut self,
        name: &HostName,
        incarnation: Incarnation,
        comparison: &Comparison,
    ) -> Result<Reply, Refusal> {
        let recorded = self.state.record_reality(name, incarnation, comparison)?;
        for vm in recorded.vms {
            self.put_vm(vm);
        }
        if let Some(host) = recorded.host {
            return Ok(Reply::Host(self.put_host(host)));
        }
        let view = self.state.host(name).expect("it was compared");
        Ok(Reply::Host(view.host.clone()))
    }
}
