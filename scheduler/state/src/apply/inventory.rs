//! Inventories and traits that clients give to their own providers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::fault;
use berth_domain::id::{Generation, ProviderId};
use berth_domain::inventory::Inventory;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::{ResourceClass, Trait};

use super::provider::read_only;
use crate::refusals::precondition;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn set_inventories(
        &mut self,
        id: ProviderId,
        generation: Generation,
        inventories: &BTreeMap<ResourceClass, Inventory>,
    ) -> Result<Reply, Refusal> {
        let provider = self.changeable_provider(id, generation)?;
        for (class, inventory) in inventories {
            let valid = inventory.validate();
            valid.map_err(|faults| fault::refusal("inventory", &faults).with("class", class))?;
        }
        let used = self.state.used_of(id);
        let gone: Vec<&str> = used
            .keys()
            .filter(|class| !inventories.contains_key(class))
            .map(ResourceClass::as_str)
            .collect();
        if !gone.is_empty() {
            let gone = gone.join(", ");
            return Err(precondition(
                "INVENTORY_IN_USE",
                format!("{gone} of resource provider {id} is allocated and cannot be taken away"),
            )
            .with("provider", id)
            .with("classes", gone));
        }
        Ok(Reply::Provider(self.put_provider(ResourceProvider {
            inventories: inventories.clone(),
            generation: provider.generation.next(),
            ..(*provider).clone()
        })))
    }

    pub(super) fn set_traits(
        &mut self,
        id: ProviderId,
        generation: Generation,
        traits: &BTreeSet<Trait>,
    ) -> Result<Reply, Refusal> {
        let provider = self.changeable_provider(id, generation)?;
        if provider.traits == *traits {
            return Ok(Reply::Provider(provider));
        }
        Ok(Reply::Provider(self.put_provider(ResourceProvider {
            traits: traits.clone(),
            generation: provider.generation.next(),
            ..(*provider).clone()
        })))
    }

    fn changeable_provider(
        &self,
        id: ProviderId,
        generation: Generation,
    ) -> Result<Arc<ResourceProvider>, Refusal> {
        let provider = self.state.provider(id);
        let provider = provider.ok_or_else(|| Refusal::not_found("provider", id))?;
        read_only(provider)?;
        if provider.generation != generation {
            return Err(Refusal::new(
                Code::Aborted,
                "CONCURRENT_UPDATE",
                format!(
                    "resource provider {id} is at generation {}, not {generation}",
                    provider.generation
                ),
            )
            .with_hint("read it again and repeat the change")
            .with("provider", id)
            .with("generation", provider.generation));
        }
        Ok(provider.clone())
    }
}
