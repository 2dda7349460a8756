//! Schedulers as processes of their own, ended when dropped.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::member::Role;
use tonic::transport::{Channel, Endpoint};

use crate::ports::free_ports;

/// The first argument that makes this program a member.
const MEMBER: &str = "berth-scheduler";

/// Runs as a member, and returns its exit status, where the first argument says so.
pub(crate) fn become_member() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_member = arguments.first().is_some_and(|a| a == MEMBER);
    is_member.then(|| berth_scheduler::main(arguments))
}

/// Running members.
pub(crate) struct Cluster {
    members: Vec<Child>,
    addresses: Vec<String>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Already gone is as good.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

impl Cluster {
    /// Starts `members` members with their data below `folder` and waits until all of them vote.
    pub(crate) async fn start(folder: &Path, members: usize) -> anyhow::Result<Self> {
        let ports = free_ports(members)?;
        let mut cluster = Self {
            members: Vec::new(),
            addresses: Vec::new(),
        };
        for (index, port) in ports.iter().enumerate() {
            let address = format!("127.0.0.1:{port}");
            let mut command = Command::new(std::env::current_exe()?);
            command
                .arg(MEMBER)
                .arg("--data-dir")
                .arg(folder.join(format!("berth-{members}-{index}")))
                .args(["--listen", &address, "--log-filter", "error"])
                // The simulated hosts have no agents to report for them.
                .args(["--liveness-limit-ms", "3600000"])
                .stdout(Stdio::null());
            match cluster.addresses.first() {
                None => command.arg("--bootstrap"),
                Some(first) => command.args(["--join", first]),
            };
            cluster
                .members
                .push(command.spawn().context("failed to start a member")?);
            cluster.addresses.push(address);
            cluster.wait(index + 1).await?;
        }
        Ok(cluster)
    }

    /// Waits until so many members vote.
    async fn wait(&self, voters: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Ok(channel) = self.leader().await {
                let status = ClusterServiceClient::new(channel)
                    .get_cluster_status(GetClusterStatusRequest {})
                    .await;
                let seen = status.map(|s| {
                    s.get_ref()
                        .members
                        .iter()
                        .filter(|m| m.role() == Role::Voter)
                        .count()
                });
                if seen.is_ok_and(|seen| seen >= voters) {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the members did not come together within a minute")
    }

    /// Connects to the member that leads: the first, as the others joined it.
    pub(crate) async fn leader(&self) -> anyhow::Result<Channel> {
        Ok(
            Endpoint::from_shared(format!("http://{}", self.addresses[0]))?
                .connect()
                .await?,
        )
    }
}
