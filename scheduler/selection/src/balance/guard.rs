//! Moves that keep hosts able to fail: no proof of N+1 is lost by balancing.
//!
//! Of each proposed move only those proofs are checked that it may break: of the host that gets the
//! guest, of hosts whose guests are to go there, and of hosts with members of its server group. One
//! that does not hold any more is searched again; where none is found, the move is refused.
//!
//! Not here: hosts that are not proven to begin with. A move may leave them so.
//!
//! Invariant: after each move that was admitted, every plan that is kept can be carried out.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::name::HostName;

use super::plan::Proposal;
use crate::failover::{Budget, Domain, Plan, Verdict, evaluate};
use crate::fleet::Fleet;

/// The proofs that are to be kept.
#[derive(Clone, Debug)]
pub struct Guard {
    budget: Budget,
    proven: BTreeMap<String, (Domain, Plan)>,
    /// The domains that a host belongs to.
    homes: BTreeMap<HostName, BTreeSet<String>>,
    /// The domains of which a guest is to go to a host.
    leaning: BTreeMap<HostName, BTreeSet<String>>,
}

impl Guard {
    /// Returns a guard of what is proven of these.
    pub fn new<'a>(
        verdicts: impl IntoIterator<Item = (&'a Domain, &'a Verdict)>,
        budget: Budget,
    ) -> Self {
        let mut guard = Self {
            budget,
            proven: BTreeMap::new(),
            homes: BTreeMap::new(),
            leaning: BTreeMap::new(),
        };
        for (domain, verdict) in verdicts {
            if let Some(plan) = verdict.plan() {
                guard.take(domain.clone(), plan.clone());
            }
        }
        guard
    }

    /// Returns the names of the domains that are proven.
    pub fn proven(&self) -> impl Iterator<Item = &str> {
        self.proven.keys().map(String::as_str)
    }

    /// Returns whether a move may be made: no proof is lost by it. The fleet is as if it were made,
    /// and is so afterwards; that it is made is taken for granted then.
    ///
    /// # Errors
    ///
    /// The host whose failure would not be survived any more, or not be known to be.
    pub fn admit(&mut self, fleet: &mut Fleet, proposal: &Proposal) -> Result<(), String> {
        let mut renewed = Vec::new();
        for name in self.doubtful(fleet, proposal) {
            let (domain, plan) = &self.proven[&name];
            let mut plan = plan.clone();
            // One that is not on a host of the domain any more needs no place.
            let at = fleet.place_of(&proposal.vm);
            let is_here = at.is_some_and(|at| domain.hosts.contains(fleet.name(at)));
            if !is_here {
                plan.moves.retain(|step| step.vm != proposal.vm);
            }
            if plan.verify(fleet, domain).is_ok() {
                renewed.push((domain.clone(), plan));
                continue;
            }
            match evaluate(fleet, domain, self.budget) {
                Verdict::Proven(plan) => renewed.push((domain.clone(), plan)),
                Verdict::Refuted(bound) => {
                    return Err(format!("{name} could not fail any more: {bound}"));
                }
                Verdict::Unknown { .. } => {
                    return Err(format!(
                        "it would not be known any more whether {name} can fail"
                    ));
                }
            }
        }
        for (domain, plan) in renewed {
            self.drop_plan(&domain.name);
            self.take(domain, plan);
        }
        Ok(())
    }

    /// Returns the domains whose proof the move may break, in order of name.
    fn doubtful(&self, fleet: &Fleet, proposal: &Proposal) -> BTreeSet<String> {
        let (from, to) = (fleet.name(proposal.from), fleet.name(proposal.to));
        let mut names = BTreeSet::new();
        let homes = [self.homes.get(from), self.homes.get(to)];
        for known in homes.into_iter().chain([self.leaning.get(to)]).flatten() {
            names.extend(known.iter().cloned());
        }
        let group = fleet.guest(&proposal.vm).and_then(|guest| guest.group());
        if let Some(group) = group {
            for (host, _) in fleet.members(&group.name) {
                names.extend(self.homes.get(host).into_iter().flatten().cloned());
            }
        }
        names
    }

    fn take(&mut self, domain: Domain, plan: Plan) {
        for host in &domain.hosts {
            let homes = self.homes.entry(host.clone()).or_default();
            homes.insert(domain.name.clone());
        }
        for step in &plan.moves {
            let leaning = self.leaning.entry(step.to.clone()).or_default();
            leaning.insert(domain.name.clone());
        }
        self.proven.insert(domain.name.clone(), (domain, plan));
    }

    fn drop_plan(&mut self, name: &str) {
        let Some((_, plan)) = self.proven.remove(name) else {
            return;
        };
        for step in &plan.moves {
            if let Some(leaning) = self.leaning.get_mut(&step.to) {
                leaning.remove(name);
            }
        }
    }
}
