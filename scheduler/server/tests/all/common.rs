//! Schedulers within one process on loopback, and the requests that the tests make.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

pub mod failing_disk;
pub mod process;
pub mod rest;
pub mod trio;
pub mod world;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_process::Listening;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{GetClusterStatusRequest, GetClusterStatusResponse, member};
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_replication::runtime::Handle;
use berth_scheduler::{Config, Error, Machine, Scheduler, Start};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done` gives something.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, done: impl Fn() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = done().await {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A configuration for tests: fast clocks, any port.
pub fn config(directory: &Path, start: Start) -> Config {
    Config {
        listening: Listening::new("127.0.0.1:0"),
        start,
        raft_tick_ms: 20,
        ..Config::new(directory)
    }
}

/// A running member.
pub struct Member {
    pub address: SocketAddr,
    pub placement: Option<SocketAddr>,
    pub directory: PathBuf,
    pub handle: Handle<Machine>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), Error>>,
}

impl Member {
    pub async fn start(config: Config) -> Self {
        Self::try_start(config).await.expect("the member starts")
    }

    pub async fn try_start(config: Config) -> Result<Self, Error> {
        let directory = config.data_dir.clone();
        let scheduler = Scheduler::start(config).await?;
        let address = scheduler.address();
        let placement = scheduler.placement_address();
        let handle = scheduler.handle();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            // A dropped sender stops it too.
            let _ = stopped.await;
        };
        Ok(Self {
            address,
            placement,
            directory,
            handle,
            stop: Some(stop),
            task: tokio::spawn(scheduler.run(shutdown)),
        })
    }

    /// Stops it as SIGTERM would.
    pub async fn stop(mut self) -> Result<(), Error> {
        drop(self.stop.take());
        self.task.await.expect("the member does not panic")
    }

    /// Waits until it ends by itself.
    pub async fn ended(self) -> Result<(), Error> {
        self.task.await.expect("the member does not panic")
    }

    /// Ends it without a goodbye.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub fn peer(&self) -> String {
        self.address.to_string()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub async fn channel(&self) -> Channel {
        connect(&self.url()).await
    }

    pub async fn status(&self) -> GetClusterStatusResponse {
        let mut client = ClusterServiceClient::new(self.channel().await);
        let answer = client.get_cluster_status(GetClusterStatusRequest {}).await;
        answer.expect("a status").into_inner()
    }
}

pub async fn connect(url: &str) -> Channel {
    let endpoint = Channel::from_shared(url.to_owned()).expect("an address");
    endpoint.connect().await.expect("a connection")
}

pub fn schedulers(channel: &Channel) -> SchedulerServiceClient<Channel> {
    SchedulerServiceClient::new(channel.clone())
}

pub fn hosts(channel: &Channel) -> HostServiceClient<Channel> {
    HostServiceClient::new(channel.clone())
}

pub fn clusters(channel: &Channel) -> ClusterServiceClient<Channel> {
    ClusterServiceClient::new(channel.clone())
}

pub fn operations(channel: &Channel) -> OperationServiceClient<Channel> {
    OperationServiceClient::new(channel.clone())
}

/// Members of one cluster.
pub struct Cluster {
    pub directory: TempDir,
    pub members: Vec<Member>,
}

impl Cluster {
    /// Starts a cluster and waits until all of its members vote.
    pub async fn start(members: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let first = config(&directory.path().join("0"), Start::Bootstrap);
        let mut cluster = Self {
            members: vec![Member::start(first).await],
            directory,
        };
        for number in 1..members {
            cluster.join(number).await;
        }
        cluster.voters(members).await;
        cluster
    }

    /// Starts another member through the first one that is left.
    pub async fn join(&mut self, number: usize) {
        let peers = self.members.iter().map(Member::peer).collect();
        let directory = self.directory.path().join(number.to_string());
        let member = Member::start(config(&directory, Start::Join(peers))).await;
        self.members.push(member);
    }

    /// Waits until this many members vote, all agree on who leads, and the cluster has its name.
    pub async fn voters(&self, wanted: usize) {
        eventually("the members' agreement", || async {
            let mut leaders = Vec::new();
            for member in &self.members {
                let status = member.status().await;
                let voter = member::Role::Voter as i32;
                let voters = status.members.iter().filter(|m| m.role == voter).count();
                if voters != wanted || status.leader_id == 0 {
                    return None;
                }
                let named = |machine: &Machine| machine.state().cluster().is_some();
                if !matches!(member.handle.read_stale(named).await, Ok(true)) {
                    return None;
                }
                leaders.push(status.leader_id);
            }
            leaders.dedup();
            (leaders.len() == 1).then_some(())
        })
        .await;
    }

    /// Returns the position of the leader once there is one that decides.
    pub async fn leader(&self) -> usize {
        eventually("a leader", || async {
            let leads = |m: &Member| m.handle.leader().role.deciding;
            self.members.iter().position(leads)
        })
        .await
    }

    /// Returns a connection to the leader.
    pub async fn channel(&self) -> Channel {
        self.members[self.leader().await].channel().await
    }
}
