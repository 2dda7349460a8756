//! Namespaces of persistent memory that agents erase after guests.
//!
//! Invariant: a namespace leaves its RELEASING claim only by the word of the host's agent that it is
//! erased.

use berth_domain::claim::{ERASURE_FAILURE_LENGTH_MAX, ErasureProgress, ErasureReport};
use berth_domain::id::Incarnation;
use berth_domain::name::HostName;
use berth_domain::pmem::NAMESPACES_MAX;
use berth_domain::refusal::Refusal;

use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Takes what an agent says of the namespaces that it is to erase. What is void is passed over.
    pub(super) fn note_erasures(
        &mut self,
        name: &HostName,
        incarnation: Incarnation,
        reports: &[ErasureReport],
    ) -> Result<Reply, Refusal> {
        let view = self.state.host(name);
        let host = &view.ok_or_else(|| Refusal::not_found("host", name))?.host;
        if host.report.incarnation != incarnation {
            let message = format!("another run of the agent of host {name} has registered");
            return Err(precondition("STALE_INCARNATION", message).with("host", name));
        }
        let is_bounded = |report: &ErasureReport| match &report.progress {
            ErasureProgress::Running { .. } | ErasureProgress::Erased => true,
            ErasureProgress::Failed { failure } => failure.len() <= ERASURE_FAILURE_LENGTH_MAX,
        };
        if reports.len() > NAMESPACES_MAX || !reports.iter().all(is_bounded) {
            let message = format!(
                "at most {NAMESPACES_MAX} erasures are told, with at most \
                 {ERASURE_FAILURE_LENGTH_MAX} bytes of what is wrong with each"
            );
            return Err(invalid("INVALID_ERASURES", message));
        }
        for report in reports {
            let claim = self.state.claim(report.claim);
            let after = claim
                .filter(|claim| claim.host == *name)
                .and_then(|claim| claim.after(report));
            match after {
                Some(Some(claim)) => {
                    if claim.resources != self.state.claims[&claim.id].resources {
                        self.touch_provider(name);
                    }
                    self.put_claim(claim);
                }
                Some(None) => {
                    self.touch_provider(name);
                    self.remove_claim(report.claim);
                }
                None => {}
            }
        }
        Ok(Reply::None)
    }
}
