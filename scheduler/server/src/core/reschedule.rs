//! The requests for which a host is chosen for a VM that does not run meanwhile: cold migration,
//! resize, evacuation, unshelving.
//!
//! Looked at here, as in [`super::schedule`], is what a person should hear of first;
//! [`berth_state`] looks at all of it again.

use berth_domain::claim::Owner;
use berth_domain::constraint::Anew;
use berth_domain::fence::may_evacuate;
use berth_domain::name::FlavorName;
use berth_domain::operation::Kind;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::power_gate;
use berth_domain::vm::{Vm, VmSpec};
use berth_state::State;
use berth_state::command::Command;

use super::admission::{Newcomer, choose_admitted};
use super::chooser::{Chooser, No, choose_preferring};
use super::request::{ScheduleMove, ScheduleUnshelve};
use super::schedule::{Rest, Scheduled, held, known_host, known_vm, sized};

/// Chooses the destination of a VM that is stopped for its move, or was stopped with its host.
pub(super) fn cold_move(
    state: &State,
    chooser: &mut dyn Chooser,
    wanted: &ScheduleMove,
) -> Result<Scheduled, No> {
    let vm = known_vm(state, &wanted.vm)?;
    let migration = wanted.migration;
    let kind = match wanted.evacuate {
        true => Kind::Evacuate { migration },
        false => Kind::ColdMigrate { migration },
    };
    idle(vm, &kind)?;
    known_host(state, wanted.host.as_ref())?;
    if wanted.evacuate
        && let Some(view) = vm.host.as_ref().and_then(|name| state.host(name))
    {
        may_evacuate(&view.host, state.time())?;
    }
    if !wanted.evacuate
        && let Some(view) = vm.host.as_ref().and_then(|name| state.host(name))
    {
        power_gate(&view.host.name, view.host.report.service_version)?;
    }
    let spec = match &wanted.flavor {
        Some(flavor) => Some(resized(state, vm, flavor)?),
        None => None,
    };
    let demanded = spec.as_ref().unwrap_or(&vm.spec);
    let why = Anew::of_move(wanted.evacuate, spec.is_some());
    let request = berth_selection::Request {
        demand: state.cold_demand(vm, demanded, why)?,
        requested: wanted.host.clone(),
        excluded: Vec::new(),
        seed: wanted.claim.0,
        policy: (**state.policy()).clone(),
    };
    let newcomer = Newcomer {
        vm: &wanted.vm,
        claim: wanted.claim,
        spec: demanded,
    };
    let choice = match spec.is_some() && !wanted.evacuate {
        true => choose_admitted(chooser, state, request, &newcomer)?,
        false => choose_preferring(chooser, state, wanted.preferred.as_ref(), request)?,
    };
    let claim = held(
        wanted.claim,
        &wanted.vm,
        Owner::Migration(migration),
        &choice,
    );
    Ok(Scheduled {
        command: Command::BeginMove {
            operation: wanted.operation,
            migration,
            vm: wanted.vm.clone(),
            spec: spec.map(Box::new),
            requested_host: wanted.host.clone(),
            verify: wanted.verify,
            evacuate: wanted.evacuate,
            claim,
            lease: wanted.lease.clone(),
        },
        choice: Some(choice),
    })
}

/// Chooses a host for a shelved VM.
pub(super) fn unshelve(
    state: &State,
    chooser: &mut dyn Chooser,
    wanted: &ScheduleUnshelve,
) -> Result<Scheduled, No> {
    let vm = known_vm(state, &wanted.vm)?;
    idle(vm, &Kind::Unshelve)?;
    known_host(state, wanted.host.as_ref())?;
    let newcomer = Newcomer {
        vm: &wanted.vm,
        claim: wanted.claim,
        spec: &vm.spec,
    };
    let choice = choose_admitted(
        chooser,
        state,
        berth_selection::Request {
            demand: state.cold_demand(vm, &vm.spec, Anew::Unshelving)?,
            requested: wanted.host.clone(),
            excluded: Vec::new(),
            seed: wanted.claim.0,
            policy: (**state.policy()).clone(),
        },
        &newcomer,
    )?;
    let claim = held(wanted.claim, &wanted.vm, Owner::Vm, &choice);
    Ok(Scheduled {
        command: Command::BeginUnshelve {
            operation: wanted.operation,
            vm: wanted.vm.clone(),
            requested_host: wanted.host.clone(),
            claim,
            lease: wanted.lease.clone(),
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
    let what = match kind {
        Kind::Unshelve => "only a shelved vm is unshelved",
        Kind::Boot
        | Kind::Delete
        | Kind::LiveMigrate { .. }
        | Kind::ColdMigrate { .. }
        | Kind::RevertResize { .. }
        | Kind::ConfirmResize { .. }
        | Kind::Evacuate { .. }
        | Kind::Shelve
        | Kind::Stop { .. }
        | Kind::Start
        | Kind::Reboot { .. }
        | Kind::Rebuild { .. }
        | Kind::Snapshot { .. } => "it is moved so only while it is ACTIVE or STOPPED",
    };
    let message = format!("vm {} is {:?}: {what}", vm.name, vm.state);
    Err(Refusal::new(Code::FailedPrecondition, "VM_STATE", message).with("vm", &vm.name))
}
