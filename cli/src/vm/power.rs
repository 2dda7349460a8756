//! `berth vm stop`, `start`, `reboot`, `rebuild` and `snapshot`: what is done to a VM where it is.

use berth_proto::conductor::v1::{
    RebootVmRequest, RebuildVmRequest, SnapshotVmRequest, StartVmRequest, StopVmRequest,
};

use super::{finish, show};
use crate::arguments::{Power, Run};
use crate::session::{Session, not_begun, request_id, resource};

/// Calls a conductor, and returns the operation from its response.
macro_rules! begin {
    ($session:expr, $method:ident, $request:expr) => {{
        let response = $session.conductor().await?.$method($request).await;
        response.map_err(|s| not_begun(&s))?.into_inner().operation
    }};
}

/// Runs the command.
pub(super) async fn run(session: &Session, verb: Power) -> anyhow::Result<()> {
    let (name, operation, run): (String, _, Run) = match verb {
        Power::Stop { vm, timeout, run } => {
            let request = StopVmRequest {
                vm: resource("vms", &vm),
                timeout_ms: Some(timeout * 1000),
                request_id: request_id(run.request_id),
            };
            (vm, begin!(session, stop_vm, request), run)
        }
        Power::Start { vm, run } => {
            let request = StartVmRequest {
                vm: resource("vms", &vm),
                request_id: request_id(run.request_id),
            };
            (vm, begin!(session, start_vm, request), run)
        }
        Power::Reboot {
            vm,
            hard,
            timeout,
            run,
        } => {
            let request = RebootVmRequest {
                vm: resource("vms", &vm),
                hard,
                timeout_ms: (!hard).then_some(timeout * 1000),
                request_id: request_id(run.request_id),
            };
            (vm, begin!(session, reboot_vm, request), run)
        }
        Power::Rebuild { vm, images, run } => {
            let request = RebuildVmRequest {
                vm: resource("vms", &vm),
                images,
                request_id: request_id(run.request_id),
            };
            (vm, begin!(session, rebuild_vm, request), run)
        }
        Power::Snapshot {
            vm,
            image,
            disk,
            run,
        } => {
            let request = SnapshotVmRequest {
                vm: resource("vms", &vm),
                disk,
                image,
                request_id: request_id(run.request_id),
            };
            (vm, begin!(session, snapshot_vm, request), run)
        }
    };
    finish(session, operation, &run).await?;
    if run.no_wait {
        Ok(())
    } else {
        show(session, &name).await
    }
}
