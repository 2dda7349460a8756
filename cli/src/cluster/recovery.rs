//! `berth cluster recovery`: how far the recovery of a cluster is, and its end.

use berth_domain::recovery::{Cause, Recovery as Known};
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    AwaitedHost, EndRecoveryRequest, GetRecoveryRequest, GetRecoveryResponse, Recovery,
    RecoveryConflict, SettledVm, recovery_conflict, settled_vm,
};
use serde_json::{Value, json};

use crate::arguments::ClusterRecovery as Verb;
use crate::session::{Session, request_id, short};
use crate::{call, migration, output, read};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub(super) async fn run(session: &mut Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Status => status(session).await,
        Verb::End { accept_conflicts } => end(session, accept_conflicts).await,
    }
}

async fn status(session: &Session) -> anyhow::Result<()> {
    let request = GetRecoveryRequest::default();
    let response = read!(session, ClusterServiceClient, get_recovery, request)?;
    if session.for_programs() {
        return output::value(&status_json(&response));
    }
    let line = line(response.recovery.as_ref());
    let Some(recovery) = response.recovery.filter(|r| r.end_time.is_none()) else {
        ended(line, &response);
        return Ok(());
    };
    let of_all = |count: u32| match response.awaited_count {
        0 => count.to_string(),
        _ => "not known before every host is compared".to_owned(),
    };
    let reported = response.host_count.saturating_sub(response.awaited_count);
    output::fields(&[
        ("recovery", line),
        (
            "restored up to",
            format!("revision {}", recovery.last_revision),
        ),
        (
            "hosts",
            format!("{reported} of {} compared", response.host_count),
        ),
        ("conflicts", of_all(response.conflict_count)),
        ("differences", of_all(response.settled_count)),
    ]);
    if !response.awaited_hosts.is_empty() {
        let rows = response.awaited_hosts.iter();
        let rows = rows.map(|host| [short(&host.host).to_owned(), why_awaited(host).to_owned()]);
        output::table(["host", "waits for"], rows.collect(), "");
        output::message("a host that is off: berth host fence HOST --confirm-off");
    }
    if !response.conflicts.is_empty() {
        let rows = response.conflicts.iter().map(|conflict| {
            [
                guest_of(conflict),
                hosts_of(conflict),
                why_conflicting(conflict),
            ]
        });
        output::table(["guest", "hosts", "conflict"], rows.collect(), "");
        output::message("to leave them as they are: berth cluster recovery end --accept-conflicts");
    }
    settled_table("becomes", &response);
    Ok(())
}

/// Shows a recovery that has ended, and what it has settled.
fn ended(line: String, response: &GetRecoveryResponse) {
    let mut fields = vec![("recovery", line)];
    match &response.recovery {
        Some(recovery) if recovery.keeps_settled => {
            fields.push(("differences", response.settled_count.to_string()));
        }
        Some(_) => fields.push((
            "differences",
            "not kept by the build that began it".to_owned(),
        )),
        None => {}
    }
    output::fields(&fields);
    settled_table("became", response);
}

fn settled_table(header: &'static str, response: &GetRecoveryResponse) {
    if response.settled_vms.is_empty() {
        return;
    }
    let rows = response.settled_vms.iter();
    let rows = rows.map(|vm| [vm_of(vm), becomes(vm)]);
    output::table(["vm", header], rows.collect(), "");
    let shown = u32::try_from(response.settled_vms.len()).unwrap_or(u32::MAX);
    let further = response.settled_count.saturating_sub(shown);
    if further > 0 {
        output::message(format!(
            "{further} more; those that need an operator are shown first"
        ));
    }
}

/// Returns the VM's name; a hyphen for a guest that is no VM.
fn vm_of(settled: &SettledVm) -> String {
    match short(&settled.vm) {
        "" => "-".to_owned(),
        name => name.to_owned(),
    }
}

async fn end(session: &Session, accept_conflicts: bool) -> anyhow::Result<()> {
    let request = EndRecoveryRequest {
        accept_conflicts,
        request_id: request_id(None),
    };
    let response = call!(session, ClusterServiceClient, end_recovery, request)?;
    if session.for_programs() {
        return output::value(&response.recovery.as_ref().map(as_json));
    }
    output::message("the recovery has ended");
    Ok(())
}

/// Describes a recovery in a line.
pub(crate) fn line(recovery: Option<&Recovery>) -> String {
    let Some(recovery) = recovery else {
        return "none".to_owned();
    };
    let Ok(known) = Known::try_from(*recovery) else {
        return "unknown to this program".to_owned();
    };
    let cause = match known.cause {
        Cause::Restored => "restored from a backup",
        Cause::QuorumLost => "formed of one member",
    };
    let began = migration::time(known.began_at);
    match known.ended_at {
        None => format!("RECOVERING since {began}, {cause}"),
        Some(ended) => format!("{cause} at {began}, ended at {}", migration::time(ended)),
    }
}

/// Returns a recovery for programs.
pub(super) fn as_json(recovery: &Recovery) -> Value {
    let known = Known::try_from(*recovery).ok();
    json!({
        "number": recovery.number,
        "cause": known.map(|k| match k.cause {
            Cause::Restored => "restored",
            Cause::QuorumLost => "quorum_lost",
        }),
        "begin_time": known.map(|k| migration::time(k.began_at)),
        "end_time": known.and_then(|k| k.ended_at).map(migration::time),
        "last_revision": recovery.last_revision,
        "first_revision": recovery.first_revision,
    })
}

fn status_json(response: &GetRecoveryResponse) -> Value {
    let hosts = response.awaited_hosts.iter();
    let hosts = hosts.map(|host| {
        json!({"host": short(&host.host), "reported": host.reported, "up": host.up,
               "too_old": host.too_old})
    });
    let conflicts = response.conflicts.iter().map(|conflict| {
        let hosts: Vec<_> = conflict.hosts.iter().map(|host| short(host)).collect();
        json!({"kind": kind(conflict), "guest": conflict.display_name, "hosts": hosts,
               "uuid": Some(&conflict.uuid).filter(|uuid| !uuid.is_empty()),
               "message": Some(&conflict.message).filter(|text| !text.is_empty())})
    });
    let settled = response.settled_vms.iter().map(|vm| {
        json!({"vm": Some(short(&vm.vm)).filter(|vm| !vm.is_empty()), "state": state(vm),
               "host": Some(short(&vm.host)).filter(|host| !host.is_empty()),
               "message": Some(&vm.message).filter(|text| !text.is_empty())})
    });
    json!({
        "recovery": response.recovery.as_ref().map(as_json),
        "hosts": response.host_count,
        "hosts_awaited": response.awaited_count,
        "awaited": hosts.collect::<Vec<_>>(),
        "conflict_count": response.conflict_count,
        "conflicts": conflicts.collect::<Vec<_>>(),
        "settled_count": response.settled_count,
        "settled": settled.collect::<Vec<_>>(),
    })
}

fn why_awaited(host: &AwaitedHost) -> &'static str {
    match (host.too_old, host.up, host.reported) {
        (true, ..) => "an upgrade of its agent",
        (false, false, _) => "its agent, which sends no heartbeats",
        (false, true, false) => "its first report",
        (false, true, true) => "its second report, after the first of every host",
    }
}

/// Returns the guest's name, and its UUID where no VM is recorded.
fn guest_of(conflict: &RecoveryConflict) -> String {
    match &*conflict.uuid {
        "" => conflict.display_name.clone(),
        uuid => format!("{} {uuid}", conflict.display_name),
    }
}

fn hosts_of(conflict: &RecoveryConflict) -> String {
    let hosts: Vec<_> = conflict.hosts.iter().map(|host| short(host)).collect();
    hosts.join(", ")
}

fn kind(conflict: &RecoveryConflict) -> &'static str {
    match conflict.kind() {
        recovery_conflict::Kind::RunsTwice => "runs_twice",
        recovery_conflict::Kind::Unclaimable => "unclaimable",
        recovery_conflict::Kind::Unrecorded => "unrecorded",
        recovery_conflict::Kind::Unspecified => "unknown",
    }
}

fn why_conflicting(conflict: &RecoveryConflict) -> String {
    match conflict.kind() {
        recovery_conflict::Kind::RunsTwice => "it is on several hosts".to_owned(),
        recovery_conflict::Kind::Unclaimable
        | recovery_conflict::Kind::Unrecorded
        | recovery_conflict::Kind::Unspecified => conflict.message.clone(),
    }
}

fn state(vm: &SettledVm) -> &'static str {
    match vm.state() {
        settled_vm::State::Active => "active",
        settled_vm::State::Stopped => "stopped",
        settled_vm::State::Error => "error",
        settled_vm::State::Added => "added",
        settled_vm::State::Replaced => "replaced",
        settled_vm::State::Conflict => "conflict",
        settled_vm::State::Unspecified => "unknown",
    }
}

fn becomes(vm: &SettledVm) -> String {
    let host = short(&vm.host);
    match vm.state() {
        settled_vm::State::Active => format!("ACTIVE on host {host}"),
        settled_vm::State::Added => format!("a VM again, on host {host}"),
        settled_vm::State::Stopped => "STOPPED: no host runs its guest".to_owned(),
        settled_vm::State::Error => format!("ERROR: {}", vm.message),
        settled_vm::State::Replaced => format!("removed: {}", vm.message),
        settled_vm::State::Conflict => format!("a conflict that was accepted: {}", vm.message),
        settled_vm::State::Unspecified => "unknown to this program".to_owned(),
    }
}
