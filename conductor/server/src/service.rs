//! What users call.
//!
//! Not here: whether a request is valid. The scheduler checks that in the command that begins
//! the operation, and its refusal is passed on as it is, with hosts, causes and hint.
//!
//! Invariant: what was begun is adopted, also when the user hangs up in between.

use berth_domain::name::{HostName, VmName};
use berth_domain::operation::Operation;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::Feature;
use berth_process::access;
use berth_proto::conductor::v1::conductor_service_server::ConductorService;
use berth_proto::conductor::v1::{
    AbortMigrationRequest, AbortMigrationResponse, AddImageRequest, AddImageResponse,
    AttachConsoleRequest, CheckHostsRequest, CheckHostsResponse, ConfirmResizeRequest,
    ConfirmResizeResponse, CopyImageRequest, CreateVmRequest, CreateVmResponse, DeleteVmRequest,
    DeleteVmResponse, DownloadImageRequest, DrainHostRequest, EvacuateVmRequest,
    EvacuateVmResponse, FenceHostRequest, FenceHostResponse, ForceCompleteMigrationRequest,
    ForceCompleteMigrationResponse, GetServiceInfoRequest, GetServiceInfoResponse,
    MigrateVmRequest, MigrateVmResponse, ReadConsoleRequest, RebootVmRequest, RebootVmResponse,
    RebuildVmRequest, RebuildVmResponse, ResizeVmRequest, ResizeVmResponse, RevertResizeRequest,
    RevertResizeResponse, ShelveVmRequest, ShelveVmResponse, SnapshotVmRequest, SnapshotVmResponse,
    StartVmRequest, StartVmResponse, StopVmRequest, StopVmResponse, UnshelveVmRequest,
    UnshelveVmResponse, WatchMigrationRequest,
};
use berth_proto::convert::{ResourceName as _, field};
use berth_proto::scheduler::v1::{
    BeginDeleteRequest, BeginPowerRequest, BeginRevertResizeRequest, BeginShelveRequest,
    ScheduleMigrationRequest, ScheduleMoveRequest, ScheduleUnshelveRequest, ScheduleVmRequest,
};
use berth_proto::{operation, scheduler, status};
use berth_traces::{current, within};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::console::{self, Console};
use crate::driver::Tools;
use crate::host_check::Checks;
use crate::image::{self, Copies, Downloading};
use crate::migration::{self, Watch};
use crate::scheduler::Begun;
use crate::supervisor::Handle;
use crate::{drain, power, traces};

/// The conductor's gRPC service.
#[derive(Clone, Debug)]
pub(crate) struct ConductorApi {
    pub(crate) tools: Tools,
    pub(crate) supervisor: Handle,
    pub(crate) stopping: CancellationToken,
    pub(crate) checks: Checks,
}

impl ConductorApi {
    /// Returns the same service, which calls the scheduler on behalf of the caller of a request.
    fn for_user<T>(&self, request: &Request<T>) -> Self {
        let mut api = self.clone();
        api.tools.scheduler = api.tools.scheduler.for_user(request);
        api
    }

    /// Begins an operation and has it carried out. Once sent, the request is seen to its end
    /// even if the client disconnects: else an operation could begin that no conductor carries out
    /// until its lease has expired.
    async fn begin<F, B>(&self, begin: F) -> Result<operation::v1::Operation, Status>
    where
        F: Future<Output = Result<B, Refusal>> + Send + 'static,
        B: Into<Begun>,
    {
        let begun = self.begin_operation(begin).await.map_err(to_status)?;
        Ok((&begun).into())
    }

    /// Like [`begin`](Self::begin), in the domain's terms.
    pub(crate) async fn begin_operation<F, B>(&self, begin: F) -> Result<Operation, Refusal>
    where
        F: Future<Output = Result<B, Refusal>> + Send + 'static,
        B: Into<Begun>,
    {
        let begun = self.begin_some(async move { Ok(Some(begin.await?.into())) });
        begun.await?.ok_or_else(failed)
    }

    /// Like [`begin_operation`](Self::begin_operation), of what may be done without an operation.
    pub(crate) async fn begin_some<F>(&self, begin: F) -> Result<Option<Operation>, Refusal>
    where
        F: Future<Output = Result<Option<Begun>, Refusal>> + Send + 'static,
    {
        let requested_at = std::time::Instant::now();
        self.supervisor.check_capacity()?;
        let supervisor = self.supervisor.clone();
        let request = current();
        let carried = request.clone();
        let begun = tokio::spawn(within(request, async move {
            let Some(begun) = begin.await? else {
                return Ok(None);
            };
            let operation = begun.operation.clone();
            if let (Some(request), Some(span)) = (carried, traces::of_operation(operation.id)) {
                request.link(span.context());
            }
            tracing::info!(
                operation = %operation.id, on = operation.subject_name(), kind = ?operation.kind, "begun"
            );
            supervisor.adopt(begun, requested_at).await;
            Ok(Some(operation))
        }));
        begun.await.unwrap_or_else(|_| Err(failed()))
    }
}

fn failed() -> Refusal {
    Refusal::new(
        Code::Internal,
        "REQUEST_FAILED",
        "the conductor failed while it began the operation",
    )
}

impl ConductorApi {
    /// Begins what is done to a VM on the host that holds it.
    async fn power(&self, command: BeginPowerRequest) -> Result<operation::v1::Operation, Status> {
        let scheduler = self.tools.scheduler.clone();
        power::gate(scheduler.version()).map_err(to_status)?;
        self.begin(async move { scheduler.begin_power(command).await })
            .await
    }
}

fn to_status(refusal: Refusal) -> Status {
    status::to_status(&refusal)
}

#[tonic::async_trait]
impl ConductorService for ConductorApi {
    async fn create_vm(
        &self,
        request: Request<CreateVmRequest>,
    ) -> Result<Response<CreateVmResponse>, Status> {
        let api = self.for_user(&request);
        let mut request = request.into_inner();
        let scheduler = api.tools.scheduler.clone();
        if !scheduler.version().can(Feature::SchedulingHints)
            && let Some(template) = &mut request.template
        {
            // As an older program reads the message: it does not know these fields.
            template.server_group.clear();
            template.availability_zone.clear();
            template.volumes.clear();
        }
        if !scheduler.version().can(Feature::Projects)
            && let Some(template) = &mut request.template
        {
            template.project.clear();
            template.first_boot = None;
            template.labels.clear();
            template.description.clear();
            template.protected = false;
        }
        let command = ScheduleVmRequest {
            vm: request.vm,
            template: request.template,
            requested_host: request.requested_host,
            request_id: request.request_id,
            ..ScheduleVmRequest::default()
        };
        let begun = api.begin(async move { scheduler.schedule_vm(command).await });
        let operation = Some(begun.await?);
        Ok(Response::new(CreateVmResponse { operation }))
    }

    async fn delete_vm(
        &self,
        request: Request<DeleteVmRequest>,
    ) -> Result<Response<DeleteVmResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let scheduler = api.tools.scheduler.clone();
        let command = BeginDeleteRequest {
            vm: request.vm,
            request_id: request.request_id,
            ..BeginDeleteRequest::default()
        };
        let begun = api.begin(async move { scheduler.begin_delete(command).await });
        let operation = Some(begun.await?);
        Ok(Response::new(DeleteVmResponse { operation }))
    }

    async fn add_image(
        &self,
        request: Request<Streaming<AddImageRequest>>,
    ) -> Result<Response<AddImageResponse>, Status> {
        let api = self.for_user(&request);
        let image = Some(image::add(api.tools, request.into_inner()).await?);
        Ok(Response::new(AddImageResponse { image }))
    }

    type DownloadImageStream = Downloading;

    async fn download_image(
        &self,
        request: Request<DownloadImageRequest>,
    ) -> Result<Response<Self::DownloadImageStream>, Status> {
        let api = self.for_user(&request);
        let download = image::download(api.tools, request.into_inner(), self.stopping.clone());
        Ok(Response::new(download.await?))
    }

    type CopyImageStream = Copies;

    async fn copy_image(
        &self,
        request: Request<CopyImageRequest>,
    ) -> Result<Response<Self::CopyImageStream>, Status> {
        let api = self.for_user(&request);
        let copies = image::copy(api.tools, request.into_inner(), self.stopping.clone());
        Ok(Response::new(copies.await?))
    }

    async fn fence_host(
        &self,
        request: Request<FenceHostRequest>,
    ) -> Result<Response<FenceHostResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let name: HostName = field::name(&request.name, "name")?;
        // Runs to its end even if the client disconnects: what was done is to be recorded.
        let tools = api.tools.clone();
        let fencing = tokio::spawn(async move {
            let fence = tools.fence;
            fence
                .fence(&tools.scheduler, &name, request.request_id)
                .await
        });
        let fenced = fencing
            .await
            .map_err(|_| Status::internal("the conductor failed while it fenced the host"))?;
        let host = fenced.map_err(to_status)?;
        Ok(Response::new(FenceHostResponse {
            host: Some((&host).into()),
        }))
    }

    async fn migrate_vm(
        &self,
        request: Request<MigrateVmRequest>,
    ) -> Result<Response<MigrateVmResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let scheduler = api.tools.scheduler.clone();
        let command = ScheduleMigrationRequest {
            vm: request.vm,
            requested_host: request.requested_host,
            request_id: request.request_id,
            transfer: request.transfer,
            ..ScheduleMigrationRequest::default()
        };
        let begun = api.begin(async move { scheduler.schedule_migration(command).await });
        let operation = Some(begun.await?);
        Ok(Response::new(MigrateVmResponse { operation }))
    }

    async fn resize_vm(
        &self,
        request: Request<ResizeVmRequest>,
    ) -> Result<Response<ResizeVmResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let scheduler = api.tools.scheduler.clone();
        let command = ScheduleMoveRequest {
            vm: request.vm,
            flavor: request.flavor,
            requested_host: request.requested_host,
            verify: request.verify,
            request_id: request.request_id,
            ..ScheduleMoveRequest::default()
        };
        let begun = api.begin(async move { scheduler.schedule_move(command).await });
        let operation = Some(begun.await?);
        Ok(Response::new(ResizeVmResponse { operation }))
    }

    async fn confirm_resize(
        &self,
        request: Request<ConfirmResizeRequest>,
    ) -> Result<Response<ConfirmResizeResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let command = scheduler::v1::ConfirmResizeRequest {
            vm: request.vm,
            request_id: request.request_id,
            ..scheduler::v1::ConfirmResizeRequest::default()
        };
        let scheduler = api.tools.scheduler.clone();
        let begun = api.begin_some(async move {
            let begun = scheduler.confirm_resize(command).await?;
            Ok(begun.map(Begun::from))
        });
        let operation = begun.await.map_err(to_status)?;
        let operation = operation.as_ref().map(Into::into);
        Ok(Response::new(ConfirmResizeResponse { operation }))
    }

    async fn revert_resize(
        &self,
        request: Request<RevertResizeRequest>,
    ) -> Result<Response<RevertResizeResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let scheduler = api.tools.scheduler.clone();
        let command = BeginRevertResizeRequest {
            vm: request.vm,
            request_id: request.request_id,
            ..BeginRevertResizeRequest::default()
        };
        let begun = api.begin(async move { scheduler.begin_revert_resize(command).await });
        let operation = Some(begun.await?);
        Ok(Response::new(RevertResizeResponse { operation }))
    }

    async fn evacuate_vm(
        &self,
        request: Request<EvacuateVmRequest>,
    ) -> Result<Response<EvacuateVmResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let scheduler = api.tools.scheduler.clone();
        let command = ScheduleMoveRequest {
            vm: request.vm,
            requested_host: request.requested_host,
            evacuate: true,
            request_id: request.request_id,
            ..ScheduleMoveRequest::default()
        };
        let begun = api.begin(async move { scheduler.schedule_move(command).await });
        let operation = Some(begun.await?);
        Ok(Response::new(EvacuateVmResponse { operation }))
    }

    async fn shelve_vm(
        &self,
        request: Request<ShelveVmRequest>,
    ) -> Result<Response<ShelveVmResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let scheduler = api.tools.scheduler.clone();
        let command = BeginShelveRequest {
            vm: request.vm,
            request_id: request.request_id,
            ..BeginShelveRequest::default()
        };
        let begun = api.begin(async move { scheduler.begin_shelve(command).await });
        let operation = Some(begun.await?);
        Ok(Response::new(ShelveVmResponse { operation }))
    }

    async fn unshelve_vm(
        &self,
        request: Request<UnshelveVmRequest>,
    ) -> Result<Response<UnshelveVmResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let scheduler = api.tools.scheduler.clone();
        let command = ScheduleUnshelveRequest {
            vm: request.vm,
            requested_host: request.requested_host,
            request_id: request.request_id,
            ..ScheduleUnshelveRequest::default()
        };
        let begun = api.begin(async move { scheduler.schedule_unshelve(command).await });
        let operation = Some(begun.await?);
        Ok(Response::new(UnshelveVmResponse { operation }))
    }

    type DrainHostStream = drain::Events;

    async fn drain_host(
        &self,
        request: Request<DrainHostRequest>,
    ) -> Result<Response<Self::DrainHostStream>, Status> {
        let api = self.for_user(&request);
        let stopping = api.stopping.clone();
        let events = drain::begin(api, request.into_inner(), stopping).await?;
        Ok(Response::new(events))
    }

    async fn stop_vm(
        &self,
        request: Request<StopVmRequest>,
    ) -> Result<Response<StopVmResponse>, Status> {
        let api = self.for_user(&request);
        let operation = api.power(power::stop(request.into_inner())).await?;
        let operation = Some(operation);
        Ok(Response::new(StopVmResponse { operation }))
    }

    async fn start_vm(
        &self,
        request: Request<StartVmRequest>,
    ) -> Result<Response<StartVmResponse>, Status> {
        let api = self.for_user(&request);
        let operation = api.power(power::start(request.into_inner())).await?;
        let operation = Some(operation);
        Ok(Response::new(StartVmResponse { operation }))
    }

    async fn reboot_vm(
        &self,
        request: Request<RebootVmRequest>,
    ) -> Result<Response<RebootVmResponse>, Status> {
        let api = self.for_user(&request);
        let operation = api.power(power::reboot(request.into_inner())?).await?;
        let operation = Some(operation);
        Ok(Response::new(RebootVmResponse { operation }))
    }

    async fn rebuild_vm(
        &self,
        request: Request<RebuildVmRequest>,
    ) -> Result<Response<RebuildVmResponse>, Status> {
        let api = self.for_user(&request);
        let operation = api.power(power::rebuild(request.into_inner())).await?;
        let operation = Some(operation);
        Ok(Response::new(RebuildVmResponse { operation }))
    }

    async fn snapshot_vm(
        &self,
        request: Request<SnapshotVmRequest>,
    ) -> Result<Response<SnapshotVmResponse>, Status> {
        let api = self.for_user(&request);
        let operation = api.power(power::snapshot(request.into_inner())).await?;
        let operation = Some(operation);
        Ok(Response::new(SnapshotVmResponse { operation }))
    }

    type ReadConsoleStream = Console;

    async fn read_console(
        &self,
        request: Request<ReadConsoleRequest>,
    ) -> Result<Response<Self::ReadConsoleStream>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let vm: VmName = field::name(&request.vm, "vm")?;
        let stopping = api.stopping.clone();
        let console = console::open(&api.tools, &vm, request, stopping).await?;
        Ok(Response::new(console))
    }

    type AttachConsoleStream = console::Session;

    async fn attach_console(
        &self,
        request: Request<Streaming<AttachConsoleRequest>>,
    ) -> Result<Response<Self::AttachConsoleStream>, Status> {
        let tools = self.for_user(&request).tools;
        let user = access::principal(&request);
        let stopping = self.stopping.clone();
        let session = console::attach(tools, user, request.into_inner(), stopping).await?;
        Ok(Response::new(session))
    }

    type WatchMigrationStream = Watch;

    async fn watch_migration(
        &self,
        request: Request<WatchMigrationRequest>,
    ) -> Result<Response<Self::WatchMigrationStream>, Status> {
        let api = self.for_user(&request);
        let id = field::name(&request.into_inner().name, "name")?;
        let watch = migration::watch(&api.tools, id, api.stopping.clone()).await?;
        Ok(Response::new(watch))
    }

    async fn abort_migration(
        &self,
        request: Request<AbortMigrationRequest>,
    ) -> Result<Response<AbortMigrationResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let id = field::name(&request.name, "name")?;
        let operation = migration::abort(&api.tools, id, request.request_id).await?;
        let operation = Some(operation);
        Ok(Response::new(AbortMigrationResponse { operation }))
    }

    async fn force_complete_migration(
        &self,
        request: Request<ForceCompleteMigrationRequest>,
    ) -> Result<Response<ForceCompleteMigrationResponse>, Status> {
        let api = self.for_user(&request);
        let request = request.into_inner();
        let id = field::name(&request.name, "name")?;
        let operation = migration::force_complete(&api.tools, id, request.request_id).await?;
        let operation = Some(operation);
        Ok(Response::new(ForceCompleteMigrationResponse { operation }))
    }

    async fn check_hosts(
        &self,
        request: Request<CheckHostsRequest>,
    ) -> Result<Response<CheckHostsResponse>, Status> {
        let api = self.for_user(&request);
        let checked = api.checks.check(&api.tools, request.into_inner());
        tokio::select! {
            checked = checked => Ok(Response::new(checked?)),
            () = api.stopping.cancelled() => Err(Status::unavailable("the conductor is stopping")),
        }
    }

    async fn get_service_info(
        &self,
        request: Request<GetServiceInfoRequest>,
    ) -> Result<Response<GetServiceInfoResponse>, Status> {
        let scheduler = self.for_user(&request).tools.scheduler;
        scheduler.check_cluster().await.map_err(to_status)?;
        Ok(Response::new(GetServiceInfoResponse {
            name: scheduler.name().resource_name(),
            service_version: scheduler.version().0,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            schedulers: scheduler.endpoints(),
            operations: u32::try_from(self.supervisor.count()).unwrap_or(u32::MAX),
        }))
    }
}
