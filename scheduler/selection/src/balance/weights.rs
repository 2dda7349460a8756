//! How much each component of the cluster metric says.

use berth_domain::fault::Fault;

use super::metric::{LIVE, NAMES};

/// How much each component says, by the order of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights([f64; NAMES.len()]);

impl Default for Weights {
    fn default() -> Self {
        Self([
            0.5, 0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 1.0, 4.0, 16.0, 0.25, 0.25,
        ])
    }
}

impl Weights {
    /// The greatest weight.
    pub const MAX: f64 = 1000.0;

    /// Returns the weights at this memory ratio: the more memory is promised than there is, the more
    /// it matters how much of it guests really use.
    #[must_use]
    pub fn at_ratio(ratio: f64) -> Self {
        let mut weights = Self::default();
        weights.0[LIVE] = (5.0 * (ratio - 1.0)).clamp(0.0, Self::MAX);
        weights
    }

    /// Returns the weight of the component at this place of [`NAMES`].
    pub(crate) fn at(&self, at: usize) -> f64 {
        self.0[at]
    }

    /// Returns the weight of a component.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<f64> {
        let at = NAMES.iter().position(|known| *known == name)?;
        Some(self.0[at])
    }

    /// Gives a component another weight.
    ///
    /// # Errors
    ///
    /// There is no such component, or it is no weight from 0 to [`Self::MAX`].
    pub fn set(&mut self, name: &str, weight: f64) -> Result<(), Fault> {
        let Some(at) = NAMES.iter().position(|known| *known == name) else {
            let rule = format!("must be one of {}", NAMES.join(", "));
            return Err(Fault::new("component", name, rule));
        };
        if !(0.0..=Self::MAX).contains(&weight) {
            let rule = format!("must be from 0 to {}", Self::MAX);
            return Err(Fault::new(name, weight, rule));
        }
        self.0[at] = weight;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_named_and_bounded() {
        let mut weights = Weights::at_ratio(1.5);
        assert_eq!(weights.of("mem_load_cv"), Some(2.5));
        assert_eq!(Weights::at_ratio(0.5).of("mem_load_cv"), Some(0.0));
        weights.set("pcpu_ratio_cv", 2.0).unwrap();
        assert_eq!(weights.of("pcpu_ratio_cv"), Some(2.0));
        for (name, weight) in [("pcpu", 1.0), ("n1_cnt", -1.0), ("n1_cnt", f64::NAN)] {
            assert!(weights.set(name, weight).is_err(), "{name} {weight}");
        }
    }
}
