//! `berth vm stop`, `start`, `reboot`, `rebuild` and `snapshot`: what is done to a VM where it is.

use berth_proto::conductor::v1::{
    RebootVmRequest, RebuildVmRequest, SnapshotVmRequest, StartVmRequest, StopVmRequest,
};

use super::{finish, show};
use crate::arguments::{Power, Run};
use crate::session::{Session, conduct, request_id, resource};

/// Runs the command.
pub(super) async fn run(session: &Session, verb: Power) -> anyhow::Result<()> {
    let (name, operation, run): (String, _, Run) = match verb {
        Power::Stop { vm, timeout, run } => {
            let request = StopVmRequest {
                vm: resource("vms", &vm),
                timeout_ms: Some(timeout * 1000),
                request_id: request_id(run.request_id),
            };
            (
                vm,
                conduct!(session.conductor().await?, stop_vm, request)?.operation,
                run,
            )
        }
        Power::Start { vm, run } => {
            let request = StartVmRequest {
                vm: resource("vms", &vm),
                request_id: request_id(run.request_id),
            };
            (
                vm,
                conduct!(session.conductor().await?, start_vm, request)?.operation,
                run,
            )
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
            (
                vm,
                conduct!(session.conductor().await?, reboot_vm, request)?.operation,
                run,
            )
        }
        Power::Rebuild { vm, images, run } => {
            let request = RebuildVmRequest {
                vm: resource("vms", &vm),
                images,
                request_id: request_id(run.request_id),
            };
            (
                vm,
                conduct!(session.conductor().await?, rebuild_vm, request)?.operation,
                run,
            )
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
            (
                vm,
                conduct!(session.conductor().await?, snapshot_vm, request)?.operation,
                run,
            )
        }
    };
    finish(session, operation, &run).await?;
    if run.no_wait {
        Ok(())
    } else {
        show(session, &name).await
    }
}
