//! The fleet as the planner reads it: hosts in columns of numbers, guests with what they take.
//!
//! What a guest would take of a host is worked out twice: by arithmetic, for every host, in the
//! guest's favour; and by the exact fit, for the few that come out best.
//!
//! Invariant: columns, standings and metric follow the fleet; [`ClusterModel::follow`] after every move.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::allocation::Resources;
use berth_domain::claim::Claim;
use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::host::Liveness;
use berth_domain::host_view::HostView;
use berth_domain::instance::{PageSize, ThreadPolicy};
use berth_domain::name::HostName;
use berth_domain::numa::Strategy;
use berth_domain::resource::ResourceClass;

use super::metric::{
    Change, DISK, Gauge, LANES, LIVE, MEMORY, Metric, PAGES_1G, PAGES_2M, PCPU, Standing, Stock,
    VCPU,
};
use super::policy::Options;
use crate::fleet::{Fleet, FleetGuest, Seeker};

/// The hosts in numbers, each at its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    /// By lane: how much is taken of each resource, as a part.
    pub(super) parts: [Vec<f64>; LANES],
    /// By lane: one unit, as a part; nothing of what the host does not have.
    pub(super) units: [Vec<f64>; LANES],
    /// By lane: the least and the greatest part.
    pub(super) part_ranges: [(f64, f64); LANES],
    /// By lane: the least and the greatest unit.
    pub(super) unit_ranges: [(f64, f64); LANES],
    pub(super) cpus_broken: Vec<f64>,
    pub(super) pages_broken: Vec<f64>,
    /// Whether guests can come here.
    pub(super) is_open: Vec<bool>,
    /// Whether guests can be moved from here.
    pub(super) can_leave: Vec<bool>,
}

impl Columns {
    fn new(count: usize) -> Self {
        let column = || std::array::from_fn(|_| vec![0.0; count]);
        Self {
            parts: column(),
            units: column(),
            part_ranges: [(0.0, 0.0); LANES],
            unit_ranges: [(0.0, 0.0); LANES],
            cpus_broken: vec![0.0; count],
            pages_broken: vec![0.0; count],
            is_open: vec![false; count],
            can_leave: vec![false; count],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.is_open.len()
    }

    /// Returns the change of a host with what a guest that comes there really holds.
    fn with_live(&self, mut change: Change, at: usize, live_mib: f64) -> Change {
        let more = live_mib * self.units[LIVE][at];
        change.first[LIVE] = more;
        change.second[LIVE] = more * (2.0 * self.parts[LIVE][at] + more);
        change
    }

    fn measure(&mut self) {
        for lane in 0..LANES {
            self.part_ranges[lane] = range(&self.parts[lane]);
            self.unit_ranges[lane] = range(&self.units[lane]);
        }
    }
}

/// A guest in numbers.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) guest: Arc<FleetGuest>,
    pub(super) at: usize,
    /// What it takes of each resource.
    pub(super) amounts: [f64; LANES],
    pub(super) cpus: f64,
    pub(super) pages_mib: f64,
    /// Whether it may take other pages, or more CPUs, elsewhere: then arithmetic does not know.
    pub(super) is_flexible: bool,
    /// Memory in MiB that it is taken to hold really.
    live_mib: Option<u64>,
    /// What is sent when it moves.
    pub(super) memory_mib: u64,
    /// What is sent beside that where the storage is another.
    disk_mib: u64,
    /// Stands for its demand, wherever it is and whatever its group.
    pub(super) class: usize,
    /// How its host changes when it goes, and for which version of the host that is.
    without: Option<(u64, Change)>,
}

impl Piece {
    /// Returns what is sent in MiB when it moves between these storages.
    pub(super) fn sent_mib(&self, from: &HostView, to: &HostView) -> u64 {
        let is_same = from.host.report.storage_id == to.host.report.storage_id;
        self.memory_mib + if is_same { 0 } else { self.disk_mib }
    }
}

/// The fleet as the planner reads it.
#[derive(Debug)]
pub(super) struct ClusterModel<'a> {
    pub(super) fleet: &'a mut Fleet,
    pub(super) metric: Metric,
    pub(super) gauge: Gauge,
    pub(super) columns: Columns,
    /// Used again and again: see [`super::best`].
    pub(super) bounds: Vec<f64>,
    pub(super) standings: Vec<Standing>,
    /// Changes with every change of a host.
    pub(super) versions: Vec<u64>,
    pub(super) pieces: Vec<Piece>,
    /// By place: the pieces there that can be moved, in order of name.
    pub(super) lodgers: Vec<Vec<usize>>,
    /// By place: all guests there.
    guests: Vec<usize>,
    /// By place.
    live_mib: Vec<Option<u64>>,
    classes: Classes,
    /// Whether guests of a class suit hosts of a class.
    suits: BTreeMap<(usize, u64), bool>,
    /// How hosts, in which version, change when a guest of a class comes; nothing where it has no
    /// room.
    known: BTreeMap<(usize, usize), (u64, Option<Change>)>,
}

/// So many of these are known at most.
const KNOWN_MAX: usize = 500_000;

/// Demands that are the same but for where the guest is, and its group.
#[derive(Debug, Default)]
struct Classes {
    known: BTreeMap<Resources, Vec<(Demand, usize)>>,
    count: usize,
}

impl Classes {
    fn of(&mut self, demand: &Demand) -> usize {
        let mut demand = Demand {
            group: None,
            ..demand.clone()
        };
        if let Some(leaving) = &mut demand.leaving {
            // No host is called so.
            leaving.host = HostName::new("any").expect("a good name");
        }
        let known = self.known.entry(demand.resources.clone()).or_default();
        if let Some((_, class)) = known.iter().find(|(other, _)| *other == demand) {
            return *class;
        }
        let class = self.count;
        known.push((demand, class));
        self.count += 1;
        class
    }
}

impl<'a> ClusterModel<'a> {
    pub(super) fn new(fleet: &'a mut Fleet, options: &Options) -> Self {
        let count = fleet.len();
        let mut model = Self {
            metric: Metric::new(options.weights, options.signals.n1_cnt),
            gauge: Gauge::default(),
            columns: Columns::new(count),
            bounds: Vec::new(),
            standings: vec![Standing::default(); count],
            versions: vec![0; count],
            pieces: Vec::new(),
            lodgers: vec![Vec::new(); count],
            guests: vec![0; count],
            live_mib: Vec::new(),
            classes: Classes::default(),
            suits: BTreeMap::new(),
            known: BTreeMap::new(),
            fleet,
        };
        let live = &options.signals.live_mib;
        let views = model.fleet.views().iter();
        model.live_mib = views
            .map(|view| live.get(&view.host.name).copied())
            .collect();
        model.take_pieces();
        for at in 0..count {
            let standing = model.standing(at);
            model.metric.add(&standing);
            model.standings[at] = standing;
            model.fill(at);
        }
        model.columns.measure();
        model.gauge = model.metric.gauge();
        model
    }

    fn take_pieces(&mut self) {
        let all: Vec<_> = self.fleet.guests().cloned().collect();
        for guest in all {
            let Some(at) = self.fleet.place_of(&guest.vm) else {
                continue;
            };
            self.guests[at] += 1;
            if guest.fixed.is_none() {
                self.lodgers[at].push(self.pieces.len());
            }
            let view = &self.fleet.views()[at];
            let live = self.live_mib[at].map(|live| share_of(live, &guest.claim, view));
            let class = self.classes.of(&guest.demand);
            self.pieces.push(piece(guest, at, class, live));
        }
    }

    fn standing(&self, at: usize) -> Standing {
        Standing::of(&self.fleet.views()[at], self.guests[at], self.live_mib[at])
    }

    /// Writes a host into the columns.
    fn fill(&mut self, at: usize) {
        let view = &self.fleet.views()[at];
        let standing = &self.standings[at];
        let stock = Stock::of(view, self.live_mib[at]);
        let columns = &mut self.columns;
        columns.cpus_broken[at] = standing.cpus.broken as f64;
        columns.pages_broken[at] = standing.pages.broken as f64;
        columns.is_open[at] =
            view.host.is_open() && standing.is_online && !self.fleet.has_failed_at(at);
        columns.can_leave[at] = view.host.liveness == Liveness::Up && view.host.fenced.is_none();
        for lane in 0..LANES {
            let part = standing.part(lane);
            columns.parts[lane][at] = part.unwrap_or(0.0);
            let all = stock.all[lane].max(1) as f64;
            columns.units[lane][at] = part.map_or(0.0, |_| 1.0 / all);
        }
    }

    /// Returns how the sums change when a guest leaves its host.
    pub(super) fn outbound(&mut self, piece: usize) -> Change {
        let Piece { at, without, .. } = self.pieces[piece];
        let version = self.versions[at];
        if let Some((known, change)) = without
            && known == version
        {
            return change;
        }
        let guest = Arc::clone(&self.pieces[piece].guest);
        let mut view = (*self.fleet.views()[at]).clone();
        view.release(&guest.claim);
        let live = self.live_without(piece);
        let standing = Standing::of(&view, self.guests[at] - 1, live);
        let change = standing.change_from(&self.standings[at]);
        self.pieces[piece].without = Some((version, change));
        change
    }

    fn live_without(&self, piece: usize) -> Option<u64> {
        let Piece { at, live_mib, .. } = self.pieces[piece];
        self.live_mib[at].map(|live| live.saturating_sub(live_mib.unwrap_or(0)))
    }

    fn live_with(&self, piece: usize, at: usize) -> Option<u64> {
        let more = self.pieces[piece].live_mib.unwrap_or(0);
        self.live_mib[at].map(|live| live.saturating_add(more))
    }

    /// Returns how the sums change when a guest comes to a host, if it fits there.
    pub(super) fn inbound(
        &mut self,
        piece: usize,
        to: usize,
        demand: &Demand,
        cells: Strategy,
    ) -> Option<Change> {
        let class = self.pieces[piece].class;
        let version = self.versions[to];
        // What others of its group do is not the same for all of a class.
        let is_own = demand.group.is_some();
        let known = self.known.get(&(class, to));
        let known = known.filter(|(then, _)| *then == version && !is_own);
        let change = match known {
            Some((_, change)) => *change,
            None => {
                let change = self.recompute_inbound(piece, to, demand, cells);
                if self.known.len() >= KNOWN_MAX {
                    self.known.clear();
                }
                if !is_own {
                    self.known.insert((class, to), (version, change));
                }
                change
            }
        };
        // Nor is what it really holds.
        change.map(|change| {
            self.columns
                .with_live(change, to, self.pieces[piece].amounts[LIVE])
        })
    }

    fn recompute_inbound(
        &mut self,
        piece: usize,
        to: usize,
        demand: &Demand,
        cells: Strategy,
    ) -> Option<Change> {
        let view = &self.fleet.views()[to];
        let class = self.pieces[piece].class;
        let suits = self.suits.entry((class, view.class()));
        if !*suits.or_insert_with(|| PreparedDemand::new(demand).suits_class(view)) {
            return None;
        }
        let seeker = Seeker::new(self.fleet, demand);
        seeker.glance(self.fleet, to, cells)?;
        let assignment = seeker.try_place(self.fleet, to, cells)?;
        let mut after = (**view).clone();
        after.place(&Claim {
            resources: demand.resources.clone(),
            assignment,
            ..(*self.pieces[piece].guest.claim).clone()
        });
        let standing = Standing::of(&after, self.guests[to] + 1, self.live_mib[to]);
        Some(standing.change_from(&self.standings[to]))
    }

    /// Follows a move that was made in the fleet.
    pub(super) fn follow(&mut self, piece: usize, to: usize) {
        let from = self.pieces[piece].at;
        self.live_mib[from] = self.live_without(piece);
        self.live_mib[to] = self.live_with(piece, to);
        self.guests[from] -= 1;
        self.guests[to] += 1;
        let vm = self.pieces[piece].guest.vm.clone();
        let guest = self.fleet.guest(&vm).expect("it was just moved");
        let guest = Arc::clone(guest);
        let class = self.classes.of(&guest.demand);
        self.lodgers[from].retain(|other| *other != piece);
        let before = self.lodgers[to].partition_point(|other| *other < piece);
        self.lodgers[to].insert(before, piece);
        let live = self.pieces[piece].live_mib;
        self.pieces[piece] = self::piece(guest, to, class, live);
        for at in [from, to] {
            let standing = self.standing(at);
            self.metric.remove(&self.standings[at]);
            self.metric.add(&standing);
            self.standings[at] = standing;
            self.versions[at] += 1;
            self.fill(at);
        }
        self.columns.measure();
        self.gauge = self.metric.gauge();
    }

    /// Returns how much is taken of that host of which most is, as a part of what may be given away.
    pub(super) fn worst_usage(&self) -> f64 {
        let classes = [
            ResourceClass::memory_mb(),
            ResourceClass::vcpu(),
            ResourceClass::pcpu(),
            ResourceClass::disk_gb(),
        ];
        let mut worst = 0.0_f64;
        for (at, view) in self.fleet.views().iter().enumerate() {
            for class in &classes {
                let inventory = view.inventories.get(class);
                let Some(inventory) = inventory.filter(|_| self.standings[at].is_online) else {
                    continue;
                };
                let capacity = inventory.capacity().max(1);
                worst = worst.max(view.used_of(class) as f64 / capacity as f64);
            }
        }
        worst
    }
}

fn range(numbers: &[f64]) -> (f64, f64) {
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let most = numbers.iter().copied().fold(0.0, f64::max);
    (least.min(most), most)
}

/// Returns the share of a guest in what the guests of its host really hold, by what they were
/// promised.
fn share_of(live_mib: u64, claim: &Claim, view: &HostView) -> u64 {
    let class = ResourceClass::memory_mb();
    let own = claim.resources.get(&class).copied().unwrap_or(0);
    let all = view.used_of(&class).max(1);
    let share = u128::from(live_mib) * u128::from(own) / u128::from(all);
    u64::try_from(share).unwrap_or(u64::MAX).min(live_mib)
}

fn piece(guest: Arc<FleetGuest>, at: usize, class: usize, live_mib: Option<u64>) -> Piece {
    let claim = &guest.claim;
    let counted = |class| guest.demand.resources.get(&class).copied().unwrap_or(0);
    let memory_mib = counted(ResourceClass::memory_mb());
    let disk_gib = counted(ResourceClass::disk_gb());
    let pages = |size_kib: u64| -> u64 {
        let cells = claim.assignment.cells.iter();
        let cells = cells.filter(|cell| cell.page_size_kib == Some(size_kib));
        cells.map(|cell| cell.pages()).sum()
    };
    let (pages_2m, pages_1g) = (pages(2048), pages(1_048_576));
    let mut amounts = [0.0; LANES];
    amounts[MEMORY] = memory_mib as f64;
    amounts[DISK] = disk_gib as f64;
    amounts[VCPU] = counted(ResourceClass::vcpu()) as f64;
    amounts[PCPU] = counted(ResourceClass::pcpu()) as f64;
    amounts[LIVE] = live_mib.unwrap_or(0) as f64;
    amounts[PAGES_2M] = pages_2m as f64;
    amounts[PAGES_1G] = pages_1g as f64;
    let pmem: u64 = claim.assignment.pmem.iter().map(|d| d.size_bytes).sum();
    let has_disks = guest.demand.leaving.as_ref().is_some_and(|l| l.has_disks);
    Piece {
        at,
        amounts,
        cpus: claim.assignment.taken().len() as f64,
        pages_mib: (pages_2m * 2 + pages_1g * 1024) as f64,
        is_flexible: is_flexible(&guest.demand),
        live_mib,
        memory_mib: memory_mib + pmem.div_ceil(1 << 20),
        disk_mib: if has_disks { disk_gib * 1024 } else { 0 },
        class,
        without: None,
        guest,
    }
}

fn is_flexible(demand: &Demand) -> bool {
    let mut cells = demand.topology.iter().flat_map(|wish| &wish.cells);
    cells.any(|cell| {
        let pages = match cell.page_size {
            PageSize::Large | PageSize::Any => true,
            PageSize::Unspecified | PageSize::Small | PageSize::Kib(_) => false,
        };
        pages || cell.thread_policy == ThreadPolicy::Isolate
    })
}
