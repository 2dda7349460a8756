//! Where each guest of a domain goes when it fails.
//!
//! Invariant: carried out in its order, each step keeps every rule on what is there after the
//! steps before it.

use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::{Violation, admit};
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::Assignment;

use super::{Domain, fail};
use crate::fleet::{Fleet, FleetGuest, Rescue};

/// One guest's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The guest.
    pub vm: VmName,
    /// Where it goes.
    pub to: HostName,
    /// What it takes there, beside the counted amounts of its demand.
    pub assignment: Assignment,
}

/// The ways of all guests of a domain, in the order in which they are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One for each guest.
    pub moves: Vec<Move>,
}

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A guest of the domain has no way, or two, or one is not of the domain.
    #[error("vm {0} has no way in the plan, or is none of the guests")]
    Guests(VmName),
    /// A host is not there, or fails itself.
    #[error("host {0} is not part of the fleet, or fails itself")]
    Host(HostName),
    /// A guest cannot go where it is to go.
    #[error("vm {vm} cannot go to host {to}")]
    Rule {
        /// The guest.
        vm: VmName,
        /// The host.
        to: HostName,
        /// The rule that it breaks.
        #[source]
        violation: Violation,
    },
}

impl Plan {
    /// Returns the ways to a host.
    pub fn to(&self, host: &HostName) -> impl Iterator<Item = &Move> {
        self.moves.iter().filter(move |step| step.to == *host)
    }

    /// Checks the plan step by step, with the rules that the claims will be checked by.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn verify(&self, fleet: &mut Fleet, domain: &Domain) -> Result<(), Fault> {
        let mark = fleet.mark();
        let evacuees = evacuees(fleet, domain);
        fail(fleet, domain);
        let checked = self.follow(fleet, &evacuees);
        fleet.undo(mark);
        checked
    }

    fn follow(&self, fleet: &mut Fleet, evacuees: &[Arc<FleetGuest>]) -> Result<(), Fault> {
        for step in &self.moves {
            let known = evacuees.iter().any(|guest| guest.vm == step.vm);
            if !known || fleet.place_of(&step.vm).is_some() {
                return Err(Fault::Guests(step.vm.clone()));
            }
            let to = fleet.place(&step.to);
            let to = to.filter(|at| !fleet.has_failed_at(*at));
            let to = to.ok_or_else(|| Fault::Host(step.to.clone()))?;
            check(fleet, step, to).map_err(|violation| Fault::Rule {
                vm: step.vm.clone(),
                to: step.to.clone(),
                violation,
            })?;
            fleet.put(&step.vm, to, step.assignment.clone());
        }
        let mut left = evacuees.iter();
        match left.find(|guest| fleet.place_of(&guest.vm).is_none()) {
            Some(guest) => Err(Fault::Guests(guest.vm.clone())),
            None => Ok(()),
        }
    }
}

/// Checks one step against the fleet as it is now.
pub(super) fn check(fleet: &Fleet, step: &Move, to: usize) -> Result<(), Violation> {
    let guest = fleet.guest(&step.vm).expect("a guest of the fleet");
    let demand = fleet.demand(guest);
    let view = &fleet.views()[to];
    admit(view, &demand, &claim(guest, step))
}

/// Returns the claim that a step leads to.
pub(super) fn claim(guest: &FleetGuest, step: &Move) -> Claim {
    Claim {
        host: step.to.clone(),
        resources: guest.demand.resources.clone(),
        assignment: step.assignment.clone(),
        ..(*guest.claim).clone()
    }
}

/// Returns the guests of a domain that are to be started elsewhere.
pub(super) fn evacuees(fleet: &Fleet, domain: &Domain) -> Vec<Arc<FleetGuest>> {
    let places = domain.hosts.iter().filter_map(|host| fleet.place(host));
    let guests = places.flat_map(|at| fleet.guests_at(at));
    let restarted = guests.filter(|guest| match guest.rescue {
        Rescue::Restart | Rescue::Impossible(_) => true,
        Rescue::Spare(_) => false,
    });
    restarted.cloned().collect()
}
