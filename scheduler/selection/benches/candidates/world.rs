//! Fleets of providers to search.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::id::{AggregateId, Generation, ProviderId, TimeMs};
use berth_domain::inventory::Inventory;
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::{ResourceClass, Trait};
use berth_selection::candidates::Sources;
use uuid::Uuid;

/// Hosts that have `CUSTOM_RARE`, however many there are.
const RARE: usize = 10;
/// Hosts of one rack.
pub(crate) const RACK: usize = 40;
/// Traits that every host has besides, as many as a current processor reports.
const COMMON_TRAITS: usize = 40;

pub(crate) fn class(name: &str) -> ResourceClass {
    ResourceClass::new(name).expect("a class is named well")
}

pub(crate) fn traits(names: &[&str]) -> BTreeSet<Trait> {
    let name = |name: &&str| Trait::new(name).expect("a trait is named well");
    names.iter().map(name).collect()
}

/// Spreads numbers as random identifiers are spread.
fn spread(number: u128) -> Uuid {
    let high = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Uuid::from_u128(high ^ (high >> 61))
}

pub(crate) fn id(number: usize) -> ProviderId {
    ProviderId(spread(number as u128))
}

pub(crate) fn aggregate(number: usize) -> AggregateId {
    AggregateId(spread(number as u128 + (1 << 64)))
}

/// A fleet while it is built.
#[derive(Default)]
pub(crate) struct Fleet {
    pub(crate) sources: Sources,
    count: usize,
}

impl Fleet {
    pub(crate) fn add(
        &mut self,
        parent: Option<ProviderId>,
        stocks: &[(&str, u64, u64)],
        names: &BTreeSet<Trait>,
        aggregates: &[usize],
    ) -> ProviderId {
        let own = id(self.count);
        self.count += 1;
        let root = parent.map_or(own, |parent| self.sources.providers[&parent].root);
        let provider = ResourceProvider {
            id: own,
            name: format!("provider-{}", self.count),
            generation: Generation(0),
            parent,
            root,
            host: None,
            inventories: stocks
                .iter()
                .map(|(name, total, _)| (class(name), Inventory::exact(*total)))
                .collect(),
            traits: names.clone(),
            aggregates: aggregates.iter().map(|number| aggregate(*number)).collect(),
            origin: None,
            created_at: TimeMs(0),
            updated_at: TimeMs(0),
        };
        let used: Resources = stocks
            .iter()
            .filter(|(_, _, used)| *used > 0)
            .map(|(name, _, used)| (class(name), *used))
            .collect();
        self.sources.providers.insert(own, Arc::new(provider));
        if !used.is_empty() {
            self.sources.used.insert(own, Arc::new(used));
        }
        own
    }
}

/// Hosts without children: a third of them is full, a tenth gold, [`RARE`] are rare, one has much
/// memory.
pub(crate) fn flat(hosts: usize) -> Sources {
    let mut fleet = Fleet::default();
    let common = common();
    for at in 0..hosts {
        let mut names = common.clone();
        if at % 10 == 0 {
            names.extend(traits(&["CUSTOM_GOLD"]));
        }
        if at % (hosts / RARE) == 1 {
            names.extend(traits(&["CUSTOM_RARE"]));
        }
        let vcpus_used = if at % 3 == 2 { 64 } else { at as u64 % 48 };
        let memory = if at == hosts / 2 + 1 {
            1 << 20
        } else {
            1 << 18
        };
        let stocks = [
            ("VCPU", 64, vcpus_used),
            ("MEMORY_MB", memory, at as u64 % 48 * 1024),
            ("DISK_GB", 2000, at as u64 % 48 * 20),
        ];
        fleet.add(None, &stocks, &names, &[0, 1 + at / RACK]);
    }
    fleet.sources
}

fn common() -> BTreeSet<Trait> {
    let names: Vec<_> = (0..COMMON_TRAITS)
        .map(|n| format!("HW_CPU_X86_{n}"))
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    traits(&names)
}

/// Hosts with disk, and 8 children with CPUs and memory each, a third of which are full.
pub(crate) fn nested(trees: usize) -> Sources {
    let mut fleet = Fleet::default();
    let (common, numa) = (common(), traits(&["HW_NUMA_ROOT"]));
    for at in 0..trees {
        let root = fleet.add(None, &[("DISK_GB", 2000, 100)], &common, &[0]);
        for cell in 0..8 {
            let used = if (at + cell) % 3 == 0 { 16 } else { 4 };
            let stocks = [("PCPU", 16, used), ("MEMORY_MB", 65536, 8192)];
            fleet.add(Some(root), &stocks, &numa, &[]);
        }
    }
    fleet.sources
}

/// Hosts with 8 devices of one unit each.
pub(crate) fn wide(hosts: usize) -> Sources {
    let mut fleet = Fleet::default();
    for _ in 0..hosts {
        let root = fleet.add(None, &[], &BTreeSet::new(), &[]);
        for _ in 0..8 {
            fleet.add(Some(root), &[("CUSTOM_GPU", 1, 0)], &BTreeSet::new(), &[]);
        }
    }
    fleet.sources
}

/// Hosts without disks, and one provider of disks for each thousand of them.
pub(crate) fn shared(hosts: usize) -> Sources {
    let mut fleet = Fleet::default();
    let (common, shares) = (common(), traits(&["MISC_SHARES_VIA_AGGREGATE"]));
    for at in 0..hosts {
        if at % 1000 == 0 {
            fleet.add(None, &[("DISK_GB", 1 << 20, 0)], &shares, &[at / 1000]);
        }
        let stocks = [("VCPU", 64, 8), ("MEMORY_MB", 1 << 18, 0)];
        fleet.add(None, &stocks, &common, &[at / 1000]);
    }
    fleet.sources
}

pub(crate) fn amounts(of: &[(&str, u64)]) -> BTreeMap<ResourceClass, u64> {
    of.iter()
        .map(|(name, amount)| (class(name), *amount))
        .collect()
}
