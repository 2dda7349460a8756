//! The actions that choose a host for a VM that does not run meanwhile: cold migration,
//! resize, evacuation, unshelving.
//!
//! The checks here, as in [`super::schedule`], are those a user should see reported first;
//! [`berth_state`] repeats all of them.

use berth_domain::claim::Owner;
use berth_domain::constraint::RestartReason;
use berth_domain::fence::may_evacuate;
use berth_domain::name::FlavorName;
use berth_domain::operation::Kind;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::power_gate;
use berth_domain::vm::{Vm, VmSpec};
use berth_state::State;
use berth_state::command::Command;

use super::admission::{IncomingVm, choose_admitted};
use super::chooser::{Chooser, Unschedulable, choose_preferring};
use super::request::{ScheduleMove, ScheduleUnshelve};
use super::schedule::{Rest, Scheduled, advised, as_it_is, held, known_host, known_vm, sized};
use super::surroundings::{RequestedVm, Subject};

/// Chooses the destination of a VM that is stopped for its move, or was stopped with its host.
pub(super) fn cold_move(
    state: &State,
    chooser: &mut dyn Chooser,
    params: &ScheduleMove,
) -> Result<Scheduled, Unschedulable> {
    let vm = known_vm(state, &params.vm)?;
    let migration = params.migration;
    let kind = match params.evacuate {
        true => Kind::Evacuate { migration },
        false => Kind::ColdMigrate { migration },
    };
    idle(vm, &kind)?;
    known_host(state, params.host.as_ref())?;
    if params.evacuate
        && let Some(view) = vm.host.as_ref().and_then(|name| state.host(name))
    {
        may_evacuate(&view.host, state.time())?;
    }
    if !params.evacuate
        && let Some(view) = vm.host.as_ref().and_then(|name| state.host(name))
    {
        power_gate(&view.host.name, view.host.report.service_version)?;
    }
    let spec = match &params.flavor {
        Some(flavor) => Some(resized(state, vm, flavor)?),
        None => None,
    };
    let demanded = spec.as_ref().unwrap_or(&vm.spec);
    let why = RestartReason::of_move(params.evacuate, spec.is_some());
    let request = berth_selection::Request {
        demand: state.cold_demand(vm, demanded, why)?,
        requested: params.host.clone(),
        excluded: Vec::new(),
        seed: params.claim.0,
        policy: (**state.policy()).clone(),
    };
    let incoming = IncomingVm {
        vm: &params.vm,
        claim: params.claim,
        spec: demanded,
    };
    let choice = match spec.is_some() && !params.evacuate {
        true => choose_admitted(chooser, state, request, &incoming),
        false => choose_preferring(chooser, state, params.preferred.as_ref(), request),
    };
    let choice = choice.map_err(|no| {
        no.about(|| Subject {
            vm: params.vm.clone(),
            requested: spec.clone().map(|spec| RequestedVm::Resize(Box::new(spec))),
            takes_more: spec.is_some() && !params.evacuate,
        })
    })?;
    let claim = held(
        params.claim,
        &params.vm,
        Owner::Migration(migration),
        &choice,
    );
    Ok(Scheduled {
        command: Command::BeginMove {
            operation: params.operation,
            migration,
            vm: params.vm.clone(),
            spec: spec.map(Box::new),
            requested_host: params.host.clone(),
            verify: params.verify,
            evacuate: params.evacuate,
            claim,
            lease: params.lease.clone(),
        },
        choice: Some(choice),
    })
}

/// Chooses a host for a shelved VM.
pub(super) fn unshelve(
    state: &State,
    chooser: &mut dyn Chooser,
    params: &ScheduleUnshelve,
) -> Result<Scheduled, Unschedulable> {
    let vm = known_vm(state, &params.vm)?;
    idle(vm, &Kind::Unshelve)?;
    known_host(state, params.host.as_ref())?;
    let incoming = IncomingVm {
        vm: &params.vm,
        claim: params.claim,
        spec: &vm.spec,
    };
    let choice = choose_admitted(
        chooser,
        state,
        berth_selection::Request {
            demand: state.cold_demand(vm, &vm.spec, RestartReason::Unshelving)?,
            requested: params.host.clone(),
            excluded: Vec::new(),
            seed: params.claim.0,
            policy: (**state.policy()).clone(),
        },
        &incoming,
    );
    let choice = choice.map_err(|no| no.about(|| as_it_is(&params.vm, true)))?;
    let claim = held(params.claim, &params.vm, Owner::Vm, &choice);
    Ok(Scheduled {
        command: Command::BeginUnshelve {
            operation: params.operation,
            vm: params.vm.clone(),
            requested_host: params.host.clone(),
            claim,
            lease: params.lease.clone(),
        },
        choice: Some(choice),
    })
}

fn resized(state: &State, vm: &Vm, flavor: &FlavorName) -> Result<VmSpec, Refusal> {
    let spec = &vm.spec;
    let rest = Rest {
        boot: spec.boot.clone(),
        disks: spec.disks.clone(),
        nics: spec.nics.clone(),
        image_properties: spec.image_properties.clone(),
        hints: spec.hints.clone(),
        volumes: spec.volumes.clone(),
    };
    let resized = sized(state, flavor, rest)?;
    if resized == *spec {
        let message = format!("vm {} has flavor {flavor} already", vm.name);
        let refusal = Refusal::new(Code::FailedPrecondition, "SAME_FLAVOR", message);
        return Err(refusal
            .with_hint("name another flavor, or move it as it is: berth vm migrate --cold")
            .with("vm", &vm.name));
    }
    Ok(resized)
}

fn idle(vm: &Vm, kind: &Kind) -> Result<(), Refusal> {
    if let Some(operation) = vm.operation {
        return Err(super::schedule::busy(vm, operation));
    }
    if kind.works_in(vm.state) {
        return Ok(());
    }
    let what = match *kind == Kind::Unshelve {
        true => "only a shelved vm is unshelved",
        false => "it is moved so only while it is ACTIVE or STOPPED",
    };
    let message = format!("vm {} is {}: {what}", vm.name, vm.state.as_str());
    let refusal = Refusal::new(Code::FailedPrecondition, "VM_STATE", message);
    Err(advised(vm, kind, refusal.with("vm", &vm.name)))
}
