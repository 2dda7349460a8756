//! Why a guest does not fit: a closer look after a search without success.
//!
//! Invariant: every statement is true of the host and the guest, whatever the search looked at.

use super::{Failure, Ground, Search, Spot, matching, pci, pmem};
use crate::numa::refusal::{CellShortfall, FitRefusal, PciRegion, PciShortfall, PmemShortfall};
use crate::pci::PciDevice;
use crate::topology::{CellId, SocketId};

impl Search<'_> {
    pub(super) fn explain(&self, failure: Failure) -> FitRefusal {
        let hosts = self.ground.outline.cells.len();
        match failure {
            Failure::TooFewCells => FitRefusal::TooFewCells {
                requested: self.guest.cells.len(),
                available: hosts,
            },
            Failure::Nowhere(guest) => FitRefusal::Cell {
                shortfall: self
                    .nearest(&[guest], 0..hosts)
                    .expect("a cell that fits nowhere lacks something everywhere"),
            },
            Failure::Compete(matching::Violator { guests, hosts: few }) => {
                let others = (0..hosts).filter(|h| !few.contains(h));
                FitRefusal::Compete {
                    nearest: self.nearest(&guests, others),
                    guest_cells: guests.iter().map(|g| self.guest_cell(*g)).collect(),
                    host_cells: few.iter().map(|h| self.host_cell(*h)).collect(),
                }
            }
            Failure::Pci(table) => FitRefusal::Pci(self.explain_pci(table.as_ref())),
            Failure::Pmem => FitRefusal::Pmem(self.explain_pmem()),
            Failure::GaveUp => FitRefusal::GaveUp,
        }
    }

    fn explain_pmem(&self) -> PmemShortfall {
        let Ground {
            topology, usage, ..
        } = self.ground;
        let demand = self.guest.demand.pmem;
        let supply = pmem::Supply::new(topology, usage, &self.guest.demand);
        let (request, requested, available) = supply.shortage();
        PmemShortfall {
            request: request.clone(),
            policy: demand.policy,
            requested,
            available,
        }
    }

    fn guest_cell(&self, position: usize) -> u32 {
        let topology = self.guest.demand.topology;
        topology.map_or(0, |topology| topology.cells[position].id)
    }

    fn host_cell(&self, position: usize) -> CellId {
        self.ground.topology.cells()[position].id
    }

    /// Returns the smallest shortfall of any of these guest cells on any of these host cells.
    fn nearest(
        &self,
        guests: &[usize],
        hosts: impl Iterator<Item = usize>,
    ) -> Option<CellShortfall> {
        let spot = |host| Spot::new(self.ground.outline, host);
        // Of guest cells that are alike the first is named.
        let cells = &self.guest.cells;
        let is_first = |at: usize| at == 0 || cells[guests[at - 1]] != cells[guests[at]];
        let firsts: Vec<usize> = (0..guests.len()).filter(|at| is_first(*at)).collect();
        let pairs = hosts.flat_map(|h| firsts.iter().map(move |at| (h, guests[*at])));
        let (_, host, guest) = pairs
            .filter_map(|(h, g)| {
                let found = spot(h).distance(&self.guest.cells[g])?;
                Some((found, h, g))
            })
            .min()?;
        Some(CellShortfall {
            guest_cell: self.guest_cell(guest),
            host_cell: self.host_cell(host),
            shortages: spot(host).shortages(&self.guest.cells[guest]),
        })
    }

    /// Looks for what is missing: first on the whole host, then near the cells on which the guest
    /// fits, then together with everything else.
    fn explain_pci(&self, table: Option<&matching::Table>) -> PciShortfall {
        let scene = self.scene(table);
        let supplies = pci::Supplies::new(&scene);
        let search = pci::Search::new(scene, &supplies);
        let everywhere = supplies.everywhere();
        if let Some((kinds, requested, available)) = search.lack(&everywhere) {
            return self.shortfall(kinds, requested, available, PciRegion::Host, None);
        }
        let Some(table) = table else {
            return self.together(table);
        };
        let cells: Vec<bool> = (0..self.ground.outline.cells.len())
            .map(|cell| table.is_used(cell))
            .collect();
        let near = supplies.near(cells.clone());
        if let Some((kinds, requested, available)) = search.lack(&near) {
            let region = self.region(&cells, supplies.are_by_socket(kinds));
            let elsewhere = self.elsewhere(kinds, &cells, &region);
            return self.shortfall(kinds, requested, available, region, elsewhere);
        }
        self.together(Some(table))
    }

    fn shortfall(
        &self,
        kinds: u64,
        requested: u64,
        available: u64,
        region: PciRegion,
        elsewhere: Option<(u64, PciRegion)>,
    ) -> PciShortfall {
        PciShortfall {
            what: self.names(kinds),
            requested,
            available,
            taken: self.taken(kinds, &region),
            region,
            elsewhere,
        }
    }

    /// Returns how many functions of a region such requests accept that others have, or exclude.
    fn taken(&self, kinds: u64, region: &PciRegion) -> u64 {
        let scene = self.scene(None);
        let supplies = pci::Supplies::new(&scene);
        let free: Vec<usize> = supplies.of(kinds).collect();
        let topology = self.ground.topology;
        let is_near = |device: &PciDevice| {
            let cell = device.cell.and_then(|cell| topology.cell(cell));
            match region {
                PciRegion::Host => true,
                PciRegion::Cells(cells) => cell.is_some_and(|cell| cells.contains(&cell.id)),
                PciRegion::Sockets(sockets) => cell
                    .and_then(|cell| cell.socket)
                    .is_some_and(|socket| sockets.contains(&socket)),
                PciRegion::Beside | PciRegion::Together => false,
            }
        };
        let requests: Vec<_> = self.guest.pci.firsts(kinds).collect();
        let is_accepted = |device: &PciDevice| {
            let mut requests = requests.iter();
            requests.any(|request| self.guest.demand.pci[*request].accepts(device))
        };
        let devices = topology.pci().iter().enumerate();
        let taken = devices
            .filter(|(at, device)| !free.contains(at) && is_near(device) && is_accepted(device));
        taken.count() as u64
    }

    /// Returns what kinds of request request, each function once: kinds may differ in policy alone.
    fn names(&self, kinds: u64) -> String {
        let requests = self.guest.pci.firsts(kinds);
        let all = requests.flat_map(|request| &self.guest.demand.pci[request].any_of);
        let mut names: Vec<String> = Vec::new();
        for name in all.map(ToString::to_string) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(" or ")
    }

    /// Returns the cells on which the guest fits, or their sockets.
    fn region(&self, cells: &[bool], by_socket: bool) -> PciRegion {
        let used = self.ground.topology.cells().iter().zip(cells);
        let used = used.filter(|(_, is_used)| **is_used).map(|(cell, _)| cell);
        if by_socket {
            let mut sockets: Vec<SocketId> = used.filter_map(|cell| cell.socket).collect();
            sockets.sort_unstable();
            sockets.dedup();
            PciRegion::Sockets(sockets)
        } else {
            PciRegion::Cells(used.map(|cell| cell.id).collect())
        }
    }

    /// Returns where else there are free functions of these kinds, and how many: the cell or
    /// socket that has most.
    fn elsewhere(
        &self,
        kinds: u64,
        cells: &[bool],
        region: &PciRegion,
    ) -> Option<(u64, PciRegion)> {
        let scene = self.scene(None);
        let supplies = pci::Supplies::new(&scene);
        let topology = self.ground.topology;
        let is_out = |position: usize| {
            let cell = &topology.cells()[position];
            match region {
                PciRegion::Sockets(sockets) => {
                    cell.socket.is_none_or(|socket| !sockets.contains(&socket))
                }
                PciRegion::Cells(_) | PciRegion::Host | PciRegion::Beside | PciRegion::Together => {
                    !cells[position]
                }
            }
        };
        let mut counts: Vec<(u64, PciRegion)> = Vec::new();
        for device in supplies.of(kinds) {
            let device: &PciDevice = &topology.pci()[device];
            let position = device.cell.and_then(|cell| topology.position(cell));
            let Some(position) = position.filter(|position| is_out(*position)) else {
                continue;
            };
            let cell = &topology.cells()[position];
            let place = match (region, cell.socket) {
                (PciRegion::Sockets(_), Some(socket)) => PciRegion::Sockets(vec![socket]),
                _ => PciRegion::Cells(vec![cell.id]),
            };
            match counts.iter_mut().find(|(_, other)| *other == place) {
                Some((count, _)) => *count += 1,
                None => counts.push((1, place)),
            }
        }
        counts.into_iter().rev().max_by_key(|(count, _)| *count)
    }

    /// Returns the kind of request of which the fewest had to be given up, alone, for the rest to
    /// be met.
    fn together(&self, table: Option<&matching::Table>) -> PciShortfall {
        let scene = self.scene(table);
        let supplies = pci::Supplies::new(&scene);
        let best = self.guest.pci.counts().flat_map(|(kind, count)| {
            let fits = |requested: &u32| {
                let mut search = pci::Search::new(scene, &supplies).requesting(kind, *requested);
                matches!(search.run(), pci::SearchResult::Solution(_))
            };
            let available = (0..count).rev().take(TRIES_MAX).find(fits)?;
            Some((count - available, kind, count, available))
        });
        match best.min() {
            Some((_, kind, requested, available)) => self.shortfall(
                1 << kind,
                requested.into(),
                available.into(),
                PciRegion::Beside,
                None,
            ),
            None => {
                let counts = || self.guest.pci.counts();
                let requested = counts().map(|(_, n)| u64::from(n)).sum();
                let kinds = counts().fold(0, |bits, (kind, _)| bits | 1 << kind);
                self.shortfall(kinds, requested, 0, PciRegion::Together, None)
            }
        }
    }
}

/// How many functions less are tried, for an explanation.
const TRIES_MAX: usize = 16;
