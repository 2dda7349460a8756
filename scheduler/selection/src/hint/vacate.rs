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
use berth_domain::name::{HostName, PmemName, ServerGroupName};
use berth_domain::resource::ResourceClass;
use berth_domain::server_group::GroupDemand;

use super::{Exit, Occupant, Search};
use crate::explain::Refused;
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

impl Search<'_> {
    /// Tries to vacate the nearest hosts.
    pub(super) fn vacate(&mut self, means: Means) -> Option<Hint> {
        let refused = self.refused;
        let hosts = refused.iter().filter(|host| is_occupied(&host.violation));
        let mut best: Option<(usize, u64, Hint)> = None;
        for host in hosts.take(HOSTS_MAX) {
            let Some((count, mib, hint)) = self.vacate_host(host, means) else {
                continue;
            };
            if best
                .as_ref()
                .is_none_or(|(c, m, _)| (count, mib) < (*c, *m))
            {
                best = Some((count, mib, hint));
            }
            if count == 1 {
                break;
            }
        }
        best.map(|(_, _, hint)| hint)
    }

    fn vacate_host(&mut self, host: &Refused<'_>, means: Means) -> Option<(usize, u64, Hint)> {
        let view = host.view;
        let mut occupants = self.cluster.occupants(&view.host.name);
        occupants.retain(|o| means == Means::All || o.exit != Exit::Delete);
        occupants.sort_by(|a, b| (memory_of(a), &a.vm).cmp(&(memory_of(b), &b.vm)));
        occupants.truncate(OCCUPANTS_MAX);
        for _ in 0..RETRIES_MAX {
            let all: Vec<&Occupant> = occupants.iter().collect();
            if all.is_empty() || !self.fits_without(view, &all) {
                return None;
            }
            let sets = self.sets(view, &occupants);
            let mut stuck = None;
            for set in sets {
                let leaving: Vec<&Occupant> = set.iter().map(|at| &occupants[*at]).collect();
                match self.depart(view, &leaving, means) {
                    Ok(hint) => {
                        let mib = leaving.iter().map(|o| memory_of(o)).sum();
                        return Some((set.len(), mib, hint));
                    }
                    Err(at) => stuck = stuck.or(at.map(|at| set[at])),
                }
            }
            // One that can go nowhere stays, and the others are tried.
            occupants.remove(stuck?);
        }
        None
    }

    /// Returns sets of claims without which the guest fits, by their places: the smallest first.
    fn sets(&mut self, view: &HostView, occupants: &[Occupant]) -> Vec<Vec<usize>> {
        let count = occupants.len();
        let ones: Vec<Vec<usize>> = (0..count)
            .filter(|at| self.fits_without(view, &[&occupants[*at]]))
            .map(|at| vec![at])
            .collect();
        if !ones.is_empty() {
            return ones;
        }
        // The largest stay first; none of those that are left could stay.
        let mut leaving: Vec<usize> = (0..count).collect();
        for at in (0..count).rev() {
            let others: Vec<usize> = leaving.iter().copied().filter(|o| *o != at).collect();
            let set: Vec<&Occupant> = others.iter().map(|o| &occupants[*o]).collect();
            if self.fits_without(view, &set) {
                leaving = others;
            }
        }
        let mut sets = Vec::new();
        if leaving.len() > 2 {
            let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| vec![a, b]));
            for pair in pairs {
                if self.for_kind <= DESTINATIONS_MAX {
                    break;
                }
                if self.fits_without(view, &[&occupants[pair[0]], &occupants[pair[1]]]) {
                    sets.push(pair);
                }
            }
        }
        if leaving.len() <= LEAVING_MAX {
            sets.push(leaving);
        }
        sets
    }

    /// Decides whether the guest fits on a host without these claims, wherever their VMs are then.
    fn fits_without(&mut self, view: &HostView, leaving: &[&Occupant]) -> bool {
        let without = without(view, leaving);
        let shifts: Vec<GroupShift> = leaving.iter().filter_map(|o| shift(o, None)).collect();
        let demand = self.request.demand.clone();
        if shifts.iter().all(|s| !concerns(&demand, s)) {
            return self.fits(&without);
        }
        let demand = after(demand, &shifts);
        self.spend()
            && !self.request.excluded.contains(&view.host.name)
            && PreparedDemand::new(&demand)
                .try_place(&without, self.request.policy.cells)
                .is_some()
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
        | Violation::Zone { .. }
        | Violation::Aggregate { .. }
        | Violation::Affinity { .. }
        | Violation::Counted
        | Violation::Fenced
        | Violation::HeldByUnknown { .. }
        | Violation::Feature(_)
        | Violation::VolumeElsewhere { .. }
        | Violation::NoGuests => false,
    }
}

fn without(view: &HostView, leaving: &[&Occupant]) -> HostView {
    let mut view = view.clone();
    for occupant in leaving {
        view.release(&occupant.claim);
    }
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
