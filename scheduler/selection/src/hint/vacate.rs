//! The VMs that have to leave a host, the fewest first, and where they go.
//!
//! ```text
//! all leave: does the guest fit? ─▶ one leaves ─▶ as many as possible stay ─▶ two leave
//! ```
//!
//! Not here: plans over several hosts ([`crate::balance`]).
//!
//! Invariant: no VM of a set can stay: without its departure the guest does not fit. Each
//! destination was decided after the moves before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::{Demand, PreparedDemand, Violation};
use berth_domain::hint::{Hint, VmAction, VmChange, nodes_of};
use berth_domain::host_view::HostView;
use berth_domain::name::{HostName, PmemName, ServerGroupName, VmName};
use berth_domain::resource::ResourceClass;
use berth_domain::server_group::GroupDemand;

use super::{Exit, Occupant, Search};
use crate::request::{Choice, Request};

/// How many hosts are looked at, the nearest first.
const HOSTS_MAX: usize = 6;
/// The largest number of claims on a host of which single ones and pairs are tried.
const OCCUPANTS_MAX: usize = 64;
/// How many VMs leave at most: a longer list is no hint.
const LEAVING_MAX: usize = 6;
/// How many sets without VMs that turned out to have no destination are tried on a host.
const RETRIES_MAX: usize = 3;
/// How many hosts are tried as the destination of one VM.
const DESTINATIONS_MAX: u32 = 24;

/// Which departures are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Those after which every VM goes on as before.
    Preserving,
    /// Shelving and deletion, too.
    All,
}

/// A change of where the members of a server group are.
struct GroupShift {
    group: ServerGroupName,
    from: HostName,
    to: Option<HostName>,
}

/// What the departure of some VMs costs: how many they are, and their memory in MiB. Less is better.
type Cost = (usize, u64);

/// The claims of one host of which some are to leave.
struct Vacating<'a> {
    view: &'a HostView,
    /// Those that may leave, the smallest first.
    occupants: Vec<Occupant>,
    means: Means,
    /// The cost of the best set of another host, if there is one.
    below: Option<Cost>,
    /// VMs that can go nowhere.
    stuck: Vec<VmName>,
    /// The first VM that could go nowhere after others of its set had left.
    crowded_out: Option<VmName>,
}

impl Search<'_> {
    /// Tries to vacate the nearest hosts.
    pub(super) fn vacate(&mut self, means: Means) -> Option<Hint> {
        let refused = self.refused;
        let hosts = refused.iter().filter(|host| is_occupied(&host.violation));
        let mut best: Option<(Cost, Hint)> = None;
        for host in hosts.take(HOSTS_MAX) {
            let below = best.as_ref().map(|(cost, _)| *cost);
            let better = self.vacate_host(host.view, means, below);
            best = better.or(best);
            if best.as_ref().is_some_and(|((count, _), _)| *count == 1) {
                break;
            }
        }
        best.map(|(_, hint)| hint)
    }

    /// Tries to vacate a host at less than a given cost.
    fn vacate_host(
        &mut self,
        view: &HostView,
        means: Means,
        below: Option<Cost>,
    ) -> Option<(Cost, Hint)> {
        let mut occupants = self.cluster.occupants(&view.host.name);
        occupants.retain(|o| means == Means::All || o.exit != Exit::Delete);
        occupants.sort_by_cached_key(|occupant| (memory_of(occupant), occupant.vm.clone()));
        occupants.truncate(OCCUPANTS_MAX);
        let mut host = Vacating {
            view,
            occupants,
            means,
            below,
            stuck: Vec::new(),
            crowded_out: None,
        };
        if !self.fits_without_all(&host) {
            return None;
        }
        if let Some(found) = self.one_leaves(&mut host) {
            return Some(found);
        }
        // Those that can go nowhere stay, and the others are tried.
        let mut is_other = host.keep_stuck();
        for _ in 0..RETRIES_MAX {
            if is_other && !self.fits_without_all(&host) {
                return None;
            }
            if let Some(found) = self.several_leave(&mut host) {
                return Some(found);
            }
            is_other = host.keep_stuck();
            if !is_other {
                return None;
            }
        }
        None
    }

    fn fits_without_all(&mut self, host: &Vacating<'_>) -> bool {
        let all: Vec<usize> = (0..host.occupants.len()).collect();
        !all.is_empty() && self.fits_without(host.view, &host.at(&all))
    }

    /// Lets the smallest VM leave without which the guest fits.
    fn one_leaves(&mut self, host: &mut Vacating<'_>) -> Option<(Cost, Hint)> {
        (0..host.occupants.len()).find_map(|at| self.leave(host, &[at]))
    }

    /// Lets a set of VMs leave of which none can stay, or two.
    fn several_leave(&mut self, host: &mut Vacating<'_>) -> Option<(Cost, Hint)> {
        let count = host.occupants.len();
        let set = self.without_surplus(host);
        if set.as_ref().is_none_or(|set| set.len() > 2) {
            let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| [a, b]));
            for pair in pairs {
                if self.for_kind <= DESTINATIONS_MAX {
                    break;
                }
                if pair.iter().any(|at| host.is_stuck(*at)) {
                    continue;
                }
                if let Some(found) = self.leave(host, &pair) {
                    return Some(found);
                }
            }
        }
        self.leave(host, &set?)
    }

    /// Returns a set of claims without which the guest fits and of which none could stay, the
    /// largest first; nothing where it has more than a hint may name.
    fn without_surplus(&mut self, host: &Vacating<'_>) -> Option<Vec<usize>> {
        let most = host
            .below
            .map_or(LEAVING_MAX, |(count, _)| count.min(LEAVING_MAX));
        let count = host.occupants.len();
        let mut leaving: Vec<usize> = (0..count).collect();
        let mut needed = 0;
        for at in (0..count).rev() {
            let others: Vec<usize> = leaving.iter().copied().filter(|o| *o != at).collect();
            if self.fits_without(host.view, &host.at(&others)) {
                leaving = others;
                continue;
            }
            needed += 1;
            if needed > most {
                return None;
            }
        }
        Some(leaving)
    }

    /// Lets a set of VMs leave, if the guest fits without them and each has somewhere to go.
    fn leave(&mut self, host: &mut Vacating<'_>, set: &[usize]) -> Option<(Cost, Hint)> {
        let leaving = host.at(set);
        let cost = (set.len(), leaving.iter().map(|o| memory_of(o)).sum());
        if host.below.is_some_and(|below| cost >= below) || !self.fits_without(host.view, &leaving)
        {
            return None;
        }
        match self.depart(host.view, &leaving, host.means) {
            Ok(hint) => Some((cost, hint)),
            Err(Some(at)) => {
                let vm = leaving[at].vm.clone();
                match at {
                    0 => host.stuck.push(vm),
                    _ => drop(host.crowded_out.get_or_insert(vm)),
                }
                None
            }
            Err(None) => None,
        }
    }

    /// Decides whether the guest fits on a host without these claims, wherever their VMs are then.
    fn fits_without(&mut self, view: &HostView, leaving: &[&Occupant]) -> bool {
        if !self.spend() || self.request.excluded.contains(&view.host.name) {
            return false;
        }
        let without = without(view, leaving);
        let cells = self.request.policy.cells;
        let shifts: Vec<GroupShift> = leaving.iter().filter_map(|o| shift(o, None)).collect();
        let demand = &self.request.demand;
        if shifts.iter().all(|s| !concerns(demand, s)) {
            return self.applicant.try_place(&without, cells).is_some();
        }
        let demand = after(demand.clone(), &shifts);
        let applicant = PreparedDemand::new(&demand);
        applicant.try_place(&without, cells).is_some()
    }

    /// Finds an exit for each of these claims, and decides the request after all of them.
    ///
    /// # Errors
    ///
    /// The place of the claim that has none, where it is one.
    fn depart(
        &mut self,
        view: &HostView,
        leaving: &[&Occupant],
        means: Means,
    ) -> Result<Hint, Option<usize>> {
        let from = &view.host.name;
        let mut before: Vec<Arc<HostView>> = Vec::new();
        let mut shifts: Vec<GroupShift> = Vec::new();
        let mut vms = Vec::new();
        let mut stuck = None;
        for (at, occupant) in leaving.iter().enumerate() {
            let Some(action) = self.exit(occupant, from, means, &shifts, &mut before) else {
                stuck = Some(at);
                break;
            };
            shifts.extend(shift(occupant, action.destination().cloned()));
            vms.push(VmChange {
                vm: occupant.vm.clone(),
                action,
            });
        }
        // Back to how the hosts are.
        for view in before.iter().rev() {
            self.index().update(view);
        }
        if stuck.is_some() {
            return Err(stuck);
        }
        let demand = after(self.request.demand.clone(), &shifts);
        if !self.is_decided(without(view, leaving), &demand) {
            return Err(None);
        }
        Ok(Hint::Vacate {
            host: from.clone(),
            nodes: nodes_of(leaving.iter().map(|o| &o.claim.assignment)),
            vms,
            erasures: self.erasures(view, leaving, &demand),
        })
    }

    /// Returns what gives a claim back. A VM that is moved takes its place in the table of hosts.
    fn exit(
        &mut self,
        occupant: &Occupant,
        from: &HostName,
        means: Means,
        shifts: &[GroupShift],
        before: &mut Vec<Arc<HostView>>,
    ) -> Option<VmAction> {
        match occupant.exit {
            Exit::Confirm => return Some(VmAction::ConfirmResize),
            Exit::Delete => return (means == Means::All).then_some(VmAction::Delete),
            Exit::Move | Exit::MoveLive => {}
        }
        let moves = self.cluster.moves(&occupant.vm);
        let may_stop = occupant.exit == Exit::Move;
        let cold = moves.cold.filter(|_| may_stop);
        for (demand, is_live) in [(moves.live, true), (cold, false)] {
            let Some(demand) = demand else { continue };
            let Some(choice) = self.destination(after(demand, shifts), from) else {
                continue;
            };
            let to = choice.host.clone();
            let claim = Claim {
                host: to.clone(),
                resources: choice.resources,
                assignment: choice.assignment,
                ..(*occupant.claim).clone()
            };
            let old = Arc::clone(self.index().view(&to)?);
            let mut new = HostView::clone(&old);
            new.place(&claim);
            before.push(old);
            self.index().update(&Arc::new(new));
            return Some(match is_live {
                true => VmAction::LiveMigrate { to },
                false => VmAction::ColdMigrate { to },
            });
        }
        (means == Means::All && may_stop).then_some(VmAction::Shelve)
    }

    fn destination(&mut self, demand: Demand, from: &HostName) -> Option<Choice> {
        if !self.spend() {
            return None;
        }
        let request = Request {
            demand,
            requested: None,
            excluded: vec![from.clone()],
            ..self.request.clone()
        };
        self.index().select_within(&request, DESTINATIONS_MAX)
    }

    /// Returns the namespaces of these claims that the guest gets: they are erased before.
    fn erasures(&self, view: &HostView, leaving: &[&Occupant], demand: &Demand) -> Vec<PmemName> {
        if demand.pmem.requests.is_empty() {
            return Vec::new();
        }
        let after = without(view, leaving);
        let cells = self.request.policy.cells;
        let placed = PreparedDemand::new(demand).try_place(&after, cells);
        let given: Vec<PmemName> = placed.map_or_else(Vec::new, |assignment| {
            assignment.pmem.into_iter().map(|d| d.name).collect()
        });
        let devices = leaving.iter().flat_map(|o| &o.claim.assignment.pmem);
        let names = devices.map(|device| device.name.clone());
        names.filter(|name| given.contains(name)).collect()
    }
}

impl Vacating<'_> {
    fn at(&self, set: &[usize]) -> Vec<&Occupant> {
        set.iter().map(|at| &self.occupants[*at]).collect()
    }

    fn is_stuck(&self, at: usize) -> bool {
        self.stuck.contains(&self.occupants[at].vm)
    }

    /// Keeps the VMs that can go nowhere where they are; returns whether there is one.
    fn keep_stuck(&mut self) -> bool {
        let mut stuck = std::mem::take(&mut self.stuck);
        let crowded_out = self.crowded_out.take();
        if stuck.is_empty() {
            stuck.extend(crowded_out);
        }
        self.occupants.retain(|o| !stuck.contains(&o.vm));
        !stuck.is_empty()
    }
}

/// Returns whether other guests may be what a host lacks.
fn is_occupied(violation: &Violation) -> bool {
    match violation {
        Violation::Capacity { .. }
        | Violation::Fit(_)
        | Violation::CpuKinds { .. }
        | Violation::AntiAffinity { .. } => true,
        Violation::SameHost
        | Violation::Excluded
        | Violation::Down
        | Violation::Cordoned
        | Violation::ShapeRefused
        | Violation::Driver { .. }
        | Violation::Version { .. }
        | Violation::VersionHere { .. }
        | Violation::DisksNotShared { .. }
        | Violation::TraitMissing(_)
        | Violation::TraitForbidden(_)
        | Violation::Image { .. }
        | Violation::Cpu(_)
        | Violation::Network(_)
        | Violation::Zone { .. }
        | Violation::Aggregate { .. }
        | Violation::Affinity { .. }
        | Violation::Counted
        | Violation::CpuNotGiven
        | Violation::Fenced
        | Violation::Unreported
        | Violation::HeldByUnknown { .. }
        | Violation::Feature(_)
        | Violation::VolumeElsewhere { .. }
        | Violation::NoGuests => false,
    }
}

fn without(view: &HostView, leaving: &[&Occupant]) -> HostView {
    let mut view = view.clone();
    let claims: Vec<&Claim> = leaving.iter().map(|occupant| &*occupant.claim).collect();
    view.release_all(&claims);
    view
}

fn memory_of(occupant: &Occupant) -> u64 {
    let resources = &occupant.claim.resources;
    let memory = resources.get(&ResourceClass::memory_mb());
    memory.copied().unwrap_or(0)
}

fn shift(occupant: &Occupant, to: Option<HostName>) -> Option<GroupShift> {
    Some(GroupShift {
        group: occupant.group.clone()?,
        from: occupant.claim.host.clone(),
        to,
    })
}

fn concerns(demand: &Demand, shift: &GroupShift) -> bool {
    let group = demand.group.as_ref();
    group.is_some_and(|group| group.name == shift.group)
}

/// Returns the demand after members of its server group were moved.
fn after(mut demand: Demand, shifts: &[GroupShift]) -> Demand {
    for shift in shifts {
        if !concerns(&demand, shift) {
            continue;
        }
        if let Some(group) = &mut demand.group {
            move_member(group, shift);
        }
    }
    demand
}

fn move_member(group: &mut GroupDemand, shift: &GroupShift) {
    let hosts: &mut BTreeMap<HostName, u32> = &mut group.hosts;
    if let Some(count) = hosts.get_mut(&shift.from) {
        *count = count.saturating_sub(1);
    }
    hosts.retain(|_, count| *count > 0);
    if let Some(to) = &shift.to {
        *hosts.entry(to.clone()).or_default() += 1;
    }
}
