//! The reshaper: inventories and allocations are replaced together, all or none, so that what is
//! taken can move to providers that get their inventories in the same moment.
//!
//! As in OpenStack Placement the allocations are examined on the *interim* inventories, old and new
//! together, so that a generation grows by up to three: for those, for the allocations, and for the
//! final inventories.

use std::collections::BTreeMap;

use berth_domain::id::ProviderId;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;

use super::allocation::Interim;
use super::inventory::{examine_inventories, examine_removal};
use super::provider::at_generation;
use crate::command::{ConsumerUpdate, ProviderInventories};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn reshape(
        &mut self,
        inventories: &BTreeMap<ProviderId, ProviderInventories>,
        updates: &[ConsumerUpdate],
    ) -> Result<Reply, Refusal> {
        let interim = self.interim(inventories)?;
        let plan = self.examine_allocations(updates, &interim)?;
        for (id, after) in inventories {
            match plan.used.get(id) {
                Some(used) => examine_removal(*id, &after.inventories, used)?,
                None => examine_removal(*id, &after.inventories, &self.state.used_of(*id))?,
            }
        }
        let reply = self.write_allocations(updates);
        let mut changed = interim;
        for id in &plan.written {
            let Some(provider) = self.state.provider(*id) else {
                continue;
            };
            let provider = changed.entry(*id).or_insert_with(|| (**provider).clone());
            provider.generation = provider.generation.next();
        }
        let updated_at = self.now();
        for (id, mut provider) in changed {
            if let Some(after) = inventories.get(&id) {
                provider.inventories = after.inventories.clone();
                provider.generation = provider.generation.next();
            }
            provider.updated_at = updated_at;
            self.put_provider(provider);
        }
        Ok(reply)
    }

    /// Returns the providers as they are while the allocations are replaced: with what they had
    /// and what they get, the latter where both speak of one class.
    fn interim(
        &self,
        inventories: &BTreeMap<ProviderId, ProviderInventories>,
    ) -> Result<Interim, Refusal> {
        let mut interim = Interim::new();
        let mut providers = Vec::with_capacity(inventories.len());
        // All generations first: a caller with an old one gets that error, whatever else is wrong.
        for (id, after) in inventories {
            let provider = self.clients_provider(*id)?;
            at_generation(provider, after.generation)?;
            providers.push((id, after, provider));
        }
        for (id, after, provider) in providers {
            examine_inventories(self.state, &after.inventories)?;
            let mut both = provider.inventories.clone();
            both.extend(after.inventories.clone());
            let mut generation = provider.generation;
            if !after.inventories.is_empty() {
                generation = generation.next();
            }
            let provider = ResourceProvider {
                inventories: both,
                generation,
                ..(**provider).clone()
            };
            interim.insert(*id, provider);
        }
        Ok(interim)
    }
}
