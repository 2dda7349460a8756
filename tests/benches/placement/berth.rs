//! Berth's schedulers as processes of their own, with the REST API, ended when dropped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_tests::measure::ports::free_ports;
use hyper::Method;
use serde_json::{Value, json};

use crate::peer::Running;
use crate::rest::{Ask, Client};
use crate::world::{CUSTOM_TRAITS, DEVICE, Provider};

/// The first argument that makes this program a member.
const MEMBER: &str = "berth-scheduler";
/// How many connections fill the inventory at once.
const FILLING: usize = 64;

/// Runs as a member, and returns its exit status, where the first argument says so.
pub(crate) fn become_member() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_member = arguments.first().is_some_and(|a| a == MEMBER);
    is_member.then(|| berth_scheduler::main(arguments))
}

/// Running members.
pub(crate) struct Berth {
    members: Vec<Running>,
    /// Where each shows the REST API; the first one leads, as the others joined it.
    addresses: Vec<String>,
    folders: Vec<PathBuf>,
}

impl Berth {
    /// Starts `members` members with their data below `folder`, and waits until they answer.
    /// `program` is a scheduler to run instead of this program.
    pub(crate) async fn start(
        program: Option<&Path>,
        folder: &Path,
        name: &str,
        members: usize,
    ) -> anyhow::Result<Self> {
        let ports = free_ports(members * 2)?;
        let (listen, placement) = ports.split_at(members);
        let mut berth = Self {
            members: Vec::new(),
            addresses: Vec::new(),
            folders: Vec::new(),
        };
        for (index, (port, rest)) in listen.iter().zip(placement).enumerate() {
            let data = folder.join(format!("berth-{name}-{index}"));
            let address = format!("127.0.0.1:{rest}");
            let mut command = match program {
                Some(program) => Command::new(program),
                None => Command::new(std::env::current_exe()?),
            };
            if program.is_none() {
                command.arg(MEMBER);
            }
            command
                .arg("--data-dir")
                .arg(&data)
                .args(["--listen", &format!("127.0.0.1:{port}")])
                .args(["--placement-listen", &address])
                .args(["--placement-profile", "default", "--log-filter", "error"])
                .stdout(Stdio::null());
            match index {
                0 => command.arg("--bootstrap"),
                _ => command.args(["--join", &format!("127.0.0.1:{}", listen[0])]),
            };
            berth.members.push(Running::start(&mut command)?);
            berth.addresses.push(address);
            berth.folders.push(data);
            berth.wait(index).await?;
        }
        berth.define().await?;
        Ok(berth)
    }

    /// Waits until a member answers: then it is one, and somebody leads.
    async fn wait(&self, index: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let mut client = Client::new(&self.addresses[index]);
            let answer = client.ask(&Ask::get("/resource_providers")).await;
            if answer.is_ok_and(|answer| answer.status.is_success()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("member {index} did not answer within a minute")
    }

    async fn define(&self) -> anyhow::Result<()> {
        let mut client = Client::new(self.address());
        for name in CUSTOM_TRAITS {
            let path = format!("/traits/{name}");
            client.ask(&Ask::put(path)).await?.json()?;
        }
        let path = format!("/resource_classes/{DEVICE}");
        client.ask(&Ask::put(path)).await?.json()?;
        Ok(())
    }

    /// Adds trees of providers over the REST API; returns how long that took and how many calls
    /// it was.
    pub(crate) async fn fill(&self, trees: Vec<Vec<Provider>>) -> anyhow::Result<(Duration, u64)> {
        let start = Instant::now();
        let (trees, next) = (Arc::new(trees), Arc::new(AtomicUsize::new(0)));
        let workers = (0..FILLING).map(|_| {
            let (trees, next) = (trees.clone(), next.clone());
            let mut client = Client::new(self.address());
            tokio::spawn(async move {
                let mut calls = 0;
                while let Some(tree) = trees.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for provider in tree {
                        calls += add(&mut client, provider).await?;
                    }
                }
                anyhow::Ok(calls)
            })
        });
        let workers: Vec<_> = workers.collect();
        let mut calls = 0;
        for worker in workers {
            calls += worker.await??;
        }
        Ok((start.elapsed(), calls))
    }

    /// Returns where the member that leads shows the REST API.
    pub(crate) fn address(&self) -> &str {
        &self.addresses[0]
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        self.members.iter().map(Running::id).collect()
    }

    /// Returns how much the first member keeps on disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        bytes_below(&self.folders[0])
    }
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(of) if of.is_dir() => bytes_below(&entry.path()),
        Ok(of) => of.len(),
        // It was taken away in the meantime.
        Err(_) => 0,
    });
    bytes.sum()
}

/// Makes a provider with all it has; returns how many calls that took.
async fn add(client: &mut Client, provider: &Provider) -> anyhow::Result<u64> {
    let mut body = json!({"uuid": provider.id, "name": provider.name});
    if let Some(parent) = provider.parent {
        body["parent_provider_uuid"] = parent.to_string().into();
    }
    let made = client
        .ask(&Ask::with(Method::POST, "/resource_providers", &body))
        .await?;
    let mut generation = made.json()?["generation"].clone();
    let mut calls = 1;
    let parts = [
        (
            "inventories",
            provider.inventories(),
            provider.stocks.is_empty(),
        ),
        ("traits", json!(provider.traits), provider.traits.is_empty()),
        (
            "aggregates",
            json!(provider.aggregates),
            provider.aggregates.is_empty(),
        ),
    ];
    for (part, value, is_empty) in parts {
        if is_empty {
            continue;
        }
        let path = format!("/resource_providers/{}/{part}", provider.id);
        let body = json!({"resource_provider_generation": generation, part: value});
        let answer = client.ask(&Ask::with(Method::PUT, path, &body)).await?;
        let answer: Value = answer.json()?;
        let next = answer.get("resource_provider_generation");
        generation = next.context("a write answers with the generation")?.clone();
        calls += 1;
    }
    Ok(calls)
}
