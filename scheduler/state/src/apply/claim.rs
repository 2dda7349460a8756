//! Claims: examined, held, swapped, given back. Whose step that is, is decided elsewhere.

use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::constraint::{self, Demand};
use berth_domain::host_view::HostView;
use berth_domain::id::{ClaimId, ConsumerId};
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;

use crate::refusals::{exists, precondition};
use crate::transaction::{Journal, Transaction};

/// For whom a new claim is meant to be.
pub(super) struct Purpose<'a> {
    pub(super) vm: &'a VmName,
    pub(super) owner: Owner,
    /// What the guest demands of the host.
    pub(super) demand: &'a Demand,
    /// The host that the user named, if any.
    pub(super) requested_host: Option<&'a HostName>,
}

impl<J: Journal> Transaction<'_, J> {
    /// Says whether a claim that was chosen elsewhere can be held now.
    pub(super) fn examine_claim(
        &self,
        claim: &Claim,
        purpose: &Purpose<'_>,
    ) -> Result<(), Refusal> {
        let consumer = ConsumerId(claim.id.0);
        if self.state.claim(claim.id).is_some() || self.state.consumer(consumer).is_some() {
            return Err(exists("claim", claim.id));
        }
        if claim.vm != *purpose.vm || claim.owner != purpose.owner || claim.state != State::Held {
            return Err(mismatch(claim, "it is not a held claim for this operation"));
        }
        if let Some(requested) = purpose.requested_host
            && *requested != claim.host
        {
            return Err(mismatch(claim, &format!("host {requested} was requested")));
        }
        let view = self.host_of_claim(claim)?;
        constraint::admit(view, purpose.demand, claim)
            .map_err(|violation| violation.to_refusal(&claim.host))
    }

    /// Holds a claim that was examined.
    pub(super) fn hold(&mut self, claim: &Claim) -> Arc<Claim> {
        self.touch_provider(&claim.host);
        self.put_claim(claim.clone())
    }

    /// Gives a claim back. What keeps contents stays RELEASING until it is erased.
    pub(super) fn release(&mut self, id: ClaimId) {
        let Some(claim) = self.state.claim(id).cloned().filter(|c| c.is_in_use()) else {
            return;
        };
        self.touch_provider(&claim.host);
        match claim.released(self.now()) {
            Some(left) => drop(self.put_claim(left)),
            None => self.remove_claim(id),
        }
        let view = self.state.host(&claim.host);
        if view.is_some_and(|view| view.host.fenced.is_some()) {
            self.expect_later_comparison(&claim.host);
        }
    }

    /// From now on only a comparison with the claims as they are in this command counts: an earlier one
    /// does not name a guest that had a claim then, and would lift the fence of a host on which it runs.
    pub(super) fn expect_later_comparison(&mut self, host: &HostName) {
        if !self.may_write(ServiceVersion::LATER_COMPARISONS) {
            return;
        }
        let revision = self.state.header.revision;
        let changed = self.change_host(host, |host| host.compared = host.compared.max(revision));
        changed.expect("a host is not forgotten while it has claims");
    }

    /// Returns the claim with another assignment, if that fits in place of its own.
    pub(super) fn examine_swap(
        &self,
        claim: &Claim,
        demand: &Demand,
        assignment: &Assignment,
    ) -> Result<Claim, Refusal> {
        let mut without = (**self.host_of_claim(claim)?).clone();
        without.release(claim);
        // The host took the claim before and is past being chosen: what is open is the fit alone.
        constraint::exact::admit(&without, demand, assignment)
            .and_then(|()| constraint::memory::check(&without, &demand.resources, assignment))
            .map_err(|violation| violation.to_refusal(&claim.host))?;
        Ok(Claim {
            assignment: assignment.clone(),
            ..claim.clone()
        })
    }

    /// Notes on a host's root provider that its allocations changed.
    pub(super) fn touch_provider(&mut self, host: &HostName) {
        let view = self.state.host(host);
        let provider = view.and_then(|v| self.state.provider(v.host.provider));
        if let Some(provider) = provider.cloned() {
            self.put_provider(ResourceProvider {
                generation: provider.generation.next(),
                updated_at: self.now(),
                ..(*provider).clone()
            });
        }
    }

    fn host_of_claim(&self, claim: &Claim) -> Result<&Arc<HostView>, Refusal> {
        let view = self.state.host(&claim.host);
        view.ok_or_else(|| Refusal::not_found("host", &claim.host))
    }
}

fn mismatch(claim: &Claim, what: &str) -> Refusal {
    let message = format!(
        "claim {} on host {} is not right: {what}",
        claim.id, claim.host
    );
    Refusal::new(Code::InvalidArgument, "CLAIM_MISMATCH", message).with("claim", claim.id)
}

/// Refuses a claim that is not the operation's own.
pub(super) fn not_held(id: ClaimId) -> Refusal {
    precondition(
        "CLAIM_NOT_HELD",
        format!("claim {id} is not held by this operation"),
    )
    .with("claim", id)
}
