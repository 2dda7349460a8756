//! Goal: calls find the leader and survive its death over real connections, and the largest
//! refusal arrives. Method: servers on loopback that answer as they are told; the service itself
//! does not matter, the smallest one is served.

use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_domain::agent::{Call, Failure, Fence};
use berth_domain::id::Epoch;
use berth_domain::refusal::{Code, Refusal};
use berth_proto::client::{self, Policy, SchedulerChannel};
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::conductor::v1::conductor_service_server::{
    ConductorService, ConductorServiceServer,
};
use berth_proto::conductor::v1::{
    AbortMigrationRequest, AbortMigrationResponse, AddImageRequest, AddImageResponse,
    AttachConsoleRequest, AttachConsoleResponse, CheckHostsRequest, CheckHostsResponse,
    ConfirmResizeRequest, ConfirmResizeResponse, CopyImageRequest, CopyImageResponse,
    CreateVmRequest, CreateVmResponse, DeleteVmRequest, DeleteVmResponse, DownloadImageRequest,
    DownloadImageResponse, DrainHostRequest, DrainHostResponse, EvacuateVmRequest,
    EvacuateVmResponse, FenceHostRequest, FenceHostResponse, ForceCompleteMigrationRequest,
    ForceCompleteMigrationResponse, GetServiceInfoRequest, GetServiceInfoResponse,
    MigrateVmRequest, MigrateVmResponse, ReadConsoleRequest, ReadConsoleResponse, RebootVmRequest,
    RebootVmResponse, RebuildVmRequest, RebuildVmResponse, ResizeVmRequest, ResizeVmResponse,
    RevertResizeRequest, RevertResizeResponse, ShelveVmRequest, ShelveVmResponse,
    SnapshotVmRequest, SnapshotVmResponse, StartVmRequest, StartVmResponse, StopVmRequest,
    StopVmResponse, UnshelveVmRequest, UnshelveVmResponse, WatchMigrationRequest,
    WatchMigrationResponse,
};
use berth_proto::convert::agent::FencedCall;
use berth_proto::status::{from_status, not_leader, to_status};
use tokio::runtime::Runtime;
use tonic::codegen::tokio_stream::{Stream, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

/// What a server answers.
#[derive(Clone)]
enum Answer {
    /// Its name.
    Name,
    /// No.
    Refusal(Box<Refusal>),
    /// Nothing, ever.
    Silence,
}

struct Service {
    name: &'static str,
    answer: Arc<Mutex<Answer>>,
}

type Drained = Pin<Box<dyn Stream<Item = Result<DrainHostResponse, Status>> + Send>>;
type Chunks = Pin<Box<dyn Stream<Item = Result<ReadConsoleResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ConductorService for Service {
    type ReadConsoleStream = Chunks;
    type DrainHostStream = Drained;

    async fn drain_host(&self, _: Request<DrainHostRequest>) -> Result<Response<Drained>, Status> {
        unreachable!("not called")
    }

    async fn get_service_info(
        &self,
        _: Request<GetServiceInfoRequest>,
    ) -> Result<Response<GetServiceInfoResponse>, Status> {
        let answer = self.answer.lock().unwrap().clone();
        match answer {
            Answer::Name => Ok(Response::new(GetServiceInfoResponse {
                name: self.name.to_owned(),
                ..Default::default()
            })),
            Answer::Refusal(refusal) => Err(to_status(&refusal)),
            Answer::Silence => std::future::pending().await,
        }
    }

    async fn fence_host(
        &self,
        _: Request<FenceHostRequest>,
    ) -> Result<Response<FenceHostResponse>, Status> {
        unreachable!("not called")
    }

    async fn create_vm(
        &self,
        _: Request<CreateVmRequest>,
    ) -> Result<Response<CreateVmResponse>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    async fn resize_vm(
        &self,
        _: Request<ResizeVmRequest>,
    ) -> Result<Response<ResizeVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn confirm_resize(
        &self,
        _: Request<ConfirmResizeRequest>,
    ) -> Result<Response<ConfirmResizeResponse>, Status> {
        unreachable!("not called")
    }

    async fn revert_resize(
        &self,
        _: Request<RevertResizeRequest>,
    ) -> Result<Response<RevertResizeResponse>, Status> {
        unreachable!("not called")
    }

    async fn evacuate_vm(
        &self,
        _: Request<EvacuateVmRequest>,
    ) -> Result<Response<EvacuateVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn shelve_vm(
        &self,
        _: Request<ShelveVmRequest>,
    ) -> Result<Response<ShelveVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn stop_vm(&self, _: Request<StopVmRequest>) -> Result<Response<StopVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn start_vm(
        &self,
        _: Request<StartVmRequest>,
    ) -> Result<Response<StartVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn reboot_vm(
        &self,
        _: Request<RebootVmRequest>,
    ) -> Result<Response<RebootVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn rebuild_vm(
        &self,
        _: Request<RebuildVmRequest>,
    ) -> Result<Response<RebuildVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn snapshot_vm(
        &self,
        _: Request<SnapshotVmRequest>,
    ) -> Result<Response<SnapshotVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn unshelve_vm(
        &self,
        _: Request<UnshelveVmRequest>,
    ) -> Result<Response<UnshelveVmResponse>, Status> {
        unreachable!("not called")
    }

    async fn delete_vm(
        &self,
        _: Request<DeleteVmRequest>,
    ) -> Result<Response<DeleteVmResponse>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    async fn migrate_vm(
        &self,
        _: Request<MigrateVmRequest>,
    ) -> Result<Response<MigrateVmResponse>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    async fn read_console(
        &self,
        _: Request<ReadConsoleRequest>,
    ) -> Result<Response<Chunks>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    type AttachConsoleStream =
        Pin<Box<dyn Stream<Item = Result<AttachConsoleResponse, Status>> + Send>>;

    async fn attach_console(
        &self,
        _: Request<Streaming<AttachConsoleRequest>>,
    ) -> Result<Response<Self::AttachConsoleStream>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    async fn add_image(
        &self,
        _: Request<Streaming<AddImageRequest>>,
    ) -> Result<Response<AddImageResponse>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    type DownloadImageStream =
        Pin<Box<dyn Stream<Item = Result<DownloadImageResponse, Status>> + Send>>;

    async fn download_image(
        &self,
        _: Request<DownloadImageRequest>,
    ) -> Result<Response<Self::DownloadImageStream>, Status> {
        unreachable!("not called")
    }

    type CopyImageStream = Pin<Box<dyn Stream<Item = Result<CopyImageResponse, Status>> + Send>>;

    async fn copy_image(
        &self,
        _: Request<CopyImageRequest>,
    ) -> Result<Response<Self::CopyImageStream>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    type WatchMigrationStream =
        Pin<Box<dyn Stream<Item = Result<WatchMigrationResponse, Status>> + Send>>;

    async fn watch_migration(
        &self,
        _: Request<WatchMigrationRequest>,
    ) -> Result<Response<Self::WatchMigrationStream>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    async fn abort_migration(
        &self,
        _: Request<AbortMigrationRequest>,
    ) -> Result<Response<AbortMigrationResponse>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    async fn force_complete_migration(
        &self,
        _: Request<ForceCompleteMigrationRequest>,
    ) -> Result<Response<ForceCompleteMigrationResponse>, Status> {
        Err(Status::unimplemented("not served here"))
    }

    async fn check_hosts(
        &self,
        _: Request<CheckHostsRequest>,
    ) -> Result<Response<CheckHostsResponse>, Status> {
        Err(Status::unimplemented("not served here"))
    }
}

/// A server with a runtime of its own, so that it can be killed with its connections.
struct Server {
    address: String,
    answer: Arc<Mutex<Answer>>,
    runtime: Option<Runtime>,
}

impl Server {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let answer = Arc::new(Mutex::new(Answer::Name));
        let service = Service {
            name,
            answer: answer.clone(),
        };
        let runtime = Runtime::new().unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tonic::transport::Server::builder()
                .add_service(ConductorServiceServer::new(service))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
        });
        Self {
            address: format!("http://{address}"),
            answer,
            runtime: Some(runtime),
        }
    }

    fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn refuse(&self, refusal: Refusal) {
        self.answer(Answer::Refusal(Box::new(refusal)));
    }

    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Returns once every connection is dropped; that blocks, which a test's own runtime
            // does not allow its threads.
            let stop = move || runtime.shutdown_timeout(Duration::from_secs(10));
            std::thread::spawn(stop).join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn ask(scheduler: &SchedulerChannel) -> Result<String, Status> {
    scheduler
        .call(|channel| async move {
            ConductorServiceClient::new(channel)
                .get_service_info(GetServiceInfoRequest {})
                .await
        })
        .await
        .map(|response| response.name)
}

#[tokio::test]
async fn a_follower_leads_to_the_leader() {
    let (follower, leader) = (Server::start("follower"), Server::start("leader"));
    follower.refuse(not_leader(Some(&leader.address)));
    let scheduler = SchedulerChannel::new([&*follower.address]).unwrap();
    assert_eq!(ask(&scheduler).await.unwrap(), "leader");
    assert_eq!(scheduler.current(), leader.address);
}

/// The leader dies while a call waits for it; the other is elected meanwhile.
#[tokio::test]
async fn a_call_survives_the_death_of_the_leader() {
    let (mut old, new) = (Server::start("old"), Server::start("new"));
    new.refuse(not_leader(Some(&old.address)));
    let scheduler = SchedulerChannel::new([&*old.address, &*new.address]).unwrap();
    assert_eq!(ask(&scheduler).await.unwrap(), "old");

    old.answer(Answer::Silence);
    let waiting = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { ask(&scheduler).await }
    });
    old.kill();
    // The new one still names the old for a while.
    let asked_again = tokio::time::timeout(Duration::from_millis(200), async {
        while !waiting.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert!(
        asked_again.await.is_err(),
        "nobody led, and yet it was answered"
    );
    new.answer(Answer::Name);
    assert_eq!(waiting.await.unwrap().unwrap(), "new");
}

#[tokio::test]
async fn nobody_leads() {
    let mut server = Server::start("gone");
    server.kill();
    let policy = Policy {
        attempts_max: 4,
        ..Policy::default()
    };
    let scheduler = SchedulerChannel::new([&*server.address])
        .unwrap()
        .with_policy(policy);
    let refusal = from_status(&ask(&scheduler).await.unwrap_err());
    assert_eq!(&*refusal.reason, "SCHEDULER_UNREACHABLE");
    assert!(refusal.message.contains(&server.address), "{refusal}");
}

/// Trailers have a limit; a refusal that is too long for it would end in a broken stream.
#[tokio::test]
async fn the_largest_refusal_arrives() {
    let server = Server::start("s");
    let mut refusal = Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "ü".repeat(30_000))
        .with_hint("\u{1F6A2}".repeat(9_000));
    for n in 0..500 {
        refusal = refusal.with(&format!("key{n}"), "\"value\" / ü");
        refusal.causes.insert(format!("CAUSE_{n}"), n);
    }
    server.refuse(refusal);
    let scheduler = SchedulerChannel::new([&*server.address]).unwrap();
    let back = from_status(&ask(&scheduler).await.unwrap_err());
    assert_eq!(back.code, Code::ResourceExhausted, "{back}");
    assert_eq!(back.reason, "NO_VALID_HOST");
}

/// A server without the agent's service is an agent that is too old for the call; one that is
/// not there, or is silent, may have done it.
#[tokio::test]
async fn calls_to_agents_tell_refused_from_unreachable() {
    let mut server = Server::start("s");
    let call = FencedCall {
        fence: Fence {
            vm: Uuid::nil().into(),
            operation: Uuid::nil().into(),
            epoch: Epoch(1),
            incarnation: Uuid::nil().into(),
            attempt: 0,
        },
        call: Call::GetDomain,
        grant: None,
    };
    let channel = client::channel(&server.address).unwrap();
    let timeout = Duration::from_secs(10);
    let answer = client::agent::call(channel.clone(), &call, timeout).await;
    assert!(
        matches!(&answer, Err(Failure::Refused(r)) if r.code == Code::Unimplemented),
        "{answer:?}"
    );
    // Connections are made to it, by the kernel, but nobody takes them up.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let answer = client::agent::call(
        client::channel(&address).unwrap(),
        &call,
        Duration::from_millis(50),
    )
    .await;
    assert!(
        matches!(&answer, Err(Failure::Unreachable { .. })),
        "{answer:?}"
    );
    server.kill();
    let answer = client::agent::call(channel, &call, timeout).await;
    assert!(
        matches!(&answer, Err(Failure::Unreachable { .. })),
        "{answer:?}"
    );
}
