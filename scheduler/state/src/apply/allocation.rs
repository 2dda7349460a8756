//! Allocations of clients' consumers, all or none; the rules are those of OpenStack Placement.
//!
//! ```text
//! updates ──examine──▶ Plan: the providers that count one more write, what is taken afterwards
//!                       └──carry_out──▶ rows
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::{Consumer, ConsumerGeneration, OWNER_MAX, Resources};
use berth_domain::id::{ClaimId, ConsumerId, Generation, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ResourceClass;

use super::inventory::{examine_class, examine_count};
use super::provider::read_only;
use crate::command::ConsumerUpdate;
use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction, subtract};

/// Providers as they are while allocations are examined, where that differs from the state.
pub(super) type Interim = BTreeMap<ProviderId, ResourceProvider>;

/// Updates that were examined, and what follows from them.
pub(super) struct Plan {
    /// The providers of which the write is counted: those that are taken from by the updates, and
    /// those that a consumer leaves who takes nothing any more. As in OpenStack Placement, one
    /// that a consumer leaves for another is not among them.
    pub(super) written: BTreeSet<ProviderId>,
    /// What is taken afterwards from every provider that is taken from before or after.
    pub(super) used: BTreeMap<ProviderId, Resources>,
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn set_allocations(&mut self, updates: &[ConsumerUpdate]) -> Result<Reply, Refusal> {
        let plan = self.examine_allocations(updates, &Interim::new())?;
        let reply = self.write_allocations(updates);
        for id in plan.written {
            self.count_write(id);
        }
        Ok(reply)
    }

    /// Takes everything from a consumer. As in OpenStack Placement this is no write that its
    /// providers count.
    pub(super) fn delete_allocations(&mut self, id: ConsumerId) -> Result<Reply, Refusal> {
        self.examine_owner(id)?;
        if self.state.consumer(id).is_none() {
            return Err(Refusal::new(
                Code::NotFound,
                "ALLOCATIONS_NOT_FOUND",
                format!("consumer {id} has no allocations"),
            )
            .with("consumer", id));
        }
        self.remove_consumer(id);
        Ok(Reply::None)
    }

    /// Says whether all updates together can be made, on providers of which some may be about to
    /// change.
    pub(super) fn examine_allocations(
        &self,
        updates: &[ConsumerUpdate],
        interim: &Interim,
    ) -> Result<Plan, Refusal> {
        let mut seen = BTreeSet::new();
        for update in updates {
            if !seen.insert(update.consumer) {
                let message = format!("consumer {} is named twice", update.consumer);
                return Err(invalid("CONSUMER_TWICE", message));
            }
            self.examine_consumer(update)?;
        }
        let find = |id: ProviderId| interim.get(&id).or_else(|| Some(self.state.provider(id)?));
        let mut written = BTreeSet::new();
        for id in updates.iter().flat_map(|u| u.allocations.keys()) {
            let provider = find(*id).ok_or_else(|| provider_gone(*id))?;
            read_only(provider)?;
            written.insert(*id);
        }
        for resources in updates.iter().flat_map(|u| u.allocations.values()) {
            let mut classes = resources.keys();
            classes.try_for_each(|class| examine_class(self.state, class))?;
        }
        for update in updates {
            for (id, resources) in &update.allocations {
                let provider = find(*id).ok_or_else(|| provider_gone(*id))?;
                examine_amounts(provider, update.consumer, resources)?;
            }
        }
        let used = self.used_after(updates);
        for update in updates {
            for (id, resources) in &update.allocations {
                let provider = find(*id).ok_or_else(|| provider_gone(*id))?;
                self.examine_capacity(provider, resources, &used)?;
            }
        }
        let leaving = updates.iter().filter(|u| u.allocations.is_empty());
        let leaving = leaving.filter_map(|u| self.state.consumer(u.consumer));
        written.extend(leaving.flat_map(|c| c.allocations.keys()));
        Ok(Plan { written, used })
    }

    /// Writes updates that were examined.
    pub(super) fn write_allocations(&mut self, updates: &[ConsumerUpdate]) -> Reply {
        let written = updates.iter().filter_map(|u| self.write_consumer(u));
        Reply::Consumers(written.collect())
    }

    /// Counts a write of allocations in a provider's generation.
    pub(super) fn count_write(&mut self, id: ProviderId) {
        if let Some(provider) = self.state.provider(id).cloned() {
            self.put_provider(ResourceProvider {
                generation: provider.generation.next(),
                updated_at: self.now(),
                ..(*provider).clone()
            });
        }
    }

    pub(super) fn examine_owner(&self, id: ConsumerId) -> Result<(), Refusal> {
        if let Some(volume) = self.state.volume_of_consumer(id) {
            return Err(precondition(
                "CONSUMER_READ_ONLY",
                format!(
                    "consumer {id} is volume {volume}: only its agent and who deletes it change it"
                ),
            )
            .with("consumer", id)
            .with("volume", volume));
        }
        let Some(claim) = self.state.claim(ClaimId(id.0)) else {
            return Ok(());
        };
        let vm = &claim.vm;
        Err(precondition(
            "CONSUMER_READ_ONLY",
            format!("consumer {id} is a claim of vm {vm}: only operations change it"),
        )
        .with("consumer", id)
        .with("vm", vm))
    }

    /// Says whether the client saw the latest allocations of this consumer.
    fn examine_consumer(&self, update: &ConsumerUpdate) -> Result<(), Refusal> {
        let id = update.consumer;
        self.examine_owner(id)?;
        examine_count(update.allocations.len(), "providers of one consumer")?;
        examine_names_of(id, &update.project, &update.user)?;
        let known = self.state.consumer(id).map(|c| c.generation);
        let given = match update.generation {
            ConsumerGeneration::Any => return Ok(()),
            ConsumerGeneration::New => None,
            ConsumerGeneration::Exactly(generation) => Some(generation),
        };
        if known == given {
            return Ok(());
        }
        let text = |generation: Option<Generation>| {
            generation.map_or_else(|| "null".to_owned(), |g| g.to_string())
        };
        let (expected, got) = (text(known), text(given));
        Err(Refusal::new(
            Code::Aborted,
            "CONSUMER_GENERATION",
            format!("consumer {id} is at generation {expected}, not {got}"),
        )
        .with_hint("read its allocations again and repeat the change")
        .with("consumer", id)
        .with("expected", expected)
        .with("got", got))
    }

    /// Returns what is taken after the updates from every provider that they touch.
    fn used_after(&self, updates: &[ConsumerUpdate]) -> BTreeMap<ProviderId, Resources> {
        let mut used: BTreeMap<ProviderId, Resources> = BTreeMap::new();
        let before = |id: &ProviderId| self.state.used_of(*id);
        for update in updates {
            let old = self.state.consumer(update.consumer);
            for (id, resources) in old.into_iter().flat_map(|c| &c.allocations) {
                subtract(used.entry(*id).or_insert_with(|| before(id)), resources);
            }
        }
        for update in updates {
            for (id, resources) in &update.allocations {
                let used = used.entry(*id).or_insert_with(|| before(id));
                for (class, amount) in resources {
                    let used = used.entry(class.clone()).or_default();
                    *used = used.saturating_add(*amount);
                }
            }
        }
        used
    }

    /// A request that takes no more of a class than was taken before is let through even where
    /// the inventory was shrunk below that: it is the way out.
    fn examine_capacity(
        &self,
        provider: &ResourceProvider,
        resources: &Resources,
        used: &BTreeMap<ProviderId, Resources>,
    ) -> Result<(), Refusal> {
        let id = provider.id;
        let before = self.state.used_of(id);
        let of = |taken: Option<&Resources>, class: &ResourceClass| {
            taken.and_then(|t| t.get(class)).copied().unwrap_or(0)
        };
        for class in resources.keys() {
            let (before, after) = (of(Some(&before), class), of(used.get(&id), class));
            let inventory = provider.inventories.get(class);
            if after <= before || inventory.is_some_and(|i| i.holds(after)) {
                continue;
            }
            let capacity = inventory.map_or(0, |i| i.capacity());
            return Err(Refusal::new(
                Code::ResourceExhausted,
                "CAPACITY_EXCEEDED",
                format!(
                    "resource provider {id} would give {after} of {class}, and may give {capacity}"
                ),
            )
            .with("provider", id)
            .with("class", class)
            .with("capacity", capacity)
            .with("used", before));
        }
        Ok(())
    }

    fn write_consumer(&mut self, update: &ConsumerUpdate) -> Option<Arc<Consumer>> {
        let old = self.state.consumer(update.consumer).cloned();
        if update.allocations.is_empty() {
            if old.is_some() {
                self.remove_consumer(update.consumer);
            }
            return None;
        }
        let (now, old) = (self.now(), old.as_ref());
        let known_type = old.and_then(|c| c.consumer_type.clone());
        Some(self.put_consumer(Consumer {
            id: update.consumer,
            generation: old.map(|c| c.generation).unwrap_or_default().next(),
            project: update.project.clone(),
            user: update.user.clone(),
            consumer_type: update.consumer_type.clone().or(known_type),
            origin: old.and_then(|c| c.origin.clone()),
            created_at: old.map_or(now, |c| c.created_at),
            updated_at: now,
            allocations: update.allocations.clone(),
        }))
    }
}

/// Refuses names that are too long.
pub(super) fn examine_names_of(id: ConsumerId, project: &str, user: &str) -> Result<(), Refusal> {
    // What is stored must be readable again: a longer name would stop the members.
    let long = |name: &str| name.chars().count() > OWNER_MAX;
    if !long(project) && !long(user) {
        return Ok(());
    }
    Err(invalid(
        "INVALID_OWNER",
        format!("the project and the user of a consumer have at most {OWNER_MAX} characters"),
    )
    .with("consumer", id))
}

pub(super) fn provider_gone(id: ProviderId) -> Refusal {
    invalid(
        "PROVIDER_NOT_FOUND",
        format!("allocation from resource provider {id}, which does not exist"),
    )
    .with("provider", id)
}

pub(super) fn no_inventory(id: ProviderId, class: &ResourceClass) -> Refusal {
    precondition(
        "NO_INVENTORY",
        format!("resource provider {id} has no {class}"),
    )
    .with("provider", id)
    .with("class", class)
}

fn examine_amounts(
    provider: &ResourceProvider,
    consumer: ConsumerId,
    resources: &Resources,
) -> Result<(), Refusal> {
    let id = provider.id;
    if resources.is_empty() {
        return Err(invalid(
            "EMPTY_ALLOCATION",
            format!("consumer {consumer} takes nothing from resource provider {id}"),
        ));
    }
    for (class, amount) in resources {
        let Some(inventory) = provider.inventories.get(class) else {
            return Err(no_inventory(id, class));
        };
        let (least, most, step) = (inventory.min_unit, inventory.max_unit, inventory.step_size);
        if *amount < least || *amount > most || *amount % step != 0 {
            return Err(precondition(
                "INVENTORY_CONSTRAINTS",
                format!(
                    "{amount} of {class} is not {least} to {most} in steps of {step}, as resource provider {id} wants"
                ),
            )
            .with("provider", id)
            .with("class", class));
        }
    }
    Ok(())
}
