//! The verdicts of all hosts, kept up to date by what changed.
//!
//! ```text
//! a host changed ─┬─ its own guests did ─────────────▶ their plan is repaired
//!                 ├─ it has less room ───────────────▶ plans that lean on it are checked, repaired
//!                 ├─ it has more room ───────────────▶ what was refuted or open is evaluated again
//!                 └─ members of a server group moved ▶ plans of its other members are checked
//! ```
//!
//! A plan that leans on other hosts alone stays as it is; more room never breaks a plan, and less
//! never makes one.
//!
//! Invariant: every plan that is kept can be carried out on the fleet as it is, and every bound
//! that is kept forbids one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::constraint::admit;
use berth_domain::host_view::HostView;
use berth_domain::name::{HostName, ServerGroupName, VmName};
use berth_domain::numa::Strategy;
use berth_domain::server_group::GroupPolicy;

use super::plan::{check, claim, evacuees};
use super::reach::Reach;
use super::search::{Depth, Search};
use super::{Bound, Budget, Domain, Plan, Verdict, evaluate_counted};
use crate::fleet::{Error, Fleet, FleetGuest, Seeker};

/// Of the budget, the part that an open verdict gets when there is more room somewhere.
const RETRY_PART: u64 = 10;

/// What a verdict costs beside its placements, in such: guests are put on hosts, bounds are summed.
const VERDICT_COST: u64 = 50;

/// How a domain is called inside.
pub(super) type Key = Arc<str>;

/// A domain with its verdict.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) domain: Domain,
    pub(super) verdict: Verdict,
}

/// How many domains have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Their guests can be started elsewhere.
    pub proven: usize,
    /// They cannot.
    pub refuted: usize,
    /// Neither was found within the budget.
    pub unknown: usize,
}

/// A fleet with the verdicts of all its hosts, and of further domains.
#[derive(Clone, Debug)]
pub struct VerdictTracker {
    pub(super) fleet: Fleet,
    pub(super) budget: Budget,
    pub(super) kept: BTreeMap<Key, Tracked>,
    /// The domains that a host belongs to.
    homes: BTreeMap<HostName, BTreeSet<Key>>,
    /// The domains of which a guest is to go to a host.
    leaning: BTreeMap<HostName, BTreeSet<Key>>,
    /// Domains without a plan.
    bare: BTreeSet<Key>,
    /// Those of them whose verdict is open only since the budget of a change was spent.
    pending: BTreeSet<Key>,
    /// Those of them for which a short search found nothing, and how much a whole one may try.
    unsearched: BTreeMap<Key, u64>,
    /// What is left of the budget of a change.
    left: u64,
    pub(super) reach: Reach,
}

/// What is to be caught up.
pub(super) struct Queued {
    pending: BTreeSet<Key>,
    unsearched: BTreeMap<Key, u64>,
}

/// What changed of a host.
struct Change {
    host: HostName,
    lost: bool,
    gained: bool,
    /// Guests that are new here, or demand something else than before.
    altered: BTreeSet<VmName>,
    /// Hosts whose guests are others than before.
    homes: BTreeSet<HostName>,
    groups: BTreeSet<ServerGroupName>,
}

/// What a plan is checked against.
#[derive(Clone, Copy)]
pub(super) struct Doubt<'a> {
    /// The host that changed.
    pub(super) host: Option<&'a HostName>,
    /// Guests that are new, or demand something else than before.
    pub(super) altered: &'a BTreeSet<VmName>,
}

impl VerdictTracker {
    /// Returns the verdicts of all hosts and of these further domains.
    ///
    /// # Panics
    ///
    /// When the fleet has steps to undo.
    #[must_use]
    pub fn new(fleet: Fleet, further: Vec<Domain>, budget: Budget) -> Self {
        let hosts = fleet
            .views()
            .iter()
            .map(|view| Domain::host(&view.host.name));
        let domains: Vec<Domain> = hosts.chain(further).collect();
        let mut tracker = Self {
            fleet,
            budget,
            kept: BTreeMap::new(),
            homes: BTreeMap::new(),
            leaning: BTreeMap::new(),
            bare: BTreeSet::new(),
            pending: BTreeSet::new(),
            unsearched: BTreeMap::new(),
            left: budget.per_change,
            reach: Reach::default(),
        };
        for domain in domains {
            tracker.add(domain);
        }
        tracker
    }

    /// Returns the fleet.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns the domain of this name with its verdict.
    #[must_use]
    pub fn verdict(&self, name: &str) -> Option<(&Domain, &Verdict)> {
        let kept = self.kept.get(name)?;
        Some((&kept.domain, &kept.verdict))
    }

    /// Returns all domains with their verdicts, in order of name.
    pub fn verdicts(&self) -> impl Iterator<Item = (&Domain, &Verdict)> {
        self.kept.values().map(|kept| (&kept.domain, &kept.verdict))
    }

    /// Returns how many domains have which verdict.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally {
            proven: self.kept.len() - self.bare.len(),
            ..Tally::default()
        };
        for key in &self.bare {
            match &self.kept[key].verdict {
                Verdict::Proven(_) => unreachable!("a domain without a plan"),
                Verdict::Refuted(_) => tally.refuted += 1,
                Verdict::Unknown { .. } => tally.unknown += 1,
            }
        }
        tally
    }

    /// Takes a further domain, or another set of hosts for one that is known.
    pub fn add(&mut self, domain: Domain) {
        let key: Key = domain.name.as_str().into();
        self.drop_domain(&key);
        for host in &domain.hosts {
            self.homes
                .entry(host.clone())
                .or_default()
                .insert(key.clone());
        }
        let (fleet, reach) = (&mut self.fleet, &mut self.reach);
        let (verdict, _) = evaluate_counted(fleet, reach, &domain, self.budget, Depth::Whole);
        self.note(&key, &verdict);
        self.kept.insert(key, Tracked { domain, verdict });
    }

    /// Forgets a domain.
    pub fn drop_domain(&mut self, name: &str) {
        let Some((key, kept)) = self.kept.remove_entry(name) else {
            return;
        };
        self.unnote(&key, &kept.verdict);
        self.pending.remove(&key);
        self.unsearched.remove(&key);
        for host in &kept.domain.hosts {
            strike(&mut self.homes, host, &key);
        }
    }

    /// Takes a host with its guests as they really are now, and brings all verdicts to that.
    /// Returns the names of the domains whose verdict or plan is another now.
    ///
    /// # Errors
    ///
    /// As [`Fleet::renew`]; nothing was changed then.
    pub fn renew(
        &mut self,
        view: &Arc<HostView>,
        guests: impl IntoIterator<Item = FleetGuest>,
    ) -> Result<Vec<String>, Error> {
        self.left = self.budget.per_change;
        let host = &view.host.name;
        let old_view = self.fleet.view(host).cloned();
        let old_guests = guests_of(&self.fleet, host);
        let guests: Vec<FleetGuest> = guests.into_iter().collect();
        let known = guests
            .iter()
            .filter_map(|guest| self.fleet.guest(&guest.vm));
        let from = known.map(|known| known.claim.host.clone());
        let from: BTreeSet<HostName> = from.filter(|other| other != host).collect();
        self.fleet.renew(view, guests)?;
        self.forget_reach(host);
        let Some(old_view) = old_view else {
            return Ok(self.welcome(host, from));
        };
        let new_guests = guests_of(&self.fleet, host);
        let mut change = Change {
            host: host.clone(),
            lost: has_less(&old_view, view),
            gained: has_less(view, &old_view),
            altered: BTreeSet::new(),
            homes: from,
            groups: BTreeSet::new(),
        };
        change.compare(&old_guests, &new_guests);
        Ok(self.follow(&change))
    }

    /// Forgets a host with its guests, and brings all verdicts to that.
    pub fn remove(&mut self, host: &HostName) -> Vec<String> {
        self.left = self.budget.per_change;
        let guests = guests_of(&self.fleet, host);
        let Some(leaning) = self
            .fleet
            .place(host)
            .map(|_| self.leaning.get(host).cloned())
        else {
            return Vec::new();
        };
        self.fleet.remove(host);
        self.reach.clear();
        self.drop_domain(host.as_str());
        let mut change = Change {
            host: host.clone(),
            lost: false,
            gained: false,
            altered: BTreeSet::new(),
            homes: [host.clone()].into(),
            groups: BTreeSet::new(),
        };
        change.compare(&guests, &BTreeMap::new());
        let mut changed = self.follow(&change);
        for key in leaning.into_iter().flatten() {
            self.repair(&key, Doubt::of(host), &mut changed);
        }
        changed
    }

    /// Returns whether a verdict is open since one change was too much for it.
    pub(super) fn is_pending(&self, key: &Key) -> bool {
        self.pending.contains(key)
    }

    /// Returns what is to be caught up.
    pub(super) fn queued(&self) -> Queued {
        Queued {
            pending: self.pending.clone(),
            unsearched: self.unsearched.clone(),
        }
    }

    /// Takes what is to be caught up: a question that changes nothing evaluates on another fleet.
    pub(super) fn queue(&mut self, queued: Queued) {
        self.pending = queued.pending;
        self.unsearched = queued.unsearched;
    }

    /// Returns whether verdicts are open that one change was too much for.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns whether verdicts are open for which only a short search was made yet.
    #[must_use]
    pub fn is_searching(&self) -> bool {
        !self.unsearched.is_empty()
    }

    /// Returns how many verdicts are open for which only a short search was made yet.
    #[must_use]
    pub fn unsearched(&self) -> usize {
        self.unsearched.len()
    }

    /// Works on verdicts that one change was too much for, then on those for which a short search
    /// found nothing, until about so many placements are tried. Returns the names of the domains
    /// whose verdict is another now.
    ///
    /// One scarce resource turns the verdicts of all hosts at once, and guests of full hosts can be
    /// placed in very many ways: so all are evaluated shortly before any is searched wholly.
    pub fn catch_up(&mut self, placements: u64) -> Vec<String> {
        self.left = placements;
        let mut changed = Vec::new();
        for key in self.pending.clone() {
            if self.left == 0 {
                return changed;
            }
            let verdict = self.ask_short(&key, self.budget.placements);
            self.set(&key, verdict, &mut changed);
        }
        for (key, placements) in self.unsearched.clone() {
            if self.left == 0 {
                break;
            }
            let budget = Budget {
                placements,
                ..self.budget
            };
            let verdict = self.ask(&key, budget);
            self.set(&key, verdict, &mut changed);
        }
        changed
    }

    /// Takes a host that was not known.
    fn welcome(&mut self, host: &HostName, mut from: BTreeSet<HostName>) -> Vec<String> {
        self.add(Domain::host(host));
        from.insert(host.clone());
        let groups = guests_of(&self.fleet, host);
        let change = Change {
            host: host.clone(),
            lost: false,
            gained: true,
            altered: BTreeSet::new(),
            homes: from,
            groups: groups.values().filter_map(|g| group_of(g)).collect(),
        };
        let mut changed = self.follow(&change);
        changed.push(host.to_string());
        changed
    }

    fn follow(&mut self, change: &Change) -> Vec<String> {
        let mut changed = Vec::new();
        let doubt = Doubt {
            host: Some(&change.host),
            altered: &change.altered,
        };
        let homes = change.homes.iter().filter_map(|host| self.homes.get(host));
        let mut done: BTreeSet<Key> = homes.flatten().cloned().collect();
        for key in &done {
            self.repair(key, doubt, &mut changed);
        }
        for key in self.homes_of_members(&change.groups) {
            if done.insert(key.clone()) {
                self.repair(&key, doubt, &mut changed);
            }
        }
        if change.lost {
            for key in self.leaning.get(&change.host).cloned().unwrap_or_default() {
                if done.insert(key.clone()) && !self.stands(&key, &change.host) {
                    self.repair(&key, doubt, &mut changed);
                }
            }
        }
        if change.gained {
            for key in self.bare.clone() {
                if done.insert(key.clone()) && !self.pending.contains(&key) {
                    self.reevaluate(&key, &change.host, &mut changed);
                }
            }
        }
        changed
    }

    /// Returns the domains that members of these groups are in.
    pub(super) fn homes_of_members(&self, groups: &BTreeSet<ServerGroupName>) -> BTreeSet<Key> {
        let hosts = groups.iter().flat_map(|group| self.fleet.members(group));
        let homes = hosts.filter_map(|(host, _)| self.homes.get(host));
        homes.flatten().cloned().collect()
    }

    /// Returns the domains that a host belongs to.
    pub(super) fn homes_of(&self, host: &HostName) -> BTreeSet<Key> {
        self.homes.get(host).cloned().unwrap_or_default()
    }

    /// Returns the domains of which a guest is to go to a host.
    pub(super) fn leaning_on(&self, host: &HostName) -> BTreeSet<Key> {
        self.leaning.get(host).cloned().unwrap_or_default()
    }

    /// Returns whether what a plan wants of a host is still to be had, where nothing else changed.
    pub(super) fn stands(&self, key: &Key, host: &HostName) -> bool {
        let Verdict::Proven(plan) = &self.kept[key].verdict else {
            return false;
        };
        let Some(view) = self.fleet.view(host) else {
            return false;
        };
        let mut view = HostView::clone(view);
        plan.to(host).all(|step| {
            let Some(guest) = self.fleet.guest(&step.vm) else {
                return false;
            };
            let claim = claim(guest, step);
            // Where the others of its group are is known only on the whole way.
            let fits = guest.group().is_none() && admit(&view, &guest.demand, &claim).is_ok();
            if fits {
                view.place(&claim);
            }
            fits
        })
    }

    fn repair(&mut self, key: &Key, doubt: Doubt<'_>, changed: &mut Vec<String>) {
        let verdict = self.repaired(key, doubt);
        self.set(key, verdict, changed);
    }

    /// Returns the current verdict of a domain: its plan repaired, or another verdict.
    pub(super) fn repaired(&mut self, key: &Key, doubt: Doubt<'_>) -> Verdict {
        let kept = &self.kept[key];
        if self.left > 0
            && let Verdict::Proven(plan) = &kept.verdict
        {
            self.left = self.left.saturating_sub(VERDICT_COST);
            let repaired = repair(
                &mut self.fleet,
                &mut self.reach,
                &kept.domain,
                plan,
                doubt,
                self.budget,
            );
            if let Some(plan) = repaired {
                return Verdict::Proven(plan);
            }
        }
        self.ask(key, self.budget)
    }

    /// Returns the verdict of a domain, an open one where the budget of the change is spent.
    fn ask(&mut self, key: &Key, budget: Budget) -> Verdict {
        self.ask_to(key, budget, Depth::Whole)
    }

    /// Returns what a short search finds of a domain. If that is nothing, a whole one may try so
    /// many placements later.
    fn ask_short(&mut self, key: &Key, placements: u64) -> Verdict {
        let verdict = self.ask_to(key, self.budget, Depth::Short);
        let is_open = match verdict {
            Verdict::Unknown { .. } => !self.pending.contains(key),
            Verdict::Proven(_) | Verdict::Refuted(_) => false,
        };
        if is_open {
            self.unsearched.insert(key.clone(), placements);
        }
        verdict
    }

    fn ask_to(&mut self, key: &Key, budget: Budget, depth: Depth) -> Verdict {
        let domain = &self.kept[key].domain;
        if self.left == 0
            && let Some(guest) = evacuees(&self.fleet, domain).first()
        {
            self.pending.insert(key.clone());
            let stuck = guest.vm.clone();
            return Verdict::Unknown { tried: 0, stuck };
        }
        self.pending.remove(key);
        self.unsearched.remove(key);
        let (fleet, reach) = (&mut self.fleet, &mut self.reach);
        let (verdict, tried) = evaluate_counted(fleet, reach, domain, budget, depth);
        self.left = self.left.saturating_sub(tried + VERDICT_COST);
        verdict
    }

    /// Forgets which guests a host has room for: it changed.
    pub(super) fn forget_reach(&mut self, host: &HostName) {
        if let Some(at) = self.fleet.place(host) {
            self.reach.forget(at);
        }
    }

    /// Gives a question that changes nothing a budget of its own.
    pub(super) fn take_time(&mut self, placements: u64) {
        self.left = placements;
    }

    /// Asks again of a domain without a plan, after a host got more room.
    fn reevaluate(&mut self, key: &Key, host: &HostName, changed: &mut Vec<String>) {
        let kept = &self.kept[key];
        let (guests, placements) = match &kept.verdict {
            Verdict::Proven(_) | Verdict::Refuted(Bound::Impossible { .. }) => return,
            Verdict::Refuted(bound) => (bound.guests(), self.budget.placements),
            Verdict::Unknown { stuck, .. } => {
                let placements = self.budget.placements / RETRY_PART;
                (std::slice::from_ref(stuck), placements)
            }
        };
        let mut guests = guests.iter();
        if !guests.any(|vm| self.might_go(vm, &kept.domain, host)) {
            return;
        }
        let known = self.unsearched.get(key).copied();
        let verdict = self.ask_short(key, known.unwrap_or(0).max(placements));
        self.set(key, verdict, changed);
    }

    /// Returns whether a guest of a domain might go to this host, if it went there alone.
    fn might_go(&self, vm: &VmName, domain: &Domain, host: &HostName) -> bool {
        let (Some(guest), Some(at)) = (self.fleet.guest(vm), self.fleet.place(host)) else {
            return true;
        };
        if domain.hosts.contains(host) {
            return false;
        }
        if guest.group().is_some() {
            return true;
        }
        let seeker = Seeker::new(&self.fleet, &guest.demand);
        seeker.glance(&self.fleet, at, Strategy::Spread).is_some()
            && (seeker
                .try_place(&self.fleet, at, Strategy::Spread)
                .is_some()
                || seeker.gave_up(&self.fleet, at))
    }

    fn set(&mut self, key: &Key, verdict: Verdict, changed: &mut Vec<String>) {
        let kept = self.kept.get_mut(key).expect("a domain that is kept");
        if kept.verdict == verdict {
            return;
        }
        let old = std::mem::replace(&mut kept.verdict, verdict.clone());
        self.unnote(key, &old);
        self.note(key, &verdict);
        changed.push(key.to_string());
    }

    fn note(&mut self, key: &Key, verdict: &Verdict) {
        match verdict {
            Verdict::Proven(plan) => {
                for step in &plan.moves {
                    let leaning = self.leaning.entry(step.to.clone()).or_default();
                    leaning.insert(key.clone());
                }
            }
            Verdict::Refuted(_) | Verdict::Unknown { .. } => {
                self.bare.insert(key.clone());
            }
        }
    }

    fn unnote(&mut self, key: &Key, verdict: &Verdict) {
        match verdict {
            Verdict::Proven(plan) => {
                for step in &plan.moves {
                    strike(&mut self.leaning, &step.to, key);
                }
            }
            Verdict::Refuted(_) | Verdict::Unknown { .. } => {
                self.bare.remove(key);
            }
        }
    }
}

impl<'a> Doubt<'a> {
    /// Nothing changed but this host.
    fn of(host: &'a HostName) -> Self {
        static NONE: BTreeSet<VmName> = BTreeSet::new();
        Self {
            host: Some(host),
            altered: &NONE,
        }
    }
}

impl Change {
    /// Compares the guests of the host before and after.
    fn compare(
        &mut self,
        before: &BTreeMap<VmName, Arc<FleetGuest>>,
        after: &BTreeMap<VmName, Arc<FleetGuest>>,
    ) {
        for guest in before.values() {
            if !after.contains_key(&guest.vm) {
                self.homes.insert(self.host.clone());
                self.groups.extend(group_of(guest));
            }
        }
        for guest in after.values() {
            let old = before.get(&guest.vm);
            if old.is_some_and(|old| is_like(old, guest)) {
                continue;
            }
            self.altered.insert(guest.vm.clone());
            self.homes.insert(self.host.clone());
            self.groups.extend(group_of(guest));
            self.groups.extend(old.and_then(|old| group_of(old)));
        }
    }
}

/// Returns a plan repaired where it depends on what is in doubt: such guests go elsewhere, the others
/// where they were to go.
fn repair(
    fleet: &mut Fleet,
    reach: &mut Reach,
    domain: &Domain,
    plan: &Plan,
    doubt: Doubt<'_>,
    budget: Budget,
) -> Option<Plan> {
    let mark = fleet.mark();
    let guests = evacuees(fleet, domain);
    let are_bound = guests.iter().any(|guest| {
        let group = guest.group();
        group.is_some_and(|group| group.policy == GroupPolicy::Affinity)
    });
    if are_bound {
        return None;
    }
    let doubtful = doubt.host.and_then(|host| fleet.place(host));
    let mut search = Search::new(fleet, reach, domain, budget);
    let mut homeless: BTreeMap<VmName, Arc<FleetGuest>> = guests
        .into_iter()
        .map(|guest| (guest.vm.clone(), guest))
        .collect();
    for step in &plan.moves {
        let Some(guest) = homeless.get(&step.vm) else {
            continue;
        };
        let fleet = search.fleet();
        let to = fleet.place(&step.to).filter(|at| !fleet.has_failed_at(*at));
        let Some(to) = to else {
            continue;
        };
        let is_sure =
            Some(to) != doubtful && guest.group().is_none() && !doubt.altered.contains(&guest.vm);
        if is_sure || check(fleet, step, to).is_ok() {
            fleet.put(&step.vm, to, step.assignment.clone());
            homeless.remove(&step.vm);
        }
    }
    if let Some(at) = doubtful {
        search.go_to(at);
    }
    let repaired = search.add(homeless.into_values().collect());
    fleet.undo(mark);
    repaired
}

fn strike(map: &mut BTreeMap<HostName, BTreeSet<Key>>, host: &HostName, key: &Key) {
    if let Some(keys) = map.get_mut(host) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(host);
        }
    }
}

fn guests_of(fleet: &Fleet, host: &HostName) -> BTreeMap<VmName, Arc<FleetGuest>> {
    let at = fleet.place(host).into_iter();
    let guests = at.flat_map(|at| fleet.guests_at(at));
    guests
        .map(|guest| (guest.vm.clone(), Arc::clone(guest)))
        .collect()
}

fn group_of(guest: &FleetGuest) -> Option<ServerGroupName> {
    guest.group().map(|group| group.name.clone())
}

/// Returns whether two records of a guest ask the same of other hosts; where the members of its
/// group are is not looked at.
fn is_like(old: &FleetGuest, new: &FleetGuest) -> bool {
    let is_same = |old: &FleetGuest, new: &FleetGuest| {
        let [mut a, mut b] = [(*old.demand).clone(), (*new.demand).clone()];
        for demand in [&mut a, &mut b] {
            if let Some(group) = &mut demand.group {
                group.hosts.clear();
            }
        }
        a == b
    };
    old.rescue == new.rescue
        && old.also_on == new.also_on
        && (Arc::ptr_eq(&old.demand, &new.demand) || old.demand == new.demand || is_same(old, new))
}

/// Returns whether a host has less of anything than it had, or is of another kind.
fn has_less(before: &HostView, now: &HostView) -> bool {
    if before.class() != now.class() || before.usage.cells.len() != now.usage.cells.len() {
        return true;
    }
    let counted = |(class, amount): (_, &u64)| before.used_of(class) < *amount;
    let cells = before.usage.cells.iter().zip(&now.usage.cells);
    let mut cells = cells.map(|(before, now)| {
        let pages = |(size, count): (&u64, &u64)| before.pages.get(size).unwrap_or(&0) < count;
        !now.pinned.difference(&before.pinned).is_empty()
            || now.shared_vcpus > before.shared_vcpus
            || now.memory_mib > before.memory_mib
            || now.unaccounted_mib() > before.unaccounted_mib()
            || now.pages.iter().any(pages)
    });
    now.used.iter().any(counted)
        || cells.any(|less| less)
        || !now.usage.pci.is_subset(&before.usage.pci)
        || !now.usage.pmem.is_subset(&before.usage.pmem)
}
