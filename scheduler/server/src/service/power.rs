//! `berth.scheduler.v1.PowerService`: what is done to a VM on the host that holds it, and when by
//! itself.

use std::sync::Arc;

use berth_decide::Action;
use berth_domain::id::OperationId;
use berth_domain::name::{ServiceName, VmName};
use berth_domain::refusal::Refusal;
use berth_domain::vm::{RestartPolicy, Vm};
use berth_proto::convert::operation::{lease_request, read_power};
use berth_proto::convert::vm::write_for_filter;
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::filter::Filter;
use berth_proto::scheduler::v1;
use berth_proto::scheduler::v1::power_service_server::PowerService;
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_state::command::Command;
use berth_state::{Reply, State};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::Context;
use super::keyed::open;
use super::refusal;
use super::scheduler::{Parts, operation_of};
use crate::grants;

/// How many restarts are listed at most.
const RESTARTS_MAX: u32 = 256;

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
            by_policy: wire.by_policy,
        });
        let (done, _) = self
            .0
            .submit_then(caller.into_request(false, action), Parts::of)
            .await?;
        if wire.by_policy && done.reply == Reply::None {
            return Ok(Response::new(v1::BeginPowerResponse { operation: None }));
        }
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::BeginPowerResponse {
            operation: Some((&*operation).into()),
        }))
    }

    async fn update_restart_policy(
        &self,
        request: Request<v1::UpdateRestartPolicyRequest>,
    ) -> Result<Response<v1::UpdateRestartPolicyResponse>, Status> {
        let (wire, caller) = open(request)?;
        let name: VmName = field::name(&wire.vm, "vm")?;
        let policy: RestartPolicy = field::required(wire.policy, "policy")?;
        let vm = name.clone();
        let action = Action::Plain(Command::SetRestartPolicy { vm, policy });
        let known = name.clone();
        let vm = move |state: &State, _: &Reply| -> Option<Arc<Vm>> { state.vm(&known).cloned() };
        let request = caller.into_request(false, action);
        let (done, vm) = self.0.submit_then(request, vm).await?;
        if done.reply != Reply::None {
            return Err(refusal::mismatch());
        }
        // It may have been deleted since a request that is repeated.
        let vm = vm.ok_or_else(|| to_status(&Refusal::not_found("vm", &name)))?;
        Ok(Response::new(v1::UpdateRestartPolicyResponse {
            vm: Some((&*vm).into()),
        }))
    }

    async fn open_console(
        &self,
        request: Request<v1::OpenConsoleRequest>,
    ) -> Result<Response<v1::OpenConsoleResponse>, Status> {
        let (wire, caller) = open(request)?;
        let name: VmName = field::name(&wire.vm, "vm")?;
        let conductor: ServiceName = field::name(&wire.conductor, "conductor")?;
        let action = Action::Plain(Command::OpenConsole {
            vm: name.clone(),
            conductor: conductor.clone(),
            take_over: wire.take_over,
        });
        let (known, user) = (name.clone(), caller.principal.clone());
        let granted = move |state: &State, _: &Reply| {
            let vm = state.vm(&known).cloned()?;
            let grant = grants::signed_console(state, vm.uid, &conductor, &user, state.time());
            Some((vm, grant))
        };
        let request = caller.into_request(false, action);
        let (done, granted) = self.0.submit_then(request, granted).await?;
        if done.reply != Reply::None {
            return Err(refusal::mismatch());
        }
        // It may have been deleted since a request that is repeated.
        let granted = granted.ok_or_else(|| to_status(&Refusal::not_found("vm", &name)))?;
        let (vm, grant) = granted;
        Ok(Response::new(v1::OpenConsoleResponse {
            vm: Some((&*vm).into()),
            grant,
        }))
    }

    async fn get_due_restarts(
        &self,
        request: Request<v1::GetDueRestartsRequest>,
    ) -> Result<Response<v1::GetDueRestartsResponse>, Status> {
        let max = match request.into_inner().max {
            0 => RESTARTS_MAX,
            max => max.min(RESTARTS_MAX),
        };
        let state = self.0.state(ReadConsistency::Linearizable.into()).await?;
        // The clock by which the restart is decided on when it begins.
        let (now, _) = self.0.times(state.time());
        // After a power cut that is a look at every VM; the other tasks go on meanwhile.
        let due = tokio::task::spawn_blocking(move || state.due_restarts(now, max as usize));
        let due = due
            .await
            .map_err(|error| Status::internal(format!("due restarts were not listed: {error}")))?;
        Ok(Response::new(v1::GetDueRestartsResponse {
            vms: due.vms.iter().map(|vm| vm.resource_name()).collect(),
            hosts: due.hosts.iter().map(|host| host.resource_name()).collect(),
        }))
    }
}

/// As [`write_vm`], with at least what a filter reads.
pub(super) fn write_vm_for(filter: &Filter, state: &State, vm: &Vm) -> v1::Vm {
    v1::Vm {
        task: task_of(state, vm),
        ..write_for_filter(vm, filter)
    }
}

/// Returns the wire form of a VM, with the task of its operation.
pub(super) fn write_vm(state: &State, vm: &Vm) -> v1::Vm {
    v1::Vm {
        task: task_of(state, vm),
        ..vm.into()
    }
}

fn task_of(state: &State, vm: &Vm) -> String {
    let operation = vm.operation.and_then(|id| state.operation(id));
    let task = operation.and_then(|operation| operation.kind.task());
    task.unwrap_or_default().to_owned()
}
