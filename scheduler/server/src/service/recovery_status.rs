//! How far a recovery is, as a message.

use berth_domain::host::Liveness;
use berth_domain::name::{HostName, VmName};
use berth_domain::version::ServiceVersion;
use berth_proto::cluster::v1;
use berth_proto::convert::ResourceName as _;
use berth_state::State;
use berth_state::recovery::{Conflict, Progress};

use crate::recovery::Outcomes;

/// How many hosts, conflicts or VMs one response has at most.
const SHOWN_MAX: usize = 1_000;

/// Returns how far a recovery is.
pub(super) fn to_wire(state: &State, outcomes: &Outcomes) -> v1::GetRecoveryResponse {
    let recovery = state.header().recovery;
    let mut response = v1::GetRecoveryResponse {
        recovery: recovery.as_ref().map(Into::into),
        host_count: count(state.hosts().len()),
        revision: state.revision(),
        ..v1::GetRecoveryResponse::default()
    };
    if !state.is_recovering() {
        response.settled_count = state.header().recovery.map_or(0, |r| r.settled);
        response.settled_vms = state.settled_vms().map(Into::into).collect();
        return response;
    }
    let progress = state.recovery_progress();
    let awaited = progress
        .iter()
        .filter(|(_, p)| matches!(p, Progress::Awaited | Progress::Quiet));
    let awaited: Vec<_> = awaited.collect();
    response.awaited_count = count(awaited.len());
    let shown = awaited.into_iter().take(SHOWN_MAX);
    response.awaited_hosts = shown
        .map(|(host, progress)| write_awaited(state, host, *progress))
        .collect();
    if let Some(outcome) = outcomes.of(state) {
        response.conflict_count = count(outcome.conflicts.len());
        response.settled_count = count(outcome.settled.len());
        let conflicts = outcome.conflicts.iter().take(SHOWN_MAX);
        response.conflicts = conflicts.map(|c| write_conflict(state, c)).collect();
        response.settled_vms = outcome.settled_vms().iter().map(Into::into).collect();
    }
    response
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn write_awaited(state: &State, name: &HostName, progress: Progress) -> v1::AwaitedHost {
    let host = state.host(name).map(|view| &view.host);
    v1::AwaitedHost {
        host: name.resource_name(),
        reported: progress == Progress::Quiet,
        up: host.is_some_and(|host| host.liveness == Liveness::Up),
        too_old: host.is_some_and(|host| host.report.service_version < ServiceVersion::RECOVERY),
    }
}

fn write_conflict(state: &State, conflict: &Conflict) -> v1::RecoveryConflict {
    use v1::recovery_conflict::Kind;
    match conflict {
        Conflict::Twice { vm, hosts } => v1::RecoveryConflict {
            kind: Kind::RunsTwice.into(),
            vm: recorded(state, vm),
            hosts: hosts.iter().map(HostName::resource_name).collect(),
            display_name: vm.clone(),
            ..v1::RecoveryConflict::default()
        },
        Conflict::Unclaimable { vm, host, refusal } => v1::RecoveryConflict {
            kind: Kind::Unclaimable.into(),
            vm: vm.resource_name(),
            hosts: vec![host.resource_name()],
            display_name: vm.to_string(),
            message: refusal.message.clone(),
            ..v1::RecoveryConflict::default()
        },
        Conflict::Unrecorded {
            host,
            uuid,
            name,
            refusal,
        } => v1::RecoveryConflict {
            kind: Kind::Unrecorded.into(),
            hosts: vec![host.resource_name()],
            uuid: uuid.to_string(),
            display_name: name.clone(),
            message: refusal.message.clone(),
            ..v1::RecoveryConflict::default()
        },
    }
}

/// Returns the resource name of a VM that is recorded.
fn recorded(state: &State, name: &str) -> String {
    let name = VmName::new(name).ok();
    let vm = name.filter(|name| state.vm(name).is_some());
    vm.map(|vm| vm.resource_name()).unwrap_or_default()
}
