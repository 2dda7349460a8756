//! `berth.operation.v1.OperationService`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use berth_decide::Action;
use berth_domain::id::{Epoch, OperationId, TimeMs};
use berth_domain::name::{ServiceName, VmName};
use berth_domain::operation::{Effect, Operation};
use berth_domain::refusal::{Code, Refusal};
use berth_process::access;
use berth_proto::convert::operation::{Advance, lease_request};
use berth_proto::convert::page::Page;
use berth_proto::convert::{Invalid, ResourceName, field};
use berth_proto::filter::Filter;
use berth_proto::operation::v1;
use berth_proto::operation::v1::operation_service_server::OperationService;
use berth_proto::status::to_status;
use berth_proto::types::v1::{FirstBoot, ReadConsistency};
use berth_state::command::Command;
use berth_state::{Reply, State};
use berth_tls::Identity;
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::keyed::{Caller, open, own_service};
use super::{holder, list, refusal, stale, watch};

const WAIT_DEFAULT_MS: u64 = 30_000;
const WAIT_MS_MAX: u64 = 600_000;
/// The most leases that are prolonged at once.
const LEASES_MAX: usize = 10_000;

/// Serves `OperationService`.
pub(crate) struct OperationApi(pub(crate) Context);

impl OperationApi {
    async fn operation(
        &self,
        caller: Caller,
        command: Command,
    ) -> Result<Option<v1::Operation>, Status> {
        let Reply::Operation(operation) = self.0.command(caller, command).await? else {
            return Err(refusal::mismatch());
        };
        Ok(Some((&*operation).into()))
    }

    /// As [`Self::operation`], with what it grants to the conductor that carries it out.
    async fn granted(
        &self,
        caller: Caller,
        conductor: Option<Arc<Identity>>,
        command: Command,
    ) -> Result<(Option<v1::Operation>, Option<v1::SignedGrant>), Status> {
        let request = caller.into_request(false, Action::Plain(command));
        // Signed here and not in the replica's task.
        let read = |state: &State, _: &Reply| Some(state.clone());
        let (done, state) = self.0.submit_then(request, read).await?;
        let Reply::Operation(operation) = done.reply else {
            return Err(refusal::mismatch());
        };
        let granted = |state: State| Context::grant(&state, conductor.as_deref(), &operation);
        let grant = state.and_then(granted);
        Ok((Some((&*operation).into()), grant))
    }

    async fn find(
        &self,
        id: OperationId,
        consistency: i32,
    ) -> Result<(Arc<Operation>, u64), Status> {
        let state = self.0.state(consistency).await?;
        match state.operation(id) {
            Some(operation) => Ok((operation.clone(), state.revision())),
            None => Err(to_status(&Refusal::not_found("operation", id))),
        }
    }
}

#[tonic::async_trait]
impl OperationService for OperationApi {
    async fn get_operation(
        &self,
        request: Request<v1::GetOperationRequest>,
    ) -> Result<Response<v1::GetOperationResponse>, Status> {
        let caller = access::caller(request.extensions()).cloned();
        let wire = request.into_inner();
        let id = field::name(&wire.name, "name")?;
        let state = self.0.state(wire.consistency).await?;
        let Some(operation) = state.operation(id) else {
            return Err(to_status(&state.unknown_operation(id)));
        };
        let (revision, caller) = (state.revision(), caller.as_deref());
        // Who holds the lease may have changed since: a grant is not made of a stale state.
        let is_stale = stale::is_requested() || wire.consistency() == ReadConsistency::Stale;
        let grant = match is_stale {
            true => None,
            false => Context::grant(&state, caller, operation),
        };
        let first_boot = match !is_stale && Context::holds_lease(caller, operation) {
            true => first_boot(&state, operation),
            false => None,
        };
        Ok(Response::new(v1::GetOperationResponse {
            operation: Some((&**operation).into()),
            revision,
            grant,
            first_boot,
        }))
    }

    async fn list_operations(
        &self,
        request: Request<v1::ListOperationsRequest>,
    ) -> Result<Response<v1::ListOperationsResponse>, Status> {
        let wire = request.into_inner();
        let page = Page::filtered(wire.page_size, &wire.page_token, &wire.filter)?;
        let filter = Filter::new::<v1::Operation>(&wire.filter)?;
        let vm: Option<VmName> = field::optional_name(&wire.vm, "vm")?;
        let state = self.0.state(wire.consistency).await?;
        // Leases run out in replicated time.
        let now = self.0.time_by_now(&state);
        let listed = list::filtered(&self.0, filter, move |filter| {
            let keep = |operation: &Operation| {
                let lease = operation.lease.as_ref();
                (vm.is_none() || operation.vm() == vm.as_ref())
                    && !(operation.is_done() && (wire.running_only || wire.lease_expired_only))
                    && !(wire.lease_expired_only && lease.is_some_and(|l| l.expires_at > now))
                    && filter.matches_with(|| v1::Operation::from(operation))
            };
            let parse = |text: &str| text.parse().ok();
            let show = OperationId::to_string;
            let (operations, next_page_token) = match wire.running_only || wire.lease_expired_only {
                false => list::page(state.operations(), &page, parse, show, keep),
                // Few of all operations run; they have an index of their own.
                true => {
                    let running = state.running_operations_after(list::after(&page, parse)?);
                    let running = running.filter(|operation| keep(operation)).cloned();
                    Ok(page.cut(running, |operation| show(&operation.id)))
                }
            }?;
            Ok(v1::ListOperationsResponse {
                operations: operations.iter().map(|o| (&**o).into()).collect(),
                next_page_token,
                revision: state.revision(),
            })
        });
        listed.await.map(Response::new)
    }

    async fn wait_operation(
        &self,
        request: Request<v1::WaitOperationRequest>,
    ) -> Result<Response<v1::WaitOperationResponse>, Status> {
        let wire = request.into_inner();
        let id = field::name(&wire.name, "name")?;
        let wait_ms = field::optional_duration_ms(wire.timeout, "timeout")?
            .unwrap_or(WAIT_DEFAULT_MS)
            .min(WAIT_MS_MAX);
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        let watch = self.0.feed().watch_operation(id);
        let mut consistency = ReadConsistency::Linearizable;
        loop {
            let changed = watch.changed();
            let (operation, revision) = self.find(id, consistency.into()).await?;
            if operation.is_done() || Instant::now() >= deadline {
                return Ok(Response::new(v1::WaitOperationResponse {
                    operation: Some((&*operation).into()),
                    revision,
                }));
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(deadline) => {}
                () = self.0.stopping().cancelled() => return Err(refusal::stopping()),
            }
            // The change is already applied here: the watch is notified by it.
            consistency = ReadConsistency::Stale;
        }
    }

    type WatchOperationStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchOperationResponse, Status>> + Send>>;

    async fn watch_operation(
        &self,
        request: Request<v1::WatchOperationRequest>,
    ) -> Result<Response<Self::WatchOperationStream>, Status> {
        let wire = request.into_inner();
        let id = field::name(&wire.name, "name")?;
        let first = self.find(id, ReadConsistency::Linearizable.into()).await?;
        let stream = watch::operation(self.0.clone(), id, first);
        Ok(Response::new(Box::pin(stream)))
    }

    async fn cancel_operation(
        &self,
        request: Request<v1::CancelOperationRequest>,
    ) -> Result<Response<v1::CancelOperationResponse>, Status> {
        let (wire, caller) = open(request)?;
        let operation = field::name(&wire.name, "name")?;
        let command = Command::CancelOperation { operation };
        let operation = self.operation(caller, command).await?;
        Ok(Response::new(v1::CancelOperationResponse { operation }))
    }

    async fn force_complete_operation(
        &self,
        request: Request<v1::ForceCompleteOperationRequest>,
    ) -> Result<Response<v1::ForceCompleteOperationResponse>, Status> {
        let (wire, caller) = open(request)?;
        let operation = field::name(&wire.name, "name")?;
        let command = Command::ForceComplete { operation };
        let operation = self.operation(caller, command).await?;
        Ok(Response::new(v1::ForceCompleteOperationResponse {
            operation,
        }))
    }

    async fn advance(
        &self,
        request: Request<v1::AdvanceRequest>,
    ) -> Result<Response<v1::AdvanceResponse>, Status> {
        let conductor = access::caller(request.extensions()).cloned();
        let (wire, caller) = open(request)?;
        let advance = Advance::try_from(wire)?;
        holder::check(&self.0, conductor.clone(), advance.operation, advance.epoch).await?;
        if matches!(advance.effect, Effect::HoldClaim(_)) {
            return Err(to_status(&Refusal::new(
                Code::InvalidArgument,
                "EFFECT_NOT_ALLOWED",
                "a claim is chosen and held by ScheduleNext only",
            )));
        }
        let command = Command::Advance {
            operation: advance.operation,
            epoch: advance.epoch,
            step: advance.step,
            mark: advance.mark,
            effect: advance.effect,
        };
        let (operation, grant) = self.granted(caller, conductor, command).await?;
        Ok(Response::new(v1::AdvanceResponse { operation, grant }))
    }

    async fn take_lease(
        &self,
        request: Request<v1::TakeLeaseRequest>,
    ) -> Result<Response<v1::TakeLeaseResponse>, Status> {
        own_service(&request, &request.get_ref().conductor)?;
        let conductor = access::caller(request.extensions()).cloned();
        let (wire, caller) = open(request)?;
        let command = Command::TakeLease {
            operation: field::name(&wire.operation, "operation")?,
            lease: lease_request(&wire.conductor, wire.lease_ttl)?,
        };
        let (operation, grant) = self.granted(caller, conductor, command).await?;
        Ok(Response::new(v1::TakeLeaseResponse { operation, grant }))
    }

    async fn renew_leases(
        &self,
        request: Request<v1::RenewLeasesRequest>,
    ) -> Result<Response<v1::RenewLeasesResponse>, Status> {
        own_service(&request, &request.get_ref().conductor)?;
        let (wire, caller) = open(request)?;
        let (conductor, leases, ttl_ms) = renewal(wire)?;
        let requested: Vec<OperationId> = leases.iter().map(|(id, _)| *id).collect();
        let command = Command::RenewLeases {
            conductor,
            leases,
            ttl_ms,
        };
        let request = caller.into_request(false, Action::Plain(command));
        let (done, expires_at) = self.0.submit_then(request, lease_end).await?;
        let Reply::Leases(held) = done.reply else {
            return Err(refusal::mismatch());
        };
        let lost = requested.iter().filter(|id| !held.contains(id));
        Ok(Response::new(v1::RenewLeasesResponse {
            lost: lost.map(ResourceName::resource_name).collect(),
            held: held.iter().map(ResourceName::resource_name).collect(),
            expire_time: expires_at.map(field::timestamp),
        }))
    }
}

/// Returns when the leases that were renewed run out.
fn lease_end(state: &State, reply: &Reply) -> Option<TimeMs> {
    let Reply::Leases(held) = reply else {
        return None;
    };
    let operation = state.operation(*held.first()?)?;
    Some(operation.lease.as_ref()?.expires_at)
}

type Renewal = (ServiceName, Vec<(OperationId, Epoch)>, u64);

fn renewal(wire: v1::RenewLeasesRequest) -> Result<Renewal, Invalid> {
    let hold = |hold: v1::LeaseHold| {
        let operation = field::name(&hold.operation, "operation")?;
        Ok((operation, Epoch(hold.epoch)))
    };
    Ok((
        field::name(&wire.conductor, "conductor")?,
        field::each_by(wire.leases, "leases", LEASES_MAX, hold)?,
        field::lease_ttl_ms(wire.lease_ttl, "lease_ttl")?,
    ))
}

/// Returns what the guest of a boot is given for it.
fn first_boot(state: &State, operation: &Operation) -> Option<FirstBoot> {
    let vm = state.vm(operation.vm()?)?;
    let is_booted = vm.operation == Some(operation.id);
    let first_boot = vm.first_boot.as_deref().filter(|_| is_booted);
    first_boot.map(Into::into)
}
