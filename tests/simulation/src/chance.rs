//! The only source of randomness of a run.

use rand::{Rng as _, RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

/// A seeded source of randomness.
#[derive(Clone, Debug)]
pub struct Chance(ChaCha8Rng);

impl Chance {
    /// Returns the source that this seed gives.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high)
    }

    /// Returns whether something happens that happens in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    /// Returns one of these.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let last = of.len().checked_sub(1)?;
        of.get(usize::try_from(self.between(0, last as u64)).expect("an index"))
    }

    /// Returns a position below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.between(0, len.saturating_sub(1) as u64)).expect("an index")
    }

    /// Returns a fresh identifier.
    pub fn uuid(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// Returns a fresh seed.
    pub fn seed(&mut self) -> u64 {
        self.0.next_u64()
    }
}
