//! Drain plans: the destination of each VM of a host, in order, if all were moved now.
//!
//! The VMs of a dead host follow the plan that proves that the failure is survived (see
//! [`super::verify`]), if there is one: chosen one by one, the first could take the only place of the
//! last.
//!
//! And the moves of a drain that has begun: how a VM is moved is chosen when its move begins.
//!
//! Pure: each move is decided on a copy of the state in which the earlier ones are claimed already,
//! as the real ones will be. A plan claims nothing; each move is decided again when it is made,
//! since other requests claim meanwhile.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner};
use berth_domain::fence::may_evacuate;
use berth_domain::id::{ClaimId, MigrationId, OperationId, TimeMs};
use berth_domain::migration;
use berth_domain::name::{HostName, ServiceName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::operation::{DrainedVm, Kind, LeaseRequest, Operation, Progress};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ResourceClass;
use berth_domain::transfer::TransferOverrides;
use berth_domain::vm::{self, Vm};
use berth_selection::failover::{Budget, Plan};
use berth_state::State;
use berth_state::command::{Command, Envelope};
use uuid::Uuid;

use super::chooser::{Chooser, Unschedulable};
use super::decide::decide;
use super::decision::Decision;
use super::request::{
    Action, DecisionRequest, MoveDrained, Preferred, ScheduleMigration, ScheduleMove,
};
use super::schedule::{Scheduled, holds_lease, known_vm};
use super::upgrade::Admit;
use super::verify::plan_of_host;
use super::{reschedule, schedule};

/// One move of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The VM.
    pub vm: VmName,
    /// The kind of migration.
    pub how: migration::Kind,
    /// The destination.
    pub destination: HostName,
    /// Its assignment there.
    pub assignment: Assignment,
}

/// A VM that cannot be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The VM.
    pub vm: VmName,
    /// The reason.
    pub refusal: Refusal,
}

/// How the VMs of a host are moved away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainOptions {
    /// The host is dead, and its VMs are started elsewhere.
    pub evacuate: bool,
    /// VMs that cannot be moved while they run are stopped, moved and started.
    pub cold: bool,
    /// Only the VMs of a dead host that their restart policy starts elsewhere, those with the highest
    /// priority first.
    pub by_policy: bool,
}

/// The plan of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// The moves in order: the most demanding VMs first, while there is most headroom.
    pub moves: Vec<PlannedMove>,
    /// The VMs that cannot be moved.
    pub stuck: Vec<Stuck>,
}

/// Plans to move every VM away from a host: while it runs, where it runs, and otherwise stopped, if
/// that is permitted; or, if the host is dead, by starting it elsewhere.
///
/// # Errors
///
/// When the host is not known, or when none of its VMs could be moved: they are to be started elsewhere
/// and nothing proves that it is dead, or its agent is silent.
pub fn plan_drain(
    state: &State,
    admit: Admit,
    at: TimeMs,
    host: &HostName,
    options: DrainOptions,
) -> Result<DrainPlan, Refusal> {
    let view = state.host(host);
    let view = view.ok_or_else(|| Refusal::not_found("host", host))?;
    match options.evacuate {
        true => may_evacuate(&view.host, at).map(drop)?,
        false => state.examine_drain(&view.host)?,
    }
    let mut future = closed(state, at, host)?;
    let mut plan = DrainPlan::default();
    let mut vms = vms_of(state, host);
    if options.by_policy {
        let names: BTreeSet<&VmName> = state
            .restarted_elsewhere(host, at)
            .map(|vm| &vm.name)
            .collect();
        vms.retain(|vm| names.contains(&vm.name));
    }
    let proven = match options.evacuate {
        true => plan_of_host(state, host, Budget::default())?.unwrap_or_default(),
        false => Plan::default(),
    };
    let moves = proven.moves.iter().enumerate();
    let planned: BTreeMap<_, _> = moves.map(|(at, step)| (&step.vm, (at, step))).collect();
    vms.sort_by_key(|vm| {
        let priority = vm.restarts.policy.priority;
        let place = planned.get(&vm.name).map_or(usize::MAX, |(at, _)| *at);
        (options.by_policy.then_some(Reverse(priority)), place)
    });
    for (number, vm) in vms.into_iter().enumerate() {
        let preferred = planned.get(&vm.name).map(|(_, step)| Preferred {
            host: step.to.clone(),
            assignment: Some(step.assignment.clone()),
        });
        let mut candidate = Candidate {
            vm,
            number,
            how: first_choice(vm, options),
            preferred,
        };
        let mut planned = plan_one(&mut future, admit, at, &candidate);
        if planned.is_err() && options.cold && candidate.how == migration::Kind::Live {
            candidate.how = migration::Kind::Cold;
            planned = plan_one(&mut future, admit, at, &candidate);
        }
        match planned {
            Ok(planned) => plan.moves.push(planned),
            Err(refusal) => plan.stuck.push(Stuck {
                vm: vm.name.clone(),
                refusal,
            }),
        }
    }
    if !options.by_policy {
        plan.stuck.extend(may_return(state, host));
    }
    Ok(plan)
}

/// Returns the state with which a drain begins: its host is closed, so that no advice is to move
/// something there.
fn closed(state: &State, at: TimeMs, host: &HostName) -> Result<State, Refusal> {
    let mut closed = state.clone();
    let cordon = Envelope {
        at,
        principal: "plan".to_owned(),
        request: None,
        audit: None,
        command: Command::SetCordon {
            host: host.clone(),
            cordoned: true,
        },
    };
    closed.speculate(state.revision() + 1, &cordon)?;
    Ok(closed)
}

/// Returns the VMs that are RESIZED elsewhere, and whose old claims the host has.
fn may_return(state: &State, host: &HostName) -> impl Iterator<Item = Stuck> {
    let claims = state.claims_of_host(host).filter(|claim| claim.is_in_use());
    let vms: BTreeSet<&VmName> = claims.map(|claim| &claim.vm).collect();
    let vms = vms.into_iter().filter_map(|vm| state.vm(vm));
    vms.filter_map(|vm| {
        let refusal = resized_away(vm, host)?;
        let vm = vm.name.clone();
        Some(Stuck { vm, refusal })
    })
}

/// Returns why a VM cannot be moved away from a host that it left by a resize.
fn resized_away(vm: &Vm, host: &HostName) -> Option<Refusal> {
    let at = vm.host.as_ref().filter(|at| *at != host)?;
    if vm.state != vm::State::Resized || vm.operation.is_some() {
        return None;
    }
    let name = &vm.name;
    let message = format!(
        "vm {name} is RESIZED on host {at}, and host {host} keeps its old claim for a revert"
    );
    let refusal = Refusal::new(Code::FailedPrecondition, "VM_MAY_RETURN", message);
    Some(
        refusal
            .with_hint(format!(
                "`berth vm confirm-resize {name}` releases the claim"
            ))
            .with("vm", name)
            .with("host", host),
    )
}

/// Returns the VMs that a host holds, those that need most first.
fn vms_of<'s>(state: &'s State, host: &HostName) -> Vec<&'s Vm> {
    let claims = state
        .claims_of_host(host)
        .filter(|c| c.owner == Owner::Vm && c.is_in_use());
    let mut vms: Vec<(&Vm, &Claim)> = claims
        .filter_map(|claim| Some((&**state.vm(&claim.vm)?, &**claim)))
        .collect();
    let amount = |claim: &Claim, class| claim.resources.get(&class).copied().unwrap_or(0);
    vms.sort_by_key(|(vm, claim)| {
        let dedicated = amount(claim, ResourceClass::pcpu());
        let memory = amount(claim, ResourceClass::memory_mb());
        (Reverse((dedicated, memory)), vm.name.clone())
    });
    vms.into_iter().map(|(vm, _)| vm).collect()
}

/// Returns the move that a repeated request has begun, if its answer was lost.
pub(super) fn known_move(state: &State, params: &MoveDrained) -> Option<Arc<Operation>> {
    let operation = state.operation(params.drain)?;
    holds_lease(operation, params.epoch).ok()?;
    match operation.drain()?.vm(&params.vm)?.progress {
        Progress::Moving { operation } => state.operation(operation).cloned(),
        Progress::Waiting | Progress::Moved { .. } | Progress::Gone | Progress::Stays { .. } => {
            None
        }
    }
}

/// Chooses how and where to a VM of a host that is drained is moved.
pub(super) fn move_drained(
    state: &State,
    chooser: &mut dyn Chooser,
    params: &MoveDrained,
) -> Result<Scheduled, Unschedulable> {
    let operation = state.operation(params.drain);
    let operation = operation.ok_or_else(|| Refusal::not_found("operation", params.drain))?;
    holds_lease(operation, params.epoch)?;
    let refuse = |reason, message: String| {
        Refusal::new(Code::FailedPrecondition, reason, message).with("operation", params.drain)
    };
    let (Some(drain), Kind::DrainHost(spec)) = (operation.drain(), &operation.kind) else {
        let message = format!("operation {} drains no host", params.drain);
        return Err(refuse("NOT_A_DRAIN", message).into());
    };
    let Some(drained) = drain.vm(&params.vm) else {
        let message = format!("vm {} is none of those that it moves", params.vm);
        return Err(refuse("VM_NOT_DRAINED", message).into());
    };
    let vm = known_vm(state, &params.vm)?;
    if let Some(refusal) = resized_away(vm, &drain.host) {
        return Err(refusal.into());
    }
    if vm.operation.is_none() && vm.host.as_ref() != Some(&drain.host) {
        let message = format!("vm {} is not on host {}", vm.name, drain.host);
        return Err(refuse("VM_NOT_ON_HOST", message).into());
    }
    let host = state.host(&drain.host);
    // The host may have died and been fenced since the drain began.
    let is_dead = host.is_some_and(|view| may_evacuate(&view.host, state.time()).is_ok());
    let options = DrainOptions {
        evacuate: spec.evacuate || is_dead,
        cold: spec.cold,
        by_policy: spec.by_policy,
    };
    let how = first_choice(vm, options);
    let mut scheduled = schedule_drained(state, chooser, params, drained, how);
    if scheduled.is_err() && options.cold && how == migration::Kind::Live {
        let cold = migration::Kind::Cold;
        scheduled = schedule_drained(state, chooser, params, drained, cold);
    }
    let Scheduled { command, choice } = scheduled?;
    let command = Command::MoveDrained {
        drain: params.drain,
        epoch: params.epoch,
        begin: Box::new(command),
    };
    Ok(Scheduled { command, choice })
}

fn schedule_drained(
    state: &State,
    chooser: &mut dyn Chooser,
    params: &MoveDrained,
    drained: &DrainedVm,
    how: migration::Kind,
) -> Result<Scheduled, Unschedulable> {
    let MoveDrained {
        vm,
        operation,
        migration,
        claim,
        ..
    } = params.clone();
    let lease = params.lease.clone();
    if how == migration::Kind::Live {
        let params = ScheduleMigration {
            operation,
            migration,
            vm,
            claim,
            host: None,
            lease,
            transfer: TransferOverrides::default(),
        };
        return schedule::migration(state, chooser, &params);
    }
    let preferred = drained.planned.as_ref().map(|place| Preferred {
        host: place.host.clone(),
        assignment: Some(place.assignment.clone()),
    });
    let params = ScheduleMove {
        operation,
        migration,
        vm,
        claim,
        flavor: None,
        host: None,
        preferred,
        verify: false,
        evacuate: how == migration::Kind::Evacuation,
        lease,
    };
    reschedule::cold_move(state, chooser, &params)
}

/// One move that is planned.
struct Candidate<'s> {
    vm: &'s Vm,
    /// Its number in the plan.
    number: usize,
    how: migration::Kind,
    preferred: Option<Preferred>,
}

/// Returns how a VM is moved if nothing is in the way.
fn first_choice(vm: &Vm, options: DrainOptions) -> migration::Kind {
    match (options.evacuate, vm.state) {
        (true, _) => migration::Kind::Evacuation,
        (false, vm::State::Stopped) => migration::Kind::Cold,
        (
            false,
            vm::State::Building
            | vm::State::Active
            | vm::State::Migrating
            | vm::State::Deleting
            | vm::State::Error
            | vm::State::Resized
            | vm::State::Shelved,
        ) => migration::Kind::Live,
    }
}

fn plan_one(
    future: &mut State,
    admit: Admit,
    at: TimeMs,
    candidate: &Candidate<'_>,
) -> Result<PlannedMove, Refusal> {
    let Candidate { vm, how, .. } = *candidate;
    let request = DecisionRequest::new("plan", action(candidate));
    let proposal = match decide(future, admit, at, &request) {
        Decision::Command(proposal) => proposal,
        Decision::Refuse(refusal) => return Err(*refusal),
        Decision::Explain(unexplained) => return Err(unexplained.explain()),
        Decision::Answer(_) => {
            let message = format!("vm {} cannot be planned for", vm.name);
            return Err(Refusal::new(Code::Internal, "NO_DECISION", message));
        }
    };
    future.speculate(future.revision() + 1, &proposal.envelope)?;
    let choice = proposal.choice.ok_or_else(|| {
        let message = format!("no host was chosen for vm {}", vm.name);
        Refusal::new(Code::Internal, "NO_CHOICE", message)
    })?;
    Ok(PlannedMove {
        vm: vm.name.clone(),
        how,
        destination: choice.host,
        assignment: choice.assignment,
    })
}

fn action(candidate: &Candidate<'_>) -> Action {
    let Candidate {
        vm, number, how, ..
    } = *candidate;
    // These ids never leave the plan, so a counter makes them distinct enough.
    let id = |kind: u128| Uuid::from_u128(kind << 64 | number as u128);
    let operation = OperationId(id(1));
    let (migration, claim) = (MigrationId(id(2)), ClaimId(id(3)));
    let lease = LeaseRequest {
        conductor: ServiceName::new("plan").expect("a good name"),
        ttl_ms: 1_000,
    };
    match how {
        migration::Kind::Live => Action::ScheduleMigration(ScheduleMigration {
            operation,
            migration,
            vm: vm.name.clone(),
            claim,
            host: None,
            lease,
            transfer: TransferOverrides::default(),
        }),
        migration::Kind::Cold | migration::Kind::Evacuation => Action::ScheduleMove(ScheduleMove {
            operation,
            migration,
            vm: vm.name.clone(),
            claim,
            flavor: None,
            host: None,
            preferred: candidate.preferred.clone(),
            verify: false,
            evacuate: how == migration::Kind::Evacuation,
            lease,
        }),
    }
}
