//! Berth's side: three schedulers as processes, and clients that claim through the library that
//! every program of Berth calls schedulers with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use berth_proto::client::SchedulerChannel;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::member::Role;
use berth_proto::cluster::v1::{GetClusterStatusRequest, GetClusterStatusResponse};
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_testkit::guests::{self, Scheduled};
use berth_tests::measure::ports::free_ports;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::group::{Client, Group, MEMBERS, Process, connect};
use crate::settings;

/// The first argument that makes this program a member.
const MEMBER: &str = "berth-scheduler";

/// How many simulated hosts there are to claim on.
const HOSTS: usize = 200;

/// Runs as a member, and returns its exit status, where the first argument says so.
pub(crate) fn become_member() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_member = arguments.first().is_some_and(|a| a == MEMBER);
    is_member.then(|| berth_scheduler::main(arguments))
}

/// Three schedulers.
pub(crate) struct Berth {
    members: Vec<Process>,
    urls: Vec<String>,
}

impl Berth {
    /// Starts the members with their data below `folder`, and registers hosts.
    pub(crate) async fn start(folder: &Path) -> anyhow::Result<Self> {
        let ports = free_ports(MEMBERS)?;
        let config = folder.join("berth.toml");
        std::fs::write(&config, settings::berth())?;
        let address = |i: usize| format!("127.0.0.1:{}", ports[i]);
        let mut berth = Self {
            members: Vec::new(),
            urls: (0..MEMBERS)
                .map(|i| format!("http://{}", address(i)))
                .collect(),
        };
        for index in 0..MEMBERS {
            let data = folder.join(format!("berth-{index}"));
            let (config, listen) = (config.clone(), address(index));
            let mut first = member(&config, &data, &listen)?;
            match index {
                0 => first.arg("--bootstrap"),
                _ => first.args(["--join", &address(0)]),
            };
            let again = Box::new(move || member(&config, &data, &listen));
            berth.members.push(Process::start(first, again)?);
            let begun = Instant::now();
            while berth.voters().await < index + 1 {
                anyhow::ensure!(
                    begun.elapsed() < Duration::from_secs(60),
                    "the schedulers did not come together within a minute"
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        berth.register().await?;
        Ok(berth)
    }

    async fn voters(&self) -> usize {
        let voters = |status: GetClusterStatusResponse| {
            let members = status.members.iter();
            members.filter(|m| m.role() == Role::Voter).count()
        };
        status(&self.urls[0]).await.map_or(0, voters)
    }

    async fn register(&self) -> anyhow::Result<()> {
        let scheduler = SchedulerChannel::new(self.urls.clone())?;
        let make = |channel| async move {
            SchedulerServiceClient::new(channel)
                .create_flavor(guests::flavor("one", 1))
                .await
        };
        scheduler.call(make).await?;
        for number in 0..HOSTS {
            let register = |channel| async move {
                HostServiceClient::new(channel)
                    .register_host(guests::host(number))
                    .await
            };
            scheduler.call(register).await?;
        }
        Ok(())
    }
}

fn member(config: &PathBuf, data: &Path, listen: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(MEMBER)
        .arg("--config")
        .arg(config)
        .arg("--data-dir")
        .arg(data)
        .args(["--listen", listen, "--log-filter", "error"])
        // The simulated hosts have no agents to report for them.
        .args(["--liveness-limit-ms", "3600000"])
        .stdout(Stdio::null());
    Ok(command)
}

async fn status(url: &str) -> Option<GetClusterStatusResponse> {
    let channel = connect(url).await?;
    let answer = ClusterServiceClient::new(channel)
        .get_cluster_status(GetClusterStatusRequest {})
        .await;
    answer.ok().map(tonic::Response::into_inner)
}

impl Group for Berth {
    type Client = Claimer;
    const NAME: &'static str = "berth claim";

    fn members(&mut self) -> &mut [Process] {
        &mut self.members
    }

    async fn leader(&self, asked: usize) -> Option<usize> {
        let leader = status(&self.urls[asked]).await?.leader_address;
        self.urls.iter().position(|url| *url == leader)
    }

    async fn is_level(&self) -> bool {
        let mut applied = Vec::new();
        let mut committed = 0;
        for url in &self.urls {
            let Some(status) = status(url).await else {
                return false;
            };
            committed = committed.max(status.commit_index);
            applied.push((status.applied_index, status.leader_id));
        }
        applied
            .iter()
            .all(|at| at.0 == committed && at.1 == applied[0].1 && at.1 != 0)
    }

    fn client(&self, number: usize) -> anyhow::Result<Claimer> {
        Ok(Claimer {
            scheduler: SchedulerChannel::new(self.urls.clone())?,
            name: format!("{number}-{}", Uuid::new_v4().simple()),
            claimed: Vec::new(),
        })
    }

    async fn clear(&self, clients: Vec<Claimer>) -> anyhow::Result<()> {
        let leader = self.leader(0).await.context("somebody leads")?;
        let leader = connect(&self.urls[leader]).await.context("it is there")?;
        let mut clearing = JoinSet::new();
        for client in clients {
            let leader = leader.clone();
            clearing.spawn(async move {
                for guest in client.claimed {
                    guests::release(leader.clone(), guest).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = clearing.join_next().await {
            done??;
        }
        Ok(())
    }
}

/// A client that claims.
pub(crate) struct Claimer {
    scheduler: SchedulerChannel,
    name: String,
    claimed: Vec<Scheduled>,
}

impl Client for Claimer {
    async fn write(&mut self) -> anyhow::Result<Instant> {
        let vm = format!("vms/{}-{}", self.name, self.claimed.len());
        let request = guests::request(&vm, "one", None);
        let mut begun = Instant::now();
        let claim = |channel| {
            begun = Instant::now();
            let request = request.clone();
            async move {
                SchedulerServiceClient::new(channel)
                    .schedule_vm(request)
                    .await
            }
        };
        let answer = self.scheduler.call(claim).await?;
        self.claimed.push(guests::scheduled(vm, answer)?);
        Ok(begun)
    }
}
