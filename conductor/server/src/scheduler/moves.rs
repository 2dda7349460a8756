//! What begins the moves of VMs that do not run meanwhile.
//!
//! The conductor that carries them out is filled in here.

use berth_domain::id::{Epoch, OperationId};
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::Operation;
use berth_domain::refusal::Refusal;
use berth_proto::convert::ResourceName as _;
use berth_proto::host::v1::CordonHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::scheduler::v1::move_service_client::MoveServiceClient;
use berth_proto::scheduler::v1::{
    BeginDrainRequest, BeginRevertResizeRequest, BeginShelveRequest, ConfirmResizeRequest,
    MoveDrainedRequest, PlanDrainRequest, PlanDrainResponse, RecordDrainedRequest,
    ScheduleMoveRequest, ScheduleUnshelveRequest,
};

use super::{Scheduler, given_or_new, read_operation, refusal};

impl Scheduler {
    /// Chooses and claims a destination and begins a cold migration, a resize or an evacuation.
    pub(crate) async fn schedule_move(
        &self,
        mut request: ScheduleMoveRequest,
    ) -> Result<Operation, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, MoveServiceClient.schedule_move, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Chooses and claims a host and begins an unshelving.
    pub(crate) async fn schedule_unshelve(
        &self,
        mut request: ScheduleUnshelveRequest,
    ) -> Result<Operation, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, MoveServiceClient.schedule_unshelve, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Keeps what a resize brought: at once, or by the operation that is returned.
    pub(crate) async fn confirm_resize(
        &self,
        mut request: ConfirmResizeRequest,
    ) -> Result<Option<Operation>, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, MoveServiceClient.confirm_resize, request);
        match answer.map_err(refusal)?.operation {
            Some(operation) => read_operation(Some(operation)).map(Some),
            None => Ok(None),
        }
    }

    /// Begins to take a resize back.
    pub(crate) async fn begin_revert_resize(
        &self,
        mut request: BeginRevertResizeRequest,
    ) -> Result<Operation, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, MoveServiceClient.begin_revert_resize, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Begins a shelving.
    pub(crate) async fn begin_shelve(
        &self,
        mut request: BeginShelveRequest,
    ) -> Result<Operation, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, MoveServiceClient.begin_shelve, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Returns where the VMs of a host would go.
    pub(crate) async fn plan_drain(
        &self,
        request: PlanDrainRequest,
    ) -> Result<PlanDrainResponse, Refusal> {
        call!(self, MoveServiceClient.plan_drain, request).map_err(refusal)
    }

    /// Begins to drain a host.
    pub(crate) async fn begin_drain(
        &self,
        mut request: BeginDrainRequest,
    ) -> Result<Operation, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, MoveServiceClient.begin_drain, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Begins the move of a VM of a host that is drained. Repeated, it is the same move.
    pub(crate) async fn move_drained(
        &self,
        drain: OperationId,
        epoch: Epoch,
        vm: &VmName,
    ) -> Result<Operation, Refusal> {
        let request = MoveDrainedRequest {
            drain: drain.resource_name(),
            epoch: epoch.0,
            vm: vm.resource_name(),
            conductor: self.name.resource_name(),
            lease_ttl: self.wire_ttl(),
        };
        let answer = call!(self, MoveServiceClient.move_drained, request);
        read_operation(answer.map_err(refusal)?.operation)
    }

    /// Records what became of a VM of a host that is drained.
    pub(crate) async fn record_drained(
        &self,
        drain: OperationId,
        epoch: Epoch,
        vm: &VmName,
        why: Option<&Refusal>,
    ) -> Result<(), Refusal> {
        let request = RecordDrainedRequest {
            drain: drain.resource_name(),
            epoch: epoch.0,
            vm: vm.resource_name(),
            refusal: why.map(Into::into),
        };
        let answer = call!(self, MoveServiceClient.record_drained, request);
        answer.map(|_| ()).map_err(refusal)
    }

    /// Closes a host to new guests.
    pub(crate) async fn cordon(&self, host: &HostName) -> Result<(), Refusal> {
        let request = CordonHostRequest {
            name: host.resource_name(),
            request_id: given_or_new(String::new()),
        };
        let answer = call!(self, HostServiceClient.cordon_host, request);
        answer.map(|_| ()).map_err(refusal)
    }
}
