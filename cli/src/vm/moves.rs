//! `berth vm resize`, `evacuate`, `shelve` and the like: VMs that are moved while they do not run.

use berth_proto::conductor::v1::{
    ConfirmResizeRequest, EvacuateVmRequest, ResizeVmRequest, RevertResizeRequest, ShelveVmRequest,
    UnshelveVmRequest,
};
use berth_proto::operation::v1::Operation;
use berth_proto::scheduler::v1::move_service_client::MoveServiceClient;
use berth_proto::scheduler::v1::{ScheduleMoveRequest, ScheduleUnshelveRequest};

use super::{explain, finish, several, show};
use crate::arguments::{Moves, Run};
use crate::read;
use crate::session::{Session, conduct, request_id, resource};

/// The requested flavor and host of a move.
#[derive(Clone, Copy, Default)]
pub(super) struct MoveSpec<'a> {
    pub(super) flavor: Option<&'a str>,
    pub(super) host: Option<&'a str>,
    pub(super) verify: bool,
    pub(super) evacuate: bool,
}

/// Runs the command.
pub(super) async fn run(session: &Session, verb: Moves) -> anyhow::Result<()> {
    match verb {
        Moves::Resize {
            vm,
            flavor,
            host,
            no_verify,
            validate_only,
            run,
        } => {
            let spec = MoveSpec {
                flavor: Some(&flavor),
                host: host.as_deref(),
                verify: !no_verify,
                evacuate: false,
            };
            cold(session, &vm, spec, validate_only, &run).await
        }
        Moves::ConfirmResize { vms, run } => {
            several::each(session, &vms, &run, async |vm| {
                confirm(session, vm, &run).await
            })
            .await
        }
        Moves::RevertResize { vms, run } => {
            let one = async |vm: &str| revert(session, vm, &run).await;
            several::each(session, &vms, &run, one).await
        }
        Moves::Evacuate {
            vms,
            host,
            validate_only,
            run,
        } => {
            let spec = MoveSpec {
                host: host.as_deref(),
                evacuate: true,
                ..MoveSpec::default()
            };
            let one = async |vm: &str| cold(session, vm, spec, validate_only, &run).await;
            several::each(session, &vms, &run, one).await
        }
        Moves::Shelve { vms, run } => {
            several::each(session, &vms, &run, async |vm| {
                shelve(session, vm, &run).await
            })
            .await
        }
        Moves::Unshelve {
            vms,
            host,
            validate_only,
            run,
        } => {
            let host = host.as_deref();
            let one = async |vm: &str| unshelve(session, vm, host, validate_only, &run).await;
            several::each(session, &vms, &run, one).await
        }
    }
}

/// Moves a VM that is stopped for it, or whose host is dead.
pub(super) async fn cold(
    session: &Session,
    vm: &str,
    spec: MoveSpec<'_>,
    validate_only: bool,
    run: &Run,
) -> anyhow::Result<()> {
    let named = |kind: &str, name: Option<&str>| name.map(|n| resource(kind, n));
    let flavor = named("flavors", spec.flavor).unwrap_or_default();
    let requested_host = named("hosts", spec.host).unwrap_or_default();
    if validate_only {
        let request = ScheduleMoveRequest {
            vm: resource("vms", vm),
            flavor,
            requested_host,
            verify: spec.verify,
            evacuate: spec.evacuate,
            validate_only: true,
            ..Default::default()
        };
        let response = read!(session, MoveServiceClient, schedule_move, request)?;
        return explain(session, vm, response.explanation.unwrap_or_default()).await;
    }
    let request_id = request_id(run.request_id);
    let mut conductor = session.conductor().await?;
    let operation = if spec.evacuate {
        let request = EvacuateVmRequest {
            vm: resource("vms", vm),
            requested_host,
            request_id,
        };
        conduct!(conductor, evacuate_vm, request)?.operation
    } else {
        let request = ResizeVmRequest {
            vm: resource("vms", vm),
            flavor,
            requested_host,
            verify: spec.verify,
            request_id,
        };
        conduct!(conductor, resize_vm, request)?.operation
    };
    follow(session, vm, operation, run).await
}

async fn revert(session: &Session, vm: &str, run: &Run) -> anyhow::Result<()> {
    let request = RevertResizeRequest {
        vm: resource("vms", vm),
        request_id: request_id(run.request_id),
    };
    let operation = conduct!(session.conductor().await?, revert_resize, request)?.operation;
    follow(session, vm, operation, run).await
}

async fn shelve(session: &Session, vm: &str, run: &Run) -> anyhow::Result<()> {
    let request = ShelveVmRequest {
        vm: resource("vms", vm),
        request_id: request_id(run.request_id),
    };
    let operation = conduct!(session.conductor().await?, shelve_vm, request)?.operation;
    follow(session, vm, operation, run).await
}

async fn confirm(session: &Session, vm: &str, run: &Run) -> anyhow::Result<()> {
    let request = ConfirmResizeRequest {
        vm: resource("vms", vm),
        request_id: request_id(run.request_id),
    };
    match conduct!(session.conductor().await?, confirm_resize, request)?.operation {
        Some(operation) => follow(session, vm, Some(operation), run).await,
        // There was nothing to delete: it is done.
        None => show(session, vm).await,
    }
}

async fn unshelve(
    session: &Session,
    vm: &str,
    host: Option<&str>,
    validate_only: bool,
    run: &Run,
) -> anyhow::Result<()> {
    let requested_host = host.map(|h| resource("hosts", h)).unwrap_or_default();
    if validate_only {
        let request = ScheduleUnshelveRequest {
            vm: resource("vms", vm),
            requested_host,
            validate_only: true,
            ..Default::default()
        };
        let response = read!(session, MoveServiceClient, schedule_unshelve, request)?;
        return explain(session, vm, response.explanation.unwrap_or_default()).await;
    }
    let request = UnshelveVmRequest {
        vm: resource("vms", vm),
        requested_host,
        request_id: request_id(run.request_id),
    };
    let operation = conduct!(session.conductor().await?, unshelve_vm, request)?.operation;
    follow(session, vm, operation, run).await
}

/// Waits for the end of an operation and shows its VM, unless only the operation's name was requested.
pub(super) async fn follow(
    session: &Session,
    vm: &str,
    operation: Option<Operation>,
    run: &Run,
) -> anyhow::Result<()> {
    finish(session, operation, run).await?;
    match run.no_wait {
        true => Ok(()),
        false => show(session, vm).await,
    }
}
