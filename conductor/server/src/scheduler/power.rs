//! What begins the operations on the VM's own host.
//!
//! The conductor that carries them out is filled in here.

use berth_domain::operation::Operation;
use berth_domain::refusal::Refusal;
use berth_proto::convert::ResourceName as _;
use berth_proto::scheduler::v1::BeginPowerRequest;
use berth_proto::scheduler::v1::power_service_client::PowerServiceClient;

use super::{Scheduler, given_or_new, read_operation, refusal};

impl Scheduler {
    /// Begins to stop, start, reboot, rebuild or snapshot a VM.
    pub(crate) async fn begin_power(
        &self,
        mut request: BeginPowerRequest,
    ) -> Result<Operation, Refusal> {
        request.conductor = self.name.resource_name();
        request.lease_ttl = self.wire_ttl();
        request.request_id = given_or_new(request.request_id);
        let answer = call!(self, PowerServiceClient.begin_power, request);
        read_operation(answer.map_err(refusal)?.operation)
    }
}
