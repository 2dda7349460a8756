//! Flavors: made and deleted, never changed.

use berth_domain::flavor::Flavor;
use berth_domain::name::FlavorName;
use berth_domain::refusal::Refusal;

use crate::refusals::exists;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn create_flavor(&mut self, flavor: &Flavor) -> Result<Reply, Refusal> {
        if self.state.flavor(&flavor.name).is_some() {
            return Err(exists("flavor", &flavor.name));
        }
        Ok(Reply::Flavor(self.put_flavor(Flavor {
            ownership: self.ownership(flavor.ownership.project.as_ref()),
            ..flavor.clone()
        })))
    }

    pub(super) fn delete_flavor(&mut self, name: &FlavorName) -> Result<Reply, Refusal> {
        if self.state.flavor(name).is_none() {
            return Err(Refusal::not_found("flavor", name));
        }
        self.remove_flavor(name);
        Ok(Reply::None)
    }
}
