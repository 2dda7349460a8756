//! What agents should expect of their hypervisors, and what follows from what they find.
//!
//! It changes nothing: see [`crate::apply`].
//!
//! Invariant: a finding counts only for a VM that has not changed since the agent was sent what to
//! expect, so that a comparison that is out of date marks no VM.

use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::host::{Host, Liveness};
use berth_domain::id::{ClaimId, Incarnation, VmUid};
use berth_domain::migration;
use berth_domain::name::{HostName, PmemName, VmName};
use berth_domain::pmem::PmemDevice;
use berth_domain::reality::{
    Absence, Comparison, Expected, Finding, Trouble, UNKNOWN_MAX, Unknown,
};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::{self, Vm};

use crate::refusals::{invalid, precondition};
use crate::state::State;

/// What a comparison changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparisonOutcome {
    /// The host's record, if it changes.
    pub host: Option<Host>,
    /// The records of VMs that change.
    pub vms: Vec<Vm>,
}

impl ComparisonOutcome {
    /// Returns whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.host.is_none() && self.vms.is_empty()
    }
}

impl State {
    /// Returns what the claims of a host let expect.
    pub fn expected_of(&self, host: &HostName) -> Vec<Expected> {
        let claims = self.claims_in_use(host);
        let expected = claims.filter_map(|claim| {
            let vm = self.vm(&claim.vm)?;
            Some(Expected {
                vm: vm.name.clone(),
                uid: vm.uid,
                claim: claim.id,
                generation: vm.generation,
                is_settled: is_settled(vm, claim),
                recorded: vm.trouble.as_ref().map(|trouble| trouble.absence),
            })
        });
        expected.collect()
    }

    /// Returns the namespaces that the agent of a host is to erase.
    pub fn erasures_of(&self, host: &HostName) -> Vec<(ClaimId, PmemDevice)> {
        let view = self.host(host);
        if view.is_some_and(|view| self.has_unreported_guests(&view.host)) {
            return Vec::new();
        }
        let claims = self.claims_of_host(host).filter(|claim| !claim.is_in_use());
        let erasures = claims.flat_map(|claim| {
            // One that is lost is erased only if it comes back.
            let is_due = |device: &&PmemDevice| {
                !claim.has_written_off(&device.name) || self.reports(host, &device.name)
            };
            let devices = claim.assignment.pmem.iter().filter(is_due);
            devices.map(|device| (claim.id, device.clone()))
        });
        erasures.collect()
    }

    /// Returns whether a host's agent said last that a namespace is there and of use.
    #[must_use]
    pub(crate) fn reports(&self, host: &HostName, name: &PmemName) -> bool {
        let view = self.host(host);
        let namespace = view.and_then(|view| view.host.report.topology.namespace(name));
        namespace.is_some_and(|namespace| namespace.trouble.is_empty())
    }

    /// Returns the claims of a host that VMs have a part in.
    fn claims_in_use(&self, host: &HostName) -> impl Iterator<Item = &Arc<Claim>> + '_ {
        self.claims_of_host(host).filter(|claim| claim.is_in_use())
    }

    /// Returns whether a running guest is on its way to the host, or may be.
    #[must_use]
    pub fn receives(&self, host: &HostName) -> bool {
        let is_transferring = |state| match state {
            migration::State::Running | migration::State::Unsettled => true,
            migration::State::Preparing
            | migration::State::Completed
            | migration::State::Failed
            | migration::State::Verifying
            | migration::State::Reverted => false,
        };
        let mut migrations = self.migrations().values();
        migrations.any(|m| m.destination.as_ref() == Some(host) && is_transferring(m.state))
    }

    /// Returns what a host has lost and its hypervisor still has: it is to be removed there. The guest
    /// was started elsewhere; or, of a fenced host, its VM is gone.
    ///
    /// A host without a fence may have been removed while it had one, and be back.
    #[must_use]
    pub fn lost_of(&self, host: &Host) -> Vec<(VmUid, Option<ClaimId>)> {
        if self.has_unreported_guests(host) {
            return Vec::new();
        }
        let lost = host.unknown.iter().filter(|domain| domain.is_ours);
        let lost = lost.filter(|domain| !host.orphans.contains(&domain.uuid));
        let lost = lost.filter(|domain| {
            let is_gone = |claim| !self.claim(claim).is_some_and(|claim| claim.is_in_use());
            domain.claim.is_none_or(is_gone) && !self.is_awaited(host, domain)
        });
        let lost = lost.filter(|domain| host.fenced.is_some() || self.is_elsewhere(host, domain));
        let lost = lost.map(|domain| (VmUid(domain.uuid), domain.claim));
        lost.collect()
    }

    /// Returns whether the VM of a domain rests on another host, and this one has no claim of it: the
    /// domain is a second one. Its claim distinguishes it from one that comes to the host later.
    fn is_elsewhere(&self, host: &Host, domain: &Unknown) -> bool {
        let vm = VmName::new(&domain.name).ok();
        let Some(vm) = vm.and_then(|name| self.vm(&name)) else {
            return false;
        };
        let rests = match vm.state {
            vm::State::Active | vm::State::Stopped => vm.operation.is_none(),
            vm::State::Building
            | vm::State::Migrating
            | vm::State::Deleting
            | vm::State::Error
            | vm::State::Resized
            | vm::State::Shelved => false,
        };
        let is_here = |claim: &Arc<Claim>| claim.host == host.name && claim.is_in_use();
        rests
            && vm.uid.0 == domain.uuid
            && domain.claim.is_some()
            && vm.host.as_ref().is_some_and(|at| *at != host.name)
            && !self.claims_of_vm(&vm.name).any(is_here)
    }

    /// Returns whether a claim of the host is for this domain, or may be: its VM is being worked
    /// on.
    fn is_awaited(&self, host: &Host, domain: &Unknown) -> bool {
        let mut claims = self.claims_in_use(&host.name);
        claims.any(|claim| {
            let vm = self.vm(&claim.vm);
            vm.is_some_and(|vm| {
                vm.uid.0 == domain.uuid && (!is_settled(vm, claim) || domain.is_on(claim.id))
            })
        })
    }

    /// Returns what a comparison changes.
    ///
    /// # Errors
    ///
    /// When it is not about this host's agent, or older than one that is recorded.
    pub fn record_reality(
        &self,
        name: &HostName,
        incarnation: Incarnation,
        comparison: &Comparison,
    ) -> Result<ComparisonOutcome, Refusal> {
        let view = self.host(name);
        let host = &view.ok_or_else(|| Refusal::not_found("host", name))?.host;
        if host.report.incarnation != incarnation {
            let message = format!("another run of the agent of host {name} has registered");
            return Err(precondition("STALE_INCARNATION", message).with("host", name));
        }
        if comparison.unknown.len() > UNKNOWN_MAX {
            return Err(invalid(
                "INVALID_COMPARISON",
                format!("at most {UNKNOWN_MAX} unknown domains can be reported"),
            ));
        }
        if comparison.basis < host.compared {
            let message = format!(
                "host {name} was compared later already, or a claim on it was released since"
            );
            return Err(Refusal::new(Code::Aborted, "STALE_COMPARISON", message));
        }
        let is_bounded = self.header.cluster_version >= ServiceVersion::LATER_COMPARISONS;
        if is_bounded && comparison.basis > self.revision() {
            let message = format!(
                "a comparison cannot rest on revision {}, the state is at {}",
                comparison.basis,
                self.revision()
            );
            return Err(invalid("INVALID_COMPARISON", message).with("host", name));
        }
        let vms = comparison.findings.iter();
        Ok(ComparisonOutcome {
            host: self.host_after(host, comparison),
            vms: vms.filter_map(|f| self.vm_after(name, f)).collect(),
        })
    }

    fn host_after(&self, host: &Arc<Host>, comparison: &Comparison) -> Option<Host> {
        let unknown = comparison.unknown.iter();
        let unknown: Vec<Unknown> = unknown
            .filter(|domain| !domain.is_ours || !self.is_awaited(host, domain))
            .cloned()
            .collect();
        let lifts = host.fenced.is_some() && self.is_clean(host, comparison);
        if unknown == host.unknown && !lifts {
            return None;
        }
        let mut orphans = host.orphans.clone();
        orphans.retain(|orphan| unknown.iter().any(|domain| domain.uuid == *orphan));
        let mut after = Host {
            unknown,
            orphans,
            compared: comparison.basis,
            generation: host.generation.next(),
            ..(**host).clone()
        };
        after.fenced.take_if(|_| lifts);
        Some(after)
    }

    /// Returns whether none of the guests that a fenced host lost runs there, and no operation is about
    /// to take one from it.
    fn is_clean(&self, host: &Host, comparison: &Comparison) -> bool {
        let is_heard = host.liveness == Liveness::Up;
        let mut claims = self.claims_in_use(&host.name);
        let untouched = claims.all(|claim| {
            let vm = self.vm(&claim.vm);
            vm.is_some_and(|vm| vm.operation.is_none())
        });
        is_heard && untouched && comparison.unknown.iter().all(|domain| !domain.is_ours)
    }

    fn vm_after(&self, host: &HostName, finding: &Finding) -> Option<Vm> {
        let vm = self.vm(&finding.vm)?;
        let claim = self.claim(finding.claim)?;
        let recorded = vm.trouble.as_ref().map(|trouble| trouble.absence);
        // How it ended stays known when its hypervisor has forgotten it, as after a restart.
        let forgets = self.header.cluster_version < ServiceVersion::RESTART_POLICY;
        let is_news = match (recorded, finding.absence) {
            (Some(Absence::Stopped | Absence::ShutDown), Some(Absence::Missing)) => forgets,
            (recorded, found) => recorded != found,
        };
        let counts = vm.generation == finding.generation
            && vm.host.as_ref() == Some(host)
            && is_settled(vm, claim)
            && is_news;
        counts.then(|| Vm {
            trouble: finding.absence.map(|absence| Trouble {
                absence,
                claim: claim.id,
                since: self.time(),
            }),
            generation: vm.generation.next(),
            ..(**vm).clone()
        })
    }
}

/// Returns whether a VM should run on this claim now.
fn is_settled(vm: &Vm, claim: &Claim) -> bool {
    vm.state == vm::State::Active && vm.claim == Some(claim.id) && vm.operation.is_none()
}
