//! Allocations of clients' consumers, all or none; the rules are those of OpenStack Placement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::{Consumer, Resources};
use berth_domain::id::{ClaimId, ConsumerId, Generation, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ResourceClass;

use super::provider::read_only;
use crate::command::ConsumerUpdate;
use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction, subtract};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn set_allocations(&mut self, updates: &[ConsumerUpdate]) -> Result<Reply, Refusal> {
        let mut seen = BTreeSet::new();
        for update in updates {
            if !seen.insert(update.consumer) {
                let message = format!("consumer {} is named twice", update.consumer);
                return Err(invalid("CONSUMER_TWICE", message));
            }
            self.examine_consumer(update)?;
        }
        let providers = self.touched(updates)?;
        for provider in providers.values() {
            self.examine_provider(provider, updates)?;
        }
        let consumers = updates
            .iter()
            .filter_map(|update| self.write_consumer(update))
            .collect();
        for provider in providers.into_values() {
            self.put_provider(ResourceProvider {
                generation: provider.generation.next(),
                ..(*provider).clone()
            });
        }
        Ok(Reply::Consumers(consumers))
    }

    /// Says whether the client saw the latest allocations of this consumer.
    fn examine_consumer(&self, update: &ConsumerUpdate) -> Result<(), Refusal> {
        let id = update.consumer;
        if let Some(claim) = self.state.claim(ClaimId(id.0)) {
            return Err(precondition(
                "CONSUMER_READ_ONLY",
                format!(
                    "consumer {id} is a claim of vm {}: only operations change it",
                    claim.vm
                ),
            )
            .with("consumer", id)
            .with("vm", &claim.vm));
        }
        let known = self.state.consumer(id).map(|c| c.generation);
        if known != update.generation {
            let text = |generation: Option<Generation>| {
                generation.map_or_else(|| "none".to_owned(), |g| g.to_string())
            };
            return Err(Refusal::new(
                Code::Aborted,
                "CONCURRENT_UPDATE",
                format!(
                    "consumer {id} is at generation {}, not {}",
                    text(known),
                    text(update.generation)
                ),
            )
            .with_hint("read its allocations again and repeat the change")
            .with("consumer", id)
            .with("generation", text(known)));
        }
        Ok(())
    }

    /// Returns every provider that is taken from before or after.
    fn touched(
        &self,
        updates: &[ConsumerUpdate],
    ) -> Result<BTreeMap<ProviderId, Arc<ResourceProvider>>, Refusal> {
        let mut touched = BTreeMap::new();
        for update in updates {
            let old = self.state.consumer(update.consumer);
            let before = old.into_iter().flat_map(|c| c.allocations.keys());
            for id in before.chain(update.allocations.keys()) {
                let provider = self.state.provider(*id).ok_or_else(|| {
                    invalid(
                        "PROVIDER_NOT_FOUND",
                        format!("allocation from resource provider {id}, which does not exist"),
                    )
                    .with("provider", id)
                })?;
                read_only(provider)?;
                touched.insert(*id, provider.clone());
            }
        }
        Ok(touched)
    }

    /// Says whether one provider has what all the updates together take from it.
    fn examine_provider(
        &self,
        provider: &ResourceProvider,
        updates: &[ConsumerUpdate],
    ) -> Result<(), Refusal> {
        let before = self.state.used_of(provider.id);
        let mut after = before.clone();
        for update in updates {
            let old = self.state.consumer(update.consumer);
            if let Some(resources) = old.and_then(|c| c.allocations.get(&provider.id)) {
                subtract(&mut after, resources);
            }
        }
        for update in updates {
            let Some(resources) = update.allocations.get(&provider.id) else {
                continue;
            };
            examine_amounts(provider, update.consumer, resources)?;
            for (class, amount) in resources {
                let used = after.entry(class.clone()).or_default();
                *used = used.saturating_add(*amount);
            }
        }
        for update in updates {
            let Some(resources) = update.allocations.get(&provider.id) else {
                continue;
            };
            for class in resources.keys() {
                examine_capacity(provider, class, &before, &after)?;
            }
        }
        Ok(())
    }

    fn write_consumer(&mut self, update: &ConsumerUpdate) -> Option<Arc<Consumer>> {
        if update.allocations.is_empty() {
            if self.state.consumer(update.consumer).is_some() {
                self.remove_consumer(update.consumer);
            }
            return None;
        }
        Some(self.put_consumer(Consumer {
            id: update.consumer,
            generation: update.generation.unwrap_or_default().next(),
            project: update.project.clone(),
            user: update.user.clone(),
            allocations: update.allocations.clone(),
        }))
    }
}

fn examine_amounts(
    provider: &ResourceProvider,
    consumer: ConsumerId,
    resources: &Resources,
) -> Result<(), Refusal> {
    if resources.is_empty() {
        return Err(invalid(
            "EMPTY_ALLOCATION",
            format!(
                "consumer {consumer} takes nothing from resource provider {}",
                provider.id
            ),
        ));
    }
    for (class, amount) in resources {
        let Some(inventory) = provider.inventories.get(class) else {
            return Err(precondition(
                "NO_INVENTORY",
                format!("resource provider {} has no {class}", provider.id),
            )
            .with("provider", provider.id)
            .with("class", class));
        };
        let (least, most, step) = (inventory.min_unit, inventory.max_unit, inventory.step_size);
        if *amount < least || *amount > most || *amount % step != 0 {
            return Err(precondition(
                "INVENTORY_CONSTRAINTS",
                format!(
                    "{amount} of {class} is not {least} to {most} in steps of {step}, as resource provider {} wants",
                    provider.id
                ),
            )
            .with("provider", provider.id)
            .with("class", class));
        }
    }
    Ok(())
}

/// A request that takes no more of a class than was taken before is let through even where the
/// inventory was shrunk below that: it is the way out.
fn examine_capacity(
    provider: &ResourceProvider,
    class: &ResourceClass,
    before: &Resources,
    after: &Resources,
) -> Result<(), Refusal> {
    let amount = |resources: &Resources| resources.get(class).copied().unwrap_or(0);
    let capacity = provider.inventories.get(class).map_or(0, |i| i.capacity());
    if amount(after) <= capacity || amount(after) <= amount(before) {
        return Ok(());
    }
    Err(Refusal::new(
        Code::ResourceExhausted,
        "CAPACITY_EXCEEDED",
        format!(
            "resource provider {} would give {} of {class}, and may give {capacity}",
            provider.id,
            amount(after)
        ),
    )
    .with("provider", provider.id)
    .with("class", class)
    .with("capacity", capacity)
    .with("used", amount(before)))
}
