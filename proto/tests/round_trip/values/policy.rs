//! Arbitrary policies, aggregates and server groups.

use super::*;
use berth_domain::policy::{MigrationPolicy, SELF_FENCE_MS_MAX, SELF_FENCE_MS_MIN};

pub(crate) fn policy() -> impl Strategy<Value = SchedulingPolicy> {
    let strategy = || select(vec![numa::Strategy::Spread, numa::Strategy::Pack]);
    let weight = || 0..=WEIGHT_MAX;
    let weights = (weight(), weight(), weight(), weight(), weight()).prop_map(
        |(load, numa, pci, fragmentation, soft_affinity)| Weights {
            load,
            numa,
            pci,
            fragmentation,
            soft_affinity,
        },
    );
    let pages = vec![
        None,
        Some(DefaultPages::Small),
        Some(DefaultPages::Large),
        Some(DefaultPages::Any),
    ];
    let migration = prop_oneof![
        Just(MigrationPolicy::default()),
        transfer::migration_policy()
    ];
    (
        strategy(),
        strategy(),
        weights,
        select(pages),
        migration,
        option::of(SELF_FENCE_MS_MIN..=SELF_FENCE_MS_MAX),
        any::<u64>(),
    )
        .prop_map(
            |(hosts, cells, weights, mem_page_size, migration, self_fence_ms, generation)| {
                SchedulingPolicy {
                    hosts,
                    cells,
                    weights,
                    mem_page_size,
                    migration,
                    self_fence_ms,
                    generation: Generation(generation),
                }
            },
        )
}

pub(crate) fn aggregate() -> impl Strategy<Value = Aggregate> {
    let name = NAME.prop_map(|n| AggregateName::new(&n).unwrap());
    (
        name,
        id(),
        btree_set(host_name(), 0..4),
        texts(),
        any::<u64>(),
        time(),
    )
        .prop_map(
            |(name, id, hosts, metadata, generation, created_at)| Aggregate {
                name,
                id,
                hosts,
                metadata,
                generation: Generation(generation),
                created_at,
            },
        )
}

pub(crate) fn server_group() -> impl Strategy<Value = ServerGroup> {
    let name = NAME.prop_map(|n| ServerGroupName::new(&n).unwrap());
    let policy = select(GroupPolicy::ALL.to_vec());
    (name, policy, 1..=PER_HOST_MAX, time()).prop_map(|(name, policy, max, created_at)| {
        let max = (policy == GroupPolicy::AntiAffinity).then_some(max);
        ServerGroup {
            created_at,
            ..ServerGroup::new(name, policy, max).unwrap()
        }
    })
}
