//! The free PCI functions of a host, by how they answer a guest's requests.

use std::collections::BTreeSet;

use super::Scene;
use crate::pci::{PciAddress, PciDevice, PciKind};

/// Where functions are, for the fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::numa::fit) enum Place {
    /// The host does not report it.
    Unknown,
    /// At a cell that is not there.
    Nowhere,
    /// At the cell at this position.
    Cell(usize),
}

/// The side of a physical function and its virtual ones that functions are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Physical,
    Virtual,
}

/// Free functions that are alike for this guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Supply {
    pub(super) place: Place,
    /// The kinds of request that accept them, as bits.
    pub(super) accepts: u64,
    /// Which pair of excluding sides they belong to, where there is something to exclude.
    pub(super) pair: Option<(usize, Side)>,
    /// Where they are in [`Supplies::devices`].
    start: usize,
    pub(super) count: u32,
}

/// Which side of a pair may be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Either, so far.
    Open,
    /// Only this one.
    Only(Side),
}

/// What of a host is near to a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::numa::fit) struct Near {
    /// Whether the guest does not care.
    pub(super) anywhere: bool,
    /// By position of the cells.
    pub(super) cells: Vec<bool>,
    /// By number of the sockets; see [`Supplies::sockets`].
    pub(super) sockets: Vec<bool>,
}

/// The free functions of a host.
#[derive(Clone, Debug)]
pub(in crate::numa::fit) struct Supplies {
    /// Ascending by place.
    pub(super) all: Vec<Supply>,
    /// Positions in the topology, ascending within each supply.
    devices: Vec<usize>,
    /// How many pairs there are.
    pub(super) pairs: usize,
    /// The socket of each cell, numbered from 0; absent where that of any cell is not known.
    pub(super) sockets: Option<Vec<usize>>,
    pub(super) sockets_len: usize,
    preferred: u64,
    legacy: u64,
    socket: u64,
}

/// A free function before it is put together with those that are alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    place: Place,
    accepts: u64,
    pair: Option<(usize, Side)>,
    device: usize,
}

impl Supplies {
    pub(in crate::numa::fit) fn new(scene: &Scene<'_>) -> Self {
        let mut items = free(scene);
        let pairs = pair(scene, &mut items);
        items.sort_unstable();
        let mut all: Vec<Supply> = Vec::new();
        for (start, item) in items.iter().enumerate() {
            let last = all.last_mut();
            match last
                .filter(|s| (s.place, s.accepts, s.pair) == (item.place, item.accepts, item.pair))
            {
                Some(supply) => supply.count += 1,
                None => all.push(Supply {
                    place: item.place,
                    accepts: item.accepts,
                    pair: item.pair,
                    start,
                    count: 1,
                }),
            }
        }
        let (sockets, sockets_len) = sockets(scene);
        let demand = scene.demand;
        Self {
            all,
            devices: items.iter().map(|item| item.device).collect(),
            pairs,
            sockets,
            sockets_len,
            preferred: demand.preferred,
            legacy: demand.legacy,
            socket: demand.socket,
        }
    }

    /// Returns what is near where the guest sits on these cells.
    pub(in crate::numa::fit) fn near(&self, cells: Vec<bool>) -> Near {
        let mut sockets = vec![false; self.sockets_len];
        if let Some(socket_of) = &self.sockets {
            for (cell, socket) in cells.iter().zip(socket_of) {
                sockets[*socket] |= *cell;
            }
        }
        Near {
            anywhere: false,
            cells,
            sockets,
        }
    }

    /// Returns what is near a guest that does not care.
    pub(in crate::numa::fit) fn everywhere(&self) -> Near {
        Near {
            anywhere: true,
            cells: Vec::new(),
            sockets: Vec::new(),
        }
    }

    /// Returns the kinds of request that may be given these functions.
    pub(super) fn allowed(&self, supply: &Supply, near: &Near, decisions: &[Decision]) -> u64 {
        if !is_open(supply, decisions) {
            return 0;
        }
        if near.anywhere {
            return supply.accepts;
        }
        let kinds = match supply.place {
            Place::Unknown => self.preferred | self.legacy,
            Place::Nowhere => self.preferred,
            Place::Cell(cell) if near.cells[cell] => u64::MAX,
            Place::Cell(cell) => {
                let touched = self.sockets.as_ref().is_some_and(|s| near.sockets[s[cell]]);
                self.preferred | if touched { self.socket } else { 0 }
            }
        };
        supply.accepts & kinds
    }

    /// Returns the kinds of request that request functions on sockets that the guest touches.
    pub(super) fn by_socket(&self) -> u64 {
        if self.sockets.is_some() {
            self.socket
        } else {
            0
        }
    }

    /// Returns whether all of these kinds of request request functions on sockets.
    pub(in crate::numa::fit) fn are_by_socket(&self, kinds: u64) -> bool {
        kinds & !self.by_socket() == 0
    }

    /// Returns the positions in the topology of all functions that one of these kinds of request
    /// accepts.
    pub(in crate::numa::fit) fn of(&self, kinds: u64) -> impl Iterator<Item = usize> + '_ {
        let supplies = self.all.iter().filter(move |s| s.accepts & kinds != 0);
        supplies.flat_map(|supply| self.devices(supply).iter().copied())
    }

    /// Returns the kinds of request to which nearness is only a preference.
    pub(super) fn preferred(&self) -> u64 {
        self.preferred
    }

    /// Returns the positions of a supply's functions in the topology.
    pub(super) fn devices(&self, supply: &Supply) -> &[usize] {
        &self.devices[supply.start..supply.start + supply.count as usize]
    }

    /// Returns the supplies at a cell.
    pub(super) fn at(&self, cell: usize) -> &[Supply] {
        let place = Place::Cell(cell);
        let start = self.all.partition_point(|s| s.place < place);
        let end = self.all.partition_point(|s| s.place <= place);
        &self.all[start..end]
    }
}

/// Returns whether no decision is against these functions.
pub(super) fn is_open(supply: &Supply, decisions: &[Decision]) -> bool {
    supply
        .pair
        .is_none_or(|(pair, side)| match decisions[pair] {
            Decision::Open => true,
            Decision::Only(only) => only == side,
        })
}

/// Returns the functions that are free and some request accepts.
fn free(scene: &Scene<'_>) -> Vec<Item> {
    let taken = &scene.usage.pci;
    let all = scene.topology.pci();
    // Physical functions of which a guest has a virtual one.
    let broken: BTreeSet<PciAddress> = if taken.is_empty() {
        BTreeSet::new()
    } else {
        let used = all.iter().filter(|d| taken.contains(&d.address));
        used.filter_map(|d| d.parent).collect()
    };
    let is_free = |device: &PciDevice| {
        taken.is_empty()
            || (!taken.contains(&device.address)
                && !broken.contains(&device.address)
                && device.parent.is_none_or(|p| !taken.contains(&p)))
    };
    let accepts = |device: &PciDevice| {
        let kinds = scene.demand.firsts.iter().enumerate();
        kinds.fold(0_u64, |bits, (kind, first)| {
            bits | u64::from(scene.requests[*first].accepts(device)) << kind
        })
    };
    let mut items = Vec::with_capacity(all.len());
    for (index, device) in all.iter().enumerate() {
        if !is_free(device) {
            continue;
        }
        let accepts = accepts(device);
        if accepts != 0 {
            let place = device.cell.map_or(Place::Unknown, |cell| {
                let position = scene.topology.position(cell);
                position.map_or(Place::Nowhere, Place::Cell)
            });
            items.push(Item {
                place,
                accepts,
                pair: None,
                device: index,
            });
        }
    }
    items
}

/// Finds physical functions that could be given out themselves as well as their virtual ones.
fn pair(scene: &Scene<'_>, items: &mut [Item]) -> usize {
    let devices = scene.topology.pci();
    let physical: Vec<usize> = (0..items.len())
        .filter(|at| devices[items[*at].device].kind == PciKind::Physical)
        .collect();
    let mut pairs = 0;
    for at in physical {
        let address = devices[items[at].device].address;
        let mut has_virtual = false;
        for item in items.iter_mut() {
            if devices[item.device].parent == Some(address) {
                item.pair = Some((pairs, Side::Virtual));
                has_virtual = true;
            }
        }
        if has_virtual {
            items[at].pair = Some((pairs, Side::Physical));
            pairs += 1;
        }
    }
    pairs
}

/// Numbers the sockets.
fn sockets(scene: &Scene<'_>) -> (Option<Vec<usize>>, usize) {
    if scene.demand.socket == 0 {
        return (None, 0);
    }
    let cells = scene.topology.cells();
    let mut known: Vec<_> = cells.iter().filter_map(|cell| cell.socket).collect();
    known.sort_unstable();
    known.dedup();
    let numbers = cells.iter().map(|cell| {
        let socket = cell.socket?;
        known.binary_search(&socket).ok()
    });
    (numbers.collect(), known.len())
}
