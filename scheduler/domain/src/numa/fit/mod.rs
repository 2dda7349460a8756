//! The search for the exact CPUs and pages of a host that answer a guest's wish.
//!
//! Whether one guest cell fits on one host cell does not depend on where the others go, since
//! each gets a host cell of its own (`cell`). So the search is a bipartite matching of guest
//! cells to host cells (`matching`): polynomial, and it finds a fit exactly if there is one.
//! Which CPUs of a cell are taken is decided last (`pin`).
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
    let guest = Guest::new(wish);
    let sites = sites(topology, usage);
    let search = Search {
        wish,
        guest: &guest,
        sites: &sites,
        limits,
    };
    search
        .run(topology, strategy)
        .map_err(|failure| search.explain(failure))
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
    let search = Search {
        wish,
        guest: &guest,
        sites: &sites,
        limits,
    };
    search.run(topology, strategy).ok()
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

/// One search, with all that it looks at.
#[derive(Clone, Copy)]
struct Search<'a> {
    wish: &'a InstanceTopology,
    guest: &'a Guest,
    sites: &'a [Site<'a>],
    limits: &'a Limits,
}

/// What a search without success has found; [`Search::explain`] looks closer.
enum Failure {
    TooFewCells,
    /// This guest cell, by position, fits on no host cell.
    Nowhere(usize),
    Compete(matching::Violator),
}

impl Search<'_> {
    fn run(&self, topology: &HostTopology, strategy: Strategy) -> Result<Assignment, Failure> {
        let guests = self.guest.cells.len();
        if guests > self.sites.len() {
            return Err(Failure::TooFewCells);
        }
        let fits = matching::Table::new(guests, self.sites.len(), |g, h| {
            self.sites[h].check(self.guest, g, self.limits).is_ok()
        });
        if let Some(nowhere) = (0..guests).find(|g| fits.hosts(*g).next().is_none()) {
            return Err(Failure::Nowhere(nowhere));
        }
        let key = |site: &Site<'_>| {
            let (first, second) = site.room_for(self.guest);
            match strategy {
                Strategy::Spread => (first, second),
                Strategy::Pack => (-first, -second),
            }
        };
        let order = matching::Order {
            keys: self.sites.iter().map(key).collect(),
            distances: topology.distances(),
        };
        let hosts = matching::solve(&fits, &order).map_err(Failure::Compete)?;
        Ok(self.assign(&hosts))
    }

    fn assign(&self, hosts: &[usize]) -> Assignment {
        let mut emulator = CpuSet::new();
        let cells = (0..hosts.len())
            .map(|index| self.assign_cell(index, &self.sites[hosts[index]], &mut emulator))
            .collect();
        Assignment {
            cells,
            emulator,
            pci: Vec::new(),
        }
    }

    fn assign_cell(&self, index: usize, site: &Site<'_>, emulator: &mut CpuSet) -> CellAssignment {
        let wished = &self.wish.cells[index];
        let need = &self.guest.cells[index];
        let page_size_kib = site
            .check(self.guest, index, self.limits)
            .expect("only cells that fit are matched");
        let mut cpus = pin::choose(site, need.dedicated).into_iter();
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
            idle: CpuSet::new(),
            shared_vcpus: need.shared,
            floating,
            memory_mib: wished.memory_mib,
            page_size_kib,
        }
    }

    fn explain(&self, failure: Failure) -> FitRefusal {
        match failure {
            Failure::TooFewCells => FitRefusal::TooFewCells {
                requested: self.guest.cells.len(),
                available: self.sites.len(),
            },
            Failure::Nowhere(guest) => FitRefusal::Cell {
                shortfall: self
                    .nearest(&[guest], 0..self.sites.len())
                    .expect("a cell that fits nowhere lacks something everywhere"),
                among_several: self.guest.cells.len() > 1,
            },
            Failure::Compete(matching::Violator { guests, hosts }) => {
                let others = (0..self.sites.len()).filter(|h| !hosts.contains(h));
                FitRefusal::Compete {
                    nearest: self.nearest(&guests, others),
                    guest_cells: guests.iter().map(|g| self.wish.cells[*g].id).collect(),
                    host_cells: hosts.iter().map(|h| self.sites[*h].cell.id).collect(),
                }
            }
        }
    }

    /// Returns the smallest shortfall of any of these guest cells on any of these host cells.
    fn nearest(
        &self,
        guests: &[usize],
        hosts: impl Iterator<Item = usize>,
    ) -> Option<CellShortfall> {
        let pairs = hosts.flat_map(|h| guests.iter().map(move |g| (h, *g)));
        let (_, host, guest) = pairs
            .filter_map(|(h, g)| {
                let found = self.sites[h].distance(self.guest, g, self.limits)?;
                Some((found, h, g))
            })
            .min()?;
        Some(CellShortfall {
            guest_cell: self.wish.cells[guest].id,
            host_cell: self.sites[host].cell.id,
            shortages: self.sites[host].shortages(self.guest, guest, self.limits),
        })
    }
}

/// Returns the id of the host cell on which the emulator's CPU must be: that of guest cell 0.
pub(super) fn emulator_cell(assignment: &Assignment) -> Option<CellId> {
    assignment.cells.first().map(|c| c.host_cell)
}
