//! VMs whose guests are where the state has a claim for them, or nowhere.
//!
//! Where a guest is decides: its VM is there. A VM without a guest is STOPPED and keeps its claim,
//! unless a guest that runs has what it claims. What was in progress has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State as ClaimState};
use berth_domain::id::{ClaimId, MigrationId, VmUid};
use berth_domain::migration::{self, Migration};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::drain::Progress;
use berth_domain::operation::{Kind, Outcome, Subject};
use berth_domain::recovery::RecoveredHost;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{State as VmState, Vm, VmSpec};
use uuid::Uuid;

use super::adopt::Stray;
use super::left::GUEST_RUNS_TWICE;
use super::{Seat, is_here, is_live};
use crate::check::spec_of;
use crate::recovery::{Conflict, RecoveryOutcome, Replaced, Settled, is_dead};
use crate::request::CLUSTER_RESTORED;
use crate::transaction::{Journal, Transaction};

/// How far guests are settled. A cluster has hundreds of thousands, so that nothing here is searched from
/// end to end for one of them.
#[derive(Default)]
pub(super) struct Settling {
    /// The claims that VMs without guests keep. They give way to guests that run.
    pub(super) idle: BTreeSet<ClaimId>,
    /// The claims that guests run on as recorded, by the reports of all hosts.
    pub(super) running: BTreeSet<ClaimId>,
    /// All other guests of all hosts, those included of which a host only has a trace.
    pub(super) others: BTreeSet<Uuid>,
    /// Those of them that run.
    live: BTreeSet<Uuid>,
    /// The VMs that differ from the state.
    pub(super) settled: BTreeMap<VmName, Settled>,
    /// The VMs that are removed, as guests of others have their names.
    pub(super) replaced: Vec<Replaced>,
    /// What cannot be settled.
    pub(super) conflicts: Vec<Conflict>,
}

impl Settling {
    /// Returns what these hosts have reported, of which nothing is settled yet.
    pub(super) fn of_reports<'r>(reports: impl Iterator<Item = &'r Arc<RecoveredHost>>) -> Self {
        let mut settling = Self::default();
        let mut running = Vec::new();
        for report in reports {
            running.extend(&report.running);
            for guest in &report.others {
                settling.others.insert(guest.domain.uuid);
                if is_live(guest.state) {
                    settling.live.insert(guest.domain.uuid);
                }
            }
        }
        // Made at once: inserted one by one each would be searched for.
        settling.running = running.into_iter().copied().collect();
        settling
    }

    /// Returns whether a VM runs on its claim by the reports, nowhere else, and nothing is in progress.
    fn is_at_rest(&self, vm: &Vm) -> bool {
        vm.state == VmState::Active
            && vm.operation.is_none()
            && vm.error.is_none()
            && vm.trouble.is_none()
            && vm.remains_on.is_none()
            && vm.claim.is_some_and(|own| self.running.contains(&own))
            && !self.others.contains(&vm.uid.0)
    }

    /// Returns whether a host runs the guest of a VM.
    pub(super) fn has_live(&self, vm: &Vm) -> bool {
        let runs = vm.claim.is_some_and(|claim| self.running.contains(&claim));
        runs || self.live.contains(&vm.uid.0)
    }

    /// Returns whether a host has the guest of a VM, or a trace of it.
    pub(super) fn has(&self, vm: &Vm) -> bool {
        self.has_live(vm) || self.others.contains(&vm.uid.0)
    }

    /// Notes how a VM differs, instead of what was noted of it before.
    pub(super) fn note(&mut self, settled: Settled) {
        self.settled.insert(settled.vm().clone(), settled);
    }

    fn into_outcome(self) -> RecoveryOutcome {
        let settled = self.settled.into_values();
        let replaced = self.replaced.into_iter().map(Settled::Replaced);
        RecoveryOutcome {
            settled: settled.chain(replaced).collect(),
            conflicts: self.conflicts,
        }
    }
}

impl<J: Journal> Transaction<'_, J> {
    /// Settles every guest as the hosts have reported.
    pub(crate) fn settle_recovery(&mut self) -> RecoveryOutcome {
        let reports = self.reports();
        let mut settling = Settling::of_reports(self.state.recovered_hosts.values());
        let vms = self.changed_vms(&settling);
        let mut seats = self.seats_of(&vms, &reports);
        self.end_drains();
        let mut strays = Vec::new();
        for vm in vms {
            let of_vm = seats.remove(&vm.uid).unwrap_or_default();
            match &preferred(of_vm)[..] {
                [] => {
                    let kept = self.leave_off(&vm, &mut settling);
                    settling.idle.extend(kept);
                }
                [seat] => match self.own_claim(&vm, seat) {
                    Some(claim) => self.keep_on(&vm, claim, seat.is_live, &mut settling),
                    None => {
                        self.unbind(&vm, None);
                        strays.push(Stray::of_vm(&vm, seat.clone()));
                    }
                },
                several => {
                    let hosts = several.iter().map(|seat| seat.host.clone()).collect();
                    self.leave_twice(&vm, hosts, &mut settling);
                }
            }
        }
        for stray in strays {
            self.adopt(stray, &mut settling);
        }
        for (uid, seats) in seats {
            self.add(uid, &preferred(seats), &mut settling);
        }
        for report in &reports {
            self.record_left(report);
        }
        settling.into_outcome()
    }

    /// Returns the VMs that are to be settled: not those, nearly all, whose only guest runs on their only claim
    /// with nothing in progress. [`Self::keep_on`] would leave these as they are, after copying much of it.
    fn changed_vms(&self, settling: &Settling) -> Vec<Arc<Vm>> {
        // In the order of VMs too, so that none is searched for.
        let mut claims = self.state.index.vm_claims.iter().peekable();
        let mut changed = Vec::new();
        for vm in self.state.vms.values() {
            while claims.next_if(|(of, _)| *of < vm.name).is_some() {}
            let mut is_unchanged = settling.is_at_rest(vm);
            while let Some((_, claim)) = claims.next_if(|(of, _)| *of == vm.name) {
                is_unchanged = is_unchanged && self.is_as_recorded(vm, *claim);
            }
            if !is_unchanged {
                changed.push(vm.clone());
            }
        }
        changed
    }

    /// Returns whether a claim of a VM that is at rest is the one on which it runs, or is not in use.
    fn is_as_recorded(&self, vm: &Vm, id: ClaimId) -> bool {
        let Some(claim) = self.state.claim(id) else {
            return true;
        };
        match vm.claim == Some(id) {
            true => {
                let is_active = claim.owner == Owner::Vm && claim.state == ClaimState::Active;
                let is_there = !self.state.index.dead.contains(&claim.host);
                is_active && is_there && vm.host.as_ref() == Some(&claim.host)
            }
            false => !claim.is_in_use(),
        }
    }

    /// Returns where the guests of these VMs are, and those of which no VM has the UUID.
    fn seats_of(
        &self,
        vms: &[Arc<Vm>],
        reports: &[Arc<RecoveredHost>],
    ) -> BTreeMap<VmUid, Vec<Seat>> {
        let by_host: BTreeMap<&HostName, _> = reports.iter().map(|r| (&r.host, r)).collect();
        let mut seats: BTreeMap<VmUid, Vec<Seat>> = BTreeMap::new();
        for vm in vms {
            for claim in self.state.claims_of_vm(&vm.name) {
                let report = by_host.get(&claim.host);
                if report.is_some_and(|report| report.running.contains(&claim.id)) {
                    let seat = Seat::on_claim(&claim.host, vm, claim.id);
                    seats.entry(vm.uid).or_default().push(seat);
                }
            }
        }
        for report in reports {
            add_others(report, &mut seats);
        }
        for seats in seats.values_mut() {
            seats.sort_by(|one, other| one.host.cmp(&other.host));
        }
        seats
    }

    /// Returns where all guests of one host are: there.
    pub(super) fn seats_on(&self, report: &RecoveredHost) -> BTreeMap<VmUid, Vec<Seat>> {
        let mut seats: BTreeMap<VmUid, Vec<Seat>> = BTreeMap::new();
        for id in &report.running {
            let claim = self.state.claim(*id);
            if let Some(vm) = claim.and_then(|claim| self.state.vm(&claim.vm)) {
                let seat = Seat::on_claim(&report.host, vm, *id);
                seats.entry(vm.uid).or_default().push(seat);
            }
        }
        add_others(report, &mut seats);
        seats
    }

    /// Returns the reports of the hosts that are not dead.
    fn reports(&self) -> Vec<Arc<RecoveredHost>> {
        let is_there = |report: &&Arc<RecoveredHost>| {
            let view = self.state.host(&report.host);
            view.is_some_and(|view| !is_dead(&view.host))
        };
        let reports = self.state.recovered_hosts.values();
        reports.filter(is_there).cloned().collect()
    }

    /// Returns the claim of the VM that a guest is on, with what it holds.
    pub(super) fn own_claim(&self, vm: &Vm, seat: &Seat) -> Option<ClaimId> {
        let claim = self.state.claim(seat.claim?)?;
        let holds = seat.held.as_ref();
        let is_own = claim.is_in_use()
            && claim.vm == vm.name
            && claim.host == seat.host
            && holds.is_none_or(|held| *held == claim.assignment);
        is_own.then_some(claim.id)
    }

    /// Returns the size that the VM has on a claim.
    fn spec_at(&self, vm: &Vm, claim: ClaimId) -> VmSpec {
        let claim = self.state.claim(claim);
        let spec = claim.and_then(|claim| spec_of(self.state, claim));
        spec.unwrap_or(&vm.spec).clone()
    }

    /// Ends what worked on a VM and takes from it all claims but one, which is its own from here on.
    pub(super) fn unbind(&mut self, vm: &Vm, kept: Option<ClaimId>) {
        self.end_work_on(vm);
        for migration in self.open_migrations(vm) {
            let arrived = kept.is_some() && kept == migration.destination_claim;
            let state = match (arrived, migration.state) {
                (true, _) => migration::State::Completed,
                (false, migration::State::Verifying) => migration::State::Reverted,
                (false, _) => migration::State::Failed,
            };
            let error = (state == migration::State::Failed).then(interrupted);
            self.end_migration(&migration, state, error);
        }
        let claims: Vec<Arc<Claim>> = self.state.claims_of_vm(&vm.name).cloned().collect();
        for claim in claims.iter().filter(|claim| claim.is_in_use()) {
            if Some(claim.id) != kept {
                self.release(claim.id);
            } else if claim.owner != Owner::Vm || claim.state != ClaimState::Active {
                self.put_claim(Claim {
                    owner: Owner::Vm,
                    state: ClaimState::Active,
                    ..(**claim).clone()
                });
            }
        }
    }

    /// Returns the migrations of a VM that have not ended: its operation carries one out, or a claim is
    /// kept for one.
    fn open_migrations(&self, vm: &Vm) -> Vec<Arc<Migration>> {
        let operation = vm.operation.and_then(|id| self.state.operation(id));
        let carried = operation.and_then(|operation| operation.kind.migration());
        let claims = self.state.claims_of_vm(&vm.name);
        let kept = claims.filter_map(|claim| match claim.owner {
            Owner::Migration(id) => Some(id),
            Owner::Vm => None,
        });
        let ids: BTreeSet<MigrationId> = carried.into_iter().chain(kept).collect();
        let migrations = ids.into_iter().filter_map(|id| self.state.migration(id));
        let open = migrations.filter(|m| m.vm == vm.name && !m.state.is_ended());
        open.cloned().collect()
    }

    fn end_work_on(&mut self, vm: &Vm) {
        if let Some(operation) = vm.operation.and_then(|id| self.state.operation(id)) {
            let mut operation = (**operation).clone();
            self.end(&mut operation, Outcome::Failed(interrupted()));
            self.put_operation(operation);
        }
    }

    /// The guest is on a claim of its VM.
    pub(super) fn keep_on(
        &mut self,
        vm: &Vm,
        claim: ClaimId,
        is_live: bool,
        settling: &mut Settling,
    ) {
        if vm.state == VmState::Resized && vm.claim == Some(claim) {
            self.stand(vm);
            return;
        }
        let state = match is_live {
            true => VmState::Active,
            false => VmState::Stopped,
        };
        let spec = self.spec_at(vm, claim);
        let host = self.state.claim(claim).map(|claim| claim.host.clone());
        let was = (vm.state, vm.claim, vm.operation);
        self.unbind(vm, Some(claim));
        let mut after = Vm {
            spec,
            state,
            host: host.clone(),
            claim: Some(claim),
            remains_on: None,
            operation: None,
            error: None,
            ..vm.clone()
        };
        after.trouble.take_if(|_| is_live);
        if after == *vm {
            return;
        }
        after.generation = vm.generation.next();
        self.put_vm(after);
        if was == (state, Some(claim), None) {
            return;
        }
        let vm = vm.name.clone();
        settling.note(match host.filter(|_| is_live) {
            Some(host) => Settled::Runs { vm, host },
            None => Settled::Off { vm },
        });
    }

    /// What worked on a VM ends, and nothing else changes.
    fn stand(&mut self, vm: &Vm) {
        if vm.operation.is_none() {
            return;
        }
        self.end_work_on(vm);
        self.put_vm(Vm {
            operation: None,
            generation: vm.generation.next(),
            ..vm.clone()
        });
    }

    /// No host has the guest. Returns the claim that its VM keeps.
    fn leave_off(&mut self, vm: &Vm, settling: &mut Settling) -> Option<ClaimId> {
        let operation = vm.operation.and_then(|id| self.state.operation(id));
        let is_rebuilt = operation.is_some_and(|o| matches!(o.kind, Kind::Rebuild { .. }));
        match vm.state {
            // A rebuild that was interrupted leaves disks of which nothing is known.
            _ if is_rebuilt => {
                self.unbind(vm, vm.claim);
                let failed = self.fail(vm, vm.claim, None, interrupted());
                settling.note(failed);
                vm.claim
            }
            VmState::Resized | VmState::Error => {
                self.stand(vm);
                vm.claim
            }
            VmState::Active | VmState::Migrating | VmState::Stopped => {
                self.leave_at_host(vm, settling);
                vm.claim
            }
            VmState::Shelved => {
                if vm.operation.is_some() {
                    self.unbind(vm, None);
                    self.put_vm(Vm {
                        host: None,
                        claim: None,
                        operation: None,
                        generation: vm.generation.next(),
                        ..vm.clone()
                    });
                }
                None
            }
            VmState::Building | VmState::Deleting => {
                let remains_on = vm.host.clone().or_else(|| vm.remains_on.clone());
                self.unbind(vm, None);
                let failed = self.fail(vm, None, remains_on, interrupted());
                settling.note(failed);
                None
            }
        }
    }

    /// A VM that may have run keeps its claim. With a host that is dead it stays as it was recorded: it
    /// can be started elsewhere, as the VMs of each dead host can.
    fn leave_at_host(&mut self, vm: &Vm, settling: &mut Settling) {
        let view = vm.host.as_ref().and_then(|host| self.state.host(host));
        let is_lost = view.is_some_and(|view| is_dead(&view.host));
        let state = match is_lost && vm.state != VmState::Stopped {
            true => VmState::Active,
            false => VmState::Stopped,
        };
        self.unbind(vm, vm.claim);
        if (vm.state, vm.operation) == (state, None) {
            return;
        }
        self.put_vm(Vm {
            state,
            operation: None,
            generation: vm.generation.next(),
            ..vm.clone()
        });
        if state == VmState::Stopped {
            let vm = vm.name.clone();
            settling.note(Settled::Off { vm });
        }
    }

    /// Several hosts have the guest: its VM stays where it is recorded, in ERROR.
    pub(super) fn leave_twice(&mut self, vm: &Vm, hosts: Vec<HostName>, settling: &mut Settling) {
        self.unbind(vm, vm.claim);
        let names: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        let message = format!("hosts {} have guests of vm {}", names.join(", "), vm.name);
        let why = Refusal::new(Code::FailedPrecondition, GUEST_RUNS_TWICE, message);
        let why = why.with_hint(match &vm.host {
            Some(host) => format!(
                "remove the guest on the others with virsh, then `berth vm start {}`: it is recorded on \
                 host {host}",
                vm.name
            ),
            None => "remove all of them with virsh, then delete the VM".to_owned(),
        });
        self.fail(vm, vm.claim, vm.remains_on.clone(), why);
        let vm = vm.name.to_string();
        settling.conflicts.push(Conflict::Twice { vm, hosts });
    }

    /// Puts a VM into ERROR, with the claim that it keeps.
    pub(super) fn fail(
        &mut self,
        vm: &Vm,
        kept: Option<ClaimId>,
        remains_on: Option<HostName>,
        why: Refusal,
    ) -> Settled {
        let host = kept.and_then(|id| self.state.claim(id));
        let host = host.map(|claim| claim.host.clone());
        self.put_vm(Vm {
            state: VmState::Error,
            claim: host.as_ref().and(kept),
            host,
            remains_on,
            operation: None,
            error: Some(why.clone()),
            generation: vm.generation.next(),
            ..vm.clone()
        });
        Settled::Failed {
            vm: vm.name.clone(),
            refusal: Box::new(why),
        }
    }

    fn end_drains(&mut self) {
        let running = self.state.running_operations();
        let drains: Vec<_> = running.filter(|o| o.drain().is_some()).cloned().collect();
        for operation in drains {
            let Some(mut drain) = operation.drain().cloned() else {
                continue;
            };
            for drained in &mut drain.vms {
                drained.planned = None;
                match drained.progress {
                    Progress::Waiting | Progress::Moving { .. } => {
                        drained.progress = Progress::Stays {
                            refusal: interrupted(),
                        };
                    }
                    Progress::Moved { .. } | Progress::Gone | Progress::Stays { .. } => {}
                }
            }
            let mut operation = (*operation).clone();
            operation.subject = Subject::Drain(Box::new(drain));
            self.end(&mut operation, Outcome::Failed(interrupted()));
            self.put_operation(operation);
        }
    }
}

/// Adds the guests of a host that are not on a claim of it.
fn add_others(report: &RecoveredHost, seats: &mut BTreeMap<VmUid, Vec<Seat>>) {
    let others = report.others.iter().filter(|guest| is_here(guest.state));
    for guest in others {
        let uid = VmUid(guest.domain.uuid);
        seats.entry(uid).or_default().push(Seat {
            host: report.host.clone(),
            name: guest.domain.name.clone(),
            claim: guest.domain.claim,
            held: Some(guest.domain.held.clone()),
            spec: guest.spec.clone(),
            is_live: is_live(guest.state),
        });
    }
}

/// Returns those that count: guests that run, or else those that are off.
fn preferred(seats: Vec<Seat>) -> Vec<Seat> {
    let is_any_live = seats.iter().any(|seat| seat.is_live);
    let counting = seats.into_iter();
    counting
        .filter(|seat| seat.is_live == is_any_live)
        .collect()
}

/// Why an operation that was in progress has ended.
fn interrupted() -> Refusal {
    let message = "the cluster was recovered while the operation was in progress";
    Refusal::new(Code::Aborted, CLUSTER_RESTORED, message)
}
