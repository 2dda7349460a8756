//! How many guests fit when their shape shrinks while it fits nowhere: the largest first.
//!
//! After every host is full of a shape, that of its amounts shrinks of which most hosts have too
//! little, by a step; where it is at its least, the next. So the tiers say which shapes the rest of
//! the cluster is good for. It is how Ganeti's hspace goes about it.
//!
//! Where most hosts have too little memory, and none has enough, steps in which none could have are
//! passed over.

use std::sync::Arc;

use berth_domain::constraint::Demand;
use berth_domain::host_view::HostView;
use berth_domain::numa::Strategy;

use super::{Counts, Filler, Stop};
use crate::fleet::Fleet;

/// The amounts of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Disk in GiB.
    pub disk_gib: u64,
    /// vCPUs.
    pub vcpus: u32,
}

/// By how much a shape shrinks at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps(pub Shape);

impl Default for Steps {
    fn default() -> Self {
        Self(Shape {
            memory_mib: 64,
            disk_gib: 1,
            vcpus: 1,
        })
    }
}

/// The least shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least(pub Shape);

/// Guests of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Their shape.
    pub shape: Shape,
    /// How many of them fit after those of the tiers before.
    pub count: u64,
}

/// What fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiered {
    /// The largest shape first; shapes of which none fits are left out.
    pub tiers: Vec<Tier>,
    /// Why no further guest of the least shape fits.
    pub binding: Option<String>,
}

impl Tiered {
    /// Returns how many guests fit, of whatever shape.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.count).sum()
    }
}

/// One of the amounts of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Amount {
    Memory,
    Disk,
    Cpus,
}

impl Amount {
    /// Returns the amount that a cause is about.
    fn of(cause: &str) -> Option<Self> {
        Some(match cause {
            "RESOURCE_MEMORY_MB" | "MEMORY" | "PAGES" | "PAGE_SIZE" => Self::Memory,
            "RESOURCE_DISK_GB" => Self::Disk,
            "RESOURCE_VCPU" | "RESOURCE_PCPU" | "SHARED_CPUS" | "DEDICATED_CPUS"
            | "CPU_THREADS" | "CELLS_COMPETE" => Self::Cpus,
            _ => return None,
        })
    }

    /// Returns a shape with less of it, if it may have less.
    fn shrink(self, shape: Shape, steps: Steps, least: Least) -> Option<Shape> {
        let less = |amount: u64, step: u64, least: u64| {
            let less = amount.saturating_sub(step.max(1)).max(least);
            (less < amount).then_some(less)
        };
        let (steps, least) = (steps.0, least.0);
        Some(match self {
            Self::Memory => Shape {
                memory_mib: less(shape.memory_mib, steps.memory_mib, least.memory_mib)?,
                ..shape
            },
            Self::Disk => Shape {
                disk_gib: less(shape.disk_gib, steps.disk_gib, least.disk_gib)?,
                ..shape
            },
            Self::Cpus => {
                let [cpus, step, least] = [shape.vcpus, steps.vcpus, least.vcpus].map(u64::from);
                Shape {
                    vcpus: u32::try_from(less(cpus, step, least)?).unwrap_or(u32::MAX),
                    ..shape
                }
            }
        })
    }
}

/// Returns what fits, from the largest shape down to the least. What a guest of a shape demands is
/// for the caller to say; a shape that no guest can have is passed over.
pub fn tiered(
    fleet: &Fleet,
    largest: Shape,
    least: Least,
    steps: Steps,
    cells: Strategy,
    demand_of: impl Fn(&Shape) -> Option<Demand>,
) -> Tiered {
    let open = (0..fleet.len()).filter(|at| !fleet.has_failed_at(*at));
    let mut views: Vec<Arc<HostView>> = open.map(|at| Arc::clone(&fleet.views()[at])).collect();
    let mut tiers = Vec::new();
    let mut shape = largest;
    loop {
        let Some(demand) = demand_of(&shape) else {
            match shrink_any(shape, steps, least) {
                Some(less) => shape = less,
                None => {
                    return Tiered {
                        tiers,
                        binding: None,
                    };
                }
            }
            continue;
        };
        let (count, stops) = fill_all(&mut views, &demand, cells);
        if count > 0 {
            tiers.push(Tier { shape, count });
        }
        let order = by_frequency(&stops);
        let mut amounts = order.iter().filter_map(|cause| Amount::of(cause));
        let next = amounts.find_map(|amount| {
            let less = amount.shrink(shape, steps, least)?;
            Some(match amount {
                Amount::Memory => pass_over(less, &views, steps, least),
                Amount::Disk | Amount::Cpus => less,
            })
        });
        let Some(less) = next else {
            let binding = order.into_iter().next();
            return Tiered { tiers, binding };
        };
        shape = less;
    }
}

fn shrink_any(shape: Shape, steps: Steps, least: Least) -> Option<Shape> {
    let all = [Amount::Memory, Amount::Cpus, Amount::Disk];
    all.into_iter()
        .find_map(|amount| amount.shrink(shape, steps, least))
}

/// Fills every host, and returns how many guests that took and why there is no room for more.
fn fill_all(views: &mut [Arc<HostView>], demand: &Demand, cells: Strategy) -> (u64, Vec<Stop>) {
    let mut filler = Filler::new(demand, cells);
    let mut sum = 0;
    let mut stops = Vec::new();
    for view in views {
        let (count, stop) = filler.fill(view);
        if count > 0 {
            *view = Arc::new(filler.fill_copy(view).2);
            sum += count;
        }
        stops.push(stop);
    }
    (sum, stops)
}

/// Returns the causes that are a lack of room, the most frequent first.
fn by_frequency(stops: &[Stop]) -> Vec<String> {
    let mut counts = Counts::default();
    for stop in stops.iter().filter(|stop| stop.is_full) {
        counts.add(&stop.cause);
    }
    let mut order: Vec<(String, u64)> = counts.0.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    order.into_iter().map(|(cause, _)| cause).collect()
}

/// Passes over shapes for which no host has memory.
fn pass_over(shape: Shape, views: &[Arc<HostView>], steps: Steps, least: Least) -> Shape {
    let open = views.iter().filter(|view| view.host.is_open());
    let most = open.map(|view| u64::from(view.headroom.memory_mib)).max();
    let excess = shape.memory_mib.saturating_sub(most.unwrap_or(0));
    let step = steps.0.memory_mib.max(1);
    let memory_mib = shape
        .memory_mib
        .saturating_sub(excess.div_ceil(step) * step);
    Shape {
        memory_mib: memory_mib.max(least.0.memory_mib),
        ..shape
    }
}
