//! Draws of commands on clients' providers, consumers, resource classes and traits: few of each, so
//! that they meet.

use berth_domain::allocation::ConsumerGeneration;
use berth_domain::id::{Generation, ProviderId};
use berth_domain::import::{ConsumerImport, ProviderImport};
use berth_domain::inventory::Inventory;
use berth_domain::resource::{ConsumerType, ResourceClass, Trait};
use berth_state::command::{Command, ConsumerUpdate, ProviderInventories};

use super::of;
use crate::state::World;
use crate::state::placement::{aggregate, class, consumer, provider, quality};

const CLASSES: [&str; 3] = ["VCPU", "CUSTOM_GOLD", "CUSTOM_IRON"];
const TRAITS: [&str; 3] = ["HW_NUMA_ROOT", "CUSTOM_FAST", "CUSTOM_QUIET"];

fn some_class(pick: u8) -> ResourceClass {
    class(of(&CLASSES, pick))
}

/// A class that exists, mostly.
fn known_class(world: &World, pick: u8) -> ResourceClass {
    let drawn = some_class(pick);
    if pick > 240 || world.state.knows_class(&drawn) {
        return drawn;
    }
    ResourceClass::vcpu()
}

/// A class that the provider has, mostly.
fn had_class(world: &World, id: ProviderId, pick: u8) -> ResourceClass {
    let had = world.state.provider(id).map(|p| p.inventories.keys());
    let had: Vec<_> = had.into_iter().flatten().cloned().collect();
    if pick > 240 || had.is_empty() {
        return some_class(pick);
    }
    of(&had, pick)
}

pub(super) fn some_trait(pick: u8) -> Trait {
    quality(of(&TRAITS, pick))
}

/// The generation that a client saw; now and then an old one.
fn seen(world: &World, id: ProviderId, pick: u8) -> Generation {
    let known = world.state.provider(id).map(|p| p.generation);
    match known {
        Some(known) if pick < 240 => known,
        Some(_) | None => Generation(u64::from(pick % 3)),
    }
}

fn inventory(pick: u8) -> Inventory {
    Inventory::exact(u64::from(pick % 16) + 1)
}

pub(super) fn command(world: &World, pick: [u8; 4]) -> Command {
    if pick[1] > 250 {
        return batch(world, pick);
    }
    single(world, pick)
}

/// Writes that are drawn one after the other, so that some build on those before them.
fn batch(world: &World, mut pick: [u8; 4]) -> Command {
    let mut then = world.clone();
    let mut writes = Vec::new();
    for _ in 0..=pick[0] % 4 {
        pick.rotate_left(1);
        pick[1] = pick[1].wrapping_mul(31).wrapping_add(7);
        let write = single(&then, pick);
        // Refused or not: a batch may be, at each of its writes.
        let _ = then.run(write.clone());
        writes.push(write);
    }
    Command::Batch { writes }
}

fn single(world: &World, pick: [u8; 4]) -> Command {
    let id = provider(u64::from(pick[1] % 3));
    let row = world.state.provider(id);
    let empty = row.is_some_and(|p| p.inventories.is_empty());
    // Mostly what can be done next, so that some get as far as allocations.
    match row {
        None if pick[3] > 30 => Command::CreateProvider {
            id,
            name: format!("p{}", pick[1] % 3),
            parent: world.state.providers().keys().next().copied(),
        },
        Some(_) if empty && pick[3] > 60 => of_inventory(world, id, pick),
        Some(_) | None => match pick[0] % 12 {
            0 => of_provider(id, pick),
            1 | 2 => of_inventory(world, id, pick),
            3 => of_qualities(world, id, pick),
            4 => of_catalog(pick),
            5 => reshape(world, id, pick),
            10 => import_provider(world, id, pick),
            11 => import_consumer(world, id, pick),
            _ => of_consumer(world, id, pick),
        },
    }
}

fn of_provider(id: ProviderId, pick: [u8; 4]) -> Command {
    let other = (pick[2] > 128).then(|| provider(u64::from(pick[2] % 3)));
    match pick[3] % 8 {
        0 => Command::DeleteProvider { id },
        1 | 2 => Command::UpdateProvider {
            id,
            name: (pick[0] > 128).then(|| format!("p{}", pick[0] % 4)),
            parent: (pick[0] < 200).then_some(other),
            reparent: pick[0] > 40,
        },
        _ => Command::CreateProvider {
            id,
            name: format!("p{}", pick[1] % 3),
            parent: other,
        },
    }
}

fn of_inventory(world: &World, id: ProviderId, pick: [u8; 4]) -> Command {
    let generation = seen(world, id, pick[3]);
    match pick[3] % 8 {
        0 => Command::DeleteInventories { provider: id },
        1 => Command::DeleteInventory {
            provider: id,
            class: some_class(pick[2]),
        },
        2 | 3 => Command::PutInventory {
            provider: id,
            generation: (pick[0] > 128).then_some(generation),
            class: known_class(world, pick[2]),
            inventory: inventory(pick[2]),
            create: pick[0].is_multiple_of(2),
        },
        _ => Command::SetInventories {
            provider: id,
            generation,
            inventories: [
                (known_class(world, pick[0]), inventory(pick[2])),
                (known_class(world, pick[2]), inventory(pick[2])),
            ]
            .into(),
        },
    }
}

fn of_qualities(world: &World, id: ProviderId, pick: [u8; 4]) -> Command {
    let generation = seen(world, id, pick[3]);
    match pick[3] % 5 {
        0 => Command::DeleteTraits { provider: id },
        1 | 2 => Command::SetAggregates {
            provider: id,
            generation: (pick[2] > 128).then_some(generation),
            aggregates: (0..u64::from(pick[2] % 3)).map(aggregate).collect(),
        },
        _ => Command::SetTraits {
            provider: id,
            generation,
            traits: [some_trait(pick[0]), some_trait(pick[2])].into(),
        },
    }
}

fn of_catalog(pick: [u8; 4]) -> Command {
    match pick[3] % 8 {
        0 => Command::DeleteClass {
            class: some_class(pick[2]),
        },
        1 => Command::DeleteTrait {
            name: some_trait(pick[2]),
        },
        2 => Command::RenameClass {
            from: some_class(pick[2]),
            to: some_class(pick[1]),
        },
        3 | 4 => Command::CreateTrait {
            name: some_trait(pick[2]),
        },
        _ => Command::CreateClass {
            class: some_class(pick[2]),
        },
    }
}

fn update(world: &World, id: ProviderId, pick: [u8; 4]) -> ConsumerUpdate {
    let consumer = consumer(u64::from(pick[2] % 3));
    let known = world.state.consumer(consumer).map(|c| c.generation);
    let amount = u64::from(pick[3] % 10);
    let of_class = [(had_class(world, id, pick[0]), amount)];
    ConsumerUpdate {
        consumer,
        generation: match known {
            _ if pick[3] > 250 => ConsumerGeneration::Exactly(Generation(99)),
            _ if pick[3] > 200 => ConsumerGeneration::Any,
            None => ConsumerGeneration::New,
            Some(generation) => ConsumerGeneration::Exactly(generation),
        },
        project: of(&["p", "q"], pick[1]).to_owned(),
        user: "u".to_owned(),
        consumer_type: (pick[1] > 128).then(|| ConsumerType::new("INSTANCE").unwrap()),
        allocations: (amount > 0)
            .then(|| (id, of_class.into()))
            .into_iter()
            .collect(),
    }
}

/// Takes one or two providers over, the second mostly below the first.
fn import_provider(world: &World, id: ProviderId, pick: [u8; 4]) -> Command {
    let import = |id: ProviderId, parent: Option<ProviderId>, pick: u8| ProviderImport {
        id,
        name: format!("p{}", pick % 4),
        parent,
        generation: Generation(u64::from(pick)),
        inventories: [(known_class(world, pick), inventory(pick))].into(),
        traits: [some_trait(pick)].into(),
        aggregates: [aggregate(u64::from(pick % 3))].into(),
        seen: world.state.provider(id).map(|p| p.generation),
    };
    let other = provider(u64::from(pick[2] % 3));
    let mut providers = vec![import(id, (pick[3] > 128).then_some(other), pick[1])];
    if pick[3].is_multiple_of(3) {
        providers.push(import(other, (pick[2] > 30).then_some(id), pick[2]));
    }
    Command::ImportProviders {
        source: "elsewhere".to_owned(),
        providers,
    }
}

/// Takes a consumer over, more than there is among others.
fn import_consumer(world: &World, id: ProviderId, pick: [u8; 4]) -> Command {
    let update = update(world, id, pick);
    let known = world.state.consumer(update.consumer);
    Command::ImportConsumers {
        source: "elsewhere".to_owned(),
        consumers: vec![ConsumerImport {
            id: update.consumer,
            generation: Generation(u64::from(pick[1])),
            project: update.project,
            user: update.user,
            consumer_type: update.consumer_type,
            allocations: update.allocations,
            seen: known.map(|c| c.generation),
        }],
    }
}

fn of_consumer(world: &World, id: ProviderId, pick: [u8; 4]) -> Command {
    if pick[3] % 16 == 15 {
        return Command::DeleteAllocations {
            consumer: consumer(u64::from(pick[2] % 3)),
        };
    }
    let mut consumers = vec![update(world, id, pick)];
    if pick[0].is_multiple_of(5) {
        let other = provider(u64::from(pick[0] % 3));
        consumers.push(update(world, other, [pick[3], pick[0], pick[1], pick[2]]));
    }
    Command::SetAllocations { consumers }
}

/// Moves a provider's inventories, and what a consumer takes, to another.
fn reshape(world: &World, id: ProviderId, pick: [u8; 4]) -> Command {
    let other = provider(u64::from(pick[2] % 3));
    let all = [(known_class(world, pick[0]), inventory(pick[2]))];
    let mut inventories = std::collections::BTreeMap::new();
    inventories.insert(
        other,
        ProviderInventories {
            generation: seen(world, other, pick[3]),
            inventories: all.into(),
        },
    );
    if pick[0] > 100 {
        inventories.insert(
            id,
            ProviderInventories {
                generation: seen(world, id, pick[3]),
                inventories: Default::default(),
            },
        );
    }
    let consumers = match pick[3] % 4 {
        0 => Vec::new(),
        _ => vec![update(world, other, pick)],
    };
    Command::Reshape {
        inventories,
        consumers,
    }
}
