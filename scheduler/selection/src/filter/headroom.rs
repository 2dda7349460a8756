//! What is free in each cell of a host, side by side.
//!
//! The other filters look at the greatest room of any cell, one resource at a time; this one demands
//! whether one cell has room for all that a guest cell takes. Amounts are rounded in the guest's
//! favour, so that it, too, never refuses a host that fits.

use berth_domain::host_view::HostView;
use berth_domain::instance::{InstanceCell, InstanceTopology, PageSize};
use berth_domain::numa::Strategy;
use smallvec::SmallVec;

/// So many cells are looked at; hosts with more pass.
pub const CELLS: usize = 16;
/// The same, as cells are counted.
const CELLS_COUNT: u16 = CELLS as u16;
/// Memory is counted in MiB of this.
const UNIT_MIB: u64 = 64;

/// What is free in each cell of a host. Cells that it does not have have nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct CellHeadroom {
    dedicated: [u16; CELLS],
    small: [u16; CELLS],
    pages_2m: [u16; CELLS],
    pages_1g: [u16; CELLS],
}

/// What some equal cells of a guest take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellDemand {
    /// Dedicated CPUs, an isolated emulator's included.
    dedicated: u16,
    small: u16,
    pages_2m: u16,
    pages_1g: u16,
    /// How many cells, of [`CELLS`] at most: a host with more passes.
    count: u16,
}

/// What the cells of a guest take: the greatest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellDemands(SmallVec<[CellDemand; 4]>);

impl CellHeadroom {
    /// Returns what is free on a host.
    #[must_use]
    pub fn of(view: &HostView) -> Self {
        let mut headroom = Self {
            dedicated: [0; CELLS],
            small: [0; CELLS],
            pages_2m: [0; CELLS],
            pages_1g: [0; CELLS],
        };
        let cells = view.cells();
        if cells.len() > CELLS {
            let all = [u16::MAX; CELLS];
            return Self {
                dedicated: all,
                small: all,
                pages_2m: all,
                pages_1g: all,
            };
        }
        for (at, cell) in cells.enumerate() {
            headroom.dedicated[at] = small(cell.dedicated.into());
            headroom.small[at] = small(cell.small_mib.div_ceil(UNIT_MIB));
            headroom.pages_2m[at] = small((cell.pages_2m * 2).div_ceil(UNIT_MIB));
            headroom.pages_1g[at] = small(cell.pages_1g);
        }
        headroom
    }

    /// Returns how many dedicated CPUs would be left of the cell that the greatest of the guest's
    /// cells goes to, if each of its cells has enough of cells with room.
    #[must_use]
    pub fn left(&self, demands: &CellDemands, cells: Strategy) -> Option<u16> {
        let Some((greatest, others)) = demands.0.split_first() else {
            return Some(0);
        };
        let matches = self.count_fitting(greatest);
        if matches.count < greatest.count {
            return None;
        }
        let is_short = |demand: &CellDemand| self.count_fitting(demand).count < demand.count;
        if others.iter().any(is_short) {
            return None;
        }
        Some(match cells {
            Strategy::Spread => matches.most,
            Strategy::Pack => matches.least,
        })
    }

    fn count_fitting(&self, demand: &CellDemand) -> FittingCells {
        let (mut count, mut least, mut most) = (0, u16::MAX, 0);
        // Without branches, so that it becomes a few wide comparisons.
        for at in 0..CELLS {
            let short = demand.dedicated.saturating_sub(self.dedicated[at])
                | demand.small.saturating_sub(self.small[at])
                | demand.pages_2m.saturating_sub(self.pages_2m[at])
                | demand.pages_1g.saturating_sub(self.pages_1g[at]);
            let fits = u16::from(short == 0);
            let left = self.dedicated[at].wrapping_sub(demand.dedicated);
            count += fits;
            least = least.min(left | fits.wrapping_sub(1));
            most = most.max(left & fits.wrapping_neg());
        }
        FittingCells { count, least, most }
    }
}

/// The cells of a host for some equal cells of a guest.
struct FittingCells {
    /// How many have room.
    count: u16,
    /// The dedicated CPUs that would be left of the fullest of them.
    least: u16,
    /// … and of the emptiest.
    most: u16,
}

impl CellDemands {
    /// Returns what the cells of a guest take.
    #[must_use]
    pub fn new(topology: Option<&InstanceTopology>) -> Self {
        let mut demands: SmallVec<[CellDemand; 4]> = SmallVec::new();
        for (index, cell) in topology.iter().flat_map(|t| &t.cells).enumerate() {
            let isolates = index == 0 && topology.is_some_and(InstanceTopology::isolates_emulator);
            let demand = CellDemand::new(cell, isolates);
            match demands.iter_mut().find(|other| other.is_like(&demand)) {
                Some(other) => other.count = (other.count + 1).min(CELLS_COUNT),
                None => demands.push(demand),
            }
        }
        demands.sort_unstable_by(|a, b| b.cmp(a));
        Self(demands)
    }
}

impl CellDemand {
    fn new(cell: &InstanceCell, isolates: bool) -> Self {
        let pages = |mib: u64| small(cell.memory_mib / mib);
        let mut demand = Self {
            dedicated: small(cell.dedicated.len() as u64 + u64::from(isolates)),
            count: 1,
            ..Self::default()
        };
        match cell.page_size {
            PageSize::Kib(2048) => demand.pages_2m = pages(UNIT_MIB),
            PageSize::Kib(1_048_576) => demand.pages_1g = pages(1024),
            PageSize::Small => demand.small = pages(UNIT_MIB),
            PageSize::Unspecified if cell.cpu_policy.is_exclusive() => {
                demand.small = pages(UNIT_MIB);
            }
            // Several pools may do; only the exact fit knows.
            PageSize::Unspecified | PageSize::Large | PageSize::Any | PageSize::Kib(_) => {}
        }
        demand
    }

    fn is_like(&self, other: &Self) -> bool {
        Self { count: 0, ..*self } == Self { count: 0, ..*other }
    }
}

fn small(amount: u64) -> u16 {
    u16::try_from(amount).unwrap_or(u16::MAX)
}
