//! Inventories that clients give to their own providers.
//!
//! As in OpenStack Placement, an inventory may become smaller than what is taken of it, but not go
//! away before that is given back.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::fault;
use berth_domain::id::{Generation, ProviderId};
use berth_domain::inventory::Inventory;
use berth_domain::provider::{ENTRIES_MAX, ResourceProvider};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ResourceClass;

use super::provider::at_generation;
use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::state::State;
use crate::transaction::{Journal, Transaction};

/// What one provider has, by class.
pub(super) type Inventories = BTreeMap<ResourceClass, Inventory>;

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn set_inventories(
        &mut self,
        id: ProviderId,
        generation: Generation,
        inventories: &Inventories,
    ) -> Result<Reply, Refusal> {
        let provider = self.provider_with_inventories(id)?;
        at_generation(provider, generation)?;
        examine_inventories(self.state, inventories)?;
        self.replace_inventories(id, inventories.clone())
    }

    pub(super) fn delete_inventories(&mut self, id: ProviderId) -> Result<Reply, Refusal> {
        self.provider_with_inventories(id)?;
        self.replace_inventories(id, Inventories::new())
    }

    pub(super) fn put_inventory(
        &mut self,
        id: ProviderId,
        generation: Option<Generation>,
        (class, inventory): (&ResourceClass, &Inventory),
        create: bool,
    ) -> Result<Reply, Refusal> {
        let provider = self.provider_with_inventories(id)?;
        generation.map_or(Ok(()), |given| at_generation(provider, given))?;
        let mut inventories = provider.inventories.clone();
        examine_inventory(self.state, class, inventory)?;
        let known = inventories.insert(class.clone(), *inventory).is_some();
        if known && create {
            return Err(Refusal::new(
                Code::AlreadyExists,
                "INVENTORY_EXISTS",
                format!("resource provider {id} has an inventory of {class} already"),
            )
            .with("provider", id)
            .with("class", class));
        }
        if !known && !create {
            return Err(inventory_not_found(id, class));
        }
        examine_count(inventories.len(), "inventories")?;
        self.replace_inventories(id, inventories)
    }

    pub(super) fn delete_inventory(
        &mut self,
        id: ProviderId,
        class: &ResourceClass,
    ) -> Result<Reply, Refusal> {
        let mut inventories = self.provider_with_inventories(id)?.inventories.clone();
        if inventories.remove(class).is_none() {
            return Err(inventory_not_found(id, class));
        }
        self.replace_inventories(id, inventories)
    }

    /// Returns a provider whose inventories a client may change.
    fn provider_with_inventories(&self, id: ProviderId) -> Result<&Arc<ResourceProvider>, Refusal> {
        self.clients_provider(id).map_err(|refusal| {
            let Some(host) = refusal.metadata.get("host").cloned() else {
                return refusal;
            };
            refusal.with_hint(format!(
                "how often its CPUs and its memory are given away, and how much is reserved, is set \
                 by an operator: berth policy set cpu.ratio=... --host {host}, likewise \
                 cpu.reserved, memory.ratio and memory.mem_node_mib"
            ))
        })
    }

    /// Gives a provider inventories that were examined, unless something would be taken of none.
    fn replace_inventories(
        &mut self,
        id: ProviderId,
        inventories: Inventories,
    ) -> Result<Reply, Refusal> {
        examine_removal(id, &inventories, &self.state.used_of(id))?;
        let provider = self.provider_with_inventories(id)?.clone();
        Ok(Reply::Provider(self.put_provider(ResourceProvider {
            inventories,
            generation: provider.generation.next(),
            updated_at: self.now(),
            ..(*provider).clone()
        })))
    }
}

/// Refuses inventories whose numbers contradict each other, or of classes that do not exist.
pub(super) fn examine_inventories(state: &State, inventories: &Inventories) -> Result<(), Refusal> {
    examine_count(inventories.len(), "inventories")?;
    let mut each = inventories.iter();
    each.try_for_each(|(class, inventory)| examine_numbers(class, inventory))?;
    let mut classes = inventories.keys();
    classes.try_for_each(|class| examine_class(state, class))
}

fn examine_inventory(
    state: &State,
    class: &ResourceClass,
    inventory: &Inventory,
) -> Result<(), Refusal> {
    examine_numbers(class, inventory)?;
    examine_class(state, class)
}

fn examine_numbers(class: &ResourceClass, inventory: &Inventory) -> Result<(), Refusal> {
    inventory
        .validate()
        .map_err(|faults| fault::refusal("inventory", &faults).with("class", class))
}

/// Refuses a class that is neither a standard one nor created by a client.
pub(super) fn examine_class(state: &State, class: &ResourceClass) -> Result<(), Refusal> {
    if state.knows_class(class) {
        return Ok(());
    }
    Err(invalid(
        "UNKNOWN_RESOURCE_CLASS",
        format!("resource class {class} does not exist"),
    )
    .with_hint("create it first, or use a standard class")
    .with("class", class))
}

/// Refuses a list that is longer than what is stored.
pub(super) fn examine_count(count: usize, what: &str) -> Result<(), Refusal> {
    if count <= ENTRIES_MAX {
        return Ok(());
    }
    Err(invalid(
        "TOO_MANY_ENTRIES",
        format!("{count} {what} are too many: at most {ENTRIES_MAX} are kept"),
    ))
}

/// Refuses to take away what something is taken of.
pub(super) fn examine_removal(
    id: ProviderId,
    inventories: &Inventories,
    used: &Resources,
) -> Result<(), Refusal> {
    let gone: Vec<&str> = used
        .keys()
        .filter(|class| !inventories.contains_key(class))
        .map(ResourceClass::as_str)
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let gone = gone.join(", ");
    Err(precondition(
        "INVENTORY_IN_USE",
        format!("{gone} of resource provider {id} is allocated and cannot be taken away"),
    )
    .with("provider", id)
    .with("classes", gone))
}

fn inventory_not_found(id: ProviderId, class: &ResourceClass) -> Refusal {
    Refusal::new(
        Code::NotFound,
        "INVENTORY_NOT_FOUND",
        format!("resource provider {id} has no inventory of {class}"),
    )
    .with("provider", id)
    .with("class", class)
}
