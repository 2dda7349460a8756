//! What rules a host out at a glance.
//!
//! A filter sees only [`Headroom`] and [`MinimumDemand`], and returns a few numbers of each: what the host
//! offers and what the guest demands. A host passes if it offers enough of all. The numbers of all filters
//! stand side by side in [`Lanes`], one cache line a host, so that the compiler compares several
//! at once and a thousand hosts are filtered in a few microseconds. Hosts that pass are checked for
//! headroom in one and the same cell ([`headroom`]) and for enough PCI functions of a kind ([`devices`]).
//!
//! It spares the rules of [`berth_domain::constraint`] hosts that cannot pass; it is never the
//! only one to say no, and its reasons are not reported to people.

pub mod cells;
pub mod counted;
pub mod cpus;
pub mod devices;
pub mod headroom;
pub mod memory;
pub mod open;
pub mod pages;

use berth_domain::host_view::Headroom;

pub use devices::{DeviceDemand, Devices};
pub use headroom::{CellDemands, CellHeadroom};

use crate::minimum_demand::MinimumDemand;

/// The numbers of all filters; those at the end that no filter uses are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct Lanes([u32; 16]);

macro_rules! lanes {
    ($side:ident, $of:expr) => {{
        let numbers = open::$side($of)
            .into_iter()
            .chain(counted::$side($of))
            .chain(cpus::$side($of))
            .chain(memory::$side($of))
            .chain(pages::$side($of))
            .chain(cells::$side($of));
        let mut lanes = Self::default();
        for (lane, number) in lanes.0.iter_mut().zip(numbers) {
            *lane = number;
        }
        lanes
    }};
}

impl Lanes {
    /// Returns what a host offers.
    #[must_use]
    pub fn offered(headroom: &Headroom) -> Self {
        lanes!(offered, headroom)
    }

    /// Returns what a guest demands.
    #[must_use]
    pub fn requested(demand: &MinimumDemand) -> Self {
        lanes!(requested, demand)
    }

    /// Returns whether what is offered suffices for what is requested.
    #[must_use]
    pub fn suffice(&self, requested: &Self) -> bool {
        // Without an early end, so that it becomes a few wide comparisons.
        self.0
            .iter()
            .zip(&requested.0)
            .fold(true, |enough, (offered, requested)| {
                enough & (offered >= requested)
            })
    }
}
