//! The order of the hosts that the filters let through.
//!
//! Invariant: a total order that depends on the host and the request alone, never on the order in
//! which hosts are looked at.

pub mod load;
pub mod turn;

pub use load::Loads;

/// How good a host is; the greater the better. By how much of it is taken, and by turns where that
/// is equal: 16 bits of load above 48 bits of turn, so that one comparison decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score(u64);

impl Score {
    /// No host is worse.
    pub const WORST: Self = Self(0);

    /// Returns the score of what [`Loads::weigh`] and [`turn::weigh`] say.
    #[must_use]
    pub fn new(load: u16, turn: u64) -> Self {
        Self(u64::from(load) << 48 | turn >> 16)
    }
}
