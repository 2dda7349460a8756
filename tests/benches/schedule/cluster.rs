//! Schedulers as processes of their own, ended when dropped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_proto::client::Dialer;
use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::member::Role as MemberRole;
use berth_tests::measure::ports::free_ports;
use berth_tests::processes::{Certs, Collector, certs};
use berth_tls::{Expected, Role};
use tonic::transport::{Channel, Endpoint};

use crate::observers::Observed;

/// The first argument that makes this program a member.
const MEMBER: &str = "berth-scheduler";
const CONNECT_MAX: Duration = Duration::from_secs(5);

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
    /// What each was started with, but for how it began.
    arguments: Vec<Vec<OsString>>,
    /// Where their data is.
    folder: PathBuf,
    certs: Certs,
    /// What clients dial with.
    dialer: Dialer,
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
        let local = [127, 0, 0, 1].into();
        let mut cluster = Self {
            members: Vec::new(),
            addresses: Vec::new(),
            arguments: Vec::new(),
            folder: folder.to_owned(),
            certs: Certs::new(folder.join(format!("certs-{members}")), local),
            dialer: Dialer::default(),
        };
        for (index, port) in ports.iter().enumerate() {
            let address = format!("127.0.0.1:{port}");
            let data_dir = folder.join(format!("berth-{members}-{index}"));
            let mut arguments: Vec<OsString> = vec![MEMBER.into(), "--data-dir".into()];
            arguments.push(data_dir.into());
            // The simulated hosts have no agents to report for them.
            let words = ["--log-filter", "error", "--liveness-limit-ms", "3600000"];
            arguments.extend(words.map(OsString::from));
            arguments.extend(["--listen", &address].map(OsString::from));
            let begin = match cluster.addresses.first() {
                None => vec!["--bootstrap".into()],
                Some(first) => vec!["--join".into(), first.into()],
            };
            cluster.members.push(spawn(&arguments, &begin)?);
            cluster.arguments.push(arguments);
            cluster.addresses.push(address);
            cluster.wait(index + 1).await?;
        }
        Ok(cluster)
    }

    /// Ends all members and starts them again on their data, with certificates or without.
    pub(crate) async fn restart(&mut self, encrypted: bool) -> anyhow::Result<()> {
        let files = self.certs.files(Role::Scheduler, "bench");
        let flags: Vec<String> = match encrypted {
            true => certs::flags(&files)
                .into_iter()
                .flat_map(|(flag, file)| [flag.to_owned(), file])
                .collect(),
            false => Vec::new(),
        };
        // Clients are the conductor of the guests.
        let tls = encrypted.then(|| self.certs.tls(Role::Conductor, "bench"));
        self.dialer = Dialer::new(tls);
        let flags = flags.into_iter().map(OsString::from).collect();
        self.start_again(vec![flags; self.arguments.len()]).await
    }

    /// Ends all members and starts them again on their data, to be observed; returns where.
    pub(crate) async fn restart_observed(
        &mut self,
        observed: Observed,
        collector: &Collector,
    ) -> anyhow::Result<Vec<(u16, u16)>> {
        let ports = free_ports(2 * self.arguments.len())?;
        let ports: Vec<_> = ports.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let each = ports.iter();
        let more = each.map(|ports| observed.arguments(*ports, collector, &self.folder));
        let more = more.collect::<Result<Vec<_>, _>>()?;
        self.start_again(more).await?;
        Ok(ports)
    }

    /// Ends all members and starts them again on their data, each with more arguments.
    async fn start_again(&mut self, more: Vec<Vec<OsString>>) -> anyhow::Result<()> {
        for member in &mut self.members {
            member.kill()?;
            member.wait()?;
        }
        self.members.clear();
        for (arguments, more) in self.arguments.iter().zip(&more) {
            self.members.push(spawn(arguments, more)?);
        }
        self.wait(self.arguments.len()).await
    }

    /// Returns how many members there are.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns how much processor time each member has used, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> Vec<f64> {
        let members = self.members.iter();
        members
            .map(|member| cpu_ms(&member.id().to_string()))
            .collect()
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
                        .filter(|m| m.role() == MemberRole::Voter)
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

    /// Connects to the member that leads.
    pub(crate) async fn leader(&self) -> anyhow::Result<Channel> {
        let first = self.connect(&self.dialer.url(&self.addresses[0])).await?;
        let mut client = ClusterServiceClient::new(first);
        let status = client.get_cluster_status(GetClusterStatusRequest {});
        let leader = status.await?.into_inner().leader_address;
        self.connect(&leader).await
    }

    async fn connect(&self, url: &str) -> anyhow::Result<Channel> {
        let connector = self.dialer.connector(Expected::Scheduler, CONNECT_MAX);
        let endpoint = Endpoint::from_shared(url.to_owned())?;
        Ok(endpoint.connect_with_connector(connector).await?)
    }
}

/// Returns how much processor time a process has used, in milliseconds; 0 of one that is gone.
pub(crate) fn cpu_ms(process: &str) -> f64 {
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace().skip(11);
        let ticks: f64 =
            fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
        // Linux shows it in hundredths of a second.
        Some(ticks * 10.0)
    };
    used().unwrap_or(0.0)
}

fn spawn(arguments: &[OsString], more: &[OsString]) -> anyhow::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(arguments)
        .args(more)
        .stdout(Stdio::null())
        .spawn()
        .context("failed to start a member")
}
