//! Which hosts and cells are preferred among those that can take a guest.

use berth_domain::numa::Strategy;

/// Which hosts and cells are preferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Hosts: the emptiest or the fullest first.
    pub hosts: Strategy,
    /// Cells of the chosen host: the emptiest or the fullest first.
    pub cells: Strategy,
}
