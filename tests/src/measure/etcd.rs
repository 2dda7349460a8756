//! The peer: etcd with as many members, as many clients and values of the same size.
//!
//! Not tuned: each member runs with etcd's defaults except for longer elections with three
//! members, since all of them share two cores with the load.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use tonic::transport::{Channel, Endpoint};

use super::figures::Figures;
use super::ports::free_ports;

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::wildcard_enum_match_arm
)]
mod wire {
    tonic::include_proto!("etcdserverpb");
}

use wire::PutRequest;
use wire::kv_client::KvClient;

/// The members of an etcd cluster, ended when dropped.
#[derive(Debug)]
pub struct Etcd {
    /// Their processes.
    pub members: Vec<Child>,
    clients: Vec<String>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Already gone is as good.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// Returns whether etcd is installed.
#[must_use]
pub fn is_installed() -> bool {
    Command::new("etcd")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

impl Etcd {
    /// Starts `members` members with their data below `folder` and waits until they take a put.
    ///
    /// # Errors
    ///
    /// When they do not within a minute.
    pub async fn start(folder: &Path, members: usize) -> anyhow::Result<Self> {
        let ports = free_ports(members * 2)?;
        let peer = |i: usize| format!("http://127.0.0.1:{}", ports[members + i]);
        let initial: Vec<String> = (0..members).map(|i| format!("m{i}={}", peer(i))).collect();
        let mut etcd = Self {
            members: Vec::new(),
            clients: Vec::new(),
        };
        for (i, port) in ports.iter().take(members).enumerate() {
            let client = format!("http://127.0.0.1:{port}");
            let mut command = Command::new("etcd");
            command
                .args([
                    "--name",
                    &format!("m{i}"),
                    "--logger",
                    "zap",
                    "--log-level",
                    "error",
                ])
                .arg("--data-dir")
                .arg(folder.join(format!("etcd-{members}-{i}")))
                .args([
                    "--listen-client-urls",
                    &client,
                    "--advertise-client-urls",
                    &client,
                ])
                .args([
                    "--listen-peer-urls",
                    &peer(i),
                    "--initial-advertise-peer-urls",
                    &peer(i),
                ])
                .args([
                    "--initial-cluster",
                    &initial.join(","),
                    "--initial-cluster-state",
                    "new",
                ])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            if members > 1 {
                command.args(["--heartbeat-interval", "500", "--election-timeout", "5000"]);
            }
            etcd.members
                .push(command.spawn().context("failed to start etcd")?);
            etcd.clients.push(client);
        }
        etcd.wait().await?;
        Ok(etcd)
    }

    async fn wait(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Ok(channel) = connect(&self.clients[0]).await {
                let put = PutRequest {
                    key: Bytes::from_static(b"k"),
                    value: Bytes::new(),
                };
                if KvClient::new(channel).put(put).await.is_ok() {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("etcd did not take a put within a minute")
    }

    /// Has `clients` clients put values of `bytes` bytes one after another for `time`.
    ///
    /// # Errors
    ///
    /// When no member is reached.
    pub async fn put(
        &self,
        clients: usize,
        bytes: usize,
        time: Duration,
    ) -> anyhow::Result<Figures> {
        let value = Bytes::from(vec![7; bytes]);
        let mut channels = Vec::new();
        for i in 0..clients.min(8) {
            channels.push(connect(&self.clients[i % self.clients.len()]).await?);
        }
        let start = Instant::now();
        let mut tasks = Vec::new();
        for client in 0..clients {
            let mut kv = KvClient::new(channels[client % channels.len()].clone());
            let value = value.clone();
            tasks.push(tokio::spawn(async move {
                let mut figures = Figures::new();
                let mut number = 0u64;
                while start.elapsed() < time {
                    let key = Bytes::from(format!("c{client}/{number}"));
                    number += 1;
                    let begun = Instant::now();
                    match kv
                        .put(PutRequest {
                            key,
                            value: value.clone(),
                        })
                        .await
                    {
                        Ok(_) => figures.record(begun.elapsed()),
                        Err(_) => figures.failures += 1,
                    }
                }
                figures
            }));
        }
        let mut all = Figures::new();
        for task in tasks {
            all.add(&task.await?);
        }
        all.end(start.elapsed());
        Ok(all)
    }
}

async fn connect(address: &str) -> anyhow::Result<Channel> {
    Ok(Endpoint::from_shared(address.to_owned())?
        .connect_timeout(Duration::from_secs(2))
        .connect()
        .await?)
}
