//! What is left on a host when its guests are settled: guests that no claim is for, and what guests may
//! have written into persistent memory.
//!
//! A namespace that no claim has was perhaps a guest's in the time that is lost, so that it is erased
//! before it is given to another. Its agent erases none that a guest has.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::constraint::Violation;
use berth_domain::host::Host;
use berth_domain::id::{ClaimId, VmUid};
use berth_domain::name::{HostName, PmemName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::operation::Kind;
use berth_domain::pmem::PmemDevice;
use berth_domain::reality::{UNKNOWN_MAX, Unknown};
use berth_domain::recovery::{RecoveredHost, ReportedGuest};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{State as VmState, Vm};
use uuid::Uuid;

use super::adopt::overlaps;
use super::{is_here, is_live};
use crate::state::State;
use crate::transaction::{Journal, Transaction};

/// The reason of a refusal because a guest of the VM is on a host beside its own.
pub(crate) const GUEST_RUNS_TWICE: &str = "GUEST_RUNS_TWICE";

/// The VM in whose name namespaces are erased that no claim had.
const ERASED_FOR: &str = "lost-in-recovery";

impl<J: Journal> Transaction<'_, J> {
    /// Takes namespaces that a guest has out of the claims by which they would be erased: that was done in
    /// the time that is lost, or the guest never had them taken away.
    pub(super) fn take_back_erasures(&mut self, host: &HostName, held: &Assignment) {
        for device in &held.pmem {
            let claims = self.state.claims_of_host(host);
            let mut claims = claims.filter(|claim| !claim.is_in_use());
            let claim = claims.find(|claim| claim.erasures.contains_key(&device.name));
            let claim = claim.cloned();
            drop(claims);
            let Some(claim) = claim else {
                continue;
            };
            self.touch_provider(host);
            match claim.without(&device.name) {
                Some(left) => drop(self.put_claim(left)),
                None => self.remove_claim(claim.id),
            }
        }
    }

    /// Records the guests of a host that no claim is for, and has what no claim has erased.
    pub(super) fn record_left(&mut self, report: &RecoveredHost) {
        let is_unknown =
            |guest: &&ReportedGuest| !self.state.is_claimed(&report.host, &guest.domain);
        let mut left: Vec<&ReportedGuest> = report.others.iter().filter(is_unknown).collect();
        left.truncate(UNKNOWN_MAX);
        let host = (*self.state.hosts[&report.host].host).clone();
        let orphans = left.iter().filter(|guest| is_here(guest.state));
        let orphans = orphans.filter(|guest| !self.state.is_stale(&host, guest));
        let orphans = orphans.map(|guest| guest.domain.uuid).collect();
        let unknown = left.iter().map(|guest| guest.domain.clone()).collect();
        self.put_host(Host {
            unknown,
            orphans,
            unreported: false,
            compared: self.state.header.revision,
            generation: host.generation.next(),
            ..host
        });
        self.erase_unclaimed(&report.host);
    }

    fn erase_unclaimed(&mut self, name: &HostName) {
        let host = &self.state.hosts[name].host;
        let claims = self.state.claims_of_host(name);
        let claimed = claims.flat_map(|claim| &claim.assignment.pmem);
        let claimed: BTreeSet<&PmemName> = claimed.map(|device| &device.name).collect();
        let namespaces = host.report.topology.pmem().iter();
        let free = namespaces.filter(|namespace| !claimed.contains(&namespace.name));
        let pmem: Vec<PmemDevice> = free.map(PmemDevice::from).collect();
        let claim = Claim {
            // As unique as the two numbers of which it is made.
            id: ClaimId(Uuid::from_u128(
                host.provider.0.as_u128() ^ u128::from(self.state.header.revision),
            )),
            vm: VmName::new(ERASED_FOR).expect("it is a name"),
            owner: Owner::Vm,
            host: name.clone(),
            state: ClaimState::Active,
            resources: BTreeMap::new(),
            assignment: Assignment {
                pmem,
                ..Assignment::default()
            },
            erasures: BTreeMap::new(),
            cpu: None,
        };
        if let Some(claim) = claim.released(self.now()) {
            self.hold(&claim);
        }
    }

    /// Refuses what starts, moves or deletes a VM of which another host has a guest since the cluster
    /// recovered: that would run it twice, or take its disks away.
    pub(in crate::apply) fn examine_orphans(&self, vm: &Vm, kind: &Kind) -> Result<(), Refusal> {
        if self.state.header.recovery.is_none() {
            return Ok(());
        }
        // Where it removes the guest itself.
        let removes = |host: &HostName| {
            *kind == Kind::Delete && vm.host.iter().chain(&vm.remains_on).any(|at| at == host)
        };
        let mut hosts = self.state.orphan_hosts(vm.uid.0);
        let Some(host) = hosts.find(|host| !removes(host)) else {
            return self.examine_start(vm, kind);
        };
        let vm = &vm.name;
        let message = format!("host {host} has a guest of vm {vm} since before the recovery");
        Err(
            Refusal::new(Code::FailedPrecondition, GUEST_RUNS_TWICE, message)
                .with_hint(format!(
                    "remove the guest there with virsh, and wait until `berth host show {host}` does not \
                     list it"
                ))
                .with("vm", vm)
                .with("host", host),
        )
    }

    /// Refuses to start a guest on a host whose guests are not known, or on what an orphan there has too.
    fn examine_start(&self, vm: &Vm, kind: &Kind) -> Result<(), Refusal> {
        let view = vm.host.as_ref().and_then(|host| self.state.host(host));
        let starts = matches!(
            kind,
            Kind::Start | Kind::Reboot { .. } | Kind::Rebuild { .. }
        );
        let (Some(view), Some(claim), true) = (view, vm.claim, starts) else {
            return Ok(());
        };
        if view.host.unreported {
            let name = &view.host.name;
            let refusal = Violation::Unreported.to_refusal(name);
            return Err(refusal.with_hint(format!("start the compute agent of host {name} again")));
        }
        let mut orphans = (view.holders()).filter(|d| view.host.orphans.contains(&d.uuid));
        let other = orphans.find(|domain| overlaps(self.state, claim, &domain.held));
        match other {
            None => Ok(()),
            Some(other) => {
                let (vm, host, guest) = (&vm.name, &view.host.name, &other.name);
                let message = format!(
                    "unknown guest {guest} on host {host} has CPUs or devices of vm {vm} since before \
                     the recovery"
                );
                Err(
                    Refusal::new(Code::FailedPrecondition, "HELD_BY_UNKNOWN_GUEST", message)
                        .with_hint(format!(
                            "remove guest {guest} there with virsh, and wait until `berth host show \
                             {host}` does not list it"
                        ))
                        .with("vm", vm)
                        .with("host", host),
                )
            }
        }
    }
}

impl State {
    /// Returns the hosts that have an orphan of this UUID, in the order of their names.
    fn orphan_hosts(&self, uuid: Uuid) -> impl Iterator<Item = &HostName> + '_ {
        let first = self.hosts.get_min().map(|(name, _)| (uuid, name.clone()));
        let from = first.map_or(Bound::Unbounded, Bound::Included);
        let entries = self.index.orphans.range((from, Bound::Unbounded));
        let entries = entries.take_while(move |(of, _)| *of == uuid);
        entries.map(|(_, host)| host)
    }

    /// Returns whether a domain is on the claim of its VM.
    fn is_claimed(&self, host: &HostName, domain: &Unknown) -> bool {
        let claim = domain.claim.and_then(|id| self.claim(id));
        claim.is_some_and(|claim| {
            let vm = self.vm(&claim.vm);
            claim.is_in_use()
                && claim.host == *host
                && vm.is_some_and(|vm| vm.uid.0 == domain.uuid && vm.claim == Some(claim.id))
        })
    }

    /// Returns whether a guest that no claim is for is of no use: its VM runs elsewhere, and it is off, or
    /// it was proven to be.
    fn is_stale(&self, host: &Host, guest: &ReportedGuest) -> bool {
        let vm = self.vm_of_domain(VmUid(guest.domain.uuid), &guest.domain.name);
        let runs = vm.is_some_and(|vm| {
            let is_elsewhere = vm.host.as_ref().is_some_and(|at| *at != host.name);
            is_elsewhere && matches!(vm.state, VmState::Active | VmState::Migrating)
        });
        runs && (!is_live(guest.state) || host.fenced.is_some())
    }

    /// Returns the VM of a domain.
    pub(super) fn vm_of_domain(&self, uid: VmUid, name: &str) -> Option<&Arc<Vm>> {
        let vm = self.vm(&VmName::new(name).ok()?)?;
        (vm.uid == uid).then_some(vm)
    }
}
