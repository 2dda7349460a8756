//! etcd's side: three members with the same clock for elections, and clients that put.
//!
//! A member of etcd that knows no leader, or takes a dead one for it, does not answer for seconds.
//! Its clients therefore give an attempt [`ATTEMPT`] and go on to the next member: better than
//! etcd's own client does unless told so.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use berth_tests::measure::ports::free_ports;
use bytes::Bytes;
use tonic::transport::Channel;

use crate::group::{Client, Group, MEMBERS, Process, connect, lazy};
use crate::settings;

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::wildcard_enum_match_arm
)]
mod wire {
    tonic::include_proto!("etcdserverpb");
}

use wire::kv_client::KvClient;
use wire::maintenance_client::MaintenanceClient;
use wire::{PutRequest, StatusRequest, StatusResponse};

/// How long an attempt may take.
const ATTEMPT: Duration = Duration::from_millis(100);
/// The wait after all members were tried.
const WAIT: Duration = Duration::from_millis(10);
/// The bytes of a value: about what one claim adds to the log.
const VALUE_BYTES: usize = 1000;

/// Returns whether etcd is installed.
pub(crate) fn is_installed() -> bool {
    Command::new("etcd")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// Three members.
pub(crate) struct Etcd {
    members: Vec<Process>,
    urls: Vec<String>,
}

impl Etcd {
    /// Starts the members with their data below `folder`.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let ports = free_ports(MEMBERS * 2)?;
        let url = |i: usize| format!("http://127.0.0.1:{}", ports[i]);
        let peer = |i: usize| url(MEMBERS + i);
        let initial: Vec<String> = (0..MEMBERS).map(|i| format!("m{i}={}", peer(i))).collect();
        let mut members = Vec::new();
        for index in 0..MEMBERS {
            let arguments = [
                ("--name", format!("m{index}")),
                (
                    "--data-dir",
                    folder.join(format!("etcd-{index}")).display().to_string(),
                ),
                ("--listen-client-urls", url(index)),
                ("--advertise-client-urls", url(index)),
                ("--listen-peer-urls", peer(index)),
                ("--initial-advertise-peer-urls", peer(index)),
                ("--initial-cluster", initial.join(",")),
                ("--initial-cluster-state", "new".to_owned()),
                ("--heartbeat-interval", settings::HEARTBEAT_MS.to_string()),
                ("--election-timeout", settings::ELECTION_MS.to_string()),
                ("--logger", "zap".to_owned()),
                ("--log-level", "error".to_owned()),
            ];
            let command = move || {
                let mut command = Command::new("etcd");
                for (flag, value) in &arguments {
                    command.arg(flag).arg(value);
                }
                command.stdout(Stdio::null()).stderr(Stdio::null());
                Ok(command)
            };
            members.push(Process::start(command()?, Box::new(command))?);
        }
        let urls = (0..MEMBERS).map(url).collect();
        Ok(Self { members, urls })
    }
}

async fn status(url: &str) -> Option<StatusResponse> {
    let channel = connect(url).await?;
    let asked = MaintenanceClient::new(channel);
    let answer = { asked }.status(StatusRequest {}).await;
    answer.ok().map(tonic::Response::into_inner)
}

impl Group for Etcd {
    type Client = Putter;
    const NAME: &'static str = "etcd put";

    fn members(&mut self) -> &mut [Process] {
        &mut self.members
    }

    async fn leader(&self, asked: usize) -> Option<usize> {
        let leader = status(&self.urls[asked]).await?.leader;
        for (index, url) in self.urls.iter().enumerate() {
            let own = status(url).await.and_then(|s| s.header);
            if own.is_some_and(|own| own.member_id == leader) {
                return Some(index);
            }
        }
        None
    }

    async fn is_level(&self) -> bool {
        let mut all = Vec::new();
        for url in &self.urls {
            let Some(status) = status(url).await else {
                return false;
            };
            all.push(status);
        }
        let committed = all.iter().map(|s| s.raft_index).max();
        all.iter().all(|s| {
            Some(s.raft_applied_index) == committed && s.leader == all[0].leader && s.leader != 0
        })
    }

    fn client(&self, number: usize) -> anyhow::Result<Putter> {
        let channels: anyhow::Result<Vec<Channel>> = self.urls.iter().map(|u| lazy(u)).collect();
        Ok(Putter {
            channels: channels?,
            current: number % MEMBERS,
            number,
            puts: 0,
        })
    }

    async fn clear(&self, _clients: Vec<Putter>) -> anyhow::Result<()> {
        // The keys are written over in the next round.
        Ok(())
    }
}

/// A client that puts.
pub(crate) struct Putter {
    channels: Vec<Channel>,
    current: usize,
    number: usize,
    puts: u64,
}

impl Client for Putter {
    async fn write(&mut self) -> anyhow::Result<Instant> {
        self.puts += 1;
        let request = PutRequest {
            key: Bytes::from(format!("c{}/{}", self.number, self.puts)),
            value: Bytes::from(vec![7; VALUE_BYTES]),
        };
        let mut tried = 0;
        loop {
            let begun = Instant::now();
            let mut kv = KvClient::new(self.channels[self.current].clone());
            let put = tokio::time::timeout(ATTEMPT, kv.put(request.clone())).await;
            if matches!(put, Ok(Ok(_))) {
                return Ok(begun);
            }
            tried += 1;
            self.current = (self.current + 1) % self.channels.len();
            if tried % self.channels.len() == 0 {
                tokio::time::sleep(WAIT).await;
            }
        }
    }
}
