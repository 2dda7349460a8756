//! Providers, inventories and consumers in few words.

use std::collections::BTreeMap;

use berth_domain::allocation::{ConsumerGeneration, Resources};
use berth_domain::id::{AggregateId, ConsumerId, Generation, ProviderId};
use berth_domain::inventory::Inventory;
use berth_domain::resource::{ResourceClass, Trait};
use berth_state::command::{Command, ConsumerUpdate, ProviderInventories};

use super::{World, reason, uuid};

pub(crate) fn provider(number: u64) -> ProviderId {
    ProviderId(uuid(20, number))
}

pub(crate) fn consumer(number: u64) -> ConsumerId {
    ConsumerId(uuid(21, number))
}

pub(crate) fn aggregate(number: u64) -> AggregateId {
    AggregateId(uuid(22, number))
}

pub(crate) fn class(text: &str) -> ResourceClass {
    ResourceClass::new(text).unwrap()
}

pub(crate) fn quality(text: &str) -> Trait {
    Trait::new(text).unwrap()
}

pub(crate) fn create(number: u64, parent: Option<u64>) -> Command {
    Command::CreateProvider {
        id: provider(number),
        name: format!("p{number}"),
        parent: parent.map(provider),
    }
}

/// Moves a provider; the last argument says whether it may leave a parent.
pub(crate) fn place(number: u64, parent: Option<u64>, reparent: bool) -> Command {
    Command::UpdateProvider {
        id: provider(number),
        name: None,
        parent: Some(parent.map(provider)),
        reparent,
    }
}

pub(crate) fn delete(number: u64) -> Command {
    Command::DeleteProvider {
        id: provider(number),
    }
}

pub(crate) fn exact(totals: &[(&str, u64)]) -> BTreeMap<ResourceClass, Inventory> {
    totals
        .iter()
        .map(|(name, total)| (class(name), Inventory::exact(*total)))
        .collect()
}

pub(crate) fn inventories(number: u64, generation: u64, totals: &[(&str, u64)]) -> Command {
    Command::SetInventories {
        provider: provider(number),
        generation: Generation(generation),
        inventories: exact(totals),
    }
}

pub(crate) fn traits(number: u64, generation: u64, names: &[&str]) -> Command {
    Command::SetTraits {
        provider: provider(number),
        generation: Generation(generation),
        traits: names.iter().map(|n| quality(n)).collect(),
    }
}

pub(crate) fn new_class(name: &str) -> Command {
    Command::CreateClass { class: class(name) }
}

pub(crate) fn new_trait(name: &str) -> Command {
    Command::CreateTrait {
        name: quality(name),
    }
}

/// What a consumer takes from now on; without a generation it must be new.
pub(crate) fn update(
    number: u64,
    generation: Option<u64>,
    allocations: &[(u64, &str, u64)],
) -> ConsumerUpdate {
    let mut by_provider: BTreeMap<ProviderId, Resources> = BTreeMap::new();
    for (from, name, amount) in allocations {
        let resources = by_provider.entry(provider(*from)).or_default();
        resources.insert(class(name), *amount);
    }
    ConsumerUpdate {
        consumer: consumer(number),
        generation: generation.map_or(ConsumerGeneration::New, |generation| {
            ConsumerGeneration::Exactly(Generation(generation))
        }),
        project: "project".to_owned(),
        user: "user".to_owned(),
        consumer_type: None,
        allocations: by_provider,
    }
}

/// What a provider has after a reshape that saw this generation.
pub(crate) fn after(
    number: u64,
    generation: u64,
    totals: &[(&str, u64)],
) -> (ProviderId, ProviderInventories) {
    let after = ProviderInventories {
        generation: Generation(generation),
        inventories: exact(totals),
    };
    (provider(number), after)
}

pub(crate) fn set(world: &mut World, updates: &[ConsumerUpdate]) -> String {
    let outcome = world.run(Command::SetAllocations {
        consumers: updates.to_vec(),
    });
    reason(&outcome).to_owned()
}

pub(crate) fn generation(world: &World, number: u64) -> u64 {
    world.state.provider(provider(number)).unwrap().generation.0
}

pub(crate) fn used(world: &World, number: u64, name: &str) -> u64 {
    let used = world.state.used_of(provider(number));
    used.get(&class(name)).copied().unwrap_or(0)
}
