//! Drains of hosts: begun with a cordon, recorded VM by VM, and ended by the last record.
//!
//! The conductor says which VM it moves next and which it looks at; what became of a VM is read from
//! the claims here, never taken from its word. A move and its record in the drain are one command: a
//! conductor that takes over finds every move that was begun. (Repeating the request under one
//! request id would not do: receipts belong to the principal, which is another one then.)
//!
//! Invariant: a running drain has a VM that waits or moves, and its host is cordoned.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::fence::may_evacuate;
use berth_domain::host::{Host, Liveness};
use berth_domain::id::{Epoch, OperationId, VmUid};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::drain::{
    ATTEMPTS_MAX, BY_MAX, DRAINED_MAX, Drain, DrainSpec, DrainedVm, Progress, attempts_max,
    shortened,
};
use berth_domain::operation::{Kind, Operation, Outcome, Subject};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_domain::vm::Vm;

use super::lease::{done, fence};
use super::restart::may_start_elsewhere;
use crate::command::{Command, LeaseRequest, PlannedVm};
use crate::refusals::{cluster_too_old, host_is_drained, invalid, precondition};
use crate::reply::Reply;
use crate::state::State;
use crate::transaction::{Journal, Transaction};

/// What a drain begins with.
pub(super) struct Begin<'a> {
    pub(super) operation: OperationId,
    pub(super) host: &'a HostName,
    pub(super) spec: DrainSpec,
    pub(super) by: &'a str,
    pub(super) plan: &'a [PlannedVm],
    pub(super) lease: &'a LeaseRequest,
}

impl State {
    /// Returns the running drain of a host.
    #[must_use]
    pub fn drain_of(&self, host: &HostName) -> Option<&Operation> {
        let drains = |operation: &Operation| operation.drain().is_some_and(|d| d.host == *host);
        let mut running = self.running_operations().map(|operation| &**operation);
        running.find(|operation| drains(operation))
    }

    /// Checks whether the VMs of a host can be moved away by its agent.
    ///
    /// # Errors
    ///
    /// When VMs are on the host and its agent is silent: each move would be refused.
    pub fn examine_drain(&self, host: &Host) -> Result<(), Refusal> {
        let name = &host.name;
        let mut vms = self.vms_held(name).into_keys();
        let is_there = |vm| {
            self.vm(&vm)
                .is_some_and(|vm| vm.host.as_ref() == Some(name))
        };
        if host.liveness == Liveness::Up || !vms.any(is_there) {
            return Ok(());
        }
        if let Some(drain) = self.drain_of(name) {
            return Err(host_is_drained(name, drain.id));
        }
        let message = format!("host {name} is DOWN, and its agent moves no vms away");
        Err(precondition("HOST_DOWN", message)
            .with_hint(self.how_vms_leave(host))
            .with("host", name))
    }

    /// Returns how an operator gets the VMs away that are on a host.
    pub(super) fn how_vms_leave(&self, host: &Host) -> String {
        let name = &host.name;
        match (host.liveness, may_evacuate(host, self.time())) {
            (Liveness::Up, _) => format!("`berth host drain {name}` moves its vms away"),
            (Liveness::Down, Ok(_)) => {
                format!("`berth host evacuate {name}` starts its vms elsewhere")
            }
            (Liveness::Down, Err(_)) => format!(
                "bring its agent back; if the host is dead: `berth host fence {name}`, then \
                 `berth host evacuate {name}`"
            ),
        }
    }

    /// Returns the VMs of which the host has a claim in use: those that are there, those that come to
    /// it, and those that are RESIZED elsewhere and may return.
    fn vms_held(&self, host: &HostName) -> BTreeMap<VmName, VmUid> {
        let claims = self.claims_of_host(host).filter(|claim| claim.is_in_use());
        let vms = claims.filter_map(|claim| self.vm(&claim.vm));
        vms.map(|vm| (vm.name.clone(), vm.uid)).collect()
    }

    fn is_held(&self, host: &HostName, vm: &VmName) -> bool {
        let mut claims = self.claims_of_vm(vm);
        claims.any(|claim| claim.host == *host && claim.is_in_use())
    }
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn begin_drain(&mut self, begin: &Begin<'_>) -> Result<Reply, Refusal> {
        let host = begin.host;
        if !self.may_write(ServiceVersion::DRAINS) {
            let present = self.state.header.cluster_version;
            let needed = ServiceVersion::DRAINS;
            return Err(cluster_too_old("a drain as an operation", present, needed));
        }
        if begin.by.len() > BY_MAX {
            let message = format!("who requested a drain has at most {BY_MAX} bytes");
            return Err(invalid("INVALID_DRAIN", message));
        }
        let view = self.state.host(host);
        let view = view.ok_or_else(|| Refusal::not_found("host", host))?;
        if let Some(other) = self.state.drain_of(host) {
            return Err(host_is_drained(host, other.id));
        }
        match begin.spec.evacuate {
            true => may_evacuate(&view.host, self.now()).map(drop)?,
            false if begin.spec.by_policy => return Err(not_evacuated()),
            false => self.state.examine_drain(&view.host)?,
        }
        let was_cordoned = view.host.cordoned;
        self.examine_new_operation(begin.operation, begin.lease)?;
        let mut vms = self.in_order(host, begin.plan, begin.spec.by_policy);
        if begin.spec.by_policy {
            // The others are due when this one has ended.
            vms.truncate(DRAINED_MAX);
        }
        if vms.len() > DRAINED_MAX {
            let message = format!(
                "host {host} holds {} vms, and one drain moves at most {DRAINED_MAX}",
                vms.len()
            );
            return Err(precondition("TOO_MANY_VMS", message)
                .with_hint("move or delete some of them first")
                .with("host", host));
        }
        self.change_host(host, |host| host.cordon(Some(begin.operation)))?;
        let drain = Drain {
            host: host.clone(),
            by: begin.by.to_owned(),
            was_cordoned,
            vms,
        };
        let operation = self.new_operation_on(
            begin.operation,
            Kind::DrainHost(begin.spec),
            Subject::Drain(Box::new(drain.clone())),
            begin.lease,
        );
        Ok(self.settle_drain(operation, drain))
    }

    /// Returns the VMs of a host in the order of a plan; those that it lacks come last. By policy, only
    /// those that are started elsewhere by theirs.
    fn in_order(&self, host: &HostName, plan: &[PlannedVm], by_policy: bool) -> Vec<DrainedVm> {
        let mut held = match by_policy {
            true => {
                let vms = self.state.restarted_elsewhere(host, self.now());
                vms.map(|vm| (vm.name.clone(), vm.uid)).collect()
            }
            false => self.state.vms_held(host),
        };
        let mut vms = Vec::with_capacity(held.len());
        for PlannedVm { vm, place } in plan {
            if let Some(uid) = held.remove(vm) {
                vms.push(DrainedVm::new(vm.clone(), uid, place.clone()));
            }
        }
        let rest = held.into_iter();
        vms.extend(rest.map(|(vm, uid)| DrainedVm::new(vm, uid, None)));
        vms
    }

    /// Begins a move and records it in its drain.
    pub(super) fn move_drained(
        &mut self,
        id: OperationId,
        epoch: Epoch,
        begin: &Command,
    ) -> Result<Reply, Refusal> {
        let (operation, mut drain) = self.running_drain(id, epoch)?;
        let (Command::BeginMigration { vm, .. } | Command::BeginMove { vm, .. }) = begin else {
            return Err(invalid("INVALID_DRAIN", "a drain begins moves only"));
        };
        let Some(at) = drain.vms.iter().position(|drained| drained.vm == *vm) else {
            return Err(not_drained(&operation, &drain, vm));
        };
        match &drain.vms[at].progress {
            Progress::Waiting => {}
            // The answer to an earlier request was lost.
            Progress::Moving { operation } => {
                let known = self.state.operation(*operation).cloned();
                let known = known.ok_or_else(|| Refusal::not_found("operation", operation))?;
                return Ok(Reply::Operation(known));
            }
            Progress::Moved { .. } | Progress::Gone | Progress::Stays { .. } => {
                let message = format!("vm {vm} does not wait to be moved away from {}", drain.host);
                return Err(precondition("VM_NOT_WAITING", message).with("vm", vm));
            }
        }
        if operation.cancelled {
            let message = format!("drain {id} is cancelled and begins no more moves");
            return Err(precondition("DRAIN_CANCELLED", message).with("operation", id));
        }
        let known = self.state.vm(vm);
        let rests = known.is_some_and(|vm| vm.operation.is_none());
        if rests && !self.state.is_held(&drain.host, vm) {
            let message = format!("vm {vm} is not on host {}", drain.host);
            return Err(precondition("VM_NOT_ON_HOST", message).with("vm", vm));
        }
        let spec = operation.kind.drain();
        let by_policy = spec.is_some_and(|spec| spec.by_policy);
        if let Some(vm) = known.filter(|_| by_policy) {
            let refused = may_start_elsewhere(vm, self.now());
            refused.map_err(|why| why.with_hint(self.how_drained_leave(&drain.host)))?;
        }
        let parallel = spec.map_or(0, |spec| spec.parallel);
        if drain.moving().count() >= parallel as usize {
            let message = format!("drain {id} has {parallel} moves in progress already");
            return Err(precondition("TOO_MANY_MOVES", message).with("operation", id));
        }
        let reply = self.command(begin)?;
        let Reply::Operation(begun) = &reply else {
            return Err(Refusal::new(
                Code::Internal,
                "NO_OPERATION",
                "a move that begins is an operation",
            ));
        };
        drain.vms[at].progress = Progress::Moving {
            operation: begun.id,
        };
        if by_policy {
            self.count_restart(vm);
        }
        self.put_drain(operation, drain);
        Ok(reply)
    }

    /// Records what became of a VM; the last record ends the drain.
    pub(super) fn record_drained(
        &mut self,
        id: OperationId,
        epoch: Epoch,
        vm: &VmName,
        refusal: Option<&Refusal>,
    ) -> Result<Reply, Refusal> {
        let (operation, mut drain) = self.running_drain(id, epoch)?;
        let Some(at) = drain.vms.iter().position(|drained| drained.vm == *vm) else {
            return Err(not_drained(&operation, &drain, vm));
        };
        let moved_by = match &drain.vms[at].progress {
            Progress::Waiting => None,
            Progress::Moving { operation } => Some(*operation),
            // It was recorded, and the answer was lost.
            Progress::Moved { .. } | Progress::Gone | Progress::Stays { .. } => {
                return Ok(Reply::Operation(operation.into()));
            }
        };
        let mover = moved_by.and_then(|id| self.state.operation(id)).cloned();
        if mover.as_ref().is_some_and(|mover| !mover.is_done()) {
            let message = format!("vm {vm} is still being moved away from {}", drain.host);
            return Err(precondition("MOVE_RUNS", message).with("vm", vm));
        }
        let failed = mover.as_ref().and_then(|mover| match &mover.outcome {
            Some(Outcome::Failed(refusal)) => Some(refusal),
            Some(Outcome::Succeeded) | None => None,
        });
        let refusal = match moved_by {
            Some(_) => failed,
            None => refusal,
        };
        let attempts_max =
            refusal.map_or(ATTEMPTS_MAX, |why| attempts_max(why, moved_by.is_some()));
        self.evaluate(&drain.host, &mut drain.vms[at], refusal, attempts_max);
        Ok(self.settle_drain(operation, drain))
    }

    /// Sets what became of a VM that is not being moved any more.
    fn evaluate(
        &self,
        host: &HostName,
        drained: &mut DrainedVm,
        refusal: Option<&Refusal>,
        attempts_max: u32,
    ) {
        drained.progress = if self.state.is_held(host, &drained.vm) {
            drained.attempts += 1;
            let came_back = || {
                let message = format!("vm {} is on host {host} again", drained.vm);
                precondition("VM_CAME_BACK", message)
            };
            match drained.attempts < attempts_max {
                true => Progress::Waiting,
                false => Progress::Stays {
                    refusal: shortened(&refusal.cloned().unwrap_or_else(came_back)),
                },
            }
        } else {
            let same = |vm: &&Arc<Vm>| vm.uid == drained.uid;
            let vm = self.state.vm(&drained.vm).filter(same);
            match vm.and_then(|vm| vm.host.clone()) {
                Some(host) => Progress::Moved { host },
                None => Progress::Gone,
            }
        };
        if drained.progress != Progress::Waiting {
            drained.planned = None;
        }
    }

    /// Ends a drain that has nothing more to do, and writes it.
    pub(super) fn settle_drain(&mut self, mut operation: Operation, mut drain: Drain) -> Reply {
        if drain.moving().next().is_none() {
            let by_policy = operation.kind.drain().is_some_and(|spec| spec.by_policy);
            if !operation.cancelled && !by_policy && drain.waiting().next().is_none() {
                self.add_arrived(&mut drain);
            }
            if operation.cancelled || drain.waiting().next().is_none() {
                self.end_drain(&mut operation, &mut drain);
            }
        }
        self.put_drain(operation, drain)
    }

    /// Adds VMs that came to the host after the drain had begun: what was on its way then, or a move
    /// that was taken back. Nothing else comes to a cordoned host.
    fn add_arrived(&self, drain: &mut Drain) {
        for (vm, uid) in self.state.vms_held(&drain.host) {
            let known = drain.vms.iter_mut().find(|drained| drained.vm == vm);
            let Some(drained) = known else {
                if drain.vms.len() < DRAINED_MAX {
                    drain.vms.push(DrainedVm::new(vm, uid, None));
                }
                continue;
            };
            match drained.progress {
                Progress::Moved { .. } | Progress::Gone => {
                    self.evaluate(&drain.host, drained, None, ATTEMPTS_MAX);
                }
                Progress::Waiting | Progress::Moving { .. } | Progress::Stays { .. } => {}
            }
        }
    }

    fn end_drain(&mut self, operation: &mut Operation, drain: &mut Drain) {
        let by_policy = operation.kind.drain().is_some_and(|spec| spec.by_policy);
        let ends_cordon = operation.cancelled || by_policy;
        let uncordons = ends_cordon && self.has_cordoned(operation.id, &drain.host);
        if uncordons {
            let uncordoned = self.change_host(&drain.host, Host::uncordon);
            uncordoned.expect("a host is not removed while it is drained");
        }
        let host = &drain.host;
        let hint = match (by_policy, uncordons) {
            (true, _) => self.how_drained_leave(host),
            (false, true) => format!("host {host} is not cordoned any more"),
            (false, false) => {
                format!("host {host} stays cordoned; `berth host uncordon {host}` lifts it")
            }
        };
        let outcome = outcome_of(operation, drain, hint);
        for drained in &mut drain.vms {
            drained.planned = None;
            if let (Progress::Waiting, Outcome::Failed(refusal)) = (&drained.progress, &outcome) {
                let refusal = shortened(refusal);
                drained.progress = Progress::Stays { refusal };
            }
        }
        self.end(operation, outcome);
    }

    /// Returns how an operator gets the VMs away that an evacuation by policy leaves.
    fn how_drained_leave(&self, host: &HostName) -> String {
        let view = self.state.host(host);
        let view = view.expect("a host is not removed while it is drained");
        self.state.how_vms_leave(&view.host)
    }

    fn has_cordoned(&self, drain: OperationId, host: &HostName) -> bool {
        let view = self.state.host(host);
        view.is_some_and(|view| view.host.cordoned_by == Some(drain))
    }

    fn put_drain(&mut self, operation: Operation, drain: Drain) -> Reply {
        Reply::Operation(self.put_operation(Operation {
            subject: Subject::Drain(Box::new(drain)),
            ..operation
        }))
    }

    fn running_drain(&self, id: OperationId, epoch: Epoch) -> Result<(Operation, Drain), Refusal> {
        let operation = self.state.operation(id);
        let operation = operation.ok_or_else(|| Refusal::not_found("operation", id))?;
        let Some(drain) = operation.drain() else {
            let message = format!("operation {id} drains no host");
            return Err(precondition("NOT_A_DRAIN", message).with("operation", id));
        };
        if operation.is_done() {
            return Err(done(id));
        }
        fence(operation, epoch)?;
        Ok(((**operation).clone(), drain.clone()))
    }
}

/// By policy nothing is moved away from a host that is alive.
fn not_evacuated() -> Refusal {
    invalid("INVALID_DRAIN", "a drain by policy is an evacuation")
}

fn not_drained(operation: &Operation, drain: &Drain, vm: &VmName) -> Refusal {
    let message = format!(
        "vm {vm} is none of those that operation {} moves away from host {}",
        operation.id, drain.host
    );
    precondition("VM_NOT_DRAINED", message).with("vm", vm)
}

/// Returns how a drain has ended.
fn outcome_of(operation: &Operation, drain: &Drain, hint: String) -> Outcome {
    let host = &drain.host;
    let tally = drain.tally();
    let all = drain.vms.len();
    let left = tally.waiting + tally.stay;
    if operation.cancelled {
        let message =
            format!("the drain of host {host} was cancelled: {left} of its {all} vms stay");
        let refusal = Refusal::new(Code::Cancelled, "OPERATION_CANCELLED", message);
        return Outcome::Failed(refusal.with_hint(hint).with("host", host));
    }
    if left == 0 {
        return Outcome::Succeeded;
    }
    let message = format!("{left} of the {all} vms of host {host} were not moved");
    Outcome::Failed(
        precondition("VMS_STAY", message)
            .with_hint(hint)
            .with("host", host),
    )
}
