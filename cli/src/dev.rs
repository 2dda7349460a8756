//! `berth dev`: schedulers, a conductor and simulated hosts in this process, on loopback.
//!
//! Not a shortcut: each part listens on a port of its own and the others reach it by gRPC, as they
//! would between machines.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_compute_agent::ComputeAgent;
use berth_compute_agent::config::DriverKind;
use berth_compute_agent::config::networks::PhysicalNetwork;
use berth_conductor::Conductor;
use berth_domain::host::{Host, Liveness};
use berth_domain::name::PhysicalNetworkName;
use berth_domain::network::BridgeType;
use berth_host::description::{Cell, Description};
use berth_process::{Listening, error_chain};
use berth_proto::cluster::v1::ListServicesRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::host::v1::ListHostsRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_scheduler::{Profile, Scheduler, Start};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::arguments::Dev as Options;
use crate::output::{self, Format, Lines};
use crate::session::Session;
use crate::{all_pages, draw};

/// The maximum time until all parts have registered.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// One part that runs, and how to stop it.
struct Part {
    name: String,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

/// A whole Berth in this process.
pub struct Cluster {
    schedulers: Vec<(SocketAddr, Part)>,
    others: Vec<Part>,
    /// Removed with everything in it when the cluster ends, if it was made for it.
    _temporary: Option<tempfile::TempDir>,
}

/// The configuration of a cluster.
pub struct Plan {
    /// The number of schedulers.
    pub schedulers: u16,
    /// The number of simulated hosts.
    pub hosts: u16,
    /// The first port, or 0 for any free ones.
    pub port: u16,
    /// The directory for data; a temporary one if absent.
    pub data_dir: Option<PathBuf>,
    /// The duration of a simulated transfer.
    pub transfer_ms: u64,
    /// Whether data is kept in memory, where the machine has a directory for that.
    pub ephemeral: bool,
    /// The REST API of OpenStack Placement, served by the first scheduler.
    pub placement: Option<Placement>,
    /// The address of the page of the cluster, served by the first scheduler.
    pub page: Option<String>,
}

/// The configuration of OpenStack Placement's REST API.
#[derive(Clone)]
pub struct Placement {
    /// The address.
    pub listen: String,
    /// The policy profile that authorizes callers.
    pub profile: Profile,
    /// File with the callers' tokens; if absent, callers are not authenticated.
    pub tokens: Option<PathBuf>,
}

/// Where Linux keeps files in memory.
const MEMORY: &str = "/dev/shm";

impl Cluster {
    /// Starts everything and waits until it can be used.
    ///
    /// # Errors
    ///
    /// Which part did not start, and why.
    pub async fn start(plan: &Plan) -> anyhow::Result<Self> {
        let (folder, temporary) = match &plan.data_dir {
            Some(folder) => (folder.clone(), None),
            None => {
                let mut name = tempfile::Builder::new();
                let name = name.prefix("berth-dev");
                let made = match plan.ephemeral && Path::new(MEMORY).is_dir() {
                    true => name.tempdir_in(MEMORY)?,
                    false => name.tempdir()?,
                };
                (made.path().to_owned(), Some(made))
            }
        };
        let mut cluster = Self {
            schedulers: Vec::new(),
            others: Vec::new(),
            _temporary: temporary,
        };
        for number in 0..plan.schedulers {
            cluster.start_scheduler(&folder, plan, number).await?;
        }
        if plan.is_alone() {
            return Ok(cluster);
        }
        cluster
            .start_conductor(plan.port_of(plan.schedulers))
            .await?;
        for number in 0..plan.hosts {
            let port = plan.port_of(plan.schedulers + 1 + number);
            cluster
                .start_agent(&folder, port, number, plan.transfer_ms)
                .await?;
        }
        cluster.wait(usize::from(plan.hosts)).await?;
        Ok(cluster)
    }

    /// Returns the schedulers' addresses.
    #[must_use]
    pub fn schedulers(&self) -> Vec<String> {
        self.schedulers
            .iter()
            .map(|(address, _)| address.to_string())
            .collect()
    }

    /// Returns a session with this cluster.
    ///
    /// # Errors
    ///
    /// Never, as the addresses are our own.
    pub fn session(&self, output: Format) -> anyhow::Result<Session> {
        Session::new(&self.schedulers(), output)
    }

    /// Stops one scheduler at once, without notifying the others.
    ///
    /// # Errors
    ///
    /// When there is none at this address.
    pub fn kill_scheduler(&mut self, address: &str) -> anyhow::Result<()> {
        let address = address.trim_start_matches("http://");
        let at = self
            .schedulers
            .iter()
            .position(|(a, _)| a.to_string() == address);
        let at = at.with_context(|| format!("there is no scheduler at {address}"))?;
        let (_, part) = self.schedulers.remove(at);
        part.task.abort();
        Ok(())
    }

    /// Ends everything and waits for it.
    pub async fn stop(self) {
        let parts = self.others.into_iter().rev();
        for part in parts.chain(self.schedulers.into_iter().map(|(_, part)| part)) {
            part.stop.cancel();
            match part.task.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => output::message(format!(
                    "{} ended badly: {}",
                    part.name,
                    error_chain(error.as_ref())
                )),
                Err(error) if error.is_cancelled() => {}
                Err(error) => output::message(format!("{} ended badly: {error}", part.name)),
            }
        }
    }

    async fn start_scheduler(
        &mut self,
        folder: &Path,
        plan: &Plan,
        number: u16,
    ) -> anyhow::Result<()> {
        let name = format!("scheduler {}", number + 1);
        let data_dir = folder.join(format!("scheduler-{}", number + 1));
        let is_member = data_dir.join("MEMBER").exists();
        let mut config = berth_scheduler::Config::new(data_dir);
        config.listening = Listening::new(&loopback(plan.port_of(number)));
        if let Some(placement) = plan.placement.as_ref().filter(|_| number == 0) {
            config.placement_listen = Some(placement.listen.clone());
            config.placement_profile = Some(placement.profile);
            config.placement_tokens.clone_from(&placement.tokens);
        }
        if number == 0 {
            config.page_listen.clone_from(&plan.page);
        }
        config.start = match self.schedulers.first() {
            _ if is_member => Start::Restart,
            None => Start::Bootstrap,
            Some((first, _)) => Start::Join(vec![first.to_string()]),
        };
        let started = Scheduler::start(config).await;
        let scheduler = started.with_context(|| format!("failed to start {name}"))?;
        let address = scheduler.address();
        let part = run(&name, |stop| async move { Ok(scheduler.run(stop).await?) });
        self.schedulers.push((address, part));
        Ok(())
    }

    async fn start_conductor(&mut self, port: u16) -> anyhow::Result<()> {
        let config = berth_conductor::Config {
            listening: Listening::new(&loopback(port)),
            schedulers: self.schedulers(),
            ..Default::default()
        };
        let conductor = Conductor::start(config)
            .await
            .context("failed to start the conductor")?;
        self.others.push(run("conductor", |stop| async move {
            Ok(conductor.run(stop).await?)
        }));
        Ok(())
    }

    async fn start_agent(
        &mut self,
        folder: &Path,
        port: u16,
        number: u16,
        transfer_ms: u64,
    ) -> anyhow::Result<()> {
        let name = host_name(number);
        let mut config = berth_compute_agent::Config {
            name: Some(name.clone()),
            listening: Listening::new(&loopback(port)),
            schedulers: self.schedulers(),
            driver: DriverKind::Sim,
            machine: Some(machine()),
            memory_reserved_mib: 0,
            storage_id: Some("dev".to_owned()),
            ..Default::default()
        };
        config.cpu_dedicated_set = Some("1-3,5-7".parse().expect("a CPU list"));
        config.cpu_shared_set = Some("0,4".parse().expect("a CPU list"));
        config.physical_networks = vec![physical_network(number)];
        config.sim.transfer_ms = transfer_ms;
        config.sim.state_file = Some(folder.join(format!("{name}.json")));
        config.sim.image_dir = Some(folder.join(format!("{name}-images")));
        let agent = ComputeAgent::start(config).await;
        let agent = agent.with_context(|| format!("failed to start the agent of {name}"))?;
        let part = run(&format!("agent of {name}"), |stop| async move {
            Ok(agent.run(stop).await?)
        });
        self.others.push(part);
        Ok(())
    }

    /// Waits until the conductor and all hosts have registered.
    async fn wait(&self, hosts: usize) -> anyhow::Result<()> {
        let session = self.session(Format::Table)?;
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if self.is_complete(&session, hosts).await.unwrap_or(false) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!(
            "the parts did not find each other within {} s",
            START_TIMEOUT.as_secs()
        )
    }

    async fn is_complete(&self, session: &Session, hosts: usize) -> anyhow::Result<bool> {
        let request = ListServicesRequest::default();
        let services = all_pages!(
            session,
            ClusterServiceClient,
            list_services,
            request,
            services
        );
        let request = ListHostsRequest::default();
        let summaries = all_pages!(session, HostServiceClient, list_hosts, request, hosts);
        let mut up = 0;
        for summary in summaries {
            let host: Host = summary.host.unwrap_or_default().try_into()?;
            up += usize::from(host.liveness == Liveness::Up);
        }
        Ok(!services.is_empty() && up == hosts)
    }
}

impl Plan {
    /// Without hosts there is nothing for a conductor to do.
    fn is_alone(&self) -> bool {
        self.ephemeral && self.hosts == 0
    }

    fn port_of(&self, number: u16) -> u16 {
        if self.port == 0 {
            0
        } else {
            self.port + number
        }
    }
}

/// Runs a cluster until it is interrupted.
///
/// # Errors
///
/// Why it did not start.
pub async fn run_until_interrupted(options: Options) -> anyhow::Result<()> {
    let (port, schedulers) = match options.ephemeral {
        true => (0, 1),
        false => (7100, options.schedulers),
    };
    let placement = options.placement_listen.map(|listen| Placement {
        listen,
        profile: options.placement_profile.unwrap_or(Profile::Default),
        tokens: options.placement_tokens,
    });
    let plan = Plan {
        schedulers: schedulers.into(),
        hosts: options.hosts,
        port: options.port.unwrap_or(port),
        data_dir: options.data_dir,
        transfer_ms: 1_000,
        ephemeral: options.ephemeral,
        placement,
        page: options.page_listen,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    output::message("starting …");
    let cluster = Cluster::start(&plan).await?;
    print_running(&plan, &cluster.schedulers());
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    output::message("ending …");
    cluster.stop().await;
    Ok(())
}

fn print_running(plan: &Plan, schedulers: &[String]) {
    let count = draw::count(schedulers.len(), "scheduler");
    let schedulers = schedulers.join(",");
    if let Some(placement) = &plan.placement {
        output::print(format!(
            "OpenStack Placement's REST API is served on http://{}.",
            placement.listen
        ));
    }
    if let Some(page) = &plan.page {
        output::print(format!(
            "The page of the cluster is served on http://{page}."
        ));
    }
    if plan.is_alone() {
        output::print(format!("{count} ({schedulers}) runs here. Ctrl-C ends it."));
        return;
    }
    let hosts = draw::count(usize::from(plan.hosts), "simulated host");
    let listed = schedulers.replace(',', ", ");
    output::print(format!(
        "{count} ({listed}), a conductor and {hosts} run here. Ctrl-C ends them."
    ));
    let mut commands = Lines::from("");
    writeln!(commands, "In another terminal:");
    writeln!(commands, "  export BERTH_SCHEDULER={schedulers}");
    commands.push(
        "  berth flavor create pinned --vcpus 2 --memory-mib 512 --spec hw:cpu_policy=dedicated",
    );
    commands.push("  berth vm create db --flavor pinned --kernel vmlinuz --initrd initrd.gz");
    commands.push("  berth vm migrate db");
    writeln!(commands, "  berth host show {}", host_name(0));
    output::print(commands);
}

/// Runs a part in a task of its own.
fn run<F>(name: &str, part: impl FnOnce(Stop) -> F) -> Part
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let stop = CancellationToken::new();
    let task = tokio::spawn(part(Box::pin(stop.clone().cancelled_owned())));
    Part {
        name: name.to_owned(),
        stop,
        task,
    }
}

/// Ready when a part is to end.
type Stop = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns the name of the host with this number: host-a, host-b …, host-1a …
#[must_use]
pub fn host_name(number: u16) -> String {
    let letter = char::from(b'a' + u8::try_from(number % 26).expect("below 26"));
    match number / 26 {
        0 => format!("host-{letter}"),
        round => format!("host-{round}{letter}"),
    }
}

fn loopback(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Returns what every simulated host reaches, over a bridge with a name of its own.
fn physical_network(number: u16) -> PhysicalNetwork {
    PhysicalNetwork {
        name: PhysicalNetworkName::new("physnet1").expect("a name"),
        bridge: format!("br{number}"),
        bridge_type: BridgeType::Linux,
    }
}

/// Returns the machine that every simulated host pretends to be: two sockets with a cell each, of
/// four CPUs, of which one is shared.
fn machine() -> Description {
    let cell = |id: u32| {
        let first = id * 4;
        Cell {
            id,
            socket: Some(id),
            cpus: format!("{first}-{}", first + 3)
                .parse()
                .expect("a CPU list"),
            cores: None,
            memory_mib: 8192,
            huge_pages: Vec::new(),
        }
    };
    Description {
        cells: vec![cell(0), cell(1)],
        ..Description::default()
    }
}
