//! `berth vm stop`, `start`, `reboot`, `rebuild` and `snapshot`: what is done to a VM where it is.

use berth_proto::conductor::v1::{
    RebootVmRequest, RebuildVmRequest, SnapshotVmRequest, StartVmRequest, StopVmRequest,
};
use berth_proto::operation::v1::Operation;

use super::{moves, several};
use crate::arguments::{Power, Run};
use crate::session::{Session, conduct, request_id, resource};

/// Runs the command.
pub(super) async fn run(session: &Session, verb: Power) -> anyhow::Result<()> {
    let (vms, run): (&[String], &Run) = match &verb {
        Power::Stop { vms, run, .. }
        | Power::Start { vms, run }
        | Power::Reboot { vms, run, .. } => (vms, run),
        Power::Rebuild { vm, run, .. } | Power::Snapshot { vm, run, .. } => {
            (std::slice::from_ref(vm), run)
        }
    };
    let one = async |vm: &str| {
        let operation = begin(session, &verb, vm).await?;
        moves::follow(session, vm, operation, run).await
    };
    several::each(session, vms, run, one).await
}

/// Has a conductor do it to one VM.
async fn begin(session: &Session, verb: &Power, name: &str) -> anyhow::Result<Option<Operation>> {
    let vm = resource("vms", name);
    let mut conductor = session.conductor().await?;
    Ok(match verb {
        Power::Stop { timeout, run, .. } => {
            let request = StopVmRequest {
                vm,
                timeout_ms: Some(timeout * 1000),
                request_id: request_id(run.request_id),
            };
            conduct!(conductor, stop_vm, request)?.operation
        }
        Power::Start { run, .. } => {
            let request = StartVmRequest {
                vm,
                request_id: request_id(run.request_id),
            };
            conduct!(conductor, start_vm, request)?.operation
        }
        Power::Reboot {
            hard, timeout, run, ..
        } => {
            let request = RebootVmRequest {
                vm,
                hard: *hard,
                timeout_ms: (!hard).then_some(timeout * 1000),
                request_id: request_id(run.request_id),
            };
            conduct!(conductor, reboot_vm, request)?.operation
        }
        Power::Rebuild { images, run, .. } => {
            let request = RebuildVmRequest {
                vm,
                images: images.clone(),
                request_id: request_id(run.request_id),
            };
            conduct!(conductor, rebuild_vm, request)?.operation
        }
        Power::Snapshot {
            image, disk, run, ..
        } => {
            let request = SnapshotVmRequest {
                vm,
                disk: *disk,
                image: image.clone(),
                request_id: request_id(run.request_id),
            };
            conduct!(conductor, snapshot_vm, request)?.operation
        }
    })
}
