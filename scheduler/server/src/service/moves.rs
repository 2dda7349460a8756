//! `berth.scheduler.v1.MoveService`: VMs that are moved while they do not run.

use berth_decide::{
    Action, DrainOptions, MoveDrained, PlannedMove, Preferred, ScheduleMove, ScheduleUnshelve,
    Stuck, plan_drain,
};
use berth_domain::id::{ClaimId, Epoch, MigrationId, OperationId};
use berth_domain::migration;
use berth_domain::name::{HostName, VmName};
use berth_domain::operation::PlannedPlace;
use berth_domain::operation::drain::{BY_MAX, DRAINED_MAX};
use berth_process::access;
use berth_proto::convert::operation::lease_request;
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::scheduler::v1;
use berth_proto::scheduler::v1::move_service_server::MoveService;
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_state::command::{Command, PlannedVm};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::context::{Context, Done};
use super::keyed::{Caller, open, own_service};
use super::scheduler::{Parts, explain, lease, operation_of};
use super::{holder, wall};

/// Serves `MoveService`.
pub(crate) struct MoveApi(pub(crate) Context);

impl MoveApi {
    async fn submit(
        &self,
        caller: Caller,
        validate_only: bool,
        action: Action,
    ) -> Result<(Done, Parts), Status> {
        let request = caller.into_request(validate_only, action);
        self.0.submit_then(request, Parts::of).await
    }
}

#[tonic::async_trait]
impl MoveService for MoveApi {
    async fn schedule_move(
        &self,
        request: Request<v1::ScheduleMoveRequest>,
    ) -> Result<Response<v1::ScheduleMoveResponse>, Status> {
        let (wire, caller) = open(request)?;
        let validate_only = wire.validate_only;
        let action = Action::ScheduleMove(schedule_move(&wire)?);
        let (done, parts) = self.submit(caller, validate_only, action).await?;
        let explanation = done.choice.as_ref().map(explain);
        if validate_only {
            return Ok(Response::new(v1::ScheduleMoveResponse {
                explanation,
                ..Default::default()
            }));
        }
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::ScheduleMoveResponse {
            operation: Some((&*operation).into()),
            migration: parts.migration.map(|migration| (&*migration).into()),
            claim: parts.claim.map(|claim| (&*claim).into()),
            explanation,
        }))
    }

    async fn schedule_unshelve(
        &self,
        request: Request<v1::ScheduleUnshelveRequest>,
    ) -> Result<Response<v1::ScheduleUnshelveResponse>, Status> {
        let (wire, caller) = open(request)?;
        let validate_only = wire.validate_only;
        let action = Action::ScheduleUnshelve(ScheduleUnshelve {
            operation: OperationId(Uuid::now_v7()),
            vm: field::name(&wire.vm, "vm")?,
            claim: ClaimId(Uuid::now_v7()),
            host: field::optional_name(&wire.requested_host, "requested_host")?,
            lease: lease(&wire.conductor, wire.lease_ttl, validate_only)?,
        });
        let (done, parts) = self.submit(caller, validate_only, action).await?;
        let explanation = done.choice.as_ref().map(explain);
        if validate_only {
            return Ok(Response::new(v1::ScheduleUnshelveResponse {
                explanation,
                ..Default::default()
            }));
        }
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::ScheduleUnshelveResponse {
            operation: Some((&*operation).into()),
            claim: parts.claim.map(|claim| (&*claim).into()),
            explanation,
        }))
    }

    async fn confirm_resize(
        &self,
        request: Request<v1::ConfirmResizeRequest>,
    ) -> Result<Response<v1::ConfirmResizeResponse>, Status> {
        let (wire, caller) = open(request)?;
        let name: VmName = field::name(&wire.vm, "vm")?;
        let deleter = match wire.conductor.is_empty() {
            true => None,
            false => {
                let lease = lease_request(&wire.conductor, wire.lease_ttl)?;
                Some((OperationId(Uuid::now_v7()), lease))
            }
        };
        let action = Action::Plain(Command::ConfirmResize {
            vm: name.clone(),
            deleter,
        });
        let request = caller.into_request(false, action);
        let (done, vm) = self
            .0
            .submit_then(request, move |state, _| state.vm(&name).cloned())
            .await?;
        Ok(Response::new(v1::ConfirmResizeResponse {
            vm: vm.map(|vm| (&*vm).into()),
            // Where there was nothing to delete there is none.
            operation: operation_of(done.reply).ok().map(|o| (&*o).into()),
        }))
    }

    async fn begin_revert_resize(
        &self,
        request: Request<v1::BeginRevertResizeRequest>,
    ) -> Result<Response<v1::BeginRevertResizeResponse>, Status> {
        let (wire, caller) = open(request)?;
        let action = Action::Plain(Command::BeginRevertResize {
            operation: OperationId(Uuid::now_v7()),
            vm: field::name(&wire.vm, "vm")?,
            lease: lease_request(&wire.conductor, wire.lease_ttl)?,
        });
        let (done, _) = self.submit(caller, false, action).await?;
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::BeginRevertResizeResponse {
            operation: Some((&*operation).into()),
        }))
    }

    async fn plan_drain(
        &self,
        request: Request<v1::PlanDrainRequest>,
    ) -> Result<Response<v1::PlanDrainResponse>, Status> {
        let wire = request.into_inner();
        let host: HostName = field::name(&wire.host, "host")?;
        let consistency = ReadConsistency::Linearizable;
        let state = self.0.state(consistency.into()).await?;
        let at = wall().max(state.time());
        // A large host takes a while; the replica's task goes on meanwhile.
        let options = DrainOptions {
            evacuate: wire.evacuate,
            cold: wire.cold,
            by_policy: wire.by_policy,
        };
        let planned = tokio::task::spawn_blocking(move || {
            plan_drain(&state, berth_codec::admit, at, &host, options)
        });
        let plan = planned
            .await
            .map_err(|error| Status::internal(format!("the plan was not made: {error}")))?
            .map_err(|refusal| to_status(&refusal))?;
        Ok(Response::new(v1::PlanDrainResponse {
            moves: plan.moves.iter().map(write_move).collect(),
            stuck: plan.stuck.iter().map(write_stuck).collect(),
        }))
    }

    async fn begin_drain(
        &self,
        request: Request<v1::BeginDrainRequest>,
    ) -> Result<Response<v1::BeginDrainResponse>, Status> {
        let (wire, caller) = open(request)?;
        let mut by = caller.principal.clone();
        let end = (0..=by.len().min(BY_MAX)).rfind(|at| by.is_char_boundary(*at));
        by.truncate(end.unwrap_or(0));
        let action = Action::Plain(Command::BeginDrain {
            operation: OperationId(Uuid::now_v7()),
            host: field::name(&wire.host, "host")?,
            spec: field::required(wire.spec, "spec")?,
            by,
            plan: field::each_by(wire.moves, "moves", DRAINED_MAX, read_planned)?,
            lease: lease_request(&wire.conductor, wire.lease_ttl)?,
        });
        let (done, _) = self.submit(caller, false, action).await?;
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::BeginDrainResponse {
            operation: Some((&*operation).into()),
        }))
    }

    async fn move_drained(
        &self,
        request: Request<v1::MoveDrainedRequest>,
    ) -> Result<Response<v1::MoveDrainedResponse>, Status> {
        own_service(&request, &request.get_ref().conductor)?;
        let conductor = access::caller(request.extensions()).cloned();
        // The record of the drain shows what was begun.
        let caller = Caller::unkeyed(&request);
        let wire = request.into_inner();
        let (drain, epoch) = (field::name(&wire.drain, "drain")?, Epoch(wire.epoch));
        holder::check(&self.0, conductor, drain, epoch).await?;
        let action = Action::MoveDrained(MoveDrained {
            drain,
            epoch,
            vm: field::name(&wire.vm, "vm")?,
            operation: OperationId(Uuid::now_v7()),
            migration: MigrationId(Uuid::now_v7()),
            claim: ClaimId(Uuid::now_v7()),
            lease: lease_request(&wire.conductor, wire.lease_ttl)?,
        });
        let (done, _) = self.submit(caller, false, action).await?;
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::MoveDrainedResponse {
            operation: Some((&*operation).into()),
        }))
    }

    async fn record_drained(
        &self,
        request: Request<v1::RecordDrainedRequest>,
    ) -> Result<Response<v1::RecordDrainedResponse>, Status> {
        let conductor = access::caller(request.extensions()).cloned();
        let caller = Caller::unkeyed(&request);
        let wire = request.into_inner();
        let (drain, epoch) = (field::name(&wire.drain, "drain")?, Epoch(wire.epoch));
        holder::check(&self.0, conductor, drain, epoch).await?;
        let action = Action::Plain(Command::RecordDrained {
            drain,
            epoch,
            vm: field::name(&wire.vm, "vm")?,
            refusal: field::optional(wire.refusal, "refusal")?,
        });
        let (done, _) = self.submit(caller, false, action).await?;
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::RecordDrainedResponse {
            operation: Some((&*operation).into()),
        }))
    }

    async fn begin_shelve(
        &self,
        request: Request<v1::BeginShelveRequest>,
    ) -> Result<Response<v1::BeginShelveResponse>, Status> {
        let (wire, caller) = open(request)?;
        let action = Action::Plain(Command::BeginShelve {
            operation: OperationId(Uuid::now_v7()),
            vm: field::name(&wire.vm, "vm")?,
            lease: lease_request(&wire.conductor, wire.lease_ttl)?,
        });
        let (done, _) = self.submit(caller, false, action).await?;
        let operation = operation_of(done.reply)?;
        Ok(Response::new(v1::BeginShelveResponse {
            operation: Some((&*operation).into()),
        }))
    }
}

fn write_move(planned: &PlannedMove) -> v1::PlannedMove {
    v1::PlannedMove {
        vm: planned.vm.resource_name(),
        kind: v1::migration::Kind::from(planned.how).into(),
        destination: planned.destination.resource_name(),
        assignment: Some((&planned.assignment).into()),
    }
}

/// Reads one move of a plan. Only the VM of a dead host goes where it was planned to go.
fn read_planned(wire: v1::PlannedMove) -> Result<PlannedVm, Invalid> {
    let kind = field::choice::<v1::migration::Kind, migration::Kind>(wire.kind, "kind")?;
    let place = match kind {
        migration::Kind::Live | migration::Kind::Cold => None,
        migration::Kind::Evacuation => Some(PlannedPlace {
            host: field::name(&wire.destination, "destination")?,
            assignment: field::required(wire.assignment, "assignment")?,
        }),
    };
    Ok(PlannedVm {
        vm: field::name(&wire.vm, "vm")?,
        place,
    })
}

fn write_stuck(stuck: &Stuck) -> v1::StuckVm {
    v1::StuckVm {
        vm: stuck.vm.resource_name(),
        refusal: Some((&stuck.refusal).into()),
    }
}

fn preferred(wire: &v1::ScheduleMoveRequest) -> Result<Option<Preferred>, Invalid> {
    let Some(host) = field::optional_name(&wire.preferred_host, "preferred_host")? else {
        return Ok(None);
    };
    let assignment = wire.preferred_assignment.clone();
    let assignment = assignment.map(TryInto::try_into).transpose()?;
    Ok(Some(Preferred { host, assignment }))
}

fn schedule_move(wire: &v1::ScheduleMoveRequest) -> Result<ScheduleMove, Invalid> {
    if !wire.preferred_host.is_empty() && !wire.requested_host.is_empty() {
        let rule = "must be empty where requested_host is given";
        return Err(Invalid::new("preferred_host", rule));
    }
    Ok(ScheduleMove {
        operation: OperationId(Uuid::now_v7()),
        migration: MigrationId(Uuid::now_v7()),
        vm: field::name(&wire.vm, "vm")?,
        claim: ClaimId(Uuid::now_v7()),
        flavor: field::optional_name(&wire.flavor, "flavor")?,
        host: field::optional_name(&wire.requested_host, "requested_host")?,
        preferred: preferred(wire)?,
        verify: wire.verify,
        evacuate: wire.evacuate,
        lease: lease(&wire.conductor, wire.lease_ttl, wire.validate_only)?,
    })
}
