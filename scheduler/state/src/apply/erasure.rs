//! Namespaces of persistent memory that agents erase after guests.
//!
//! Invariant: a namespace leaves its RELEASING claim only by the word of the host's agent that it is
//! erased, or with its host. One that an operator writes off stays in its claim.

use std::sync::Arc;

use berth_domain::claim::{Claim, ERASURE_FAILURE_LENGTH_MAX, ErasureProgress, ErasureReport};
use berth_domain::host::Liveness;
use berth_domain::id::Incarnation;
use berth_domain::name::{HostName, PmemName};
use berth_domain::pmem::NAMESPACES_MAX;
use berth_domain::refusal::Refusal;

use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    /// Takes what an agent says of the namespaces that it is to erase. What is void is passed over.
    pub(super) fn record_erasures(
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
                "at most {NAMESPACES_MAX} erasures can be reported, with at most \
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

    /// Takes an operator's word that a namespace is lost for good. It stays with its claim, so that it
    /// is erased should it come back, but delays no request any more.
    pub(super) fn write_off_pmem(
        &mut self,
        name: &HostName,
        namespace: &PmemName,
    ) -> Result<Reply, Refusal> {
        let view = self.state.host(name);
        let host = view.ok_or_else(|| Refusal::not_found("host", name))?;
        let host = host.host.clone();
        let has = |claim: &&Arc<Claim>| {
            let mut devices = claim.assignment.pmem.iter();
            devices.any(|device| device.name == *namespace)
        };
        let Some(claim) = self.state.claims_of_host(name).find(has) else {
            let message = format!("no claim on host {name} has pmem namespace {namespace}");
            return Err(precondition("PMEM_NAMESPACE_FREE", message)
                .with_hint("take it out of pmem_namespaces of the agent's configuration")
                .with("host", name)
                .with("namespace", namespace));
        };
        if host.liveness == Liveness::Up && self.state.reports(name, namespace) {
            let message = format!(
                "the agent of host {name}, which is heard of, says that pmem namespace {namespace} is \
                 there"
            );
            return Err(precondition("PMEM_NAMESPACE_WORKS", message)
                .with_hint(
                    "move or delete the VM that has it; once it is erased, it can be taken out of \
                     pmem_namespaces",
                )
                .with("host", name)
                .with("namespace", namespace));
        }
        if claim.has_written_off(namespace) {
            return Ok(Reply::Host(host));
        }
        let claim = claim.write_off(namespace, self.now());
        self.touch_provider(name);
        self.put_claim(claim);
        Ok(Reply::Host(host))
    }
}
