//! Restarts by policy: how they begin, how they are counted, and when a VM is given up.
//!
//! Not here: which are due, which is [`State::due_restarts`](crate::State::due_restarts); and their
//! steps, which are those of a start or an evacuation that a user requests.
//!
//! A guest whose restarts are used up is off, with its disks whole and its claim its own. So its VM is
//! STOPPED, not in ERROR, where only a rebuild or a deletion would lead on: what a user does next
//! is to start it.

use berth_domain::fault;
use berth_domain::id::{OperationId, TimeMs};
use berth_domain::name::VmName;
use berth_domain::operation::Kind;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::{Due, Event, RestartPolicy, Vm};

use super::operation::transition;
use crate::command::LeaseRequest;
use crate::refusals::{invalid, precondition, vm_busy};
use crate::reply::Reply;
use crate::restart::is_restarted_elsewhere;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn set_restart_policy(
        &mut self,
        name: &VmName,
        policy: RestartPolicy,
    ) -> Result<Reply, Refusal> {
        let vm = self.state.vm(name).cloned();
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        examine_policy(&policy)?;
        if vm.restarts.policy == policy {
            return Ok(Reply::None);
        }
        let mut after = Vm {
            generation: vm.generation.next(),
            ..(*vm).clone()
        };
        after.restarts.policy = policy;
        self.put_vm(after);
        Ok(Reply::None)
    }

    /// Begins to start a guest that was found not to run, or gives it up.
    pub(super) fn restart_by_policy(
        &mut self,
        id: OperationId,
        name: &VmName,
        kind: &Kind,
        lease: &LeaseRequest,
    ) -> Result<Reply, Refusal> {
        if *kind != Kind::Start {
            return Err(invalid("KIND_NOT_ALLOWED", "a restart policy only starts"));
        }
        let vm = self.state.vm(name).cloned();
        let vm = vm.ok_or_else(|| Refusal::not_found("vm", name))?;
        if let Some(operation) = vm.operation {
            return Err(vm_busy(name, operation));
        }
        let due = vm.trouble.as_ref();
        match due.map_or(Due::Never, |t| vm.restarts.due_after(t, self.now())) {
            Due::At(at) if at <= self.now() => {
                let reply = self.begin_power(id, name, kind, lease)?;
                self.count_restart(name);
                Ok(reply)
            }
            Due::UsedUp => self.leave_stopped(&vm),
            Due::At(at) => Err(not_due(name, Some(at))),
            Due::Never => Err(not_due(name, None)),
        }
    }

    /// Counts a restart that has begun.
    pub(super) fn count_restart(&mut self, name: &VmName) {
        let vm = self.state.vm(name).expect("it is being started");
        let mut after = (**vm).clone();
        after.restarts.record(self.now());
        self.put_vm(after);
    }

    /// Forgets the restarts of a VM that a user has started.
    pub(super) fn reset_restarts(&mut self, name: &VmName) {
        let vm = self.state.vm(name).expect("it is being started");
        let mut after = (**vm).clone();
        after.restarts.reset();
        if after != **vm {
            self.put_vm(after);
        }
    }

    fn leave_stopped(&mut self, vm: &Vm) -> Result<Reply, Refusal> {
        let mut after = Vm {
            state: transition(vm, Event::PoweredOff)?,
            generation: vm.generation.next(),
            ..vm.clone()
        };
        after.restarts.gave_up_at = Some(self.now());
        self.put_vm(after);
        Ok(Reply::None)
    }
}

/// Refuses numbers that are out of their bounds.
pub(super) fn examine_policy(policy: &RestartPolicy) -> Result<(), Refusal> {
    match policy.faults() {
        faults if faults.is_empty() => Ok(()),
        faults => Err(fault::refusal("restart_policy", &faults)),
    }
}

/// Refuses to start a VM elsewhere of which the policy does not say so, or not any more.
pub(super) fn may_start_elsewhere(vm: &Vm, now: TimeMs) -> Result<(), Refusal> {
    match (is_restarted_elsewhere(vm), vm.restarts.permits(now)) {
        (false, _) => Err(not_due(&vm.name, None)),
        (true, false) => Err(used_up(vm)),
        (true, true) => Ok(()),
    }
}

fn not_due(vm: &VmName, at: Option<TimeMs>) -> Refusal {
    let when = match at {
        Some(_) => "yet",
        None => "by its policy",
    };
    precondition(
        "RESTART_NOT_DUE",
        format!("vm {vm} is not to be started again {when}"),
    )
    .with("vm", vm)
}

/// Refuses one more restart within the hour.
fn used_up(vm: &Vm) -> Refusal {
    let (count, most) = (vm.restarts.begun_at.len(), vm.restarts.policy.per_hour_max);
    let name = &vm.name;
    Refusal::new(
        Code::FailedPrecondition,
        "RESTARTS_USED_UP",
        format!("vm {name} was started again {count} times within an hour, and its policy permits {most}"),
    )
    .with("vm", name)
}
