//! The order of the hosts that the filters let through.
//!
//! Invariant: a total order that depends on the host and the request alone, never on the order in
//! which hosts are looked at.

pub mod load;
pub mod turn;

use berth_domain::host_view::Room;

use crate::ask::Ask;
use crate::policy::Policy;

/// How good a host is; the greater the better. The fields are compared one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// By how much of it is taken.
    pub load: u16,
    /// By turns, where all else is equal.
    pub turn: u32,
}

impl Score {
    /// Returns the score of a host; `key` is [`turn::key`] of its name.
    #[must_use]
    pub fn new(room: &Room, ask: &Ask, policy: Policy, key: u64, seed: u64) -> Self {
        Self {
            load: load::weigh(room, ask, policy.hosts),
            turn: turn::weigh(key, seed),
        }
    }
}
