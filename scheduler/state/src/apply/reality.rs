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
        let noted = self.state.note_reality(name, incarnation, comparison)?;
        for vm in noted.vms {
            self.put_vm(vm);
        }
        if let Some(host) = noted.host {
            return Ok(Reply::Host(self.put_host(host)));
        }
        let view = self.state.host(name).expect("it was compared");
        Ok(Reply::Host(view.host.clone()))
    }
}
