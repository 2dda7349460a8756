//! A demand prepared for many hosts of a fleet: the filters first, the exact fit last.
//!
//! The rules are those of the choice itself ([`crate::pipeline`]).

use berth_domain::constraint::{Demand, PreparedDemand, Violation};
use berth_domain::numa::{Assignment, Strategy};

use super::Fleet;
use crate::filter::{CellDemands, DeviceDemand, Lanes};
use crate::minimum_demand::MinimumDemand;

/// A demand, made ready.
#[derive(Clone, Debug)]
pub struct Seeker<'a> {
    /// What is demanded.
    pub demand: &'a Demand,
    applicant: PreparedDemand<'a>,
    lanes: Lanes,
    cells: CellDemands,
    devices: DeviceDemand,
}

impl<'a> Seeker<'a> {
    /// Makes a demand ready.
    #[must_use]
    pub fn new(fleet: &Fleet, demand: &'a Demand) -> Self {
        Self {
            demand,
            applicant: PreparedDemand::new(demand),
            lanes: Lanes::requested(&MinimumDemand::new(demand)),
            cells: CellDemands::new(demand.topology.as_ref()),
            devices: fleet.table.kinds.requested(&demand.pci),
        }
    }

    /// Returns whether the host at this place has room at a glance, and how many dedicated CPUs
    /// would be left of the cell that the greatest cell of the guest goes to.
    #[must_use]
    pub fn glance(&self, fleet: &Fleet, at: usize, cells: Strategy) -> Option<u16> {
        let table = &fleet.table;
        if !table.offers[at].suffice(&self.lanes) || !self.devices.are_met(&table.devices[at]) {
            return None;
        }
        table.headroom[at].left(&self.cells, cells)
    }

    /// Returns what the guest would take of the host at this place. It is to have room at a glance.
    #[must_use]
    pub fn try_place(&self, fleet: &Fleet, at: usize, cells: Strategy) -> Option<Assignment> {
        if fleet.has_failed_at(at) {
            return None;
        }
        self.applicant.try_place(&fleet.table.views[at], cells)
    }

    /// Returns whether a host that does not take the guest might after all: the search for its PCI
    /// functions was given up.
    #[must_use]
    pub fn gave_up(&self, fleet: &Fleet, at: usize) -> bool {
        !fleet.has_failed_at(at) && self.applicant.gives_up(&fleet.table.views[at])
    }

    /// Returns what [`Self::try_place`] returns, with the reason where there is nothing.
    ///
    /// # Errors
    ///
    /// The rule that the host breaks; one that failed is down.
    pub fn place(
        &self,
        fleet: &Fleet,
        at: usize,
        cells: Strategy,
    ) -> Result<Assignment, Violation> {
        if fleet.has_failed_at(at) {
            return Err(Violation::Down);
        }
        self.applicant.place(&fleet.table.views[at], cells)
    }
}
