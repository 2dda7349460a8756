//! The search for the guests that have to leave a host, and where they go.
//!
//! Sets of guests come in the order of what sending them costs, over all hosts at once, so that the
//! first that works is the cheapest. A set that frees too little by its counted amounts alone is
//! passed over; whether the new guest fits then is for the exact fit to say.
//!
//! Before that, a sketch: of each host as many guests as possible stay, those first that could go
//! nowhere, then the dearest; the cheapest of these sets that works is kept. It is the answer where the budget ends before all that
//! is cheaper was looked at.
//!
//! Not here: bounds, and several new guests ([`super::defragment`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::name::VmName;
use berth_domain::numa::Strategy;
use berth_domain::resource::ResourceClass;

use super::defragment::{Budget, FreedPlacement, Shift};
use crate::fleet::{Fleet, FleetGuest, Seeker};

/// Up to so many hosts, everything is tried.
const FEW_HOSTS: usize = 16;
/// In larger fleets, so many hosts are tried for a guest that leaves another.
const TRIED_MAX: usize = 24;
/// In larger fleets, so many placements are tried for the guests that leave one host.
const PLACEMENTS_PER_HOST_MAX: u64 = 400;

/// What was found for one new guest.
#[derive(Clone, Debug)]
pub(super) struct Solution {
    pub(super) moves: Vec<Shift>,
    pub(super) placement: FreedPlacement,
    /// Whether all that is cheaper was looked at.
    pub(super) is_cheapest: bool,
}

impl Solution {
    fn cost_mib(&self) -> u64 {
        self.moves.iter().map(|step| step.sent_mib).sum()
    }
}

/// A guest that can be moved.
#[derive(Clone, Debug)]
struct Leaver {
    vm: VmName,
    sent_mib: u64,
    /// Of each resource that the new guest takes.
    frees: Vec<u64>,
    /// Whether it fits nowhere else as things are.
    is_stuck: bool,
}

/// A host that guests could leave.
#[derive(Clone, Debug)]
struct Target {
    at: usize,
    /// The cheapest first.
    leavers: Vec<Leaver>,
    /// What is missing of each resource that the new guest takes.
    missing: Vec<u64>,
}

/// What is tried with guests that could leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trial {
    /// They go where there is room.
    Direct,
    /// One further guest moves first. What that costs at least is counted.
    Chain,
    /// It was found so, at this cost: see [`Search::solutions`].
    Solved(usize),
}

/// Guests that could leave a target, by their places in it, ascending.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attempt {
    cost_mib: u64,
    trial: Trial,
    target: usize,
    leavers: Vec<usize>,
}

pub(super) struct Search<'a> {
    fleet: &'a mut Fleet,
    demand: &'a Demand,
    cells: Strategy,
    budget: Budget,
    targets: Vec<Target>,
    /// The cheapest guest of all.
    least_mib: u64,
    /// What was found while something cheaper may still be.
    solutions: Vec<Solution>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        fleet: &'a mut Fleet,
        demand: &'a Demand,
        cells: Strategy,
        budget: Budget,
    ) -> Self {
        let mut search = Self {
            fleet,
            demand,
            cells,
            budget,
            targets: Vec::new(),
            least_mib: 0,
            solutions: Vec::new(),
        };
        search.targets = search.find_targets();
        let leavers = search.targets.iter().flat_map(|t| &t.leavers);
        search.least_mib = leavers.map(|l| l.sent_mib).min().unwrap_or(0);
        search
    }

    /// Returns what is left of the budget.
    pub(super) fn left(&self) -> Budget {
        self.budget
    }

    /// Returns the cheapest moves that make room.
    pub(super) fn run(&mut self) -> Option<Solution> {
        if let Some(placement) = self.placement_now() {
            return Some(Solution {
                moves: Vec::new(),
                placement,
                is_cheapest: true,
            });
        }
        let mut queue = BinaryHeap::new();
        self.sketch(&mut queue);
        for (target, host) in self.targets.iter().enumerate() {
            if let Some(first) = host.leavers.first() {
                queue.push(Reverse(Attempt {
                    cost_mib: first.sent_mib,
                    trial: Trial::Direct,
                    target,
                    leavers: vec![0],
                }));
            }
        }
        while let Some(Reverse(attempt)) = queue.pop() {
            self.budget.sets = self.budget.sets.saturating_sub(1);
            if self.budget.sets == 0 || self.budget.placements == 0 {
                return self.cheapest_solution();
            }
            match attempt.trial {
                Trial::Direct => self.push_next(&attempt, &mut queue),
                Trial::Chain => {}
                Trial::Solved(at) => return Some(self.again(at)),
            }
            if !self.frees_enough(&attempt) {
                continue;
            }
            let mark = self.fleet.mark();
            let found = self.attempt(&attempt, &mut queue);
            let Some(found) = found else {
                self.fleet.undo(mark);
                continue;
            };
            let cost_mib = found.cost_mib();
            if cost_mib <= attempt.cost_mib {
                return Some(found);
            }
            self.fleet.undo(mark);
            let trial = Trial::Solved(self.solutions.len());
            self.solutions.push(found);
            queue.push(Reverse(Attempt {
                cost_mib,
                trial,
                ..attempt
            }));
        }
        None
    }

    /// Finds some way, if that is easy: of each host as many guests as possible stay.
    fn sketch(&mut self, queue: &mut BinaryHeap<Reverse<Attempt>>) {
        let mut sketches = Vec::new();
        for target in 0..self.targets.len() {
            if let Some(leavers) = self.sketch_of(target) {
                let all = &self.targets[target].leavers;
                let cost_mib = leavers.iter().map(|at| all[*at].sent_mib).sum();
                sketches.push(Attempt {
                    cost_mib,
                    trial: Trial::Direct,
                    target,
                    leavers,
                });
            }
        }
        sketches.sort();
        let least = self.budget.placements / 2;
        for attempt in sketches {
            if self.budget.placements <= least {
                return;
            }
            if self.is_stuck(&attempt) {
                continue;
            }
            let mark = self.fleet.mark();
            let vms = self.vms(&attempt);
            let found = self.disperse(self.targets[attempt.target].at, &vms);
            self.fleet.undo(mark);
            if let Some(found) = found {
                let trial = Trial::Solved(self.solutions.len());
                self.solutions.push(found);
                queue.push(Reverse(Attempt { trial, ..attempt }));
                return;
            }
        }
    }

    /// Returns guests without which the new guest fits on a host, none of which could stay.
    fn sketch_of(&mut self, target: usize) -> Option<Vec<usize>> {
        let at = self.targets[target].at;
        let all: Vec<VmName> = self.targets[target]
            .leavers
            .iter()
            .map(|leaver| leaver.vm.clone())
            .collect();
        let mut leaving: Vec<usize> = (0..all.len()).collect();
        let names = |places: &[usize]| places.iter().map(|p| all[*p].clone()).collect::<Vec<_>>();
        if all.is_empty() || !self.fits_without(at, &names(&leaving)) {
            return None;
        }
        // Those that could go nowhere stay before all others.
        let leavers = &self.targets[target].leavers;
        let mut order: Vec<usize> = (0..all.len()).rev().collect();
        order.sort_by_key(|at| !leavers[*at].is_stuck);
        for next in order {
            let others: Vec<usize> = leaving.iter().copied().filter(|p| *p != next).collect();
            if self.fits_without(at, &names(&others)) {
                leaving = others;
            }
        }
        Some(leaving)
    }

    /// Returns the cheapest of what was found, which may not be the cheapest that there is.
    fn cheapest_solution(&mut self) -> Option<Solution> {
        let costs = self.solutions.iter().map(Solution::cost_mib).enumerate();
        let (at, _) = costs.min_by_key(|(_, cost)| *cost)?;
        let mut found = self.again(at);
        found.is_cheapest = false;
        Some(found)
    }

    /// Makes the moves of what was found before.
    fn again(&mut self, at: usize) -> Solution {
        let found = self.solutions[at].clone();
        for step in &found.moves {
            let to = self.fleet.place(&step.to).expect("a host of the fleet");
            self.fleet.shift(&step.vm, to, step.assignment.clone());
        }
        found
    }

    /// Returns the hosts that could take the new guest if guests left them.
    fn find_targets(&self) -> Vec<Target> {
        let applicant = PreparedDemand::new(self.demand);
        let mut suits = BTreeMap::new();
        let mut targets = Vec::new();
        for (at, view) in self.fleet.views().iter().enumerate() {
            let suits = suits.entry(view.class());
            let suits = *suits.or_insert_with(|| applicant.suits_class(view));
            if !suits || !view.host.is_open() || applicant.check_host(view).is_err() {
                continue;
            }
            let missing = self.demand.resources.iter().map(|(class, amount)| {
                let inventory = view.inventories.get(class);
                let free = inventory.map_or(0, |i| i.free(view.used_of(class)));
                amount.saturating_sub(free)
            });
            let missing: Vec<u64> = missing.collect();
            let mut leavers = self.leavers(at);
            leavers.sort_by(|a, b| (a.sent_mib, &a.vm).cmp(&(b.sent_mib, &b.vm)));
            targets.push(Target {
                at,
                leavers,
                missing,
            });
        }
        targets
    }

    fn leavers(&self, at: usize) -> Vec<Leaver> {
        let movable = self.fleet.guests_at(at).filter(|g| g.fixed.is_none());
        let leavers = movable.map(|guest| {
            let counted = |class: &ResourceClass| {
                let amount = guest.claim.resources.get(class);
                amount.copied().unwrap_or(0)
            };
            Leaver {
                vm: guest.vm.clone(),
                sent_mib: sent_mib(guest),
                frees: self.demand.resources.keys().map(counted).collect(),
                is_stuck: !self.fits_elsewhere(guest, at),
            }
        });
        leavers.collect()
    }

    fn fits_elsewhere(&self, guest: &FleetGuest, own: usize) -> bool {
        let demand = self.fleet.demand(guest);
        let seeker = Seeker::new(self.fleet, &demand);
        let mut others = (0..self.fleet.len()).filter(|at| *at != own);
        others.any(|at| {
            seeker.glance(self.fleet, at, self.cells).is_some()
                && seeker.try_place(self.fleet, at, self.cells).is_some()
        })
    }

    fn placement_now(&mut self) -> Option<FreedPlacement> {
        let seeker = Seeker::new(self.fleet, self.demand);
        for at in 0..self.fleet.len() {
            if seeker.glance(self.fleet, at, self.cells).is_none() {
                continue;
            }
            self.budget.placements = self.budget.placements.saturating_sub(1);
            if let Some(assignment) = seeker.try_place(self.fleet, at, self.cells) {
                let host = self.fleet.name(at).clone();
                return Some(FreedPlacement { host, assignment });
            }
        }
        None
    }

    /// Puts the sets that come after this one into the queue: it with the next guest, and with the
    /// next in place of its last. So every set comes once, and none before a cheaper one.
    fn push_next(&self, attempt: &Attempt, queue: &mut BinaryHeap<Reverse<Attempt>>) {
        let leavers = &self.targets[attempt.target].leavers;
        let last = *attempt.leavers.last().expect("sets are not empty");
        let Some(next) = leavers.get(last + 1) else {
            return;
        };
        let mut others = attempt.leavers.clone();
        if others.len() < self.budget.leavers {
            others.push(last + 1);
            queue.push(Reverse(Attempt {
                cost_mib: attempt.cost_mib + next.sent_mib,
                leavers: others.clone(),
                ..*attempt
            }));
            others.pop();
        }
        others.pop();
        others.push(last + 1);
        queue.push(Reverse(Attempt {
            cost_mib: attempt.cost_mib - leavers[last].sent_mib + next.sent_mib,
            leavers: others,
            ..*attempt
        }));
    }

    fn frees_enough(&self, attempt: &Attempt) -> bool {
        let target = &self.targets[attempt.target];
        let mut missing = target.missing.iter().enumerate();
        missing.all(|(class, missing)| {
            let leavers = attempt.leavers.iter();
            let freed: u64 = leavers.map(|l| target.leavers[*l].frees[class]).sum();
            freed >= *missing
        })
    }

    fn attempt(
        &mut self,
        attempt: &Attempt,
        queue: &mut BinaryHeap<Reverse<Attempt>>,
    ) -> Option<Solution> {
        let target = self.targets[attempt.target].at;
        let vms = self.vms(attempt);
        if attempt.trial == Trial::Chain {
            return self.chain(target, &vms);
        }
        if !self.fits_without(target, &vms) {
            return None;
        }
        // Where one could go nowhere, it still cannot: those that leave with it free nothing for it.
        if !self.is_stuck(attempt)
            && let Some(found) = self.disperse(target, &vms)
        {
            return Some(found);
        }
        queue.push(Reverse(Attempt {
            cost_mib: attempt.cost_mib + self.least_mib,
            trial: Trial::Chain,
            ..attempt.clone()
        }));
        None
    }

    /// Returns whether one of them fits nowhere else.
    fn is_stuck(&self, attempt: &Attempt) -> bool {
        let leavers = &self.targets[attempt.target].leavers;
        attempt.leavers.iter().any(|at| leavers[*at].is_stuck)
    }

    fn vms(&self, attempt: &Attempt) -> Vec<VmName> {
        let leavers = &self.targets[attempt.target].leavers;
        // The greatest first: it is the hardest to find a host for.
        let places = attempt.leavers.iter().rev();
        places.map(|at| leavers[*at].vm.clone()).collect()
    }

    fn spend(&mut self) -> Option<()> {
        self.budget.placements = self.budget.placements.checked_sub(1)?;
        Some(())
    }

    /// Returns whether the new guest fits on a host without these.
    fn fits_without(&mut self, at: usize, vms: &[VmName]) -> bool {
        if self.spend().is_none() {
            return false;
        }
        let mut view = (*self.fleet.views()[at]).clone();
        for vm in vms {
            let guest = self.fleet.guest(vm).expect("it is on this host");
            view.release(&guest.claim);
        }
        let applicant = PreparedDemand::new(self.demand);
        applicant.try_place(&view, self.cells).is_some()
    }

    /// Finds hosts for all of these but their own; the moves are made then.
    fn disperse(&mut self, target: usize, vms: &[VmName]) -> Option<Solution> {
        let mut attempts_left = match self.fleet.len() <= FEW_HOSTS {
            true => u64::MAX,
            false => PLACEMENTS_PER_HOST_MAX,
        };
        self.disperse_rest(target, vms, &mut attempts_left)
    }

    fn disperse_rest(
        &mut self,
        target: usize,
        vms: &[VmName],
        attempts_left: &mut u64,
    ) -> Option<Solution> {
        let Some((vm, others)) = vms.split_first() else {
            return self.settle(target);
        };
        for to in self.hosts_for(vm, target) {
            let mark = self.fleet.mark();
            self.spend()?;
            *attempts_left = attempts_left.checked_sub(1)?;
            let Some(shift) = self.shift(vm, to) else {
                continue;
            };
            if let Some(mut found) = self.disperse_rest(target, others, attempts_left) {
                found.moves.insert(0, shift);
                return Some(found);
            }
            self.fleet.undo(mark);
        }
        None
    }

    /// Returns the room for the new guest, once all that have to leave have left.
    fn settle(&mut self, target: usize) -> Option<Solution> {
        self.spend()?;
        let seeker = Seeker::new(self.fleet, self.demand);
        let assignment = seeker.try_place(self.fleet, target, self.cells)?;
        let host = self.fleet.name(target).clone();
        Some(Solution {
            moves: Vec::new(),
            placement: FreedPlacement { host, assignment },
            is_cheapest: true,
        })
    }

    /// Returns hosts that have room for a guest at a glance, the tightest first.
    fn hosts_for(&self, vm: &VmName, but: usize) -> Vec<usize> {
        let guest = self.fleet.guest(vm).expect("a guest of the fleet");
        let own = self.fleet.place_of(vm);
        let demand = self.fleet.demand(guest);
        let seeker = Seeker::new(self.fleet, &demand);
        let places = (0..self.fleet.len()).filter(|at| *at != but && Some(*at) != own);
        let mut hosts: Vec<(u16, u32, usize)> = places
            .filter_map(|at| {
                let left = seeker.glance(self.fleet, at, self.cells)?;
                Some((left, self.fleet.views()[at].headroom.memory_mib, at))
            })
            .collect();
        hosts.sort_unstable();
        if self.fleet.len() > FEW_HOSTS {
            hosts.truncate(TRIED_MAX);
        }
        hosts.into_iter().map(|(.., at)| at).collect()
    }

    /// Moves a guest, if it fits.
    fn shift(&mut self, vm: &VmName, to: usize) -> Option<Shift> {
        let assignment = self.fleet.try_place(vm, to, self.cells)?;
        let from = self.fleet.place_of(vm)?;
        let guest = self.fleet.guest(vm)?;
        let shift = Shift {
            vm: vm.clone(),
            from: self.fleet.name(from).clone(),
            to: self.fleet.name(to).clone(),
            assignment: assignment.clone(),
            sent_mib: sent_mib(guest),
            set: 0,
        };
        self.fleet.shift(vm, to, assignment);
        Some(shift)
    }

    /// Finds hosts for all of these, where one further guest moves first: the cheapest that helps.
    fn chain(&mut self, target: usize, vms: &[VmName]) -> Option<Solution> {
        let all = self.fleet.guests().filter(|guest| {
            let at = self.fleet.place_of(&guest.vm);
            guest.fixed.is_none() && at.is_some_and(|at| at != target)
        });
        let mut helpers: Vec<(u64, VmName)> = all
            .map(|guest| (sent_mib(guest), guest.vm.clone()))
            .collect();
        helpers.sort();
        for (_, helper) in helpers {
            let Some(own) = self.fleet.place_of(&helper) else {
                continue;
            };
            if !self.helps(&helper, own, vms) {
                continue;
            }
            // It may go to the target, too, if there is room beside the new guest.
            for to in self.hosts_for(&helper, own) {
                self.spend()?;
                let mark = self.fleet.mark();
                let Some(shift) = self.shift(&helper, to) else {
                    continue;
                };
                if let Some(mut found) = self.disperse(target, vms) {
                    found.moves.insert(0, shift);
                    return Some(found);
                }
                self.fleet.undo(mark);
            }
        }
        None
    }

    /// Returns whether any of these fits on the host of a guest once that is away.
    fn helps(&mut self, helper: &VmName, own: usize, vms: &[VmName]) -> bool {
        let mark = self.fleet.mark();
        self.fleet.take(helper);
        let fits = |vm: &VmName| self.fleet.try_place(vm, own, self.cells).is_some();
        let helps = vms.iter().any(fits);
        self.fleet.undo(mark);
        helps && self.spend().is_some()
    }
}

/// Returns what is sent when a guest moves, in MiB.
fn sent_mib(guest: &FleetGuest) -> u64 {
    let memory = guest.claim.resources.get(&ResourceClass::memory_mb());
    let pmem = guest.claim.assignment.pmem.iter().map(|d| d.size_bytes);
    memory.copied().unwrap_or(0) + pmem.sum::<u64>().div_ceil(1 << 20)
}
