//! The search for the exact CPUs and pages of a host that answer a guest's wish.
//!
//! Whether one guest cell fits on one host cell does not depend on where the others go, since
//! each gets a host cell of its own ([`cell`]). So the search is a bipartite matching of guest
//! cells to host cells ([`matching`]): polynomial, and it finds a fit exactly if there is one.
//! Which CPUs of a cell are taken is decided last ([`pin`]).
//!
//! Not here: whether the host may be used at all, and counted resources ([`crate::constraint`]).
//!
//! Invariant: what [`fit()`] returns passes [`super::verify()`] with the same arguments; equal
//! arguments give equal answers.

mod cell;
mod matching;
mod pin;

use serde::{Deserialize, Serialize};

use super::refusal::{CellShortfall, FitRefusal};
use super::{Assignment, CellAssignment, HostUsage};
use crate::cpu_set::CpuSet;
use crate::instance::InstanceTopology;
use crate::topology::{CellId, HostTopology};

pub(super) use cell::Site;
pub(crate) use cell::{Guest, free_small_mib};

/// Ratios in thousandths up to which shared CPUs and unaccounted memory of a cell are given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Shared vCPUs per shared CPU.
    pub cpu_ratio_milli: u64,
    /// Memory.
    pub ram_ratio_milli: u64,
    /// Whether memory that guests hold without accounting for its pages is taken off what others
    /// are promised, so that no memory of a cell is promised twice. OpenStack does not do that:
    /// there, such memory can be overcommitted even by guests that never overcommit themselves.
    pub exact_memory: bool,
}

impl Limits {
    /// No ratio is looked at.
    pub const NONE: Self = Self {
        cpu_ratio_milli: u64::MAX,
        ram_ratio_milli: u64::MAX,
        exact_memory: false,
    };
}

/// Which of the cells that fit are taken first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// The emptiest.
    #[default]
    Spread,
    /// The fullest.
    Pack,
}

/// Returns an assignment of the guest's cells to distinct cells of the host.
///
/// # Errors
///
/// There is none: the guest cell that fits nowhere and the nearest host cell, or the guest cells
/// that compete for too few host cells.
pub fn fit(
    topology: &HostTopology,
    usage: &HostUsage,
    wish: &InstanceTopology,
    limits: &Limits,
    strategy: Strategy,
) -> Result<Assignment, FitRefusal> {
    try_fit(topology, usage, wish, limits, strategy)
        .ok_or_else(|| explain(topology, usage, wish, limits))
}

/// Returns what [`fit()`] returns, without the reason where there is none: cheap to ask of many
/// hosts.
#[must_use]
pub fn try_fit(
    topology: &HostTopology,
    usage: &HostUsage,
    wish: &InstanceTopology,
    limits: &Limits,
    strategy: Strategy,
) -> Option<Assignment> {
    let guest = Guest::new(wish);
    let sites = sites(topology, usage);
    if guest.cells.len() > sites.len() {
        return None;
    }
    let fits = fits(&guest, &sites, limits);
    let key = |host: usize| {
        let (first, second) = sites[host].room_for(&guest);
        match strategy {
            Strategy::Spread => (first, second),
            Strategy::Pack => (-first, -second),
        }
    };
    let order = matching::Order {
        keys: (0..sites.len()).map(key).collect(),
        distances: topology.distances(),
    };
    let hosts = matching::solve(&fits, &order).ok()?;
    Some(assign(wish, &guest, &sites, limits, &hosts))
}

fn sites<'a>(topology: &'a HostTopology, usage: &'a HostUsage) -> Vec<Site<'a>> {
    assert_eq!(
        topology.cells().len(),
        usage.cells.len(),
        "usage is by position of the topology's cells"
    );
    topology
        .cells()
        .iter()
        .zip(&usage.cells)
        .map(|(cell, usage)| Site { cell, usage })
        .collect()
}

fn fits(guest: &Guest, sites: &[Site<'_>], limits: &Limits) -> matching::Table {
    matching::Table::new(guest.cells.len(), sites.len(), |g, h| {
        sites[h].check(guest, g, limits).is_ok()
    })
}

fn assign(
    wish: &InstanceTopology,
    guest: &Guest,
    sites: &[Site<'_>],
    limits: &Limits,
    hosts: &[usize],
) -> Assignment {
    let mut emulator = CpuSet::new();
    let cells = wish
        .cells
        .iter()
        .enumerate()
        .map(|(index, wished)| {
            let site = &sites[hosts[index]];
            let page_size_kib = site
                .check(guest, index, limits)
                .expect("only cells that fit are matched");
            let mut cpus = pin::choose(site, guest.cells[index].dedicated).into_iter();
            let pins = wished
                .dedicated
                .iter()
                .map(|vcpu| (*vcpu, cpus.next().expect("as many CPUs as were asked for")))
                .collect();
            emulator.extend(cpus);
            let floating = if wished.shared.is_empty() {
                CpuSet::new()
            } else {
                site.cell.shared.clone()
            };
            CellAssignment {
                guest_cell: wished.id,
                host_cell: site.cell.id,
                pins,
                shared_vcpus: guest.cells[index].shared,
                floating,
                memory_mib: wished.memory_mib,
                page_size_kib,
            }
        })
        .collect();
    Assignment { cells, emulator }
}

/// Returns why there is no fit.
///
/// # Panics
///
/// When there is one.
#[must_use]
pub fn explain(
    topology: &HostTopology,
    usage: &HostUsage,
    wish: &InstanceTopology,
    limits: &Limits,
) -> FitRefusal {
    let guest = Guest::new(wish);
    let sites = sites(topology, usage);
    if guest.cells.len() > sites.len() {
        return FitRefusal::TooFewCells {
            requested: guest.cells.len(),
            available: sites.len(),
        };
    }
    let fits = fits(&guest, &sites, limits);
    let all: Vec<usize> = (0..sites.len()).collect();
    if let Some(nowhere) = (0..guest.cells.len()).find(|g| fits.hosts(*g).next().is_none()) {
        let shortfall = nearest(wish, &guest, &sites, limits, &[nowhere], &all)
            .expect("a cell that fits nowhere lacks something everywhere");
        return FitRefusal::Cell {
            shortfall,
            among_several: guest.cells.len() > 1,
        };
    }
    let order = matching::Order {
        keys: vec![(0, 0); sites.len()],
        distances: topology.distances(),
    };
    let violator = matching::solve(&fits, &order).expect_err("the caller found that nothing fits");
    let others: Vec<usize> = all
        .into_iter()
        .filter(|h| !violator.hosts.contains(h))
        .collect();
    FitRefusal::Compete {
        nearest: nearest(wish, &guest, &sites, limits, &violator.guests, &others),
        guest_cells: violator.guests.iter().map(|g| wish.cells[*g].id).collect(),
        host_cells: violator.hosts.iter().map(|h| sites[*h].cell.id).collect(),
    }
}

/// Returns the smallest shortfall of any of these guest cells on any of these host cells.
fn nearest(
    wish: &InstanceTopology,
    guest: &Guest,
    sites: &[Site<'_>],
    limits: &Limits,
    guests: &[usize],
    hosts: &[usize],
) -> Option<CellShortfall> {
    let shortfalls = guests.iter().flat_map(|&g| {
        hosts.iter().filter_map(move |&h| {
            let shortages = sites[h].shortages(guest, g, limits);
            (!shortages.is_empty()).then(|| CellShortfall {
                guest_cell: wish.cells[g].id,
                host_cell: sites[h].cell.id,
                shortages,
            })
        })
    });
    shortfalls.min_by_key(|s| (s.distance(), s.host_cell, s.guest_cell))
}

/// Returns the id of the host cell on which the emulator's CPU must be: that of guest cell 0.
pub(super) fn emulator_cell(assignment: &Assignment) -> Option<CellId> {
    assignment.cells.first().map(|c| c.host_cell)
}
