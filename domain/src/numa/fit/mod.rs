//! The search for the exact CPUs, pages and PCI functions of a host that meet a guest's demand.
//!
//! Whether one guest cell fits on one host cell does not depend on where the others go, since each
//! gets a host cell of its own (`cell`). So the search is a bipartite matching of guest cells to
//! host cells (`matching`): polynomial, and it finds a fit exactly if there is one. PCI functions
//! are evaluated on the set of host cells (`pci`): a search over what has such functions, and only
//! where the preferred cells will not do. Namespaces of persistent memory are devices of guest cell
//! 0: the host cells that are nearest to enough of them are tried first for it (`pmem`); the same
//! goes for what lies fast and the guest is to be near to. Which CPUs of a cell are taken is
//! decided last (`pin`).
//!
//! Not here: whether the host may be used at all, and counted resources ([`crate::constraint`]).
//!
//! Invariant: what [`fit()`] returns passes [`super::verify()`] with the same arguments; equal
//! arguments give equal answers.

mod cell;
mod explain;
mod matching;
mod need;
mod pci;
mod pin;
mod pmem;

use serde::{Deserialize, Serialize};

use super::outline::Outline;
use super::refusal::FitRefusal;
use super::{Assignment, CellAssignment, HostUsage};
use crate::cpu_set::CpuSet;
use crate::pmem::PmemDevice;
use crate::topology::{CellId, HostTopology};

pub(super) use cell::Spot;
pub(crate) use need::Need;
pub use need::{ExactDemand, Guest};

/// Which of the cells that fit are taken first.
///
/// Before that, cells with free PCI functions: first for guests that request such, last for the
/// others, so that these cells are kept for those who need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// The emptiest.
    #[default]
    Spread,
    /// The fullest.
    Pack,
}

/// A host with what is taken from it.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// Its shape.
    pub topology: &'a HostTopology,
    /// What is taken.
    pub usage: &'a HostUsage,
    /// Both in numbers, under the limits that are to be kept.
    pub outline: &'a Outline,
}

/// Returns an assignment of the guest's cells to distinct cells of the host.
///
/// # Errors
///
/// There is none: the guest cell that fits nowhere and the nearest host cell, the guest cells
/// that compete for too few host cells, or the PCI functions that are missing.
pub fn fit(
    ground: Ground<'_>,
    guest: &Guest<'_>,
    strategy: Strategy,
) -> Result<Assignment, FitRefusal> {
    let search = Search { ground, guest };
    search
        .run(strategy)
        .map_err(|failure| search.explain(failure))
}

/// Returns what [`fit()`] returns, without the reason where there is none: cheap to evaluate for
/// many hosts.
#[must_use]
pub fn try_fit(ground: Ground<'_>, guest: &Guest<'_>, strategy: Strategy) -> Option<Assignment> {
    Search { ground, guest }.run(strategy).ok()
}

/// Returns whether [`fit()`] would return an assignment: cheaper still.
#[must_use]
pub fn is_feasible(ground: Ground<'_>, guest: &Guest<'_>) -> bool {
    let search = Search { ground, guest };
    let is_narrow =
        guest.cells.len() <= matching::NARROW && ground.outline.cells.len() <= matching::NARROW;
    let has_devices = !guest.pci.is_empty() || !guest.demand.pmem.requests.is_empty();
    if has_devices || !is_narrow {
        return search.place(Strategy::Spread).is_ok();
    }
    guest.cells.len() <= ground.outline.cells.len() && search.rows_are_full()
}

/// Returns whether [`fit()`] would give up the search, so that it is not known whether the guest
/// fits: cheaper than asking for the reason.
#[must_use]
pub fn gives_up(ground: Ground<'_>, guest: &Guest<'_>) -> bool {
    let search = Search { ground, guest };
    !guest.pci.is_empty() && matches!(search.place(Strategy::Spread), Err(Failure::GaveUp))
}

/// One search, with all that it looks at.
#[derive(Clone, Copy)]
struct Search<'a> {
    ground: Ground<'a>,
    guest: &'a Guest<'a>,
}

/// Where a guest's cells go, and the devices that it gets.
#[derive(Default)]
struct Placed {
    /// Positions of the host cells, by position of the guest cells.
    hosts: Vec<usize>,
    pci: Vec<std::collections::BTreeSet<crate::pci::PciAddress>>,
    pmem: Vec<PmemDevice>,
}

/// What a search without success has found; [`Search::explain`] looks closer.
enum Failure {
    TooFewCells,
    /// This guest cell, by position, fits on no host cell.
    Nowhere(usize),
    Compete(matching::Violator),
    /// There are not enough PCI functions near enough.
    Pci(Option<matching::Table>),
    /// There are not enough namespaces of persistent memory, or not near enough.
    Pmem,
    /// The search took too long.
    GaveUp,
}

impl Search<'_> {
    fn run(&self, strategy: Strategy) -> Result<Assignment, Failure> {
        Ok(self.assign(self.place(strategy)?))
    }

    /// Returns whether all guest cells can be matched, for few enough cells.
    fn rows_are_full(&self) -> bool {
        let guests = &self.guest.cells;
        let mut rows = [0_u64; matching::NARROW];
        for (index, need) in guests.iter().enumerate() {
            if self.is_as_before(index) {
                rows[index] = rows[index - 1];
                continue;
            }
            for host in 0..self.ground.outline.cells.len() {
                let fits = Spot::new(self.ground.outline, host).check(need).is_ok();
                rows[index] |= u64::from(fits) << host;
            }
            if rows[index] == 0 {
                return false;
            }
        }
        matching::is_full(&rows[..guests.len()])
    }

    /// Returns whether a guest cell needs what the one before it needs. Those that are alike are
    /// mostly neighbours.
    fn is_as_before(&self, guest: usize) -> bool {
        let cells = &self.guest.cells;
        guest > 0 && cells[guest - 1] == cells[guest]
    }

    fn place(&self, strategy: Strategy) -> Result<Placed, Failure> {
        let guests = self.guest.cells.len();
        if guests == 0 {
            return self.place_without_cells();
        }
        let outline = self.ground.outline;
        if guests > outline.cells.len() {
            return Err(Failure::TooFewCells);
        }
        let fits = |guest: usize, host| {
            let need = &self.guest.cells[guest];
            Spot::new(outline, host).check(need).is_ok()
        };
        let hosts = outline.cells.len();
        let table = matching::Table::new(guests, hosts, |g| self.is_as_before(g), fits);
        if let Some(homeless) = table.homeless() {
            return Err(Failure::Nowhere(homeless));
        }
        let order = self.order(strategy);
        let demand = &self.guest.demand;
        if demand.pmem.requests.is_empty() && demand.near.is_empty() {
            return self.place_on(table, &order);
        }
        self.place_beside_pmem(&table, &order)
    }

    /// Places the guest's cells as the table allows, and gives out PCI functions.
    fn place_on(
        &self,
        table: matching::Table,
        order: &matching::Order<'_>,
    ) -> Result<Placed, Failure> {
        let hosts = matching::solve(&table, order, &[]).map_err(Failure::Compete)?;
        if self.guest.pci.is_empty() {
            return Ok(Placed {
                hosts,
                ..Placed::default()
            });
        }
        self.place_near(table, order, hosts)
    }

    /// Places a guest with persistent memory: the nearer guest cell 0 is to it, the better. The
    /// host cells that are equally near are tried together, so that nothing that fits is missed.
    fn place_beside_pmem(
        &self,
        table: &matching::Table,
        order: &matching::Order<'_>,
    ) -> Result<Placed, Failure> {
        let Ground {
            topology, usage, ..
        } = self.ground;
        let supply = pmem::Supply::new(topology, usage, &self.guest.demand);
        let all_homes = supply.homes();
        if all_homes.is_empty() {
            return Err(Failure::Pmem);
        }
        let mut gave_up = false;
        for homes in all_homes {
            let mut narrowed = table.clone();
            narrowed.retain(0, |host| homes.contains(&host));
            if narrowed.homeless().is_some() {
                continue;
            }
            match self.place_on(narrowed, order) {
                Ok(mut placed) => {
                    let given = supply.give(placed.hosts[0]);
                    placed.pmem = given.expect("only where there is enough").devices;
                    return Ok(placed);
                }
                Err(why) => gave_up |= matches!(why, Failure::GaveUp),
            }
        }
        // What keeps it from fitting at all is reported without regard to its memory.
        Err(match self.place_on(table.clone(), order) {
            Ok(_) if gave_up => Failure::GaveUp,
            Ok(_) => Failure::Pmem,
            Err(why) => why,
        })
    }

    /// Gives out PCI functions to a guest that does not care where they are.
    fn place_without_cells(&self) -> Result<Placed, Failure> {
        let mut placed = Placed::default();
        if self.guest.pci.is_empty() {
            return Ok(placed);
        }
        let scene = self.scene(None);
        let supplies = pci::Supplies::new(&scene);
        let mut search = pci::Search::new(scene, &supplies);
        match search.run() {
            pci::SearchResult::Solution(found) => {
                placed.pci = search.give(&supplies.everywhere(), &found);
                Ok(placed)
            }
            pci::SearchResult::None => Err(Failure::Pci(None)),
            pci::SearchResult::GaveUp => Err(Failure::GaveUp),
        }
    }

    /// Gives out PCI functions near the preferred host cells; where those will not do, near
    /// others.
    fn place_near(
        &self,
        table: matching::Table,
        order: &matching::Order<'_>,
        hosts: Vec<usize>,
    ) -> Result<Placed, Failure> {
        let scene = self.scene(Some(&table));
        let supplies = pci::Supplies::new(&scene);
        let near = |hosts: &[usize]| {
            let cells = 0..self.ground.outline.cells.len();
            supplies.near(cells.map(|cell| hosts.contains(&cell)).collect())
        };
        let mut search = pci::Search::new(scene, &supplies);
        let here = near(&hosts);
        if let pci::SearchResult::Solution(found) = search.on(here.clone()) {
            let pci = search.give(&here, &found);
            return Ok(Placed {
                hosts,
                pci,
                ..Placed::default()
            });
        }
        match search.run() {
            pci::SearchResult::Solution(found) => {
                let hosts = matching::solve(&table, order, &found.cells);
                let hosts = hosts.expect("all guest cells were matched before");
                let pci = search.give(&near(&hosts), &found);
                Ok(Placed {
                    hosts,
                    pci,
                    ..Placed::default()
                })
            }
            pci::SearchResult::None => Err(Failure::Pci(Some(table))),
            pci::SearchResult::GaveUp => Err(Failure::GaveUp),
        }
    }

    fn scene<'b>(&'b self, table: Option<&'b matching::Table>) -> pci::Scene<'b> {
        pci::Scene {
            topology: self.ground.topology,
            usage: self.ground.usage,
            requests: self.guest.demand.pci,
            demand: &self.guest.pci,
            table,
        }
    }

    /// Returns in which order host cells are preferred: as Nova sorts them.
    fn order(&self, strategy: Strategy) -> matching::Order<'_> {
        let key = |headroom: &super::outline::CellHeadroom| {
            let pci = i64::from(headroom.pci);
            let pci = if self.guest.pci.is_empty() { -pci } else { pci };
            let cpus = if self.guest.is_exclusive {
                i64::from(headroom.cores.free)
            } else {
                -i64::from(headroom.vcpus_used)
            };
            match strategy {
                Strategy::Spread => (pci, cpus, headroom.unused_mib),
                Strategy::Pack => (pci, -cpus, headroom.unused_mib.saturating_neg()),
            }
        };
        matching::Order {
            keys: self.ground.outline.cells.iter().map(key).collect(),
            distances: self.ground.topology.distances(),
        }
    }

    fn assign(&self, placed: Placed) -> Assignment {
        let mut emulator = CpuSet::new();
        let cells = placed
            .hosts
            .iter()
            .enumerate()
            .map(|(index, host)| self.assign_cell(index, *host, &mut emulator))
            .collect();
        Assignment {
            cells,
            emulator,
            pci: placed.pci,
            pmem: placed.pmem,
        }
    }

    fn assign_cell(&self, index: usize, host: usize, emulator: &mut CpuSet) -> CellAssignment {
        let topology = self.guest.demand.topology.expect("a guest with cells");
        let requested = &topology.cells[index];
        let need = &self.guest.cells[index];
        let page_size_kib = Spot::new(self.ground.outline, host)
            .check(need)
            .expect("only cells that fit are matched");
        let cell = &self.ground.topology.cells()[host];
        let taken = pin::choose(cell, &self.ground.usage.cells[host].pinned, need);
        emulator.extend(taken.emulator);
        let floating = if requested.shared.is_empty() {
            CpuSet::new()
        } else {
            cell.shared.clone()
        };
        CellAssignment {
            guest_cell: requested.id,
            host_cell: cell.id,
            pins: requested
                .dedicated
                .iter()
                .copied()
                .zip(taken.vcpus)
                .collect(),
            idle: taken.idle,
            shared_vcpus: need.shared,
            floating,
            memory_mib: requested.memory_mib,
            page_size_kib,
        }
    }
}

/// Returns the id of the host cell on which the emulator's CPU must be: that of guest cell 0.
pub(crate) fn emulator_cell(assignment: &Assignment) -> Option<CellId> {
    assignment.cells.first().map(|c| c.host_cell)
}
