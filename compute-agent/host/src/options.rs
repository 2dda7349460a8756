//! The operator's options of a machine, and the topology that results.

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::resource::Trait;
use berth_domain::topology::{self, CellId, FarMemory, HostCell, HostTopology, PagePool};
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Node, rule_key};
use crate::pci::offer::offer;
use crate::{Discovery, Warning, pci};

/// Pages that no guest may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedPages {
    /// The cell.
    pub cell: u32,
    /// The size of one page in KiB.
    pub size_kib: u64,
    /// How many.
    pub count: u64,
}

/// The operator's options of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// CPUs dedicated to one vCPU each.
    pub cpu_dedicated_set: Option<CpuSet>,
    /// CPUs over which vCPUs float. With neither set, all CPUs are shared; with only one of
    /// them set, the other is empty.
    pub cpu_shared_set: Option<CpuSet>,
    /// CPUs for guests of both kinds, instead of the two sets: on a host with such, guests with
    /// CPUs of their own and guests whose vCPUs float are not together at the same time.
    pub vcpu_pin_set: Option<CpuSet>,
    /// Pages that no guest may take.
    pub reserved_pages: Vec<ReservedPages>,
    /// Memory that the host reserves for itself, if set: more than there is.
    pub memory_reserved_mib: Option<u64>,
    /// Which PCI functions are for guests.
    pub pci: Vec<pci::Rule>,
}

/// One thing that is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// CPUs are named that the machine does not have, or has switched off.
    #[error("{set} names CPUs {cpus}, which are not online; online are {online}")]
    Offline {
        /// `cpu_dedicated_set`, `cpu_shared_set` or `vcpu_pin_set`.
        set: &'static str,
        /// The CPUs.
        cpus: CpuSet,
        /// What there is.
        online: CpuSet,
    },
    /// CPUs are in both sets.
    #[error("CPUs {cpus} are in cpu_dedicated_set and in cpu_shared_set")]
    Overlap {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// CPUs are named for both kinds of guests, and for one of them.
    #[error("vcpu_pin_set cannot be combined with cpu_dedicated_set and cpu_shared_set")]
    SeveralSets,
    /// No CPU is left for guests.
    #[error("cpu_dedicated_set and cpu_shared_set are both empty")]
    NoCpus,
    /// The same, with one set for all.
    #[error("vcpu_pin_set is empty")]
    NoPinCpus,
    /// Pages are reserved in a cell that is not there.
    #[error(
        "reserved_pages[{index}] names NUMA node {}, which this machine does not have; its NUMA nodes are {cells}",
        .reserved.cell
    )]
    PagesCell {
        /// Which of the reservations, counted from 0.
        index: usize,
        /// The requested count.
        reserved: ReservedPages,
        /// The cells, written as a list of numbers.
        cells: CpuSet,
    },
    /// Pages are reserved of a size of which there are none.
    #[error(
        "reserved_pages[{index}] names pages of {} KiB, of which NUMA node {} has none; it has pages of {} KiB",
        .reserved.size_kib, .reserved.cell, numbers(.sizes_kib)
    )]
    PagesSize {
        /// Which of the reservations, counted from 0.
        index: usize,
        /// The requested count.
        reserved: ReservedPages,
        /// The sizes that there are.
        sizes_kib: Vec<u64>,
    },
    /// More pages are reserved than there are.
    #[error(
        "reserved_pages[{index}] requests {} pages of {} KiB in NUMA node {}, which has {available}{}",
        .reserved.count, .reserved.size_kib, .reserved.cell, left(*.earlier)
    )]
    Pages {
        /// Which of the reservations, counted from 0.
        index: usize,
        /// The requested size.
        reserved: ReservedPages,
        /// What there is.
        available: u64,
        /// What earlier reservations took of it.
        earlier: u64,
    },
    /// The host keeps more memory than it has.
    #[error("memory_reserved_mib = {reserved} is more than this machine has: {available} MiB")]
    Memory {
        /// The requested count.
        reserved: u64,
        /// What there is.
        available: u64,
    },
    /// A rule about PCI functions names one that cannot be passed through.
    #[error("{}: {why}", rule_key(*.rule))]
    Pci {
        /// Which rule, counted from 0.
        rule: usize,
        /// What is wrong.
        why: String,
    },
}

fn numbers(all: &[u64]) -> String {
    let all: Vec<_> = all.iter().map(ToString::to_string).collect();
    all.join(", ")
}

fn left(earlier: u64) -> String {
    if earlier == 0 {
        String::new()
    } else {
        format!(", of which {earlier} are reserved already")
    }
}

impl Fault {
    /// Returns the keys of the configuration that it is about.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let (dedicated, shared) = ("cpu_dedicated_set", "cpu_shared_set");
        match self {
            Self::Offline { set, .. } => vec![(*set).to_owned()],
            Self::SeveralSets | Self::NoPinCpus => vec!["vcpu_pin_set".to_owned()],
            Self::Overlap { .. } | Self::NoCpus => vec![dedicated.to_owned(), shared.to_owned()],
            Self::PagesCell { index, .. }
            | Self::PagesSize { index, .. }
            | Self::Pages { index, .. } => vec![format!("reserved_pages[{index}]")],
            Self::Memory { .. } => vec!["memory_reserved_mib".to_owned()],
            Self::Pci { rule, .. } => vec![rule_key(*rule)],
        }
    }
}

/// Why a machine and its options do not make a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The options are wrong; all faults.
    #[error("{}", list(.0))]
    Options(Vec<Fault>),
    /// The machine makes no topology.
    #[error(transparent)]
    Topology(#[from] topology::Error),
}

fn list(faults: &[Fault]) -> String {
    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    faults.join("; ")
}

/// Applies the options to a machine.
pub(crate) fn apply(
    machine: Machine,
    options: &Options,
    mut warnings: Vec<Warning>,
) -> Result<Discovery, Error> {
    let (dedicated, shared) = cpu_sets(&machine, options);
    let mut faults = match &options.vcpu_pin_set {
        Some(both) => pin_set_faults(&machine, both, options),
        None => cpu_faults(&machine, &dedicated, &shared),
    };
    warnings.extend(split_cores(&machine, &dedicated));
    let mut cells = Vec::new();
    let mut far_memory = Vec::new();
    let mut kept = Vec::new();
    for (index, node) in machine.nodes.iter().enumerate() {
        if node.cpus.is_empty() && node.memory_kib == 0 {
            let cell = CellId(node.id);
            warnings.push(Warning::EmptyNode { cell });
            continue;
        }
        if node.cpus.is_empty() {
            far_memory.push(FarMemory {
                id: CellId(node.id),
                memory_mib: node.memory_kib / 1024,
            });
            continue;
        }
        kept.push(index);
        cells.push(cell(node, &machine, &dedicated, &shared, &mut warnings));
    }
    faults.extend(reserve(&mut cells, &options.reserved_pages));
    faults.extend(memory(&cells, options.memory_reserved_mib));
    let ids = cells.iter().map(|cell| cell.id).collect();
    let offer = offer(&machine.functions, &options.pci, &ids);
    faults.extend(offer.faults);
    warnings.extend(offer.warnings);
    if !faults.is_empty() {
        return Err(Error::Options(faults));
    }
    let distances = kept
        .iter()
        .map(|from| {
            kept.iter()
                .map(|to| machine.distances[*from][*to])
                .collect()
        })
        .collect();
    let mut traits = machine.traits;
    let mut cores = machine.nodes.iter().flat_map(|n| n.siblings.values());
    if cores.any(|core| core.len() > 1) {
        traits.insert(Trait::hyperthreading());
    }
    Ok(Discovery {
        topology: HostTopology::new(cells, distances)?
            .with_pci(offer.devices)?
            .with_far_memory(far_memory)?,
        traits,
        warnings,
    })
}

/// Returns which CPUs are dedicated and which are shared.
fn cpu_sets(machine: &Machine, options: &Options) -> (CpuSet, CpuSet) {
    if let Some(both) = &options.vcpu_pin_set {
        return (both.clone(), both.clone());
    }
    match (&options.cpu_dedicated_set, &options.cpu_shared_set) {
        (None, None) => (CpuSet::new(), online(machine)),
        (dedicated, shared) => (
            dedicated.clone().unwrap_or_default(),
            shared.clone().unwrap_or_default(),
        ),
    }
}

fn online(machine: &Machine) -> CpuSet {
    let nodes = machine.nodes.iter();
    nodes.fold(CpuSet::new(), |all, n| all.union(&n.cpus))
}

fn offline(machine: &Machine, set: &'static str, cpus: &CpuSet) -> Option<Fault> {
    let online = online(machine);
    (!cpus.is_subset(&online)).then(|| Fault::Offline {
        set,
        cpus: cpus.difference(&online),
        online,
    })
}

fn pin_set_faults(machine: &Machine, both: &CpuSet, options: &Options) -> Vec<Fault> {
    let mut faults = Vec::from_iter(offline(machine, "vcpu_pin_set", both));
    if options.cpu_dedicated_set.is_some() || options.cpu_shared_set.is_some() {
        faults.push(Fault::SeveralSets);
    }
    if both.is_empty() {
        faults.push(Fault::NoPinCpus);
    }
    faults
}

fn cpu_faults(machine: &Machine, dedicated: &CpuSet, shared: &CpuSet) -> Vec<Fault> {
    let sets = [("cpu_dedicated_set", dedicated), ("cpu_shared_set", shared)];
    let offline = sets
        .into_iter()
        .filter_map(|(set, cpus)| offline(machine, set, cpus));
    let mut faults: Vec<_> = offline.collect();
    if !dedicated.is_disjoint(shared) {
        let cpus = dedicated.intersection(shared);
        faults.push(Fault::Overlap { cpus });
    }
    if dedicated.is_empty() && shared.is_empty() {
        faults.push(Fault::NoCpus);
    }
    faults
}

fn split_cores(machine: &Machine, dedicated: &CpuSet) -> Option<Warning> {
    let all = machine.nodes.iter().flat_map(|n| n.siblings.values());
    let is_split = |core: &&CpuSet| !core.is_disjoint(dedicated) && !core.is_subset(dedicated);
    let mut cores: Vec<CpuSet> = all.filter(is_split).cloned().collect();
    cores.sort_by_key(CpuSet::first);
    cores.dedup();
    (!cores.is_empty()).then_some(Warning::SplitCores { cores })
}

fn cell(
    node: &Node,
    machine: &Machine,
    dedicated: &CpuSet,
    shared: &CpuSet,
    warnings: &mut Vec<Warning>,
) -> HostCell {
    let id = CellId(node.id);
    let mut sockets: Vec<_> = node.sockets.values().copied().collect();
    sockets.sort_unstable();
    sockets.dedup();
    let socket = match sockets.as_slice() {
        [one] => Some(*one),
        [] => None,
        [..] => {
            warnings.push(Warning::SeveralSockets { cell: id, sockets });
            None
        }
    };
    let (dedicated, shared) = (
        node.cpus.intersection(dedicated),
        node.cpus.intersection(shared),
    );
    let cores = cores(node, &dedicated.union(&shared), warnings);
    HostCell {
        id,
        socket,
        shared,
        dedicated,
        cores,
        memory_mib: node.memory_kib / 1024,
        pages: pools(node, machine.small_page_kib),
    }
}

/// Returns the cores, cut down to the CPUs that guests may use.
fn cores(node: &Node, usable: &CpuSet, warnings: &mut Vec<Warning>) -> Vec<CpuSet> {
    let mut cores = Vec::new();
    let mut rest = usable.clone();
    let mut unknown = CpuSet::new();
    while let Some(cpu) = rest.first() {
        let core = match node.siblings.get(&cpu) {
            Some(siblings) => siblings
                .intersection(&rest)
                .union(&CpuSet::from_iter([cpu])),
            None => {
                unknown.insert(cpu);
                CpuSet::from_iter([cpu])
            }
        };
        rest = rest.difference(&core);
        cores.push(core);
    }
    if !unknown.is_empty() {
        warnings.push(Warning::UnknownCores {
            cell: CellId(node.id),
            cpus: unknown,
        });
    }
    cores
}

/// Returns the pools: what no huge page takes is counted as small pages.
fn pools(node: &Node, small_page_kib: u64) -> Vec<PagePool> {
    let pool = |size_kib, total| PagePool {
        size_kib,
        total,
        reserved: 0,
    };
    let huge_kib: u64 = node
        .huge_pages
        .iter()
        .map(|(size, count)| size.saturating_mul(*count))
        .fold(0, u64::saturating_add);
    let small = node.memory_kib.saturating_sub(huge_kib) / small_page_kib;
    let huge = node
        .huge_pages
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(size, count)| pool(*size, *count));
    [pool(small_page_kib, small)]
        .into_iter()
        .chain(huge)
        .collect()
}

fn reserve(cells: &mut [HostCell], reserved: &[ReservedPages]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, reservation) in reserved.iter().enumerate() {
        let all = cells.iter().map(|c| CpuId(c.id.0)).collect();
        let reserved = *reservation;
        let cell = cells.iter_mut().find(|c| c.id == CellId(reservation.cell));
        let Some(cell) = cell else {
            faults.push(Fault::PagesCell {
                index,
                reserved,
                cells: all,
            });
            continue;
        };
        let sizes_kib = cell.pages.iter().map(|p| p.size_kib).collect();
        let pool = cell.pages.iter_mut();
        match pool
            .into_iter()
            .find(|p| p.size_kib == reservation.size_kib)
        {
            None => faults.push(Fault::PagesSize {
                index,
                reserved,
                sizes_kib,
            }),
            Some(pool) if pool.total - pool.reserved >= reservation.count => {
                pool.reserved += reservation.count;
            }
            Some(pool) => faults.push(Fault::Pages {
                index,
                reserved,
                available: pool.total,
                earlier: pool.reserved,
            }),
        }
    }
    faults
}

fn memory(cells: &[HostCell], reserved: Option<u64>) -> Option<Fault> {
    let available = cells
        .iter()
        .map(|c| c.memory_mib)
        .fold(0, u64::saturating_add);
    let reserved = reserved.filter(|reserved| *reserved > available)?;
    Some(Fault::Memory {
        reserved,
        available,
    })
}

/// Returns each CPU of a list as its own set, where the siblings are unknown.
pub(crate) fn each(cpus: &CpuSet) -> impl Iterator<Item = (CpuId, CpuSet)> + '_ {
    cpus.iter().map(|cpu| (cpu, CpuSet::from_iter([cpu])))
}
