//! How well the guests are spread over the hosts, in one number: less is better.
//!
//! It is Ganeti's cluster metric, translated: the standard deviations of how much of each resource
//! is taken of each host, weighted, and a few counts. Names are Ganeti's where the component is the
//! same; `docs/balancing.md` says what differs, and why. What is taken is always a part of what
//! the host has, so that hosts of several sizes are treated alike.
//!
//! Not here: what to do about it ([`super::plan`](mod@super::plan)).
//!
//! Invariant: parts are whole numbers of 2^-30, and sums of them exact. So a metric that followed
//! any number of changes has the same bits as one that is computed from scratch, on every machine.

use std::collections::BTreeMap;

use berth_domain::host::Liveness;
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::resource::ResourceClass;

use super::weights::Weights;

/// How many resources are spread; the last of the lanes is none, so that they fill whole registers.
pub(crate) const LANES: usize = 8;
pub(crate) const MEMORY: usize = 0;
pub(crate) const DISK: usize = 1;
pub(crate) const VCPU: usize = 2;
pub(crate) const PCPU: usize = 3;
pub(crate) const LIVE: usize = 4;
pub(crate) const PAGES_2M: usize = 5;
pub(crate) const PAGES_1G: usize = 6;

/// The names of all components, in the order in which they are shown and added up.
pub const NAMES: [&str; 12] = [
    "free_mem_cv",
    "free_disk_cv",
    "vcpu_ratio_cv",
    "pcpu_ratio_cv",
    "mem_load_cv",
    "pages_2m_cv",
    "pages_1g_cv",
    "n1_cnt",
    "offline_all_cnt",
    "offline_pri_cnt",
    "numa_cpu_fragmentation",
    "numa_pages_fragmentation",
];
pub(crate) const N1: usize = 7;
pub(crate) const OFFLINE_ALL: usize = 8;
pub(crate) const OFFLINE_PRI: usize = 9;
pub(crate) const CPU_HOLES: usize = 10;
pub(crate) const PAGE_HOLES: usize = 11;

/// So many units are all of a resource.
const ONE: f64 = (1_u64 << 30) as f64;
/// No part is greater: a thousand times all there is.
const PART_MAX: f64 = ONE * 1024.0;

/// What is known of the cluster beside its books.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Memory in MiB that the guests of a host really hold and that cannot be discarded at once;
    /// hosts that do not say take no part in `mem_load_cv`.
    pub live_mib: BTreeMap<HostName, u64>,
    /// How many guests are on hosts whose failure is not proven to be survived; absent: not known.
    pub n1_cnt: Option<u64>,
}

/// One component of a score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Component {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub value: f64,
    /// How much it says.
    pub weight: f64,
}

/// A score with what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The sum of all values by their weights.
    pub total: f64,
    /// Each of [`NAMES`]; `n1_cnt` is left out where it is not known, and `mem_load_cv` where no
    /// host has reported: unknown is not 0.
    pub components: Vec<Component>,
}

impl Score {
    /// Returns the value of a component.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        let mut all = self.components.iter();
        all.find(|component| component.name == name)
            .map(|component| component.value)
    }
}

/// What is free of something in cells, and how much of that in cells that are begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holes {
    pub(crate) free: i64,
    pub(crate) broken: i64,
}

impl Holes {
    fn add_cell(&mut self, all: u64, free: u64) {
        let free = i64::try_from(free).unwrap_or(i64::MAX);
        self.free += free;
        if i64::try_from(all).unwrap_or(i64::MAX) > free {
            self.broken += free;
        }
    }

    fn change(&mut self, by: &Self, sign: i64) {
        self.free += sign * by.free;
        self.broken += sign * by.broken;
    }
}

/// What the metric reads of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// How much is taken of each resource, in units of 2^-30; absent where the host has none of it.
    parts: [Option<i64>; LANES],
    /// Whether guests may stay here.
    pub(crate) is_online: bool,
    guests: u64,
    pub(crate) cpus: Holes,
    /// In MiB.
    pub(crate) pages: Holes,
}

/// How much of each resource a host has and how much of it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stock {
    pub(crate) used: [u64; LANES],
    pub(crate) all: [u64; LANES],
}

impl Stock {
    pub(crate) fn of(view: &HostView, live_mib: Option<u64>) -> Self {
        let mut stock = Self::default();
        let classes = [
            (MEMORY, ResourceClass::memory_mb()),
            (DISK, ResourceClass::disk_gb()),
            (VCPU, ResourceClass::vcpu()),
            (PCPU, ResourceClass::pcpu()),
        ];
        for (lane, class) in classes {
            stock.used[lane] = view.used_of(&class);
            let inventory = view.inventories.get(&class);
            stock.all[lane] = inventory.map_or(0, |i| i.total.saturating_sub(i.reserved));
        }
        if let Some(live) = live_mib {
            stock.used[LIVE] = live;
            stock.all[LIVE] = stock.all[MEMORY];
        }
        for (cell, free) in view.host.report.topology.cells().iter().zip(view.cells()) {
            for (lane, size_kib, free) in [
                (PAGES_2M, 2048, free.pages_2m),
                (PAGES_1G, 1_048_576, free.pages_1g),
            ] {
                let mut pools = cell.pages.iter().skip(1);
                let pool = pools.find(|pool| pool.size_kib == size_kib);
                let all = pool.map_or(0, |pool| pool.total - pool.reserved);
                stock.all[lane] += all;
                stock.used[lane] += all.saturating_sub(free);
            }
        }
        stock
    }
}

impl Standing {
    /// Returns what the metric reads of a host with so many guests.
    #[must_use]
    pub fn of(view: &HostView, guests: usize, live_mib: Option<u64>) -> Self {
        let host = &view.host;
        let is_up = match host.liveness {
            Liveness::Up => true,
            Liveness::Down => false,
        };
        let mut standing = Self {
            is_online: is_up && !host.cordoned && host.fenced.is_none(),
            guests: guests as u64,
            ..Self::default()
        };
        if !standing.is_online {
            return standing;
        }
        let stock = Stock::of(view, live_mib);
        for (lane, part) in standing.parts.iter_mut().enumerate() {
            *part = quantised(stock.used[lane], stock.all[lane]);
        }
        for (cell, free) in host.report.topology.cells().iter().zip(view.cells()) {
            standing
                .cpus
                .add_cell(free.dedicated_all.into(), free.dedicated.into());
            for (size_mib, free) in [(2, free.pages_2m), (1024, free.pages_1g)] {
                let mut pools = cell.pages.iter().skip(1);
                let pool = pools.find(|pool| pool.size_kib == size_mib * 1024);
                let all = pool.map_or(0, |pool| pool.total - pool.reserved);
                standing.pages.add_cell(all * size_mib, free * size_mib);
            }
        }
        standing
    }

    /// Returns how much is taken of a resource, where the host has it.
    pub(crate) fn part(&self, lane: usize) -> Option<f64> {
        self.parts[lane].map(|part| part as f64 / ONE)
    }

    /// Returns how the sums change when a host stands so instead of `before`.
    pub(crate) fn change_from(&self, before: &Self) -> Change {
        let mut change = Change::default();
        for lane in 0..LANES {
            let (old, new) = (before.parts[lane], self.parts[lane]);
            let old = old.map_or(0.0, |part| part as f64 / ONE);
            let new = new.map_or(0.0, |part| part as f64 / ONE);
            change.first[lane] = new - old;
            change.second[lane] = (new - old) * (new + old);
        }
        let offline = |s: &Self| if s.is_online { 0.0 } else { s.guests as f64 };
        change.offline = offline(self) - offline(before);
        change.cpus_broken = (self.cpus.broken - before.cpus.broken) as f64;
        change.cpus_free = (self.cpus.free - before.cpus.free) as f64;
        change.pages_broken = (self.pages.broken - before.pages.broken) as f64;
        change.pages_free = (self.pages.free - before.pages.free) as f64;
        change
    }
}

fn quantised(used: u64, all: u64) -> Option<i64> {
    let part = used as f64 / all as f64 * ONE;
    (all > 0).then(|| part.min(PART_MAX).round() as i64)
}

/// How the sums change when something changes of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Change {
    pub(crate) first: [f64; LANES],
    pub(crate) second: [f64; LANES],
    pub(crate) offline: f64,
    pub(crate) cpus_broken: f64,
    pub(crate) cpus_free: f64,
    pub(crate) pages_broken: f64,
    pub(crate) pages_free: f64,
}

/// The score of a cluster, kept up to date by what changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    weights: Weights,
    n1_cnt: Option<u64>,
    /// Hosts that have the resource, by lane.
    hosts: [i128; LANES],
    /// Sums of the parts.
    first: [i128; LANES],
    /// Sums of their squares.
    second: [i128; LANES],
    /// Guests on hosts that they should leave.
    offline: u64,
    online: usize,
    cpus: Holes,
    pages: Holes,
}

impl Metric {
    /// Returns the metric of a cluster without hosts.
    #[must_use]
    pub fn new(weights: Weights, n1_cnt: Option<u64>) -> Self {
        Self {
            weights,
            n1_cnt,
            hosts: [0; LANES],
            first: [0; LANES],
            second: [0; LANES],
            offline: 0,
            online: 0,
            cpus: Holes::default(),
            pages: Holes::default(),
        }
    }

    /// Takes a host.
    pub fn add(&mut self, standing: &Standing) {
        self.change(standing, 1);
        self.online += usize::from(standing.is_online);
        if !standing.is_online {
            self.offline += standing.guests;
        }
    }

    /// Takes a host back that was added so.
    pub fn remove(&mut self, standing: &Standing) {
        self.change(standing, -1);
        self.online -= usize::from(standing.is_online);
        if !standing.is_online {
            self.offline -= standing.guests;
        }
    }

    fn change(&mut self, standing: &Standing, sign: i64) {
        let wide = i128::from(sign);
        for lane in 0..LANES {
            if let Some(part) = standing.parts[lane].map(i128::from) {
                self.hosts[lane] += wide;
                self.first[lane] += wide * part;
                self.second[lane] += wide * part * part;
            }
        }
        self.cpus.change(&standing.cpus, sign);
        self.pages.change(&standing.pages, sign);
    }

    /// Returns the number of hosts that guests may stay on.
    #[must_use]
    pub fn online(&self) -> usize {
        self.online
    }

    /// Returns how much the component at this place of [`NAMES`] says.
    pub(crate) fn weight(&self, at: usize) -> f64 {
        self.weights.at(at)
    }

    /// Returns the score in one number.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.gauge().total(&self.gauge().values)
    }

    /// Returns the score with what it is made of.
    #[must_use]
    pub fn score(&self) -> Score {
        let gauge = self.gauge();
        let all = NAMES.iter().enumerate();
        let is_known = |at: usize| match at {
            N1 => self.n1_cnt.is_some(),
            LIVE => self.hosts[LIVE] > 0,
            _ => true,
        };
        let known = all.filter(|(at, _)| is_known(*at));
        let components = known.map(|(at, name)| Component {
            name,
            value: gauge.values[at],
            weight: self.weights.at(at),
        });
        Score {
            total: gauge.total(&gauge.values),
            components: components.collect(),
        }
    }

    /// Returns the sums in the form that is fast to ask what a change would bring.
    pub(crate) fn gauge(&self) -> Gauge {
        let mut gauge = Gauge {
            weights: std::array::from_fn(|at| self.weights.at(at)),
            ..Gauge::default()
        };
        for lane in 0..LANES {
            let hosts = self.hosts[lane];
            // Exact up to here: nothing is lost where two great sums are nearly the same.
            let spread = hosts * self.second[lane] - self.first[lane] * self.first[lane];
            gauge.hosts[lane] = hosts as f64;
            gauge.first[lane] = self.first[lane] as f64 / ONE;
            gauge.spread[lane] = spread as f64 / (ONE * ONE);
            let share = if hosts > 0 { 1.0 / hosts as f64 } else { 0.0 };
            gauge.share[lane] = share;
            gauge.factor[lane] = if lane < N1 {
                self.weights.at(lane) * share
            } else {
                0.0
            };
        }
        gauge.offline = self.offline as f64;
        (gauge.cpus_broken, gauge.cpus_free) = (self.cpus.broken as f64, self.cpus.free as f64);
        (gauge.pages_broken, gauge.pages_free) = (self.pages.broken as f64, self.pages.free as f64);
        let no_change = Change::default();
        gauge.values = gauge.values_with(&no_change, &no_change);
        gauge.values[N1] = self.n1_cnt.unwrap_or(0) as f64;
        gauge.now = gauge.total_with(&no_change, &no_change);
        gauge
    }
}

/// The sums of a metric, to ask what a change would bring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Gauge {
    weights: [f64; NAMES.len()],
    pub(crate) values: [f64; NAMES.len()],
    pub(crate) hosts: [f64; LANES],
    pub(crate) first: [f64; LANES],
    /// The number of hosts by the sum of squares, less the square of the sum.
    pub(crate) spread: [f64; LANES],
    share: [f64; LANES],
    /// What the root of `spread` is multiplied with.
    pub(crate) factor: [f64; LANES],
    offline: f64,
    pub(crate) cpus_broken: f64,
    pub(crate) cpus_free: f64,
    pub(crate) pages_broken: f64,
    pub(crate) pages_free: f64,
    /// What [`Self::total_with`] says without any change.
    pub(crate) now: f64,
}

impl Gauge {
    /// Returns how much the component at this place of [`NAMES`] says.
    pub(crate) fn weight(&self, at: usize) -> f64 {
        self.weights[at]
    }

    /// Returns what guests on hosts that they should leave add, after this change.
    pub(crate) fn offline_with(&self, change: &Change) -> f64 {
        (self.offline + change.offline) * (self.weights[OFFLINE_ALL] + self.weights[OFFLINE_PRI])
    }

    fn total(&self, values: &[f64; NAMES.len()]) -> f64 {
        let each = values.iter().zip(&self.weights);
        each.map(|(value, weight)| value * weight).sum()
    }

    fn spreads_with(&self, one: &Change, other: &Change) -> [f64; LANES] {
        let mut spreads = [0.0; LANES];
        for (lane, spread) in spreads.iter_mut().enumerate() {
            let first = one.first[lane] + other.first[lane];
            let second = one.second[lane] + other.second[lane];
            let square = (2.0 * self.first[lane] + first) * first;
            let changed = self.spread[lane] + self.hosts[lane] * second - square;
            *spread = changed.max(0.0).sqrt();
        }
        spreads
    }

    /// Returns all components but the count that is given from outside as they would be.
    pub(crate) fn values_with(&self, one: &Change, other: &Change) -> [f64; NAMES.len()] {
        let spreads = self.spreads_with(one, other);
        let mut values = self.values;
        for lane in 0..N1 {
            values[lane] = spreads[lane] * self.share[lane];
        }
        let offline = self.offline + one.offline + other.offline;
        values[OFFLINE_ALL] = offline;
        values[OFFLINE_PRI] = offline;
        values[CPU_HOLES] = part(
            self.cpus_broken + one.cpus_broken + other.cpus_broken,
            self.cpus_free + one.cpus_free + other.cpus_free,
        );
        values[PAGE_HOLES] = part(
            self.pages_broken + one.pages_broken + other.pages_broken,
            self.pages_free + one.pages_free + other.pages_free,
        );
        values
    }

    /// Returns what the score would be, but for the count that is given from outside.
    #[inline]
    pub(crate) fn total_with(&self, one: &Change, other: &Change) -> f64 {
        let spreads = self.spreads_with(one, other);
        let mut total = 0.0;
        for (spread, factor) in spreads.iter().zip(&self.factor) {
            total += spread * factor;
        }
        let offline = self.offline + one.offline + other.offline;
        total += offline * (self.weights[OFFLINE_ALL] + self.weights[OFFLINE_PRI]);
        let cpus_broken = self.cpus_broken + one.cpus_broken + other.cpus_broken;
        let cpus_free = self.cpus_free + one.cpus_free + other.cpus_free;
        let pages_broken = self.pages_broken + one.pages_broken + other.pages_broken;
        let pages_free = self.pages_free + one.pages_free + other.pages_free;
        total += self.weights[CPU_HOLES] * part(cpus_broken, cpus_free);
        total + self.weights[PAGE_HOLES] * part(pages_broken, pages_free)
    }
}

fn part(some: f64, all: f64) -> f64 {
    some / all.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(memory: u64, disk: u64) -> Standing {
        let mut standing = Standing {
            is_online: true,
            guests: 3,
            ..Standing::default()
        };
        standing.parts[MEMORY] = quantised(memory, 1000);
        standing.parts[DISK] = quantised(disk, 1000);
        standing.cpus = Holes {
            free: memory as i64,
            broken: disk as i64 / 2,
        };
        standing
    }

    /// Goal: the formula is the one that the documentation gives. Method: two hosts, by hand.
    #[test]
    fn a_spread_is_the_standard_deviation_of_the_parts() {
        let mut metric = Metric::new(Weights::default(), Some(2));
        metric.add(&standing(200, 100));
        metric.add(&standing(600, 100));
        metric.add(&Standing {
            guests: 3,
            ..Standing::default()
        });
        let score = metric.score();
        let near = |name: &str, wanted: f64| {
            let value = score.value(name).unwrap();
            assert!((value - wanted).abs() < 1e-8, "{name} is {value}");
        };
        near("free_mem_cv", 0.2);
        near("free_disk_cv", 0.0);
        near("offline_all_cnt", 3.0);
        near("n1_cnt", 2.0);
        near("numa_cpu_fragmentation", 100.0 / 800.0);
        let wanted = 0.5 * 0.2 + 2.0 + 20.0 * 3.0 + 0.25 * 0.125;
        assert!((score.total - wanted).abs() < 1e-8, "{score:?}");
        assert_eq!(metric.online(), 2);
    }

    /// Goal: nothing drifts. Method: ten thousand changes, against a metric that is computed from scratch.
    #[test]
    fn a_metric_after_changes_is_that_from_scratch() {
        let mut metric = Metric::new(Weights::default(), None);
        let mut all: Vec<Standing> = (0..50).map(|n| standing(n * 7, 900 - n)).collect();
        all.iter().for_each(|one| metric.add(one));
        let mut number = 1_u64;
        for _ in 0..10_000 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = (number >> 33) as usize % all.len();
            let new = standing(number >> 40 & 1023, number >> 50 & 1023);
            let predicted = metric
                .gauge()
                .total_with(&new.change_from(&all[at]), &Change::default());
            metric.remove(&all[at]);
            metric.add(&new);
            all[at] = new;
            assert!((metric.total() - predicted).abs() < 1e-12);
        }
        let mut scratch = Metric::new(Weights::default(), None);
        all.iter().for_each(|one| scratch.add(one));
        assert_eq!(metric, scratch);
        assert_eq!(metric.score(), scratch.score());
    }
}
