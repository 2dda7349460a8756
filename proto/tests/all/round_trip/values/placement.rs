//! Arbitrary providers, consumers and what is taken over of them.

use super::*;

pub(crate) fn provider() -> impl Strategy<Value = ResourceProvider> {
    let ratio = (0.0..1e9).prop_map(|ratio| AllocationRatio::new(ratio).unwrap());
    let inventory = (any::<[u64; 5]>(), ratio).prop_map(|(n, allocation_ratio)| Inventory {
        total: n[0],
        reserved: n[1],
        min_unit: n[2],
        max_unit: n[3],
        step_size: n[4],
        allocation_ratio,
    });
    (
        id(),
        "[a-z]{1,12}",
        generation(),
        option::of(id()),
        id(),
        option::of(host_name()),
        btree_map(class(), inventory, 0..3),
        (traits(), btree_set(id(), 0..3), time(), time(), origin()),
    )
        .prop_map(
            |(id, name, generation, parent, root, host, inventories, others)| ResourceProvider {
                id,
                name,
                generation,
                parent,
                root,
                host,
                inventories,
                traits: others.0,
                aggregates: others.1,
                origin: others.4,
                created_at: others.2,
                updated_at: others.3,
            },
        )
}

fn allocations() -> impl Strategy<Value = BTreeMap<ProviderId, Resources>> {
    btree_map(id::<ProviderId>(), resources(), 0..3)
}

pub(crate) fn consumer() -> impl Strategy<Value = Consumer> {
    (
        id(),
        generation(),
        (TEXT, TEXT, consumer_type(), origin()),
        time(),
        time(),
        allocations(),
    )
        .prop_map(
            |(
                id,
                generation,
                (project, user, consumer_type, origin),
                created_at,
                updated_at,
                allocations,
            )| Consumer {
                id,
                generation,
                project,
                user,
                consumer_type,
                origin,
                created_at,
                updated_at,
                allocations,
            },
        )
}

fn origin() -> impl Strategy<Value = Option<Origin>> {
    let origin = (TEXT, generation());
    option::of(origin.prop_map(|(source, generation)| Origin { source, generation }))
}

/// A provider and a consumer as they are taken over, from what they are when they are there.
pub(crate) fn provider_import() -> impl Strategy<Value = ProviderImport> {
    (provider(), option::of(generation())).prop_map(|(it, seen)| ProviderImport {
        id: it.id,
        name: it.name,
        parent: it.parent,
        generation: it.generation,
        inventories: it.inventories,
        traits: it.traits,
        aggregates: it.aggregates,
        seen,
    })
}

pub(crate) fn consumer_import() -> impl Strategy<Value = ConsumerImport> {
    (consumer(), option::of(generation())).prop_map(|(it, seen)| ConsumerImport {
        id: it.id,
        generation: it.generation,
        project: it.project,
        user: it.user,
        consumer_type: it.consumer_type,
        allocations: it.allocations,
        seen,
    })
}

fn consumer_type() -> impl Strategy<Value = Option<ConsumerType>> {
    option::of("[A-Z0-9_]{1,8}".prop_map(|t| ConsumerType::new(&t).unwrap()))
}

fn consumer_generation() -> impl Strategy<Value = ConsumerGeneration> {
    prop_oneof![
        Just(ConsumerGeneration::Any),
        Just(ConsumerGeneration::New),
        generation().prop_map(ConsumerGeneration::Exactly),
    ]
}

pub(crate) fn consumer_update() -> impl Strategy<Value = ConsumerUpdate> {
    (
        id::<ConsumerId>(),
        consumer_generation(),
        TEXT,
        TEXT,
        consumer_type(),
        allocations(),
    )
        .prop_map(
            |(consumer, generation, project, user, consumer_type, allocations)| ConsumerUpdate {
                consumer,
                generation,
                project,
                user,
                consumer_type,
                allocations,
            },
        )
}
