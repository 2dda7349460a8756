//! What a plan is to reach, and what a move may cost.
//!
//! Gains are counted by host: what a move takes off the score, times the number of hosts that
//! guests may stay on. A good move takes about as much off whether there are ten hosts or ten
//! thousand; of the score itself, a thousandth of that.

use berth_domain::fault::Fault;
use berth_domain::numa::Strategy;

use super::metric::Signals;
use super::weights::Weights;

/// The most moves of a plan.
pub const MOVES_MAX: usize = 1_000_000;

/// What a plan is to reach, and what a move may cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How much each component says.
    pub weights: Weights,
    /// What is known beside the books.
    pub signals: Signals,
    /// Which cells of a host a guest gets.
    pub cells: Strategy,
    /// What a move must gain beyond its cost, by host.
    pub gain_min: f64,
    /// What sending one GiB costs, in the same measure.
    pub cost_per_gib: f64,
    /// Nothing is done unless one of these is exceeded.
    pub threshold: Threshold,
    /// So many moves are planned at most.
    pub moves_max: usize,
}

/// What has to be exceeded before anything is done. One that is zero is not looked at; with both
/// at zero, everything is done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Threshold {
    /// The score.
    pub score: f64,
    /// How much is taken of the memory, the CPUs or the disk of that host of which most is: 0.9 is
    /// 90 % of what may be given away of it.
    pub usage: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            weights: Weights::default(),
            signals: Signals::default(),
            cells: Strategy::Pack,
            gain_min: 0.01,
            cost_per_gib: 0.0002,
            threshold: Threshold::default(),
            moves_max: MOVES_MAX,
        }
    }
}

impl Options {
    /// Returns everything that is wrong with them.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let amounts = [
            ("gain_min", self.gain_min),
            ("cost_per_gib", self.cost_per_gib),
            ("threshold.score", self.threshold.score),
            ("threshold.usage", self.threshold.usage),
        ];
        let bad = amounts
            .into_iter()
            .filter(|(_, amount)| !(0.0..=1e9).contains(amount));
        let bad = bad.map(|(name, amount)| {
            Fault::new(name, amount, "must be a number from 0 to 1000000000")
        });
        let mut faults: Vec<Fault> = bad.collect();
        if self.moves_max > MOVES_MAX {
            let rule = format!("must be at most {MOVES_MAX}");
            faults.push(Fault::new("moves_max", self.moves_max, rule));
        }
        faults
    }
}

impl Threshold {
    /// Returns whether anything is to be done.
    #[must_use]
    pub fn is_exceeded(&self, score: f64, usage: f64) -> bool {
        *self == Self::default()
            || (self.score > 0.0 && score > self.score)
            || (self.usage > 0.0 && usage > self.usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_threshold_everything_is_done() {
        let of = |score, usage| Threshold { score, usage };
        assert!(of(0.0, 0.0).is_exceeded(0.0, 0.0));
        assert!(!of(2.0, 0.0).is_exceeded(1.0, 5.0));
        assert!(!of(2.0, 0.9).is_exceeded(2.0, 0.9));
        assert!(of(2.0, 0.9).is_exceeded(1.0, 0.91));
        assert!(of(2.0, 0.9).is_exceeded(2.1, 0.1));
    }

    #[test]
    fn what_is_wrong_is_told_at_once() {
        let options = Options {
            gain_min: f64::NAN,
            cost_per_gib: -1.0,
            moves_max: usize::MAX,
            ..Options::default()
        };
        assert_eq!(options.faults().len(), 3);
        assert_eq!(Options::default().faults(), []);
    }
}
