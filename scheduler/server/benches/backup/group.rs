//! Schedulers as processes, the first of which begins with a directory that is there already.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::member::Role;
use berth_proto::cluster::v1::{GetClusterStatusRequest, GetClusterStatusResponse};
use berth_state::State;
use tonic::transport::{Channel, Endpoint};

use crate::fault::{Outcome, fault};
use crate::member;
use crate::process::Running;

/// When waiting for members is given up.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Returns distinct ports of the loopback interface that were free a moment ago.
pub(crate) fn free_ports(number: usize) -> Outcome<Vec<u16>> {
    let listeners = (0..number).map(|_| TcpListener::bind(("127.0.0.1", 0)));
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let ports = listeners.iter().map(TcpListener::local_addr);
    Ok(ports
        .map(|address| Ok(address?.port()))
        .collect::<std::io::Result<_>>()?)
}

/// Where members are: their data below a folder, and a port each.
pub(crate) struct Places {
    pub(crate) folder: PathBuf,
    name: &'static str,
    ports: Vec<u16>,
}

impl Places {
    pub(crate) fn new(folder: &Path, name: &'static str, members: usize) -> Outcome<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            name,
            ports: free_ports(members)?,
        })
    }

    pub(crate) fn data(&self, member: usize) -> PathBuf {
        self.folder.join(format!("{}-{member}", self.name))
    }

    pub(crate) fn address(&self, member: usize) -> String {
        format!("127.0.0.1:{}", self.ports[member])
    }

    /// Returns the arguments of a member.
    pub(crate) fn arguments(&self, member: usize) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--data-dir".into(), self.data(member).into()];
        let listen = self.address(member);
        arguments.extend(["--listen", &listen, "--log-filter", "error"].map(OsString::from));
        // The hosts have no agents that send heartbeats.
        arguments.extend(["--liveness-limit-ms", "3600000"].map(OsString::from));
        arguments
    }

    /// Writes the directory of the first member of a cluster with this state.
    pub(crate) fn write_first(&self, state: &State) -> Outcome<()> {
        member::write(&self.data(0), &self.address(0), state)?;
        Ok(())
    }
}

/// Running members.
pub(crate) struct Group {
    pub(crate) members: Vec<Running>,
    pub(crate) places: Places,
}

impl Group {
    /// Starts the first member alone, and waits until it leads.
    pub(crate) async fn start(places: Places) -> Outcome<Self> {
        let first = Running::scheduler(&places.arguments(0))?;
        let group = Self {
            members: vec![first],
            places,
        };
        group.wait(1).await?;
        Ok(group)
    }

    /// Has all others join, and waits until they vote and have caught up.
    pub(crate) async fn complete(&mut self) -> Outcome<()> {
        for member in 1..self.places.ports.len() {
            let mut arguments = self.places.arguments(member);
            arguments.extend(["--join".into(), self.places.address(0).into()]);
            self.members.push(Running::scheduler(&arguments)?);
            self.wait(member + 1).await?;
        }
        self.level().await
    }

    /// Ends all members, starts them again, and returns how long that took until they served.
    pub(crate) async fn restart(&mut self) -> Outcome<Duration> {
        let count = self.members.len();
        self.members.clear();
        let begun = Instant::now();
        for member in 0..count {
            let arguments = self.places.arguments(member);
            self.members.push(Running::scheduler(&arguments)?);
        }
        self.wait(count).await?;
        Ok(begun.elapsed())
    }

    /// Waits until a leader knows so many voters.
    async fn wait(&self, voters: usize) -> Outcome<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Ok(status) = self.status(0).await {
                let roles = status.members.iter().map(|member| member.role());
                if roles.filter(|role| *role == Role::Voter).count() >= voters
                    && status.leader_id != 0
                {
                    return Ok(());
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(fault("the schedulers did not come together"))
    }

    /// Waits until all members have applied the same.
    async fn level(&self) -> Outcome<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let mut applied = Vec::new();
            for member in 0..self.members.len() {
                let status = self.status(member).await;
                applied.push(status.map_or(0, |status| status.applied_index));
            }
            if applied[0] != 0 && applied.iter().all(|index| *index == applied[0]) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(fault("the schedulers do not catch up"))
    }

    async fn status(&self, member: usize) -> Outcome<GetClusterStatusResponse> {
        let channel = self.connect(member).await?;
        let status = ClusterServiceClient::new(channel)
            .get_cluster_status(GetClusterStatusRequest {})
            .await?;
        Ok(status.into_inner())
    }

    /// Returns which member leads.
    pub(crate) async fn leader(&self) -> Outcome<usize> {
        let leader = self.status(0).await?.leader_address;
        let mut members = 0..self.members.len();
        let leader = members.find(|member| leader.ends_with(&self.places.address(*member)));
        leader.ok_or_else(|| fault("no member leads"))
    }

    /// Returns where a member is reached.
    pub(crate) fn url(&self, member: usize) -> String {
        format!("http://{}", self.places.address(member))
    }

    /// Connects to a member.
    pub(crate) async fn connect(&self, member: usize) -> Outcome<Channel> {
        let endpoint = Endpoint::from_shared(self.url(member))?;
        let endpoint = endpoint.connect_timeout(Duration::from_secs(1));
        Ok(endpoint.tcp_nodelay(true).connect().await?)
    }
}
