//! `berth.scheduler.v1.PowerService`: what is done to a VM on the host that holds it.

use berth_decide::Action;
use berth_domain::id::OperationId;
use berth_domain::vm::Vm;
use berth_proto::convert::field;
use berth_proto::convert::operation::{lease_request, read_power};
use berth_proto::scheduler::v1;
use berth_proto::scheduler::v1::power_service_server::PowerService;
use berth_state::State;
use berth_state::command::Command;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::Context;
use super::keyed::open;
use super::scheduler::{Parts, operation_of};

/// Serves `PowerService`.
pub(crate) struct PowerApi(pub(crate) Context);

#[tonic::async_trait]
impl PowerService for PowerApi {
    async fn begin_power(
        &self,
        request: Request<v1::BeginPowerRequest>,
    ) -> Result<Response<v1::BeginPowerResponse>, Status> {
        let (wire, caller) = open(request)?;
        let action = Action::Plain(Command::BeginPower {
            operation: OperationId(Uuid::now_v7()),
            vm: field::name(&wire.vm, "vm")?,
            kind: read_power(wire.power).map_err(|e| e.within("power"))?,
            lease: lease_request(&wire.conductor, wire.lease_ttl)?,
        });
        let (done, _) = self
            .0
            .submit_then(caller.into_request(false, action), Parts::of)
            .await?;
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::BeginPowerResponse {
            operation: Some((&*operation).into()),
        }))
    }
}

/// Returns the wire form of a VM, with the task of its operation.
pub(super) fn write_vm(state: &State, vm: &Vm) -> v1::Vm {
    let operation = vm.operation.and_then(|id| state.operation(id));
    let task = operation.and_then(|operation| operation.kind.task());
    v1::Vm {
        task: task.unwrap_or_default().to_owned(),
        ..vm.into()
    }
}
