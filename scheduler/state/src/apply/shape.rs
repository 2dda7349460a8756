//! Which claims a host has no room for, since it came back smaller or the policy says less of its
//! memory or its shared CPUs.
//!
//! Invariant: the claims that are not hit fit together. Who was not hit when the shape or the policy
//! came does not become it when others leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::{self, Demand};
use berth_domain::host::Host;
use berth_domain::host_view::HostView;
use berth_domain::id::ClaimId;
use berth_domain::name::HostName;
use berth_domain::refusal::Refusal;

use crate::check::spec_of;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Returns the claims of a host that its shape has no room for beside the others; those that
    /// are hit already come last.
    pub(crate) fn hit_claims(&self, host: &Host) -> BTreeSet<ClaimId> {
        let bare = Host {
            unknown: Vec::new(),
            ..host.clone()
        };
        let rule = self.state.rule_of(&host.name);
        let mut view = HostView::under(Arc::new(bare), rule, []);
        let mut hit = BTreeSet::new();
        let (last, first): (Vec<_>, Vec<_>) = self
            .state
            .claims_of_host(&host.name)
            .partition(|claim| host.hit.contains(&claim.id));
        // What is promised once has its pages; where memory is short, it is those who share that lack.
        let (exact, shared): (Vec<_>, Vec<_>) = first.into_iter().partition(|claim| {
            let pages = claim.assignment.cells.iter();
            let mut pages = pages.filter_map(|cell| cell.page_size_kib);
            claim.assignment.is_exact() || pages.next().is_some()
        });
        let all = exact.into_iter().chain(shared).chain(last);
        // What is to be erased after a VM affects no other.
        let (all, releasing): (Vec<_>, Vec<_>) = all.partition(|claim| claim.is_in_use());
        for claim in releasing {
            view.place(claim);
        }
        for claim in all {
            let fits = self
                .demand_of_claim(claim)
                .is_ok_and(|demand| constraint::fits(&view, &demand, &claim.assignment).is_ok());
            if fits {
                view.place(claim);
            } else {
                hit.insert(claim.id);
            }
        }
        hit
    }

    /// Looks again who is hit, after a claim of the host changed or went.
    pub(crate) fn recount_hits(&mut self, name: &HostName) {
        let Some(view) = self.state.host(name) else {
            return;
        };
        if !view.host.hit.is_empty() {
            self.mark_hits(name);
        }
    }

    /// Marks who is hit now.
    pub(crate) fn mark_hits(&mut self, name: &HostName) {
        let Some(view) = self.state.host(name) else {
            return;
        };
        let host = view.host.clone();
        let hit = self.hit_claims(&host);
        if hit != host.hit {
            self.put_host(Host {
                hit,
                generation: host.generation.next(),
                ..(*host).clone()
            });
        }
    }

    /// Returns what the guest of a claim demands, with the page sizes that it has.
    fn demand_of_claim(&self, claim: &Claim) -> Result<Demand, Refusal> {
        let vm = self.state.vm(&claim.vm);
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", &claim.vm))?;
        let spec = spec_of(self.state, claim).unwrap_or(&vm.spec);
        let mut demand = Demand::boot(spec)?;
        demand.topology = demand.topology.map(|wish| wish.settled(&claim.assignment));
        demand.pmem = demand.pmem.settled(&claim.assignment.pmem);
        Ok(demand)
    }
}
