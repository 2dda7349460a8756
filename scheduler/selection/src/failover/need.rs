//! What guests need and hosts have left, in amounts that add up: what all guests of a domain need of
//! something can be compared with what all hosts have left of it.
//!
//! Invariant: a guest that fits needs no more of anything than there is, and takes at least what it
//! needs. So amounts refute, and never prove.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::constraint::Demand;
use berth_domain::host_view::HostView;
use berth_domain::instance::{InstanceCell, PageSize};
use berth_domain::name::ServerGroupName;
use berth_domain::pci::PciRequest;
use berth_domain::resource::ResourceClass;
use berth_domain::server_group::{GroupDemand, GroupPolicy};

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// A counted resource.
    Class(ResourceClass),
    /// Dedicated CPUs of cells.
    DedicatedCpus,
    /// Free MiB in small pages.
    SmallPages,
    /// Pages of so many KiB: of 2 MiB or of 1 GiB.
    Pages(u64),
    /// PCI functions that answer such a request.
    Functions(PciRequest),
    /// Namespaces of persistent memory of this class that are whole and erased.
    Namespaces(ResourceClass),
    /// Places on hosts that do not have as many members of this server group yet as they may.
    Apart(ServerGroupName, u32),
}

const PAGES_2M: u64 = 2048;
const PAGES_1G: u64 = 1_048_576;

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => class.fmt(f),
            Self::DedicatedCpus => f.write_str("dedicated CPUs"),
            Self::SmallPages => f.write_str("MiB in small pages"),
            Self::Pages(PAGES_2M) => f.write_str("pages of 2 MiB"),
            Self::Pages(PAGES_1G) => f.write_str("pages of 1 GiB"),
            Self::Pages(kib) => write!(f, "pages of {kib} KiB"),
            Self::Functions(request) => write!(f, "PCI functions {request}"),
            Self::Namespaces(class) => write!(f, "usable namespaces of class {class}"),
            Self::Apart(group, _) => {
                write!(f, "places for members of server group {group}")
            }
        }
    }
}

/// What some cells of a guest need each, at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CellNeed {
    dedicated: u64,
    small_mib: u64,
    pages_2m: u64,
    pages_1g: u64,
}

impl CellNeed {
    fn of(cell: &InstanceCell, emulator: u64) -> Self {
        let mut need = Self {
            dedicated: cell.dedicated.len() as u64 + emulator,
            ..Self::default()
        };
        match cell.page_size {
            PageSize::Kib(PAGES_2M) => need.pages_2m = cell.memory_mib / 2,
            PageSize::Kib(PAGES_1G) => need.pages_1g = cell.memory_mib / 1024,
            PageSize::Small => need.small_mib = cell.memory_mib,
            PageSize::Unspecified if cell.cpu_policy.is_exclusive() => {
                need.small_mib = cell.memory_mib;
            }
            // Several pools may do.
            PageSize::Unspecified | PageSize::Large | PageSize::Any | PageSize::Kib(_) => {}
        }
        need
    }

    fn least(self, other: Self) -> Self {
        Self {
            dedicated: self.dedicated.min(other.dedicated),
            small_mib: self.small_mib.min(other.small_mib),
            pages_2m: self.pages_2m.min(other.pages_2m),
            pages_1g: self.pages_1g.min(other.pages_1g),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        self.least(*other) == *other
    }

    /// Returns how many such cells have room in one host cell, at most.
    fn slots_in(&self, cell: &Self) -> u64 {
        let times = |have: u64, need: u64| have.checked_div(need).unwrap_or(u64::MAX);
        times(cell.dedicated, self.dedicated)
            .min(times(cell.small_mib, self.small_mib))
            .min(times(cell.pages_2m, self.pages_2m))
            .min(times(cell.pages_1g, self.pages_1g))
    }
}

/// What a guest needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) amounts: BTreeMap<Thing, u64>,
    /// What each of its cells needs at least.
    cell: CellNeed,
    /// How many cells it has.
    cells: u64,
}

impl Need {
    pub(super) fn of(demand: &Demand) -> Self {
        let mut need = Self::default();
        for (class, amount) in &demand.resources {
            need.add(Thing::Class(class.clone()), *amount);
        }
        let topology = demand.topology.as_ref();
        for (index, cell) in topology.iter().flat_map(|t| &t.cells).enumerate() {
            let isolates = index == 0 && topology.is_some_and(|t| t.isolates_emulator());
            let one = CellNeed::of(cell, u64::from(isolates));
            need.add(Thing::DedicatedCpus, one.dedicated);
            need.add(Thing::SmallPages, one.small_mib);
            need.add(Thing::Pages(PAGES_2M), one.pages_2m);
            need.add(Thing::Pages(PAGES_1G), one.pages_1g);
            need.cell = if index == 0 {
                one
            } else {
                need.cell.least(one)
            };
            need.cells += 1;
        }
        for request in &demand.pci {
            let any = PciRequest {
                count: 1,
                policy: Default::default(),
                ..request.clone()
            };
            need.add(Thing::Functions(any), request.count.into());
        }
        for request in &demand.pmem.requests {
            need.add(Thing::Namespaces(request.class.clone()), 1);
        }
        if let Some(GroupDemand {
            name,
            policy: GroupPolicy::AntiAffinity,
            limit,
            ..
        }) = &demand.group
        {
            need.add(Thing::Apart(name.clone(), *limit), 1);
        }
        need
    }

    fn add(&mut self, thing: Thing, amount: u64) {
        if amount > 0 {
            *self.amounts.entry(thing).or_default() += amount;
        }
    }

    /// Returns whether it needs at least what the other needs, of everything.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let mut amounts = other.amounts.iter();
        amounts.all(|(thing, amount)| self.amounts.get(thing).is_some_and(|own| own >= amount))
            && self.cells >= other.cells
            && (other.cells == 0 || self.cell.covers(&other.cell))
    }

    /// Returns for how many such guests the host has room, at most.
    pub(super) fn slots(&self, left: &Left<'_>) -> u64 {
        let amounts = self.amounts.iter();
        let counted = amounts.map(|(thing, amount)| left.of(thing) / amount).min();
        let counted = counted.unwrap_or(u64::MAX);
        if self.cells == 0 || self.cell == CellNeed::default() {
            return counted;
        }
        // A guest's cells go to different host cells: none of these holds more guests than it
        // has slots, and none holds two cells of one guest.
        let cells = left.cells().map(|cell| self.cell.slots_in(&cell));
        let cells: Vec<u64> = cells.collect();
        let holds = |guests: u64| {
            let slots = cells.iter().map(|slots| u128::from(*slots.min(&guests)));
            slots.sum::<u128>() >= u128::from(self.cells) * u128::from(guests)
        };
        let (mut least, mut most) = (0, counted.min(1 << 20));
        while least < most {
            let middle = (least + most).div_ceil(2);
            if holds(middle) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        least
    }
}

/// What a host has left.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    view: &'a HostView,
    /// How many members of a server group are on it.
    members: &'a dyn Fn(&ServerGroupName) -> u32,
}

impl<'a> Left<'a> {
    pub(super) fn new(view: &'a HostView, members: &'a dyn Fn(&ServerGroupName) -> u32) -> Self {
        Self { view, members }
    }

    /// Returns how much of a thing is left.
    pub(super) fn of(&self, thing: &Thing) -> u64 {
        let view = self.view;
        let sum = |of: fn(&CellNeed) -> u64| self.cells().map(|cell| of(&cell)).sum();
        match thing {
            Thing::Class(class) => {
                let inventory = view.inventories.get(class);
                inventory.map_or(0, |inventory| inventory.free(view.used_of(class)))
            }
            Thing::DedicatedCpus => sum(|cell| cell.dedicated),
            Thing::SmallPages => sum(|cell| cell.small_mib),
            Thing::Pages(PAGES_2M) => sum(|cell| cell.pages_2m),
            Thing::Pages(PAGES_1G) => sum(|cell| cell.pages_1g),
            Thing::Pages(_) => u64::MAX,
            Thing::Functions(request) => {
                let devices = view.host.report.topology.pci().iter();
                let free = devices.filter(|device| {
                    request.accepts(device) && !view.usage.pci.contains(&device.address)
                });
                free.count() as u64
            }
            Thing::Namespaces(class) => {
                let all = view.host.report.topology.pmem().iter();
                let free = all.filter(|namespace| {
                    namespace.class == *class
                        && namespace.trouble.is_empty()
                        && !view.usage.pmem.contains(&namespace.name)
                });
                free.count() as u64
            }
            Thing::Apart(group, limit) => limit.saturating_sub((self.members)(group)).into(),
        }
    }

    fn cells(&self) -> impl Iterator<Item = CellNeed> + '_ {
        self.view.cells().map(|cell| CellNeed {
            dedicated: cell.dedicated.into(),
            small_mib: cell.small_mib,
            pages_2m: cell.pages_2m,
            pages_1g: cell.pages_1g,
        })
    }
}
