//! The hosts with the guests on them, for decisions that look several steps ahead.
//!
//! ```text
//! frozen state ──caller──▶ Fleet ──mark──▶ fail, take, put, shift … ──undo──▶ as before
//! ```
//!
//! Guests are taken off hosts and put on others by the rules of the choice itself; what a guest's
//! server group demands follows from where its members are in the speculative fleet. Each step is
//! written into a journal, and undone at the cost of a copy.
//!
//! Not here: which steps are good ([`crate::failover`]), and the state from which it is made: this
//! crate does not know it.
//!
//! Invariant: a host's view counts the claims of exactly those guests that are on it, beside what
//! it counted of others when it was given; places in the table are stable until a host is removed.

mod guest;
mod journal;
mod members;
mod seeker;

use std::borrow::Cow;
use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::{Demand, Leaving};
use berth_domain::host_view::HostView;
use berth_domain::name::{HostName, ServerGroupName, VmName};
use berth_domain::numa::{Assignment, Strategy};
use berth_domain::server_group::GroupDemand;
use imbl::OrdMap;

pub use guest::{FleetGuest, Rescue};
pub use journal::Mark;
pub use seeker::Seeker;

use crate::pipeline::{self, NoHost};
use crate::request::{Choice, Request};
use crate::table::Table;
use journal::Step;
use members::Members;

/// Why something is not a fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A guest is on a host that is not there.
    #[error("vm {vm} is on host {host}, which is not part of the fleet")]
    UnknownHost {
        /// The guest.
        vm: VmName,
        /// Where it is said to be.
        host: HostName,
    },
    /// A guest is given twice.
    #[error("vm {vm} is given twice: once with a claim on host {first}, once on host {second}")]
    Twice {
        /// The guest.
        vm: VmName,
        /// Where it is.
        first: HostName,
        /// Where it is said to be, too.
        second: HostName,
    },
}

/// A guest, and where it is now.
#[derive(Clone, Debug)]
struct Lodged {
    guest: Arc<FleetGuest>,
    /// Its host's place in the table; absent while it is on none.
    at: Option<usize>,
}

/// The hosts with the guests on them.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    table: Table,
    places: OrdMap<HostName, usize>,
    guests: OrdMap<VmName, Lodged>,
    /// By place: the guests of each host, in order of name.
    lodgers: Vec<Vec<VmName>>,
    members: Members,
    /// Places of hosts that are taken to have failed.
    failed: Vec<usize>,
    journal: Vec<Step>,
}

impl Fleet {
    /// Returns the fleet of these hosts with these guests, whose claims the hosts' views count.
    ///
    /// # Errors
    ///
    /// A guest is on no host that is there, or is given twice.
    pub fn new<'a>(
        hosts: impl IntoIterator<Item = &'a Arc<HostView>>,
        guests: impl IntoIterator<Item = FleetGuest>,
    ) -> Result<Self, Error> {
        let mut fleet = Self::default();
        for view in hosts {
            fleet.set_view(view);
        }
        for guest in guests {
            fleet.lodge(guest)?;
        }
        Ok(fleet)
    }

    /// Returns the number of hosts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there is no host.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the hosts, each at its place.
    #[must_use]
    pub fn views(&self) -> &[Arc<HostView>] {
        &self.table.views
    }

    /// Returns the host of this name.
    #[must_use]
    pub fn view(&self, host: &HostName) -> Option<&Arc<HostView>> {
        self.place(host).map(|at| &self.table.views[at])
    }

    /// Returns the place of a host.
    #[must_use]
    pub fn place(&self, host: &HostName) -> Option<usize> {
        self.places.get(host).copied()
    }

    /// Returns the name of the host at this place.
    #[must_use]
    pub fn name(&self, at: usize) -> &HostName {
        &self.table.views[at].host.name
    }

    /// Returns all guests, in order of name.
    pub fn guests(&self) -> impl Iterator<Item = &Arc<FleetGuest>> {
        self.guests.values().map(|lodged| &lodged.guest)
    }

    /// Returns the guest of this name.
    #[must_use]
    pub fn guest(&self, vm: &VmName) -> Option<&Arc<FleetGuest>> {
        self.guests.get(vm).map(|lodged| &lodged.guest)
    }

    /// Returns the place of the host that a guest is on; absent while it is on none.
    #[must_use]
    pub fn place_of(&self, vm: &VmName) -> Option<usize> {
        self.guests.get(vm).and_then(|lodged| lodged.at)
    }

    /// Returns the guests of the host at this place, in order of name.
    pub fn guests_at(&self, at: usize) -> impl Iterator<Item = &Arc<FleetGuest>> {
        let names = self.lodgers[at].iter();
        names.map(|vm| self.guest(vm).expect("lodgers are guests"))
    }

    /// Returns how many claims the members of a server group have on each host.
    pub fn members(&self, group: &ServerGroupName) -> impl Iterator<Item = (&HostName, u32)> {
        self.members.of(group)
    }

    /// Returns what a guest demands of another host, its server group as it is now.
    #[must_use]
    pub fn demand<'a>(&self, guest: &'a FleetGuest) -> Cow<'a, Demand> {
        let Some(group) = guest.group() else {
            return Cow::Borrowed(&guest.demand);
        };
        let own = self.place_of(&guest.vm).map(|at| self.name(at));
        let failed = |host: &HostName| self.failed.iter().any(|at| self.name(*at) == host);
        Cow::Owned(Demand {
            group: Some(GroupDemand {
                hosts: self.members.others(guest, own, failed),
                ..group.clone()
            }),
            ..(*guest.demand).clone()
        })
    }

    /// Returns what a guest would take of a host, where it is not. What it takes now counts
    /// still, as it does while it is moved.
    #[must_use]
    pub fn try_place(&self, vm: &VmName, to: usize, cells: Strategy) -> Option<Assignment> {
        let guest = self.guest(vm)?;
        let demand = self.demand(guest);
        let seeker = Seeker::new(self, &demand);
        seeker.glance(self, to, cells)?;
        seeker.try_place(self, to, cells)
    }

    /// Returns the best host for a request, as [`crate::Index::select`] does. Its demand is taken
    /// as it is: see [`Self::demand`].
    ///
    /// # Errors
    ///
    /// No host can, or the one that is named cannot.
    pub fn select(&self, request: &Request) -> Result<Choice, NoHost> {
        if let Some(name) = &request.requested {
            return pipeline::run_named(request, self.view(name));
        }
        pipeline::run(request, &self.table, |name| self.place(name))
    }

    /// Returns whether the host at this place is taken to have failed.
    #[must_use]
    pub fn has_failed_at(&self, at: usize) -> bool {
        self.failed.contains(&at)
    }

    /// Takes a host to have failed: its guests are on none, and nothing can be put there.
    pub fn fail(&mut self, at: usize) {
        let row = self.table.close(at);
        let lodgers = std::mem::take(&mut self.lodgers[at]);
        for vm in &lodgers {
            self.lodged(vm).at = None;
        }
        self.failed.push(at);
        self.journal.push(Step::Failed {
            at,
            row: Box::new(row),
            lodgers,
        });
    }

    /// Takes a guest off its host. Returns the place of that.
    ///
    /// # Panics
    ///
    /// When it is on none.
    pub fn take(&mut self, vm: &VmName) -> usize {
        let guest = Arc::clone(self.guest(vm).expect("a guest of the fleet"));
        let at = self.place_of(vm).expect("a guest that is on a host");
        let row = self.change(at, |view| view.release(&guest.claim));
        let host = self.name(at).clone();
        self.members.remove_at(&guest, &host);
        self.leave(vm, at);
        self.journal.push(Step::Taken { guest, at, row });
        at
    }

    /// Puts a guest that is on no host on this one, where it takes this. What it demands of a
    /// further host stays the same: it has not begun to run here.
    ///
    /// # Panics
    ///
    /// When it is on a host.
    pub fn put(&mut self, vm: &VmName, at: usize, assignment: Assignment) {
        let before = Arc::clone(self.guest(vm).expect("a guest of the fleet"));
        assert!(self.place_of(vm).is_none(), "vm {vm} is on a host already");
        let claim = Claim {
            host: self.name(at).clone(),
            resources: before.demand.resources.clone(),
            assignment,
            ..(*before.claim).clone()
        };
        let row = self.change(at, |view| view.place(&claim));
        let guest = Arc::new(FleetGuest {
            claim: Arc::new(claim),
            ..(*before).clone()
        });
        self.members.add_at(&guest, &guest.claim.host);
        self.arrive(guest, at);
        self.journal.push(Step::Put { before, at, row });
    }

    /// Moves a guest to another host, where it takes this, as a migration that has ended: what it
    /// demands of a further host is what it demands from there.
    ///
    /// # Panics
    ///
    /// When it is on no host.
    pub fn shift(&mut self, vm: &VmName, to: usize, assignment: Assignment) {
        self.take(vm);
        let host = Arc::clone(&self.table.views[to].host);
        let before = Arc::clone(self.guest(vm).expect("a guest of the fleet"));
        if let Some(leaving) = &before.demand.leaving {
            let leaving = Leaving {
                host: host.name.clone(),
                version: host.report.service_version,
                driver: host.report.driver.clone(),
                storage_id: host.report.storage_id.clone(),
                ..leaving.clone()
            };
            let demand = Demand {
                leaving: Some(leaving),
                ..(*before.demand).clone()
            };
            let guest = FleetGuest {
                demand: Arc::new(demand),
                ..(*before).clone()
            };
            self.lodged(vm).guest = Arc::new(guest);
            self.journal.push(Step::Altered { before });
        }
        self.put(vm, to, assignment);
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut HostView)) -> Box<crate::table::Row> {
        let mut view = Arc::clone(&self.table.views[at]);
        change(Arc::make_mut(&mut view));
        Box::new(self.table.exchange(at, &view))
    }

    fn lodged(&mut self, vm: &VmName) -> &mut Lodged {
        self.guests.get_mut(vm).expect("a guest of the fleet")
    }

    /// Writes a guest into the list of the host at this place.
    fn arrive(&mut self, guest: Arc<FleetGuest>, at: usize) {
        let names = &mut self.lodgers[at];
        let place = names.partition_point(|other| *other < guest.vm);
        names.insert(place, guest.vm.clone());
        let at = Some(at);
        self.guests.insert(guest.vm.clone(), Lodged { guest, at });
    }

    /// Takes a guest out of the list of the host at this place.
    fn leave(&mut self, vm: &VmName, at: usize) {
        let names = &mut self.lodgers[at];
        let place = names.binary_search(vm).expect("it is on this host");
        names.remove(place);
        self.lodged(vm).at = None;
    }
}
