//! What moving one guest to each of many hosts would bring, by arithmetic.
//!
//! It is [`Gauge::total_with`] made ready for one guest, in two steps. [`Aim::bounds`] says for all
//! hosts at once below what the score cannot come: the root in each standard deviation is replaced
//! by a chord of it, which lies below. Over all hosts the spread hardly differs, so that the chord
//! hardly lies below, and a host costs about a nanosecond. [`Aim::total`] then takes the roots, for
//! the few hosts that may be the best.
//!
//! Invariant: never more than what the exact fit would bring, but for what is lost in rounding.
//! Where a guest takes dedicated CPUs or huge pages, it is taken to fill cells that are begun first.
//! It does not hold for guests that may take other pages elsewhere: these are tried everywhere.

use super::cluster_model::{Columns, Piece};
use super::metric::{CPU_HOLES, Change, Gauge, LANES, PAGE_HOLES};

/// A spread at nothing is not divided by.
const TINY: f64 = 1e-300;

/// One resource of which the guest takes something.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    at: usize,
    amount: f64,
    /// How the sum changes at the source.
    first: f64,
    /// Twice the sum.
    twice: f64,
    /// The spread without what the change of the sum makes of it, and without the target.
    spread: f64,
    hosts: f64,
    factor: f64,
}

impl Lane {
    /// Returns the spread with the guest on a host.
    #[inline]
    fn spread(&self, part: f64, unit: f64) -> f64 {
        let more = self.amount * unit;
        let first = self.first + more;
        let second = more * (2.0 * part + more);
        self.spread + self.hosts * second - (self.twice + first) * first
    }

    /// Returns bounds of the spread over all hosts.
    fn range(&self, columns: &Columns) -> (f64, f64) {
        let (parts, units) = (columns.part_ranges[self.at], columns.unit_ranges[self.at]);
        let (least, most) = (self.amount * units.0, self.amount * units.1);
        let square = |more: f64| (self.twice + self.first + more) * (self.first + more);
        let second = |part: f64, more: f64| self.hosts * more * (2.0 * part + more);
        let (one, other) = (square(least), square(most));
        // Where sums shrink first and then grow, the square is least in between.
        let turn = -(self.first + self.twice / 2.0);
        let valley = square(turn.clamp(least, most));
        let low = self.spread + second(parts.0, least) - one.max(other);
        let high = self.spread + second(parts.1, most) - one.min(other).min(valley);
        (low.max(0.0), high.max(0.0))
    }
}

/// What moving one guest would bring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    lanes: [Lane; LANES],
    count: usize,
    /// What does not depend on the host.
    fixed: f64,
    cpus: Holes,
    pages: Holes,
}

/// Free things in cells that are begun.
#[derive(Clone, Copy, Debug)]
struct Holes {
    /// How many there are without those of the target.
    broken: f64,
    taken: f64,
    /// What each says.
    weight: f64,
}

impl Holes {
    fn total(&self, broken_there: f64) -> f64 {
        (self.broken - broken_there.min(self.taken)) * self.weight
    }
}

impl Aim {
    /// Makes a guest ready that changes its own host so.
    pub(super) fn new(gauge: &Gauge, outbound: &Change, piece: &Piece) -> Self {
        let mut lanes = [Lane::default(); LANES];
        let mut count = 0;
        let mut fixed = gauge.offline_with(outbound);
        for at in 0..LANES {
            let lane = Lane {
                at,
                amount: piece.amounts[at],
                first: outbound.first[at],
                twice: 2.0 * gauge.first[at],
                spread: gauge.spread[at] + gauge.hosts[at] * outbound.second[at],
                hosts: gauge.hosts[at],
                factor: gauge.factor[at],
            };
            if lane.factor == 0.0 {
                continue;
            }
            if lane.amount == 0.0 {
                fixed += lane.spread(0.0, 0.0).max(0.0).sqrt() * lane.factor;
                continue;
            }
            lanes[count] = lane;
            count += 1;
        }
        let holes = |component, broken, free: f64, taken: f64| Holes {
            broken,
            taken,
            weight: gauge.weight(component) / (free - taken).max(1.0),
        };
        Self {
            lanes,
            count,
            fixed,
            cpus: holes(
                CPU_HOLES,
                gauge.cpus_broken + outbound.cpus_broken,
                gauge.cpus_free + outbound.cpus_free,
                piece.cpus,
            ),
            pages: holes(
                PAGE_HOLES,
                gauge.pages_broken + outbound.pages_broken,
                gauge.pages_free + outbound.pages_free,
                piece.pages_mib,
            ),
        }
    }

    /// Writes down below what the score cannot come with the guest on each host.
    ///
    /// Resource by resource, so that the hosts are gone through several at once.
    pub(super) fn bounds(&self, columns: &Columns, bounds: &mut Vec<f64>) {
        bounds.clear();
        bounds.resize(columns.len(), self.fixed);
        for lane in &self.lanes[..self.count] {
            let (low, high) = lane.range(columns);
            let (floor, ceiling) = (low.sqrt(), high.sqrt());
            let slope = lane.factor / (floor + ceiling).max(TINY);
            let start = lane.factor * floor - slope * low;
            let (parts, units) = (&columns.parts[lane.at], &columns.units[lane.at]);
            let range = columns.unit_ranges[lane.at];
            if range.0 == range.1 {
                // All hosts have as much: the spread is a straight line of the part.
                let start = start + slope * lane.spread(0.0, range.0);
                let rise = slope * lane.hosts * 2.0 * lane.amount * range.0;
                for (bound, part) in bounds.iter_mut().zip(parts) {
                    *bound += start + rise * part;
                }
            } else {
                for (bound, (part, unit)) in bounds.iter_mut().zip(parts.iter().zip(units)) {
                    *bound += start + slope * lane.spread(*part, *unit);
                }
            }
        }
        let holes = [
            (&self.cpus, &columns.cpus_broken),
            (&self.pages, &columns.pages_broken),
        ];
        for (holes, broken) in holes {
            if holes.weight > 0.0 {
                for (bound, broken) in bounds.iter_mut().zip(broken) {
                    *bound += holes.total(*broken);
                }
            }
        }
    }

    /// Returns what the score would be with the guest on a host.
    pub(super) fn total(&self, columns: &Columns, to: usize) -> f64 {
        let mut total = self.fixed;
        for lane in &self.lanes[..self.count] {
            let (part, unit) = (columns.parts[lane.at][to], columns.units[lane.at][to]);
            total += lane.spread(part, unit).max(0.0).sqrt() * lane.factor;
        }
        total
            + self.cpus.total(columns.cpus_broken[to])
            + self.pages.total(columns.pages_broken[to])
    }
}
