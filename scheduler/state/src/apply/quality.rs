//! Traits and aggregates that clients give to their own providers.

use std::collections::BTreeSet;

use berth_domain::id::{AggregateId, Generation, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;
use berth_domain::resource::Trait;

use super::inventory::examine_count;
use super::provider::at_generation;
use crate::refusals::invalid;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn set_traits(
        &mut self,
        id: ProviderId,
        generation: Generation,
        traits: &BTreeSet<Trait>,
    ) -> Result<Reply, Refusal> {
        at_generation(self.clients_provider(id)?, generation)?;
        self.examine_traits(traits)?;
        self.replace_traits(id, traits)
    }

    /// Refuses traits that are too many, or neither standard nor created by a client.
    pub(super) fn examine_traits(&self, traits: &BTreeSet<Trait>) -> Result<(), Refusal> {
        examine_count(traits.len(), "traits")?;
        let unknown: Vec<&str> = traits
            .iter()
            .filter(|name| !self.state.knows_trait(name))
            .map(Trait::as_str)
            .collect();
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            return Err(
                invalid("UNKNOWN_TRAIT", format!("trait {unknown} does not exist"))
                    .with_hint("create it first, or use a standard trait")
                    .with("traits", unknown),
            );
        }
        Ok(())
    }

    pub(super) fn delete_traits(&mut self, id: ProviderId) -> Result<Reply, Refusal> {
        self.clients_provider(id)?;
        self.replace_traits(id, &BTreeSet::new())
    }

    /// The same traits again are no change.
    fn replace_traits(
        &mut self,
        id: ProviderId,
        traits: &BTreeSet<Trait>,
    ) -> Result<Reply, Refusal> {
        let provider = self.clients_provider(id)?.clone();
        if provider.traits == *traits {
            return Ok(Reply::Provider(provider));
        }
        Ok(Reply::Provider(self.put_provider(ResourceProvider {
            traits: traits.clone(),
            generation: provider.generation.next(),
            updated_at: self.now(),
            ..(*provider).clone()
        })))
    }

    /// As in OpenStack Placement, the same aggregates again count as a change where generations
    /// are compared at all.
    pub(super) fn set_aggregates(
        &mut self,
        id: ProviderId,
        generation: Option<Generation>,
        aggregates: &BTreeSet<AggregateId>,
    ) -> Result<Reply, Refusal> {
        let provider = self.clients_provider(id)?.clone();
        examine_count(aggregates.len(), "aggregates")?;
        let generation = match generation {
            None => provider.generation,
            Some(given) => {
                at_generation(&provider, given)?;
                given.next()
            }
        };
        Ok(Reply::Provider(self.put_provider(ResourceProvider {
            aggregates: aggregates.clone(),
            generation,
            updated_at: self.now(),
            ..(*provider).clone()
        })))
    }
}
