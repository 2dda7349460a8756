//! Reading a Placement that may be in use.
//!
//! It cannot be paused, and no request shows more than one provider or one consumer. So everything
//! is read once, and what changed meanwhile is read again, until nothing contradicts:
//!
//! ```text
//!      ┌──────────────────────────────────────────────────────────┐
//!      ▼                                                          │ at most ROUNDS_MAX times
//! providers ──▶ consumers that they name ──▶ list of providers ──▶ what does not fit together
//! ```
//!
//! A provider counts its changes in its generation, but not those allocations that only go away,
//! nor its name and its parent. Therefore the list is compared by those, too, and the allocations
//! that providers list with those that consumers list.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::id::{AggregateId, ConsumerId, Generation, ProviderId};
use berth_domain::inventory::Inventory;
use berth_domain::refusal::Refusal;
use berth_domain::resource::{ResourceClass, Trait};

use super::meter::{Meter, each};
use super::source::{ConsumerAllocation, ProviderRecord, Source};
use super::world::{self, Consumer, Provider, World};

/// The maximum number of rounds that read changed records again.
const ROUNDS_MAX: u32 = 5;
/// The maximum number of immediate reads of a provider whose parts are of different generations.
const TRIES_MAX: u32 = 5;

/// What was read.
#[derive(Debug)]
pub struct Reading {
    /// What the source holds.
    pub world: World,
    /// Providers and consumers that changed until the end: they may not fit together.
    pub moving: Unstable,
}

/// Records that changed until the end of reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unstable {
    /// Providers.
    pub providers: BTreeSet<ProviderId>,
    /// Consumers.
    pub consumers: BTreeSet<ConsumerId>,
}

/// The part of a provider that the list does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Detail {
    generation: Generation,
    inventories: BTreeMap<ResourceClass, Inventory>,
    traits: BTreeSet<Trait>,
    aggregates: BTreeSet<AggregateId>,
    taken: BTreeMap<ConsumerId, ConsumerAllocation>,
    /// Whether all of it is of one generation.
    whole: bool,
}

/// What was read so far.
#[derive(Debug, Default)]
struct Snapshot {
    listed: BTreeMap<ProviderId, ProviderRecord>,
    details: BTreeMap<ProviderId, Detail>,
    consumers: BTreeMap<ConsumerId, Consumer>,
}

/// Reads everything.
///
/// # Errors
///
/// When the source does not answer, or not as Placement does.
pub async fn read(source: &Source, at_once: usize, meter: Meter) -> Result<Reading, Refusal> {
    let classes = world::custom(&source.classes().await?, ResourceClass::is_custom);
    let traits = world::custom(&source.traits().await?, Trait::is_custom);
    let mut snapshot = Snapshot {
        listed: source.providers().await?,
        ..Snapshot::default()
    };
    let mut stale = Unstable {
        providers: snapshot.listed.keys().copied().collect(),
        consumers: BTreeSet::new(),
    };
    let mut round = 0;
    loop {
        snapshot.read(source, at_once, meter, round, &stale).await?;
        snapshot.listed = source.providers().await?;
        stale = snapshot.stale();
        round += 1;
        if stale == Unstable::default() || round > ROUNDS_MAX {
            break;
        }
    }
    let world = snapshot.world(classes, traits);
    Ok(Reading {
        world,
        moving: stale,
    })
}

impl Snapshot {
    /// Reads these again, and the consumers that they name.
    async fn read(
        &mut self,
        source: &Source,
        at_once: usize,
        meter: Meter,
        round: u32,
        stale: &Unstable,
    ) -> Result<(), Refusal> {
        let again = if round == 0 {
            ""
        } else {
            ", changed meanwhile"
        };
        let part = meter.part(&format!("providers{again}"), stale.providers.len());
        let read = each(stale.providers.clone(), at_once, part, |id| {
            let source = source.clone();
            async move { detail(&source, id).await.map(|detail| (id, detail)) }
        });
        for (id, detail) in read.await? {
            match detail {
                Some(detail) => drop(self.details.insert(id, detail)),
                None => drop(self.details.remove(&id)),
            }
        }
        let mut ids = stale.consumers.clone();
        ids.extend(self.outdated());
        let part = meter.part(&format!("consumers{again}"), ids.len());
        let read = each(ids, at_once, part, |id| {
            let source = source.clone();
            async move { source.consumer(id).await.map(|consumer| (id, consumer)) }
        });
        for (id, consumer) in read.await? {
            match consumer {
                Some(consumer) => drop(self.consumers.insert(id, consumer)),
                None => drop(self.consumers.remove(&id)),
            }
        }
        Ok(())
    }

    /// Returns the consumers whose allocations differ between their providers and themselves.
    fn outdated(&self) -> BTreeSet<ConsumerId> {
        let all = self.details.iter().flat_map(|(id, detail)| {
            let taken = detail.taken.iter();
            taken.map(move |(consumer, taken)| (*id, *consumer, taken))
        });
        all.filter(|(provider, consumer, taken)| !self.agree(*provider, *consumer, taken))
            .map(|(_, consumer, _)| consumer)
            .collect()
    }

    fn agree(
        &self,
        provider: ProviderId,
        consumer: ConsumerId,
        taken: &ConsumerAllocation,
    ) -> bool {
        self.consumers.get(&consumer).is_some_and(|known| {
            known.generation == taken.generation
                && known.allocations.get(&provider) == Some(&taken.resources)
        })
    }

    /// Returns what does not fit together.
    fn stale(&self) -> Unstable {
        let mut stale = Unstable::default();
        for (id, listed) in &self.listed {
            let good = self.details.get(id);
            let good = good.is_some_and(|d| d.whole && d.generation == listed.generation);
            if !good {
                stale.providers.insert(*id);
            }
        }
        let gone = |id: &&ProviderId| !self.listed.contains_key(id);
        stale.providers.extend(self.details.keys().filter(gone));
        for (id, detail) in &self.details {
            for (consumer, taken) in &detail.taken {
                if !self.agree(*id, *consumer, taken) {
                    stale.providers.insert(*id);
                    stale.consumers.insert(*consumer);
                }
            }
        }
        for (id, consumer) in &self.consumers {
            for provider in consumer.allocations.keys() {
                let detail = self.details.get(provider);
                if !detail.is_some_and(|d| d.taken.contains_key(id)) {
                    stale.providers.insert(*provider);
                    stale.consumers.insert(*id);
                }
            }
        }
        stale
    }

    /// Puts everything together. What is still moving is as it was read last, without allocations
    /// from providers that are not there.
    fn world(self, mut classes: BTreeSet<ResourceClass>, mut traits: BTreeSet<Trait>) -> World {
        let mut details = self.details;
        let mut providers = BTreeMap::new();
        for (id, listed) in self.listed {
            let Some(detail) = details.remove(&id) else {
                continue;
            };
            // Custom names that were made meanwhile: whatever is used must be there.
            let used = detail.inventories.keys().filter(|c| c.is_custom());
            classes.extend(used.cloned());
            let used = detail.traits.iter().filter(|t| t.is_custom());
            traits.extend(used.cloned());
            let provider = Provider {
                name: listed.name,
                parent: listed.parent,
                generation: detail.generation,
                inventories: detail.inventories,
                traits: detail.traits,
                aggregates: detail.aggregates,
            };
            providers.insert(id, provider);
        }
        let mut consumers = self.consumers;
        for consumer in consumers.values_mut() {
            consumer
                .allocations
                .retain(|id, _| providers.contains_key(id));
        }
        consumers.retain(|_, consumer| !consumer.allocations.is_empty());
        World {
            classes,
            traits,
            providers,
            consumers,
        }
    }
}

/// Reads what the list does not contain; nothing if the provider no longer exists.
async fn detail(source: &Source, id: ProviderId) -> Result<Option<Detail>, Refusal> {
    let mut tries = 1;
    loop {
        let Some(inventories) = source.inventories(id).await? else {
            return Ok(None);
        };
        let Some(traits) = source.traits_of(id).await? else {
            return Ok(None);
        };
        let Some(aggregates) = source.aggregates(id).await? else {
            return Ok(None);
        };
        let Some(taken) = source.allocations_of(id).await? else {
            return Ok(None);
        };
        let generation = inventories.generation;
        let others = [traits.generation, aggregates.generation, taken.generation];
        let whole = others.iter().all(|other| *other == generation);
        if whole || tries == TRIES_MAX {
            return Ok(Some(Detail {
                generation,
                inventories: inventories.value,
                traits: traits.value,
                aggregates: aggregates.value,
                taken: taken.value,
                whole,
            }));
        }
        tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::allocation::Resources;
    use uuid::Uuid;

    use super::*;

    fn provider(number: u128) -> ProviderId {
        ProviderId(Uuid::from_u128(number))
    }

    fn consumer(number: u128) -> ConsumerId {
        ConsumerId(Uuid::from_u128(number))
    }

    fn vcpus(amount: u64) -> Resources {
        [(ResourceClass::new("VCPU").unwrap(), amount)].into()
    }

    /// One provider at generation 5, from which one consumer at generation 2 takes three CPUs.
    fn snapshot() -> Snapshot {
        let listed = ProviderRecord {
            name: "p".to_owned(),
            parent: None,
            generation: Generation(5),
        };
        let taken = ConsumerAllocation {
            generation: Generation(2),
            resources: vcpus(3),
        };
        let detail = Detail {
            generation: Generation(5),
            inventories: BTreeMap::new(),
            traits: BTreeSet::new(),
            aggregates: BTreeSet::new(),
            taken: [(consumer(1), taken)].into(),
            whole: true,
        };
        let known = Consumer {
            generation: Generation(2),
            project: "p".to_owned(),
            user: "u".to_owned(),
            consumer_type: None,
            allocations: [(provider(1), vcpus(3))].into(),
        };
        Snapshot {
            listed: [(provider(1), listed)].into(),
            details: [(provider(1), detail)].into(),
            consumers: [(consumer(1), known)].into(),
        }
    }

    /// Goal: each change that can fall between two questions is noticed, also those that no
    /// generation of a provider counts. Method: one change to a consistent snapshot.
    #[test]
    fn what_does_not_fit_together_is_read_again() {
        let both = || Unstable {
            providers: [provider(1)].into(),
            consumers: [consumer(1)].into(),
        };
        let only_provider = || Unstable {
            consumers: BTreeSet::new(),
            ..both()
        };
        let check = |change: fn(&mut Snapshot), expected: Unstable| {
            let mut snapshot = snapshot();
            change(&mut snapshot);
            assert_eq!(snapshot.stale(), expected);
        };
        check(|_| {}, Unstable::default());
        check(
            |n| n.listed.get_mut(&provider(1)).unwrap().generation = Generation(6),
            only_provider(),
        );
        check(
            |n| n.details.get_mut(&provider(1)).unwrap().whole = false,
            only_provider(),
        );
        check(|n| n.listed.clear(), only_provider());
        check(|n| n.consumers.clear(), both());
        check(
            |n| n.details.get_mut(&provider(1)).unwrap().taken.clear(),
            both(),
        );
        let of_consumer: fn(&mut Snapshot) =
            |n| n.consumers.get_mut(&consumer(1)).unwrap().generation = Generation(3);
        check(of_consumer, both());
        check(
            |n| {
                let known = n.consumers.get_mut(&consumer(1)).unwrap();
                known.allocations = [(provider(1), vcpus(4))].into();
            },
            both(),
        );
    }

    #[test]
    fn what_is_taken_from_nothing_is_left_out() {
        let mut snapshot = snapshot();
        snapshot.details.clear();
        let world = snapshot.world(BTreeSet::new(), BTreeSet::new());
        assert_eq!(world, World::default());
    }
}
