//! What the operator says about a machine, and the topology that comes of both.

use berth_domain::cpu_set::{CpuId, CpuSet};
use berth_domain::topology::{self, CellId, HostCell, HostTopology, PagePool};
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Node};
use crate::{Discovery, Warning};

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

/// What the operator says about a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// CPUs that are given to one vCPU each.
    pub cpu_dedicated_set: Option<CpuSet>,
    /// CPUs over which vCPUs float. With neither set given, all CPUs are shared; with one of
    /// them given, the other is empty.
    pub cpu_shared_set: Option<CpuSet>,
    /// Pages that no guest may take.
    pub reserved_pages: Vec<ReservedPages>,
}

/// One thing that is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// CPUs are named that the machine does not have, or has switched off.
    #[error("{set} names CPUs {cpus}, which are not online; online are {online}")]
    Offline {
        /// `cpu_dedicated_set` or `cpu_shared_set`.
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
    /// No CPU is left for guests.
    #[error("cpu_dedicated_set and cpu_shared_set are both empty")]
    NoCpus,
    /// Pages are reserved that are not there.
    #[error(
        "reserved_pages asks for {} pages of {} KiB in cell {}, which has {available}",
        .reserved.count, .reserved.size_kib, .reserved.cell
    )]
    Pages {
        /// What was asked for.
        reserved: ReservedPages,
        /// What there is.
        available: u64,
    },
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
    let (dedicated, shared) = cpu_sets(&machine, options).map_err(Error::Options)?;
    let mut cells = Vec::new();
    let mut kept = Vec::new();
    for (index, node) in machine.nodes.iter().enumerate() {
        if node.cpus.is_empty() && node.memory_kib == 0 {
            let cell = CellId(node.id);
            warnings.push(Warning::EmptyNode { cell });
            continue;
        }
        kept.push(index);
        cells.push(cell(node, &machine, &dedicated, &shared, &mut warnings));
    }
    reserve(&mut cells, &options.reserved_pages).map_err(Error::Options)?;
    let distances = kept
        .iter()
        .map(|from| {
            kept.iter()
                .map(|to| machine.distances[*from][*to])
                .collect()
        })
        .collect();
    Ok(Discovery {
        topology: HostTopology::new(cells, distances)?,
        warnings,
    })
}

fn cpu_sets(machine: &Machine, options: &Options) -> Result<(CpuSet, CpuSet), Vec<Fault>> {
    let online = machine
        .nodes
        .iter()
        .fold(CpuSet::new(), |all, n| all.union(&n.cpus));
    let (dedicated, shared) = match (&options.cpu_dedicated_set, &options.cpu_shared_set) {
        (None, None) => (CpuSet::new(), online.clone()),
        (dedicated, shared) => (
            dedicated.clone().unwrap_or_default(),
            shared.clone().unwrap_or_default(),
        ),
    };
    let mut faults = Vec::new();
    for (set, cpus) in [
        ("cpu_dedicated_set", &dedicated),
        ("cpu_shared_set", &shared),
    ] {
        if !cpus.is_subset(&online) {
            faults.push(Fault::Offline {
                set,
                cpus: cpus.difference(&online),
                online: online.clone(),
            });
        }
    }
    if !dedicated.is_disjoint(&shared) {
        let cpus = dedicated.intersection(&shared);
        faults.push(Fault::Overlap { cpus });
    }
    if dedicated.is_empty() && shared.is_empty() {
        faults.push(Fault::NoCpus);
    }
    if faults.is_empty() {
        Ok((dedicated, shared))
    } else {
        Err(faults)
    }
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

fn reserve(cells: &mut [HostCell], reserved: &[ReservedPages]) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    for wanted in reserved {
        let cell = cells.iter_mut().find(|c| c.id == CellId(wanted.cell));
        let pool = cell.and_then(|c| c.pages.iter_mut().find(|p| p.size_kib == wanted.size_kib));
        match pool {
            Some(pool) if pool.total - pool.reserved >= wanted.count => {
                pool.reserved += wanted.count;
            }
            other => faults.push(Fault::Pages {
                reserved: *wanted,
                available: other.map_or(0, |p| p.total - p.reserved),
            }),
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults)
    }
}

/// Returns each CPU of a list as its own set; helps those who know no better.
pub(crate) fn each(cpus: &CpuSet) -> impl Iterator<Item = (CpuId, CpuSet)> + '_ {
    cpus.iter().map(|cpu| (cpu, CpuSet::from_iter([cpu])))
}
