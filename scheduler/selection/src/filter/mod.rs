//! What rules a host out at a glance.
//!
//! A filter sees only [`Room`] and [`Ask`], so that a thousand hosts are filtered in microseconds.
//! It spares the rules of [`berth_domain::constraint`] hosts that cannot pass; it is never the
//! only one to say no, and what it says is not told to people.

pub mod cells;
pub mod counted;
pub mod cpus;
pub mod memory;
pub mod open;
pub mod pages;

use berth_domain::host_view::Room;

use crate::ask::Ask;

/// Returns whether a host is let through by every filter.
#[must_use]
pub fn passes(room: &Room, ask: &Ask) -> bool {
    open::passes(room, ask)
        && counted::passes(room, ask)
        && cpus::passes(room, ask)
        && memory::passes(room, ask)
        && pages::passes(room, ask)
        && cells::passes(room, ask)
}
