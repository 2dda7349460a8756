//! PCI aliases: made and deleted, never changed. VMs carry copies of those that their flavor named.

use berth_domain::name::PciAliasName;
use berth_domain::pci::PciAlias;
use berth_domain::refusal::Refusal;

use crate::refusals::exists;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// What refusals call it.
const KIND: &str = "pci_alias";

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn create_pci_alias(&mut self, alias: &PciAlias) -> Result<Reply, Refusal> {
        if self.state.pci_alias(&alias.name).is_some() {
            return Err(exists(KIND, &alias.name));
        }
        Ok(Reply::PciAlias(self.put_pci_alias(alias.clone())))
    }

    pub(super) fn delete_pci_alias(&mut self, name: &PciAliasName) -> Result<Reply, Refusal> {
        if self.state.pci_alias(name).is_none() {
            return Err(Refusal::not_found(KIND, name));
        }
        self.remove_pci_alias(name);
        Ok(Reply::None)
    }
}
