//! Arbitrary policies, aggregates and server groups.

use super::*;
use berth_domain::policy::cpu::CpuTerms;
use berth_domain::policy::memory::{
    MEM_NODE_MIB_MAX, MemoryTerms, RATIO_MILLI_MAX, RATIO_MILLI_MIN,
};
use berth_domain::policy::{
    Admission, BalancePolicy, CPU_RATIO_MILLI_MAX, CPU_RATIO_MILLI_MIN, CPU_RESERVED_MAX,
    DEAD_TIMEOUT_S_MAX, DEAD_TIMEOUT_S_MIN, FailoverPolicy, GAIN_MIN_MILLI_MAX, HOLD_MS_MAX,
    MigrationPolicy, SELF_FENCE_MS_MAX, SELF_FENCE_MS_MIN, Scoped, THRESHOLD_MILLI_MAX, Terms,
};

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
        (
            memory(),
            cpu(),
            admission(),
            balance(),
            option::of(DEAD_TIMEOUT_S_MIN..=DEAD_TIMEOUT_S_MAX),
        ),
        any::<u64>(),
    )
        .prop_map(
            |(hosts, cells, weights, mem_page_size, migration, self_fence_ms, rest, generation)| {
                let (memory, cpu, admission, balance, dead_member_timeout_s) = rest;
                SchedulingPolicy {
                    hosts,
                    cells,
                    weights,
                    mem_page_size,
                    migration,
                    self_fence_ms,
                    dead_member_timeout_s,
                    memory,
                    cpu,
                    failover: FailoverPolicy { admission },
                    balance,
                    generation: Generation(generation),
                }
            },
        )
}

fn memory() -> impl Strategy<Value = Scoped<MemoryTerms>> {
    scoped(|| {
        let ratio = option::of(RATIO_MILLI_MIN..=RATIO_MILLI_MAX);
        (ratio, option::of(0..=MEM_NODE_MIB_MAX)).prop_map(|(ratio_milli, mem_node_mib)| {
            MemoryTerms {
                ratio_milli,
                mem_node_mib,
            }
        })
    })
}

fn cpu() -> impl Strategy<Value = Scoped<CpuTerms>> {
    scoped(|| {
        let ratio = option::of(CPU_RATIO_MILLI_MIN..=CPU_RATIO_MILLI_MAX);
        (ratio, option::of(0..=CPU_RESERVED_MAX)).prop_map(|(ratio_milli, reserved)| CpuTerms {
            ratio_milli,
            reserved,
        })
    })
}

fn scoped<T: Terms + std::fmt::Debug, S: Strategy<Value = T>>(
    terms: impl Fn() -> S,
) -> impl Strategy<Value = Scoped<T>> {
    let said = || terms().prop_filter("says something", |terms| !terms.is_empty());
    let group = NAME.prop_map(|n| AggregateName::new(&n).unwrap());
    let groups = btree_map(group, said(), 0..4);
    let hosts = btree_map(host_name(), said(), 0..4);
    (terms(), groups, hosts).prop_map(|(cluster, groups, hosts)| Scoped {
        cluster,
        groups,
        hosts,
    })
}

fn admission() -> impl Strategy<Value = Admission> {
    select(vec![Admission::Off, Admission::Warn, Admission::Refuse])
}

fn balance() -> impl Strategy<Value = BalancePolicy> {
    let threshold = option::of(1..=THRESHOLD_MILLI_MAX);
    (threshold, 0..=HOLD_MS_MAX, 1..=GAIN_MIN_MILLI_MAX).prop_map(
        |(threshold_milli, hold_ms, gain_min_milli)| BalancePolicy {
            threshold_milli,
            hold_ms,
            gain_min_milli,
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
    let times = (time(), option::of(time()));
    let values = (name, policy, 1..=PER_HOST_MAX, times, ownership());
    values.prop_map(
        |(name, policy, max, (created_at, separated_at), ownership)| {
            let max = (policy == GroupPolicy::AntiAffinity).then_some(max);
            ServerGroup {
                created_at,
                separated_at,
                ownership,
                ..ServerGroup::new(name, policy, max).unwrap()
            }
        },
    )
}
