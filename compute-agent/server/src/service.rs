//! The gRPC API of the agent: requests into calls, replies into responses.

use std::sync::Arc;
use std::time::Duration;

use berth_agent_core::Facts;
use berth_domain::agent::{Call, Fence, Reply};
use berth_domain::host::NO_DRIVER;
use berth_domain::id::{MigrationId, TimeMs, VmUid};
use berth_domain::name::VmName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{ServiceVersion, TOO_OLD};
use berth_driver::{Driver, Error, Known};
use berth_process::access::{self, audit};
use berth_process::wall_clock_ms;
use berth_proto::agent::v1::compute_agent_service_server::ComputeAgentService;
use berth_proto::agent::v1::{
    AbortLiveMigrationRequest, AbortLiveMigrationResponse, AttachConsoleRequest,
    AttachConsoleResponse, CheckCanLiveMigrateDestinationRequest,
    CheckCanLiveMigrateDestinationResponse, CheckCanLiveMigrateSourceRequest,
    CheckCanLiveMigrateSourceResponse, CheckHostRequest, CheckHostResponse, CopyDiskRequest,
    CopyDiskResponse, DestroyVmRequest, DestroyVmResponse, Domain, DownloadImageRequest,
    DownloadImageResponse, DropDisksRequest, DropDisksResponse, DropImageRequest,
    DropImageResponse, FetchDisksRequest, FetchDisksResponse, FetchImageRequest,
    FetchImageResponse, FitLiveMigrationRequest, FitLiveMigrationResponse,
    ForceCompleteLiveMigrationRequest, ForceCompleteLiveMigrationResponse, GetAgentInfoRequest,
    GetAgentInfoResponse, GetDomainRequest, GetDomainResponse, GetTransferRequest,
    GetTransferResponse, ListDomainsRequest, ListDomainsResponse, LiveMigrationRequest,
    LiveMigrationResponse, MakeDisksRequest, MakeDisksResponse, PostLiveMigrationAtSourceRequest,
    PostLiveMigrationAtSourceResponse, PreLiveMigrationRequest, PreLiveMigrationResponse,
    PublishImageRequest, PublishImageResponse, PutImageRequest, PutImageResponse,
    ReadConsoleRequest, ReadConsoleResponse, ReadDisksRequest, ReadDisksResponse, ReadImageRequest,
    ReadImageResponse, RollbackLiveMigrationAtDestinationRequest,
    RollbackLiveMigrationAtDestinationResponse, SettleVmRequest, SettleVmResponse, SpawnVmRequest,
    SpawnVmResponse, StartVmRequest, StartVmResponse, StopVmRequest, StopVmResponse,
    WaitTransferRequest, WaitTransferResponse,
};
use berth_proto::convert::agent::{FencedCall, Mismatch};
use berth_proto::convert::page::Page;
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::status::to_status;
use berth_tls::Identity;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::console::Consoles;
use crate::disks::{self, Fetches, Readers};
use crate::driver_call::{self, refusal};
use crate::grants::Grants;
use crate::host_check::{self, Checks};
use crate::images::Images;
use crate::no_driver;
use crate::shell::Handle;

/// Default wait for the end of a transfer.
const WAIT_MS: u64 = 10_000;

/// How long at most.
const WAIT_MS_MAX: u64 = 60_000;

/// The service.
pub(crate) struct AgentApi {
    pub(crate) core: Handle,
    pub(crate) facts: Facts,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) stopping: CancellationToken,
    pub(crate) fetches: Fetches,
    pub(crate) readers: Readers,
    pub(crate) grants: Grants,
    pub(crate) checks: Checks,
    pub(crate) consoles: Consoles,
    pub(crate) images: Images,
}

type Answered<T> = Result<Response<T>, Status>;

impl AgentApi {
    async fn fenced<Q, A>(&self, request: Request<Q>) -> Answered<A>
    where
        FencedCall: TryFrom<Q, Error = Invalid>,
        A: TryFrom<Reply, Error = Mismatch>,
    {
        self.examine_driver()?;
        let caller = access::caller(request.extensions()).cloned();
        let call = FencedCall::try_from(request.into_inner())?;
        let line = line(caller.as_deref(), call.call.method(), &call.fence);
        let granted = self.grants.check(
            &call.fence,
            call.grant.as_ref(),
            caller.as_deref(),
            TimeMs(wall_clock_ms()),
        );
        if let Err(refusal) = granted {
            audit::refused(&line, &refusal.reason);
            return Err(to_status(&refusal));
        }
        // A conductor polls it, and it changes nothing but the fence.
        let is_query = matches!(call.call, Call::GetDomain);
        // An agent that is to fetch disks is let in by the source for the same grant.
        let _carried = self.fetches.carry(&call.fence, call.grant.clone());
        let result = self.core.call(call).await;
        if !is_query {
            let outcome = result
                .as_ref()
                .map_or_else(|r| r.reason.as_str(), |_| "done");
            audit::done(&line, outcome);
        }
        let reply = result.map_err(|r| to_status(&r))?;
        Ok(Response::new(A::try_from(reply)?))
    }

    /// Refuses everything about guests where none run. For a host that ran some before, "it is not
    /// here" would be a reply upon which it is started elsewhere.
    fn examine_driver(&self) -> Result<(), Status> {
        match self.facts.driver == NO_DRIVER {
            true => Err(to_status(&no_driver::refusal(&self.facts.host))),
            false => Ok(()),
        }
    }

    /// Refuses a check of the host where this agent behaves like one that is too old for it.
    fn knows_host_check(&self) -> Result<(), Status> {
        let (host, version) = (&self.facts.host, self.facts.version);
        if version >= ServiceVersion::HOST_CHECK {
            return Ok(());
        }
        let message = format!(
            "the agent of host {host} runs at service version {version} and does not check its host"
        );
        let refusal = Refusal::new(Code::Unimplemented, TOO_OLD, message);
        Err(to_status(
            &refusal.with("host", host).with("version", version),
        ))
    }

    /// Calls the driver on a thread on which it may block.
    async fn call_driver<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Driver) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Status> {
        self.examine_driver()?;
        driver_call::call(&self.driver, question).await
    }
}

/// Returns what the audit states of a call.
fn line(caller: Option<&Identity>, method: &str, fence: &Fence) -> audit::Line {
    audit::Line {
        vm: fence.vm.to_string(),
        operation: fence.operation.to_string(),
        ..audit::Line::of(method, caller)
    }
}

#[tonic::async_trait]
impl ComputeAgentService for AgentApi {
    async fn get_agent_info(
        &self,
        _request: Request<GetAgentInfoRequest>,
    ) -> Answered<GetAgentInfoResponse> {
        Ok(Response::new(GetAgentInfoResponse {
            host: self.facts.host.resource_name(),
            incarnation: self.facts.incarnation.to_string(),
            service_version: self.facts.version.0,
            driver: self.facts.driver.clone(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
        }))
    }

    async fn spawn_vm(&self, request: Request<SpawnVmRequest>) -> Answered<SpawnVmResponse> {
        self.fenced(request).await
    }

    async fn destroy_vm(&self, request: Request<DestroyVmRequest>) -> Answered<DestroyVmResponse> {
        self.fenced(request).await
    }

    async fn get_domain(&self, request: Request<GetDomainRequest>) -> Answered<GetDomainResponse> {
        self.fenced(request).await
    }

    async fn list_domains(
        &self,
        request: Request<ListDomainsRequest>,
    ) -> Answered<ListDomainsResponse> {
        let request = request.into_inner();
        let page = Page::new(request.page_size, &request.page_token)?;
        let (domains, next_page_token) =
            self.call_driver(move |driver| list(driver, &page)).await?;
        Ok(Response::new(ListDomainsResponse {
            domains,
            next_page_token,
        }))
    }

    async fn check_can_live_migrate_destination(
        &self,
        request: Request<CheckCanLiveMigrateDestinationRequest>,
    ) -> Answered<CheckCanLiveMigrateDestinationResponse> {
        self.fenced(request).await
    }

    async fn check_can_live_migrate_source(
        &self,
        request: Request<CheckCanLiveMigrateSourceRequest>,
    ) -> Answered<CheckCanLiveMigrateSourceResponse> {
        self.fenced(request).await
    }

    async fn fit_live_migration(
        &self,
        request: Request<FitLiveMigrationRequest>,
    ) -> Answered<FitLiveMigrationResponse> {
        self.fenced(request).await
    }

    async fn pre_live_migration(
        &self,
        request: Request<PreLiveMigrationRequest>,
    ) -> Answered<PreLiveMigrationResponse> {
        self.fenced(request).await
    }

    async fn live_migration(
        &self,
        request: Request<LiveMigrationRequest>,
    ) -> Answered<LiveMigrationResponse> {
        self.fenced(request).await
    }

    async fn rollback_live_migration_at_destination(
        &self,
        request: Request<RollbackLiveMigrationAtDestinationRequest>,
    ) -> Answered<RollbackLiveMigrationAtDestinationResponse> {
        self.fenced(request).await
    }

    async fn post_live_migration_at_source(
        &self,
        request: Request<PostLiveMigrationAtSourceRequest>,
    ) -> Answered<PostLiveMigrationAtSourceResponse> {
        self.fenced(request).await
    }

    async fn stop_vm(&self, request: Request<StopVmRequest>) -> Answered<StopVmResponse> {
        self.fenced(request).await
    }

    async fn start_vm(&self, request: Request<StartVmRequest>) -> Answered<StartVmResponse> {
        self.fenced(request).await
    }

    async fn settle_vm(&self, request: Request<SettleVmRequest>) -> Answered<SettleVmResponse> {
        self.fenced(request).await
    }

    async fn abort_live_migration(
        &self,
        request: Request<AbortLiveMigrationRequest>,
    ) -> Answered<AbortLiveMigrationResponse> {
        self.fenced(request).await
    }

    async fn force_complete_live_migration(
        &self,
        request: Request<ForceCompleteLiveMigrationRequest>,
    ) -> Answered<ForceCompleteLiveMigrationResponse> {
        self.fenced(request).await
    }

    async fn get_transfer(
        &self,
        request: Request<GetTransferRequest>,
    ) -> Answered<GetTransferResponse> {
        self.examine_driver()?;
        let vm: VmUid = field::uuid(&request.into_inner().vm_uid, "vm_uid")?;
        if let Some(progress) = self.fetches.progress(vm) {
            return Ok(Response::new(GetTransferResponse {
                progress: Some((&progress).into()),
            }));
        }
        let status = self.call_driver(move |driver| driver.domain(vm)).await?;
        Ok(Response::new(GetTransferResponse {
            progress: status.progress.as_ref().map(Into::into),
        }))
    }

    async fn wait_transfer(
        &self,
        request: Request<WaitTransferRequest>,
    ) -> Answered<WaitTransferResponse> {
        self.examine_driver()?;
        let request = request.into_inner();
        let vm: VmUid = field::uuid(&request.vm_uid, "vm_uid")?;
        let wait_ms = field::optional_duration_ms(request.timeout, "timeout")?;
        let wait = Duration::from_millis(wait_ms.unwrap_or(WAIT_MS).min(WAIT_MS_MAX));
        let answer = tokio::select! {
            ended = self.core.transfer_ended(vm) => {
                let end = ended.map_err(|refusal| to_status(&refusal))?;
                WaitTransferResponse {
                    ended: true,
                    ended_for: end.and_then(|end| wire_time(end.at.elapsed())),
                    took: end.and_then(|end| wire_time(end.took)),
                }
            }
            () = tokio::time::sleep(wait) => WaitTransferResponse::default(),
            () = self.stopping.cancelled() => {
                return Err(Status::unavailable("the agent is stopping"));
            }
        };
        Ok(Response::new(answer))
    }

    async fn make_disks(&self, request: Request<MakeDisksRequest>) -> Answered<MakeDisksResponse> {
        self.fenced(request).await
    }

    async fn copy_disk(&self, request: Request<CopyDiskRequest>) -> Answered<CopyDiskResponse> {
        self.fenced(request).await
    }

    async fn publish_image(
        &self,
        request: Request<PublishImageRequest>,
    ) -> Answered<PublishImageResponse> {
        self.fenced(request).await
    }

    async fn drop_image(&self, request: Request<DropImageRequest>) -> Answered<DropImageResponse> {
        self.fenced(request).await
    }

    async fn fetch_disks(
        &self,
        request: Request<FetchDisksRequest>,
    ) -> Answered<FetchDisksResponse> {
        self.fenced(request).await
    }

    async fn drop_disks(&self, request: Request<DropDisksRequest>) -> Answered<DropDisksResponse> {
        self.fenced(request).await
    }

    type ReadDisksStream = ReceiverStream<Result<ReadDisksResponse, Status>>;

    async fn read_disks(
        &self,
        request: Request<ReadDisksRequest>,
    ) -> Answered<Self::ReadDisksStream> {
        self.examine_driver()?;
        let caller = access::caller(request.extensions()).cloned();
        let mut request = request.into_inner();
        let grant = request.fence.as_mut().and_then(|fence| fence.grant.take());
        let fence: Fence = field::required(request.fence, "fence")?;
        let migration: MigrationId = field::name(&request.migration, "migration")?;
        let granted = self.grants.check_reader(
            &fence,
            grant.as_ref(),
            caller.as_deref(),
            TimeMs(wall_clock_ms()),
        );
        let line = line(caller.as_deref(), "ReadDisks", &fence);
        if let Err(refusal) = granted {
            audit::refused(&line, &refusal.reason);
            return Err(to_status(&refusal));
        }
        // Registered before the check whether they may be read: what is begun afterwards revokes it.
        let reading = self.readers.enter(fence.vm).map_err(|r| to_status(&r))?;
        self.core.read(fence).await.map_err(|r| to_status(&r))?;
        audit::done(&line, "begun");
        let open = move |driver: &dyn Driver| {
            disks::serve::open(driver, fence.vm, request.disks, migration)
        };
        let disks = self.call_driver(open).await?;
        let (sender, receiver) = mpsc::channel(disks::serve::AHEAD_MAX);
        let stopping = self.stopping.clone();
        tokio::task::spawn_blocking(move || {
            disks::serve::send(disks, &reading, &stopping, &sender, refusal);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn check_host(&self, request: Request<CheckHostRequest>) -> Answered<CheckHostResponse> {
        self.examine_driver()?;
        self.knows_host_check()?;
        let (peers, timeout) = host_check::read(request.into_inner())?;
        let checked = self.checks.check(peers, timeout).await;
        let report = checked.map_err(|refusal| to_status(&refusal))?;
        Ok(Response::new((&report).into()))
    }

    async fn put_image(
        &self,
        request: Request<Streaming<PutImageRequest>>,
    ) -> Answered<PutImageResponse> {
        self.examine_driver()?;
        Ok(Response::new(self.images.put(request).await?))
    }

    type DownloadImageStream = ReceiverStream<Result<DownloadImageResponse, Status>>;

    async fn download_image(
        &self,
        request: Request<DownloadImageRequest>,
    ) -> Answered<Self::DownloadImageStream> {
        self.examine_driver()?;
        Ok(Response::new(self.images.download(request).await?))
    }

    async fn fetch_image(
        &self,
        request: Request<FetchImageRequest>,
    ) -> Answered<FetchImageResponse> {
        self.examine_driver()?;
        Ok(Response::new(self.images.fetch(request).await?))
    }

    type ReadImageStream = ReceiverStream<Result<ReadImageResponse, Status>>;

    async fn read_image(
        &self,
        request: Request<ReadImageRequest>,
    ) -> Answered<Self::ReadImageStream> {
        self.examine_driver()?;
        Ok(Response::new(self.images.read(request).await?))
    }

    type ReadConsoleStream = ReceiverStream<Result<ReadConsoleResponse, Status>>;

    async fn read_console(
        &self,
        request: Request<ReadConsoleRequest>,
    ) -> Answered<Self::ReadConsoleStream> {
        self.examine_driver()?;
        Ok(Response::new(
            self.consoles.read(request.into_inner()).await?,
        ))
    }

    type AttachConsoleStream = ReceiverStream<Result<AttachConsoleResponse, Status>>;

    async fn attach_console(
        &self,
        request: Request<Streaming<AttachConsoleRequest>>,
    ) -> Answered<Self::AttachConsoleStream> {
        self.examine_driver()?;
        Ok(Response::new(self.consoles.attach(request).await?))
    }
}

fn wire_time(time: Duration) -> Option<prost_types::Duration> {
    time.try_into().ok()
}

/// Returns one page of the guests in order of name.
fn list(driver: &dyn Driver, page: &Page) -> Result<(Vec<Domain>, String), Error> {
    let mut known = driver.domains()?;
    known.sort_by(|a, b| a.domain.vm.cmp(&b.domain.vm));
    let after = page.after.as_deref();
    let rest = known
        .into_iter()
        .filter(|k| after.is_none_or(|after| k.domain.vm.as_str() > after));
    let (chosen, token) = page.cut(rest, |k: &Known| k.domain.vm.to_string());
    let domains = chosen
        .into_iter()
        .map(|known| domain(driver, known.domain.vm, known.domain.uid))
        .collect::<Result<_, _>>()?;
    Ok((domains, token))
}

fn domain(driver: &dyn Driver, vm: VmName, uid: VmUid) -> Result<Domain, Error> {
    let status = driver.domain(uid)?;
    Ok(Domain {
        vm: vm.resource_name(),
        vm_uid: uid.to_string(),
        status: Some((&status).into()),
    })
}
