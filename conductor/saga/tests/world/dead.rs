//! Hosts that die and are fenced.

use berth_domain::agent::DomainState;
use berth_domain::name::HostName;

use super::{Transfer, World};

impl World {
    /// A host dies and is fenced: its guest is gone, and a transfer from it or to it breaks.
    pub(crate) fn kill(&mut self, name: &HostName) {
        self.dead.insert(name.clone());
        self.agents.get_mut(name).unwrap().state = DomainState::Absent;
        let Some((source, destination, left)) = self.transfer_left.take() else {
            return;
        };
        if source == *name {
            if !self.dead.contains(&destination) {
                self.agents.get_mut(&destination).unwrap().state = DomainState::Prepared;
            }
            return;
        }
        if destination == *name {
            self.transfer_ends = Transfer::Fails;
        }
        self.transfer_left = Some((source, destination, left));
    }
}
