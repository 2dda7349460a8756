//! Goal: two whole agents with simulated hypervisors, over real gRPC, do what a conductor asks:
//! boot, live migration with other pins, refusals, the console; and they register, report, and
//! register again with a scheduler that has forgotten them.
//!
//! Method: the test is the conductor, and a scheduler of a few lines keeps the host records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_compute_agent::config::{Config, DriverKind, Sim};
use berth_compute_agent::{ComputeAgent, Error};
use berth_domain::agent::{Call, DomainState, DomainStatus, Failure, Fence, FitVerdict, Reply};
use berth_domain::claim::{Claim, Owner, State};
use berth_domain::host::HostReport;
use berth_domain::id::{ClaimId, Epoch, MigrationId, OperationId, VmUid};
use berth_domain::instance::PageSize;
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::Assignment;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::VmSpec;
use berth_driver::conformance::sample;
use berth_host::description::Description;
use berth_process::Listening;
use berth_proto::agent::v1 as wire;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::client;
use berth_proto::convert::agent::FencedCall;
use berth_proto::host::v1 as hosts;
use berth_proto::host::v1::host_service_server::{HostService, HostServiceServer};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use uuid::Uuid;

const MACHINE: &str = r#"
    [[cells]]
    id = 0
    cpus = "0-3"
    memory_mib = 1024
    huge_pages = [{ size_kib = 2048, total = 128 }]
    [[cells]]
    id = 1
    cpus = "4-7"
    memory_mib = 1024
"#;

/// A scheduler that knows hosts and nothing else.
#[derive(Clone, Default)]
struct Hosts {
    known: Arc<Mutex<BTreeMap<String, HostReport>>>,
    reports: Arc<Mutex<u32>>,
    registrations: Arc<Mutex<u32>>,
    /// How many registrations from now on find their shape refused.
    refusals: Arc<Mutex<u32>>,
}

impl Hosts {
    fn known(&self, host: &str) -> Option<HostReport> {
        let known = self.known.lock().unwrap();
        known.get(&format!("hosts/{host}")).cloned()
    }

    fn reports(&self) -> u32 {
        *self.reports.lock().unwrap()
    }
}

fn interval() -> Option<prost_types::Duration> {
    Some(prost_types::Duration {
        seconds: 0,
        nanos: 60_000_000,
    })
}

type Answered<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl HostService for Hosts {
    async fn register_host(
        &self,
        request: Request<hosts::RegisterHostRequest>,
    ) -> Answered<hosts::RegisterHostResponse> {
        let request = request.into_inner();
        let report = HostReport::try_from(request.report.unwrap())?;
        let mut host = hosts::Host {
            name: request.name.clone(),
            ..Default::default()
        };
        self.known.lock().unwrap().insert(request.name, report);
        *self.registrations.lock().unwrap() += 1;
        let mut refusals = self.refusals.lock().unwrap();
        if *refusals > 0 {
            *refusals -= 1;
            host.shape_refused = "vms a do not fit".to_owned();
        }
        Ok(Response::new(hosts::RegisterHostResponse {
            host: Some(host),
            report_interval: interval(),
            lease: None,
            self_fence: None,
            grant_terms: None,
        }))
    }

    async fn report_host(
        &self,
        request: Request<hosts::ReportHostRequest>,
    ) -> Answered<hosts::ReportHostResponse> {
        let request = request.into_inner();
        *self.reports.lock().unwrap() += 1;
        let known = self.known.lock().unwrap();
        let known = known
            .get(&request.name)
            .is_some_and(|r| r.incarnation.to_string() == request.incarnation);
        Ok(Response::new(hosts::ReportHostResponse {
            known,
            report_interval: interval(),
            lease: None,
            self_fence: None,
            volumes_waiting: false,
            grant_terms: None,
        }))
    }

    async fn get_cpu_baseline(
        &self,
        _: Request<hosts::GetCpuBaselineRequest>,
    ) -> Answered<hosts::GetCpuBaselineResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn expect_domains(
        &self,
        _: Request<hosts::ExpectDomainsRequest>,
    ) -> Answered<hosts::ExpectDomainsResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn report_guests(
        &self,
        _: Request<hosts::ReportGuestsRequest>,
    ) -> Answered<hosts::ReportGuestsResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn compare_domains(
        &self,
        _: Request<hosts::CompareDomainsRequest>,
    ) -> Answered<hosts::CompareDomainsResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn report_erasures(
        &self,
        _: Request<hosts::ReportErasuresRequest>,
    ) -> Answered<hosts::ReportErasuresResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn fence_host(
        &self,
        _: Request<hosts::FenceHostRequest>,
    ) -> Answered<hosts::FenceHostResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn verify_fence(
        &self,
        _: Request<hosts::VerifyFenceRequest>,
    ) -> Answered<hosts::VerifyFenceResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn get_host(
        &self,
        _: Request<hosts::GetHostRequest>,
    ) -> Answered<hosts::GetHostResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn list_hosts(
        &self,
        _: Request<hosts::ListHostsRequest>,
    ) -> Answered<hosts::ListHostsResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn list_memory_signals(
        &self,
        _: Request<hosts::ListMemorySignalsRequest>,
    ) -> Answered<hosts::ListMemorySignalsResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn cordon_host(
        &self,
        _: Request<hosts::CordonHostRequest>,
    ) -> Answered<hosts::CordonHostResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn uncordon_host(
        &self,
        _: Request<hosts::UncordonHostRequest>,
    ) -> Answered<hosts::UncordonHostResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn write_off_pmem(
        &self,
        _: Request<hosts::WriteOffPmemRequest>,
    ) -> Answered<hosts::WriteOffPmemResponse> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn remove_host(
        &self,
        _: Request<hosts::RemoveHostRequest>,
    ) -> Answered<hosts::RemoveHostResponse> {
        Err(Status::unimplemented("not in this test"))
    }
}

/// A running agent.
struct Running {
    host: HostName,
    report: HostReport,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    async fn start(name: &str, scheduler: &str, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            name: Some(name.into()),
            listening: Listening::new("127.0.0.1:0"),
            schedulers: vec![scheduler.into()],
            driver: DriverKind::Sim,
            cpu_dedicated_set: Some("1-3,5-7".parse().unwrap()),
            cpu_shared_set: Some("0,4".parse().unwrap()),
            machine: Some(Description::parse(MACHINE).unwrap()),
            sim: Sim {
                transfer_ms: 200,
                ..Sim::default()
            },
            ..Config::default()
        };
        change(&mut config);
        let agent = ComputeAgent::start(config).await.unwrap();
        let (host, report) = (agent.host().clone(), agent.report().clone());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(agent.run(async {
            let _ = stopped.await;
        }));
        Self {
            host,
            report,
            stop: Some(stop),
            task,
        }
    }

    async fn call(&self, guest: &Guest, call: Call) -> Result<Reply, Failure> {
        let fence = Fence {
            vm: guest.uid,
            operation: guest.operation,
            epoch: guest.epoch,
            incarnation: self.report.incarnation,
            attempt: 0,
        };
        let channel = client::channel(&self.report.agent_address).unwrap();
        client::agent::call(
            channel,
            &FencedCall {
                fence,
                call,
                grant: None,
            },
            Duration::from_secs(20),
        )
        .await
    }

    async fn status(&self, guest: &Guest) -> DomainStatus {
        let reply = self.call(guest, Call::GetDomain).await.unwrap();
        let Reply::Domain(status) = reply else {
            panic!("{reply:?}")
        };
        status
    }

    async fn wait(&self, guest: &Guest, state: DomainState) {
        let waiting = async {
            while self.status(guest).await.state != state {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        waited.unwrap_or_else(|_| panic!("{} never is {state:?}", self.host));
    }

    async fn transfer_ended(&self, guest: &Guest) -> wire::WaitTransferResponse {
        let request = wire::WaitTransferRequest {
            vm_uid: guest.uid.to_string(),
            timeout: None,
        };
        let answer = self.client().await.wait_transfer(request).await;
        answer.unwrap().into_inner()
    }

    async fn client(&self) -> ComputeAgentServiceClient<tonic::transport::Channel> {
        ComputeAgentServiceClient::new(client::channel(&self.report.agent_address).unwrap())
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

#[derive(Clone)]
struct Guest {
    vm: VmName,
    uid: VmUid,
    spec: VmSpec,
    operation: OperationId,
    epoch: Epoch,
}

impl Guest {
    fn new(name: &str, spec: VmSpec) -> Self {
        Self {
            vm: VmName::new(name).unwrap(),
            uid: VmUid(Uuid::new_v4()),
            spec,
            operation: OperationId(Uuid::new_v4()),
            epoch: Epoch(1),
        }
    }

    fn claim(&self, host: &HostName, assignment: Assignment) -> Claim {
        Claim {
            id: ClaimId(Uuid::new_v4()),
            vm: self.vm.clone(),
            owner: Owner::Vm,
            host: host.clone(),
            state: State::Held,
            resources: BTreeMap::new(),
            assignment,
            erasures: BTreeMap::new(),
            cpu: None,
        }
    }

    fn spawn_call(&self, host: &HostName, assignment: Assignment) -> Call {
        Call::SpawnVm {
            vm: self.vm.clone(),
            spec: self.spec.clone(),
            claim: self.claim(host, assignment),
            first_boot: None,
        }
    }
}

fn pinned(name: &str, vcpus: u32) -> Guest {
    let mut spec = sample::pinned_spec(vcpus, PageSize::Unspecified);
    spec.flavor.memory_mib = 128;
    Guest::new(name, spec)
}

fn refused(result: Result<Reply, Failure>) -> Refusal {
    match result {
        Err(Failure::Refused(refusal)) => refusal,
        Err(Failure::Unreachable { message }) => panic!("unreachable: {message}"),
        Ok(reply) => panic!("{reply:?}"),
    }
}

async fn scheduler() -> (Hosts, String) {
    let hosts = Hosts::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder()
        .add_service(HostServiceServer::new(hosts.clone()))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    (hosts, address)
}

async fn wait(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    waited.expect("waited in vain");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_boots_moves_to_other_cpus_and_is_destroyed() {
    let (_, address) = scheduler().await;
    let h1 = Running::start("h1", &address, |_| ()).await;
    let h2 = Running::start("h2", &address, |_| ()).await;
    let guest = pinned("a", 2);
    let spawn = guest.spawn_call(&h1.host, sample::pins(0, &[1, 2], None));
    assert_eq!(h1.call(&guest, spawn.clone()).await, Ok(Reply::Done));
    assert_eq!(h1.call(&guest, spawn).await, Ok(Reply::Done));
    h1.wait(&guest, DomainState::Running).await;
    let neighbour = pinned("b", 1);
    let spawn = neighbour.spawn_call(&h2.host, sample::pins(0, &[1], None));
    assert_eq!(h2.call(&neighbour, spawn).await, Ok(Reply::Done));

    let guest = Guest {
        operation: OperationId(Uuid::new_v4()),
        epoch: Epoch(5),
        ..guest
    };
    let migration = MigrationId(Uuid::new_v4());
    let check = Call::CheckCanLiveMigrateDestination {
        migration,
        vm: guest.vm.clone(),
        spec: guest.spec.clone(),
    };
    let Reply::Destination(destination) = h2.call(&guest, check).await.unwrap() else {
        panic!("a destination")
    };
    let check = Call::CheckCanLiveMigrateSource {
        migration,
        destination,
    };
    let Reply::MigrateData(mut migrate_data) = h1.call(&guest, check).await.unwrap() else {
        panic!("migrate_data")
    };
    let held = guest.claim(&h2.host, sample::pins(0, &[1, 2], None));
    migrate_data.claim = Some(held.clone());
    let fit = Call::FitLiveMigration {
        migration,
        migrate_data,
    };
    let reply = h2.call(&guest, fit).await.unwrap();
    let Reply::Fit {
        verdict: FitVerdict::Swap(assignment),
        migrate_data,
    } = reply
    else {
        panic!("CPU 1 is taken: {reply:?}")
    };
    let prepare = Call::PreLiveMigration {
        migration,
        migrate_data: migrate_data.clone(),
    };
    assert_eq!(h2.call(&guest, prepare).await, Ok(Reply::Done));
    assert_eq!(h2.status(&guest).await.state, DomainState::Prepared);
    let send = Call::LiveMigration {
        migration,
        migrate_data,
    };
    assert_eq!(h1.call(&guest, send.clone()).await, Ok(Reply::Done));
    assert_eq!(h1.call(&guest, send).await, Ok(Reply::Done));
    assert_eq!(h1.status(&guest).await.state, DomainState::MigratingOut);
    // Once the end is told, both hypervisors know it.
    let told = h1.transfer_ended(&guest).await;
    let took = Duration::try_from(told.took.unwrap()).unwrap();
    assert!(took > Duration::ZERO, "the source sent it");
    assert!(told.ended && told.ended_for.is_some());
    assert_eq!(h1.status(&guest).await.state, DomainState::Absent);
    let status = h2.status(&guest).await;
    assert_eq!(status.state, DomainState::Running);
    let told = h2.transfer_ended(&guest).await;
    assert!(told.ended && told.took.is_none(), "it never sent any");
    assert_eq!(status.claim, Some(held.id));
    assert_eq!(status.epoch, Some(Epoch(5)));
    let pins: BTreeMap<_, _> = status.vcpu_cpus.into_iter().collect();
    for (vcpu, cpu) in assignment.pins() {
        assert_eq!(pins[&vcpu].iter().collect::<Vec<_>>(), [cpu]);
    }
    let post = Call::PostLiveMigrationAtSource { migration };
    assert_eq!(h1.call(&guest, post).await, Ok(Reply::Done));
    assert_eq!(h2.call(&guest, Call::DestroyVm).await, Ok(Reply::Done));
    assert_eq!(h2.call(&guest, Call::DestroyVm).await, Ok(Reply::Done));
    assert_eq!(h2.status(&guest).await.state, DomainState::Absent);
    h1.stop().await;
    h2.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_cross_the_wire_with_their_detail() {
    let (_, address) = scheduler().await;
    let old = Running::start("old", &address, |c| c.service_version = 1).await;
    let guest = pinned("a", 4);
    let spawn = guest.spawn_call(&old.host, sample::pins(0, &[1, 2, 3, 5], None));
    let no = refused(old.call(&guest, spawn).await);
    assert_eq!(
        (no.code, no.reason.as_str()),
        (Code::ResourceExhausted, "DOES_NOT_FIT")
    );
    assert_eq!(no.hosts[0].host, old.host);

    let guest = pinned("b", 1);
    let spawn = guest.spawn_call(&old.host, sample::pins(0, &[1], None));
    old.call(&guest, spawn).await.unwrap();
    let stale = Guest {
        epoch: Epoch(0),
        ..guest.clone()
    };
    let no = refused(old.call(&stale, Call::DestroyVm).await);
    assert_eq!(
        (no.code, no.reason.as_str()),
        (Code::Aborted, "STALE_EPOCH")
    );

    // An agent of an older service version really lacks the call.
    let info = old.client().await;
    let mut info_client = info.clone();
    let info = info_client
        .get_agent_info(wire::GetAgentInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!((info.service_version, info.driver.as_str()), (1, "sim"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let destination = berth_domain::agent::DestinationCheck {
        bridges: Vec::new(),
        migration_uri: format!("sim+tcp://{}", listener.local_addr().unwrap()),
        storage_id: "other".into(),
        driver: "sim".into(),
        shared_cpus: "0".parse().unwrap(),
        tls: None,
    };
    let migration = MigrationId(Uuid::new_v4());
    let check = Call::CheckCanLiveMigrateSource {
        migration,
        destination,
    };
    let Reply::MigrateData(mut migrate_data) = old.call(&guest, check).await.unwrap() else {
        panic!("migrate_data")
    };
    assert!(migrate_data.numa_topology.is_none());
    migrate_data.claim = Some(guest.claim(&old.host, sample::pins(0, &[1], None)));
    let fit = Call::FitLiveMigration {
        migration,
        migrate_data,
    };
    let no = refused(old.call(&guest, fit).await);
    assert_eq!(no.code, Code::Unimplemented);

    // Nonsense on the wire is refused before it reaches the core.
    let status = info_client
        .destroy_vm(wire::DestroyVmRequest { fence: None })
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    let nobody = wire::ReadConsoleRequest {
        vm_uid: Uuid::from_u128(1).to_string(),
        offset: 0,
        follow: false,
    };
    let status = info_client.read_console(nobody).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
    old.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_is_followed_and_guests_are_listed_page_by_page() {
    let (_, address) = scheduler().await;
    let h1 = Running::start("h1", &address, |_| ()).await;
    let guests: Vec<Guest> = ["c", "a", "b"]
        .map(|name| Guest::new(name, sample::plain_spec(1)))
        .into();
    for guest in &guests {
        let spawn = guest.spawn_call(&h1.host, Assignment::default());
        h1.call(guest, spawn).await.unwrap();
    }
    let mut client = h1.client().await;
    let mut names = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = wire::ListDomainsRequest {
            page_size: 2,
            page_token,
        };
        let page = client.list_domains(request).await.unwrap().into_inner();
        names.extend(page.domains.into_iter().map(|d| d.vm));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["vms/a", "vms/b", "vms/c"]);

    let follow = wire::ReadConsoleRequest {
        vm_uid: guests[0].uid.to_string(),
        offset: 0,
        follow: true,
    };
    let mut stream = client.read_console(follow).await.unwrap().into_inner();
    let mut text = String::new();
    while !text.contains("count 0000000003") {
        let piece = stream.message().await.unwrap().expect("it goes on");
        assert_eq!(piece.next_offset, (text.len() + piece.data.len()) as u64);
        text.push_str(std::str::from_utf8(&piece.data).unwrap());
    }
    // The end of the guest is the end of its console.
    h1.call(&guests[0], Call::DestroyVm).await.unwrap();
    while stream.message().await.unwrap().is_some() {}
    h1.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_registers_reports_and_registers_again() {
    // Nobody listens yet: the agent starts, and finds the scheduler later.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let directory = tempfile::tempdir().unwrap();
    let state_file = directory.path().join("guests.json");
    let with_state = |config: &mut Config| {
        config.sim.state_file = Some(state_file.clone());
        config.storage_id = Some("shared".into());
    };
    let h1 = Running::start("h1", &address.to_string(), with_state).await;
    let guest = pinned("a", 1);
    let spawn = guest.spawn_call(&h1.host, sample::pins(0, &[1], None));
    h1.call(&guest, spawn).await.unwrap();

    let hosts = Hosts::default();
    let listener = TcpListener::bind(address).await.unwrap();
    let server = tonic::transport::Server::builder()
        .add_service(HostServiceServer::new(hosts.clone()))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    wait(|| hosts.known("h1").is_some()).await;
    let report = hosts.known("h1").unwrap();
    assert_eq!(report, h1.report);
    assert_eq!(report.topology.dedicated(), "1-3,5-7".parse().unwrap());
    assert_eq!(report.storage_id, "shared");
    let before = hosts.reports();
    wait(|| hosts.reports() > before + 2).await;

    // The scheduler forgets it.
    hosts.known.lock().unwrap().clear();
    wait(|| hosts.known("h1").is_some()).await;

    // Another run has another incarnation, and finds its guest again.
    h1.stop().await;
    let h1 = Running::start("h1", &address.to_string(), with_state).await;
    assert_ne!(h1.report.incarnation, report.incarnation);
    wait(|| {
        hosts
            .known("h1")
            .is_some_and(|r| r.incarnation == h1.report.incarnation)
    })
    .await;
    assert_eq!(h1.status(&guest).await.state, DomainState::Running);
    let other = pinned("b", 1);
    let spawn = other.spawn_call(&h1.host, sample::pins(0, &[1], None));
    assert_eq!(
        refused(h1.call(&other, spawn).await).hosts[0].cause,
        "CPUS_TAKEN"
    );
    h1.stop().await;
}

/// An agent whose shape is refused serves, and asks again until its guests have made way.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_shape_is_refused_registers_again_until_it_is_not() {
    let (hosts, address) = scheduler().await;
    *hosts.refusals.lock().unwrap() = 2;
    let h1 = Running::start("h1", &address, |_| ()).await;
    let registrations = || *hosts.registrations.lock().unwrap();
    wait(|| registrations() == 1).await;
    let guest = pinned("a", 1);
    let spawn = guest.spawn_call(&h1.host, sample::pins(0, &[1], None));
    h1.call(&guest, spawn).await.unwrap();
    wait(|| registrations() == 3).await;
    let before = hosts.reports();
    wait(|| hosts.reports() > before + 12).await;
    assert_eq!(registrations(), 3, "what was taken over is not said again");
    h1.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_an_agent_from_starting_is_said() {
    let start = |change: fn(&mut Config)| async move {
        let mut config = Config {
            name: Some("h1".into()),
            listening: Listening::new("127.0.0.1:0"),
            driver: DriverKind::Sim,
            machine: Some(Description::parse(MACHINE).unwrap()),
            ..Config::default()
        };
        change(&mut config);
        let error = match ComputeAgent::start(config).await {
            Ok(_) => panic!("it started"),
            Err(error) => error,
        };
        let first: &(dyn std::error::Error + 'static) = &error;
        std::iter::successors(Some(first), |&e| e.source())
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(": ")
    };
    let taken = start(|c| c.cpu_dedicated_set = Some("1,90".parse().unwrap())).await;
    assert!(taken.contains("CPUs 90, which are not online"), "{taken}");
    let lost = start(|c| {
        c.machine = None;
        c.machine_file = Some("/nonexistent/machine.toml".into());
    })
    .await;
    assert!(lost.contains("/nonexistent/machine.toml"), "{lost}");
    let tree = start(|c| {
        c.machine = None;
        c.root = "/nonexistent".into();
    })
    .await;
    assert!(
        tree.contains("/nonexistent/sys/devices/system/cpu/online"),
        "{tree}"
    );
    let daemon = start(|c| {
        c.driver = DriverKind::Libvirt;
        c.libvirt.uri = "qemu+unix:///system?socket=/nonexistent/sock".into();
    })
    .await;
    assert!(daemon.contains("does not list the guests"), "{daemon}");
    let long = start(|c| {
        c.driver = DriverKind::Libvirt;
        c.libvirt.runtime_dir = format!("/{}", "r".repeat(90)).into();
    })
    .await;
    assert!(long.contains("too long"), "{long}");
}
