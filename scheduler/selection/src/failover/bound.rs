//! Why there is no plan: what is needed, what there is, and what would help.
//!
//! Invariant: a bound is never a guess. Each says of some guests and some hosts that whatever goes
//! where, not all of them have a place; placing more guests never makes room.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use berth_domain::constraint::Demand;
use berth_domain::host_view::HostView;
use berth_domain::name::{ServerGroupName, VmName};
use berth_domain::policy::SchedulingPolicy;
use berth_domain::refusal::Refusal;
use uuid::Uuid;

use super::kinds::are_alike;
use super::need::{Left, Need, Thing};
use super::reach::Reach;
use super::search::Party;
use super::{Domain, fail};
use crate::explain;
use crate::fleet::{Fleet, FleetGuest, Seeker};
use crate::request::Request;

/// So many guests are named.
const NAMES: usize = 4;

/// The hosts that could take a guest are distinguished up to so many, or as many as there are guests.
const FEW: usize = 16;
/// More hosts than this are distinguished for no guest, and summed up only for more guests than this.
const SOME: usize = 64;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A guest cannot be started elsewhere, whatever room there is.
    Impossible {
        /// The guest.
        vm: VmName,
        /// The reason, for people.
        why: String,
    },
    /// No other host could take a guest, even alone. [`explain()`] says why of each.
    Alone {
        /// The guest.
        vm: VmName,
        /// How many other hosts there are.
        hosts: u64,
    },
    /// The members of a server group have to stay together, and no other host has room for all.
    Together {
        /// The group.
        group: ServerGroupName,
        /// Its members that are to be started elsewhere.
        guests: Vec<VmName>,
        /// How many other hosts there are.
        hosts: u64,
    },
    /// Some guests need more of something than all hosts that could take any of them have left.
    Amount {
        /// What.
        thing: Thing,
        /// How much they need together.
        needed: u64,
        /// How much these hosts have left together.
        left: u64,
        /// These guests.
        guests: Vec<VmName>,
        /// How many hosts could take any of them.
        hosts: u64,
    },
    /// There are more guests of at least this size than slots for such.
    Slots {
        /// The least of them.
        vm: VmName,
        /// All of them.
        guests: Vec<VmName>,
        /// For how many the hosts have room, at most.
        slots: u64,
        /// How many hosts could take any of them.
        hosts: u64,
    },
    /// Every way to place them was tried.
    Searched {
        /// All guests.
        guests: Vec<VmName>,
        /// How often a guest was fitted to a host.
        tried: u64,
    },
}

impl Bound {
    /// Returns the guest that the bound is about, if it is one.
    #[must_use]
    pub fn vm(&self) -> Option<&VmName> {
        match self {
            Self::Impossible { vm, .. } | Self::Alone { vm, .. } | Self::Slots { vm, .. } => {
                Some(vm)
            }
            Self::Together { .. } | Self::Amount { .. } | Self::Searched { .. } => None,
        }
    }

    /// Returns the guests that the bound is about. As long as a host that gets more room can take none of
    /// them alone, the bound holds.
    #[must_use]
    pub fn guests(&self) -> &[VmName] {
        match self {
            Self::Impossible { vm, .. } | Self::Alone { vm, .. } => std::slice::from_ref(vm),
            Self::Together { guests, .. }
            | Self::Amount { guests, .. }
            | Self::Slots { guests, .. }
            | Self::Searched { guests, .. } => guests,
        }
    }

    /// Returns what would help.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Impossible { vm, .. } => {
                format!("lift what keeps vm {vm} on its host, or say that it need not be restarted")
            }
            Self::Alone { vm, .. } => format!(
                "make room for vm {vm} on one other host, add such a host, or move the guest to a \
                 smaller flavor"
            ),
            Self::Together { group, .. } => format!(
                "make room on one other host for all members of server group {group}, or spread \
                 them over hosts"
            ),
            Self::Amount {
                thing,
                needed,
                left,
                ..
            } => match thing {
                Thing::Apart(group, _) => {
                    format!("add a host, or let server group {group} have more members on one host")
                }
                Thing::Class(_)
                | Thing::DedicatedCpus
                | Thing::SmallPages
                | Thing::Pages(_)
                | Thing::Functions(_)
                | Thing::Namespaces(_) => format!(
                    "free or add {} {thing} on other hosts, or move guests off this one",
                    needed.saturating_sub(*left)
                ),
            },
            Self::Slots {
                vm, guests, slots, ..
            } => format!(
                "make room for {} more guests of the size of vm {vm}: move smaller guests together \
                 on other hosts, or move such a guest off this one",
                (guests.len() as u64).saturating_sub(*slots)
            ),
            Self::Searched { .. } => {
                "make room on other hosts, or move guests off this one".to_owned()
            }
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible { vm, why } => write!(f, "vm {vm} cannot be started elsewhere: {why}"),
            Self::Alone { vm, hosts } => {
                write!(
                    f,
                    "vm {vm} fits on none of the {hosts} other hosts, even alone"
                )
            }
            Self::Together {
                group,
                guests,
                hosts,
            } => write!(
                f,
                "the {} members of server group {group} have to stay together, and none of \
                 the {hosts} other hosts has room for all of them",
                guests.len()
            ),
            Self::Amount {
                thing,
                needed,
                left,
                guests,
                hosts,
            } => write!(
                f,
                "{} guests ({}) need {needed} {thing}, and the {hosts} hosts that could take any of \
                 them have {left} left",
                guests.len(),
                names(guests)
            ),
            Self::Slots {
                vm,
                guests,
                slots,
                hosts,
            } => write!(
                f,
                "{} guests ({}) are at least as great as vm {vm}, and the {hosts} hosts that could \
                 take any of them have room for {slots} such at most",
                guests.len(),
                names(guests)
            ),
            Self::Searched { guests, tried } => write!(
                f,
                "every way to place the {} guests on the other hosts was tried ({tried} \
                 placements), and none keeps all rules",
                guests.len()
            ),
        }
    }
}

/// Returns the names of the first few guests.
fn names(guests: &[VmName]) -> String {
    let first: Vec<&str> = guests.iter().take(NAMES).map(VmName::as_str).collect();
    let more = if guests.len() > NAMES { ", …" } else { "" };
    format!("{}{more}", first.join(", "))
}

/// Returns why no other host can take a guest even alone, host by host, when its domain has failed;
/// with what would help most.
#[must_use]
pub fn explain(fleet: &mut Fleet, domain: &Domain, vm: &VmName) -> Option<Refusal> {
    let guest = Arc::clone(fleet.guest(vm)?);
    let mark = fleet.mark();
    fail(fleet, domain);
    let demand = fleet.demand(&guest).into_owned();
    let request = Request {
        demand,
        requested: None,
        excluded: Vec::new(),
        seed: Uuid::nil(),
        policy: SchedulingPolicy::default(),
    };
    let all = fleet.views().iter();
    let others: Vec<Arc<HostView>> = all
        .filter(|view| !domain.hosts.contains(&view.host.name))
        .cloned()
        .collect();
    let refusal = explain::nowhere(&request, &others);
    fleet.undo(mark);
    Some(refusal)
}

/// The guests of a domain, and where each could go alone; all hosts of the domain have failed.
pub(super) struct Bounds<'a> {
    fleet: &'a Fleet,
    guests: Vec<(Arc<FleetGuest>, Need)>,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(fleet: &'a Fleet, parties: &[Party]) -> Self {
        let guests = parties.iter().flat_map(|party| &party.guests);
        let guests = guests.map(|guest| (Arc::clone(guest), Need::of(&guest.demand)));
        Self {
            fleet,
            guests: guests.collect(),
        }
    }

    /// Returns whether a guest fits nowhere even alone.
    pub(super) fn alone(&self, reach: &mut Reach, guest: &FleetGuest) -> Option<Bound> {
        let demand = self.fleet.demand(guest);
        let mut all = 0..self.fleet.len();
        let seeker = Seeker::new(self.fleet, &demand);
        let shape = reach.shape(guest);
        if all.any(|at| reach.may_take(shape, self.fleet, &seeker, at)) {
            return None;
        }
        Some(Bound::Alone {
            vm: guest.vm.clone(),
            hosts: self.others(),
        })
    }

    /// Returns whether none of the hosts has room for a party that must stay together, by amounts.
    pub(super) fn together(&self, party: &Party) -> Option<Bound> {
        let group = party.guests[0].group()?;
        let mut sum = std::collections::BTreeMap::new();
        for guest in &party.guests {
            for (thing, amount) in Need::of(&guest.demand).amounts {
                *sum.entry(thing).or_insert(0) += amount;
            }
        }
        let members = |group: &ServerGroupName, at| self.members(group, at);
        let has_headroom = |at: usize| {
            let members = |group: &ServerGroupName| members(group, at);
            let left = Left::new(&self.fleet.views()[at], &members);
            sum.iter().all(|(thing, amount)| left.of(thing) >= *amount)
        };
        let mut others = (0..self.fleet.len()).filter(|at| !self.fleet.has_failed_at(*at));
        if party.guests.len() < 2 || others.any(has_headroom) {
            return None;
        }
        Some(Bound::Together {
            group: group.name.clone(),
            guests: party.guests.iter().map(|guest| guest.vm.clone()).collect(),
            hosts: self.others(),
        })
    }

    /// Returns, for each guest in order, the hosts that it could go to alone; all hosts for one that
    /// has many, which is never too few.
    pub(super) fn reach(&self, reach: &mut Reach) -> Vec<BTreeSet<usize>> {
        let all: BTreeSet<usize> = (0..self.fleet.len())
            .filter(|at| !self.fleet.has_failed_at(*at))
            .collect();
        let mut known: Vec<(&FleetGuest, BTreeSet<usize>)> = Vec::new();
        let guests = self.guests.iter().map(|(guest, _)| {
            if let Some((_, hosts)) = known.iter().find(|(other, _)| are_alike(guest, other)) {
                return hosts.clone();
            }
            let demand = self.fleet.demand(guest);
            let seeker = Seeker::new(self.fleet, &demand);
            let shape = reach.shape(guest);
            let open = reach.hosts(shape, self.fleet).into_iter();
            let could = open.filter(|at| reach.may_take(shape, self.fleet, &seeker, *at));
            let could: BTreeSet<usize> = could.take(self.many() + 1).collect();
            let hosts = if could.len() > self.many() {
                all.clone()
            } else {
                could
            };
            known.push((guest, hosts.clone()));
            hosts
        });
        guests.collect()
    }

    /// Returns how many hosts are many: where no guest has fewer, each finds one where no other is,
    /// up to [`SOME`] guests.
    fn many(&self) -> usize {
        self.guests.len().clamp(FEW, SOME)
    }

    /// Returns a bound that some of the guests break together.
    ///
    /// Where guests could go only to few hosts, those who could go to no others are compared with
    /// what these have. Few guests of which each could go to many hosts need not be: each finds one
    /// where no other is.
    pub(super) fn find(&self, reach: &[BTreeSet<usize>]) -> Option<Bound> {
        if let Some(at) = reach.iter().position(BTreeSet::is_empty) {
            return Some(Bound::Alone {
                vm: self.guests[at].0.vm.clone(),
                hosts: self.others(),
            });
        }
        let union: BTreeSet<usize> = reach.iter().flatten().copied().collect();
        let mut sets: Vec<&BTreeSet<usize>> = reach.iter().collect();
        sets.sort_unstable();
        sets.dedup();
        if sets.len() > 1 {
            sets.push(&union);
        }
        sets.retain(|hosts| hosts.len() <= SOME || self.guests.len() > SOME);
        sets.into_iter()
            .find_map(|hosts| self.compare(reach, hosts))
    }

    /// Compares the guests that could go only to these hosts with what these have.
    fn compare(&self, reach: &[BTreeSet<usize>], hosts: &BTreeSet<usize>) -> Option<Bound> {
        let guests = self.guests.iter().zip(reach);
        let guests = guests.filter(|(_, could)| could.is_subset(hosts));
        let guests: Vec<&(Arc<FleetGuest>, Need)> = guests.map(|(guest, _)| guest).collect();
        let sum = |of: &dyn Fn(&Left<'_>) -> u64| {
            let each = hosts.iter().map(|at| {
                let members = |group: &ServerGroupName| self.members(group, *at);
                of(&Left::new(&self.fleet.views()[*at], &members))
            });
            each.fold(0, u64::saturating_add)
        };
        let things: BTreeSet<&Thing> = guests.iter().flat_map(|g| g.1.amounts.keys()).collect();
        for thing in things {
            let amounts = guests.iter().filter_map(|guest| guest.1.amounts.get(thing));
            let (needed, left) = (amounts.sum(), sum(&|left| left.of(thing)));
            if needed > left {
                return Some(Bound::Amount {
                    thing: thing.clone(),
                    needed,
                    left,
                    guests: guests.iter().map(|(guest, _)| guest.vm.clone()).collect(),
                    hosts: hosts.len() as u64,
                });
            }
        }
        let mut kinds: Vec<&(Arc<FleetGuest>, Need)> = Vec::new();
        for guest in &guests {
            if kinds.iter().all(|kind| kind.1 != guest.1) {
                kinds.push(guest);
            }
        }
        kinds.into_iter().find_map(|(least, need)| {
            let great = guests.iter().filter(|guest| guest.1.covers(need));
            let great: Vec<VmName> = great.map(|(guest, _)| guest.vm.clone()).collect();
            let slots = sum(&|left| need.slots(left));
            (great.len() as u64 > slots).then(|| Bound::Slots {
                vm: least.vm.clone(),
                guests: great,
                slots,
                hosts: hosts.len() as u64,
            })
        })
    }

    fn others(&self) -> u64 {
        let all = 0..self.fleet.len();
        all.filter(|at| !self.fleet.has_failed_at(*at)).count() as u64
    }

    /// Returns how many members of a group are on a host that none of the guests is.
    fn members(&self, group: &ServerGroupName, at: usize) -> u32 {
        let host = self.fleet.name(at);
        let mut all = self.fleet.members(group);
        let all = all
            .find(|(name, _)| *name == host)
            .map_or(0, |(_, count)| count);
        let ours = self.guests.iter().filter(|(guest, _)| {
            guest.group().is_some_and(|own| own.name == *group) && guest.also_on.contains(host)
        });
        all.saturating_sub(u32::try_from(ours.count()).unwrap_or(u32::MAX))
    }
}

/// Returns whether nothing but counted amounts and places matters to this guest: then every way to
/// place it on a host is the same.
pub(super) fn is_plain(demand: &Demand) -> bool {
    demand.topology.is_none() && demand.pci.is_empty() && demand.pmem.requests.is_empty()
}
