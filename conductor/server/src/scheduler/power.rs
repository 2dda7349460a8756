//! What begins the operations on the VM's own host, and what lists those that are due by policy.
//!
//! The conductor that carries them out is filled in here.

use berth_domain::id::VmUid;
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::{Kind, Operation};
use berth_domain::refusal::Refusal;
use berth_proto::convert::operation::write_power;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::operation::v1::SignedGrant;
use berth_proto::scheduler::v1::power_service_client::PowerServiceClient;
use berth_proto::scheduler::v1::{BeginPowerRequest, GetDueRestartsRequest, OpenConsoleRequest};

use super::{Scheduler, given_or_new, is_without_method, read_operation, refusal, unreadable};

/// What is to be started again by policy.
#[derive(Debug)]
pub(crate) struct DueRestarts {
    /// VMs on hosts that are alive.
    pub(crate) vms: Vec<VmName>,
    /// Dead hosts.
    pub(crate) hosts: Vec<HostName>,
}

impl Scheduler {
    /// Returns what is to be started again by policy now. A scheduler of an earlier build lists
    /// nothing.
    pub(crate) async fn due_restarts(&self, max: usize) -> Result<DueRestarts, Refusal> {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let request = GetDueRestartsRequest { max };
        let answer = match call!(self, PowerServiceClient.get_due_restarts, request) {
            Ok(answer) => answer,
            Err(status) if is_without_method(&status) => Default::default(),
            Err(status) => return Err(refusal(status)),
        };
        let hosts = answer.hosts.iter().map(|name| field::name(name, "hosts"));
        let vms = answer.vms.iter().map(|name| field::name(name, "vms"));
        Ok(DueRestarts {
            hosts: hosts.collect::<Result<_, _>>().map_err(unreadable)?,
            vms: vms.collect::<Result<_, _>>().map_err(unreadable)?,
        })
    }

    /// Begins to start a VM by its policy; nothing where its restarts are used up.
    pub(crate) async fn begin_restart(&self, vm: &VmName) -> Result<Option<Operation>, Refusal> {
        let request = BeginPowerRequest {
            vm: vm.resource_name(),
            power: write_power(&Kind::Start),
            conductor: self.name.resource_name(),
            lease_ttl: self.wire_ttl(),
            request_id: given_or_new(String::new()),
            by_policy: true,
        };
        let answer = call!(self, PowerServiceClient.begin_power, request);
        let operation = answer.map_err(refusal)?.operation;
        operation
            .map(|operation| read_operation(Some(operation)))
            .transpose()
    }

    /// Records that the user types on a console through this conductor, and returns which VM that is, and
    /// the grant for it.
    pub(crate) async fn open_console(
        &self,
        vm: &VmName,
        take_over: bool,
    ) -> Result<(VmUid, Option<SignedGrant>), Refusal> {
        let request = OpenConsoleRequest {
            vm: vm.resource_name(),
            conductor: self.name.resource_name(),
            take_over,
            request_id: given_or_new(String::new()),
        };
        let answer = call!(self, PowerServiceClient.open_console, request);
        let answer = answer.map_err(refusal)?;
        let uid = &answer.vm.unwrap_or_default().uid;
        let uid = field::uuid(uid, "vm.uid").map_err(unreadable)?;
        Ok((uid, answer.grant))
    }

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
