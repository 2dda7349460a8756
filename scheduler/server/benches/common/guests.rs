//! Claims for guests that are made and given back by hand, without conductors.

use berth_proto::operation::v1::mark::Kind as MarkKind;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{AdvanceRequest, Effect, Mark, Operation, Step, effect};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{BeginDeleteRequest, ScheduleVmRequest, ScheduleVmResponse};
use berth_proto::types::v1 as wire;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::fault::{Outcome, fault};

/// Whose leases they are.
const CONDUCTOR: &str = "services/bench";

/// A guest that has a claim.
#[derive(Debug)]
pub(crate) struct Scheduled {
    vm: String,
    /// The operation that boots it.
    operation: String,
    /// The epoch of the lease of that operation.
    epoch: u64,
}

/// Returns the request for a claim.
pub(crate) fn request(vm: &str, flavor: &str) -> ScheduleVmRequest {
    let kernel = wire::KernelBoot {
        kernel: "vmlinuz".to_owned(),
        initrd: "initrd".to_owned(),
        cmdline: "console=ttyS0".to_owned(),
    };
    ScheduleVmRequest {
        vm: vm.to_owned(),
        template: Some(wire::VmTemplate {
            flavor: format!("flavors/{flavor}"),
            boot: Some(wire::BootSource {
                source: Some(wire::boot_source::Source::Kernel(kernel)),
            }),
            ..Default::default()
        }),
        conductor: CONDUCTOR.to_owned(),
        lease_ttl: Some(lease_ttl()),
        request_id: Uuid::now_v7().to_string(),
        ..Default::default()
    }
}

fn lease_ttl() -> prost_types::Duration {
    prost_types::Duration {
        seconds: 600,
        nanos: 0,
    }
}

/// Reads the response to a [`request`].
pub(crate) fn scheduled(vm: String, response: ScheduleVmResponse) -> Outcome<Scheduled> {
    let operation = response.operation.ok_or_else(|| fault("no operation"))?;
    let Operation { name, lease, .. } = operation;
    let lease = lease.ok_or_else(|| fault("an operation without a lease"))?;
    Ok(Scheduled {
        vm,
        operation: name,
        epoch: lease.epoch,
    })
}

/// Releases a claim, and deletes the record of the guest.
pub(crate) async fn release(channel: Channel, guest: Scheduled) -> Outcome<()> {
    let cancelled = wire::Refusal {
        code: wire::refusal::Code::Cancelled.into(),
        reason: "CANCELLED".to_owned(),
        message: "the measurement is over".to_owned(),
        ..Default::default()
    };
    let undone = AdvanceRequest {
        operation: guest.operation,
        epoch: guest.epoch,
        step: Step::Claim.into(),
        mark: Some(Mark {
            kind: MarkKind::Undone.into(),
            refusal: None,
        }),
        effect: Some(Effect {
            effect: Some(effect::Effect::FailBoot(cancelled)),
        }),
        request_id: String::new(),
    };
    OperationServiceClient::new(channel.clone())
        .advance(undone)
        .await?;
    let delete = BeginDeleteRequest {
        vm: guest.vm,
        conductor: CONDUCTOR.to_owned(),
        lease_ttl: Some(lease_ttl()),
        request_id: Uuid::now_v7().to_string(),
    };
    SchedulerServiceClient::new(channel)
        .begin_delete(delete)
        .await?;
    Ok(())
}
