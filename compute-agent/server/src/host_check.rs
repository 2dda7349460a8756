//! Checks of this host: reads what the agent's core makes findings of, and connects to peers.
//!
//! Not here: which findings follow ([`berth_agent_core::host_check`]); comparing hosts, which is the
//! conductor's.
//!
//! Invariant: it changes nothing, and it is bounded: in checks and connections at a time, and in time. A
//! hypervisor or a file system that hangs keeps the permit of its check until it answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_agent_core::Facts;
use berth_agent_core::host_check::{
    DirectoryFacts, HypervisorFacts, MachineFacts, Space, WatchdogFacts, WatchdogStanding,
    own_findings, peer_finding,
};
use berth_domain::host_check::{HOSTS_MAX, HostCheck, HostFinding};
use berth_domain::id::TimeMs;
use berth_domain::migration_tls::TlsPolicy;
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_driver::Driver;
use berth_process::wall_clock_ms;
use berth_proto::agent::v1::{CheckHostRequest, HypervisorPeer};
use berth_proto::convert::field::{self, ADDRESS_MAX, Invalid};
use rustix::fs::Access;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::config::{Config, DriverKind};
use crate::watchdog::{Standing, Watchdog};

/// How many checks may be under way.
const CHECKS_MAX: usize = 2;

/// To how many peers a check connects at a time.
const CONNECTIONS_MAX: usize = 8;

/// How long a check may take by default.
const TIMEOUT_MS: u64 = 30_000;

/// How long at most.
const TIMEOUT_MS_MAX: u64 = 60_000;

/// The longest part of `/proc/cpuinfo` in which the model of the processor is searched.
const CPUINFO_MAX: usize = 4096;

/// A peer to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    host: HostName,
    uri: String,
}

impl TryFrom<HypervisorPeer> for Peer {
    type Error = Invalid;

    fn try_from(wire: HypervisorPeer) -> Result<Self, Invalid> {
        Ok(Self {
            host: field::name(&wire.host, "host")?,
            uri: field::required_text(wire.migration_uri, "migration_uri", ADDRESS_MAX)?,
        })
    }
}

/// Reads a request: the peers, and how long the check may take.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn read(request: CheckHostRequest) -> Result<(Vec<Peer>, Duration), Invalid> {
    let timeout_ms = field::optional_duration_ms(request.timeout, "timeout")?;
    let timeout_ms = timeout_ms.unwrap_or(TIMEOUT_MS).min(TIMEOUT_MS_MAX);
    let peers = field::each(request.peers, "peers", HOSTS_MAX)?;
    Ok((peers, Duration::from_millis(timeout_ms)))
}

/// What is read beside the hypervisor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    directories: Vec<Directory>,
    cpuinfo: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Directory {
    key: &'static str,
    path: PathBuf,
    must_write: bool,
}

impl Sources {
    /// Returns those of a configuration. Simulated guests need no directories.
    pub(crate) fn of(config: &Config) -> Self {
        let directory = |key, path: &Path, must_write| Directory {
            key,
            path: path.to_owned(),
            must_write,
        };
        let libvirt = &config.libvirt;
        match config.driver {
            DriverKind::Libvirt => Self {
                directories: vec![
                    // Only snapshots write to it.
                    directory("libvirt.image_dir", &libvirt.image_dir, false),
                    directory("libvirt.instance_dir", &libvirt.instance_dir, true),
                ],
                cpuinfo: Some(config.root.join("proc/cpuinfo")),
            },
            DriverKind::Sim | DriverKind::None => Self::default(),
        }
    }
}

/// The watchdog of this host, and what it does by now.
#[derive(Clone, Debug)]
pub(crate) struct WatchdogState {
    device: String,
    timeout_s: u64,
    standing: watch::Receiver<Standing>,
}

impl WatchdogState {
    /// Returns that of a watchdog.
    pub(crate) fn of(watchdog: &Watchdog) -> Self {
        let device = watchdog.device();
        Self {
            device: device.path().display().to_string(),
            timeout_s: device.timeout_s,
            standing: watchdog.standing(),
        }
    }

    fn facts(&self) -> WatchdogFacts {
        WatchdogFacts {
            device: self.device.clone(),
            timeout_s: self.timeout_s,
            standing: match *self.standing.borrow() {
                Standing::Off => WatchdogStanding::Off,
                Standing::Armed => WatchdogStanding::Armed,
                Standing::Broken => WatchdogStanding::Broken,
            },
        }
    }
}

/// The checks of this host. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Checks {
    facts: Facts,
    driver: Arc<dyn Driver>,
    sources: Arc<Sources>,
    watchdog: Option<WatchdogState>,
    permits: Arc<Semaphore>,
}

impl Checks {
    pub(crate) fn new(
        facts: Facts,
        driver: Arc<dyn Driver>,
        sources: Sources,
        watchdog: Option<WatchdogState>,
    ) -> Self {
        Self {
            facts,
            driver,
            sources: Arc::new(sources),
            watchdog,
            permits: Arc::new(Semaphore::new(CHECKS_MAX)),
        }
    }

    /// Checks this host alone; blocks for as long as the hypervisor does.
    pub(crate) fn own(&self) -> Vec<HostFinding> {
        let hypervisor = hypervisor(&*self.driver);
        let machine = machine(&*self.driver, self.facts.tls, &self.sources);
        let hypervisor = hypervisor.as_ref().map_err(String::as_str);
        let watchdog = self.watchdog.as_ref().map(WatchdogState::facts);
        own_findings(&self.facts, hypervisor, Some(&machine), watchdog.as_ref())
    }

    /// Checks this host and its connections to peers.
    ///
    /// # Errors
    ///
    /// `AGENT_BUSY`.
    pub(crate) async fn check(
        &self,
        peers: Vec<Peer>,
        timeout: Duration,
    ) -> Result<HostCheck, Refusal> {
        let permit = self.permits.clone().try_acquire_owned();
        let permit = Arc::new(permit.map_err(|_| self.busy())?);
        let deadline = Instant::now() + timeout;
        let (driver, held) = (self.driver.clone(), permit.clone());
        let hypervisor = tokio::task::spawn_blocking(move || {
            let _held = held;
            hypervisor(&*driver)
        });
        let (driver, held) = (self.driver.clone(), permit.clone());
        let (tls, sources) = (self.facts.tls, self.sources.clone());
        let machine = tokio::task::spawn_blocking(move || {
            let _held = held;
            machine(&*driver, tls, &sources)
        });
        let connections = connect(self.driver.clone(), &peers, &permit, deadline).await;
        let hypervisor = match timeout_at(deadline, hypervisor).await {
            Ok(Ok(hypervisor)) => hypervisor,
            Ok(Err(_)) => Err("the driver panicked".to_owned()),
            Err(_) => Err(format!("no answer within {} s", timeout.as_secs())),
        };
        let machine = match timeout_at(deadline, machine).await {
            Ok(Ok(machine)) => Some(machine),
            Ok(Err(_)) | Err(_) => None,
        };
        let fault = match &machine {
            Some(machine) => machine.tls_fault.clone(),
            None if self.facts.tls == TlsPolicy::Off => None,
            None => Some("the certificates could not be read in time".to_owned()),
        };
        let host = &self.facts.host;
        let known = hypervisor.as_ref().map_err(String::as_str);
        let watchdog = self.watchdog.as_ref().map(WatchdogState::facts);
        let mut findings = own_findings(&self.facts, known, machine.as_ref(), watchdog.as_ref());
        let connected = peers.iter().zip(connections);
        findings.extend(
            connected.map(|(peer, result)| peer_finding(host, &peer.host, &peer.uri, result)),
        );
        Ok(HostCheck {
            host: host.clone(),
            findings,
            hypervisor_version: hypervisor.map_or_else(|_| String::new(), |h| h.version),
            tls: self.facts.tls_report(fault),
            wall_clock: TimeMs(wall_clock_ms()),
        })
    }

    fn busy(&self) -> Refusal {
        let host = &self.facts.host;
        let message = format!("host {host} carries out {CHECKS_MAX} checks already");
        Refusal::new(Code::Unavailable, "AGENT_BUSY", message)
            .with("host", host)
            .with_hint("repeat it a moment later; if it persists, the hypervisor hangs")
    }
}

/// Connects to peers, some at a time; nothing for one that took too long.
async fn connect(
    driver: Arc<dyn Driver>,
    peers: &[Peer],
    permit: &Arc<OwnedSemaphorePermit>,
    deadline: Instant,
) -> Vec<Option<Result<(), String>>> {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connecting = JoinSet::new();
    for (index, peer) in peers.iter().enumerate() {
        let (slots, driver, held) = (slots.clone(), driver.clone(), permit.clone());
        let uri = peer.uri.clone();
        connecting.spawn(async move {
            let slot = slots.acquire_owned().await;
            let connected = tokio::task::spawn_blocking(move || {
                let _held = (slot, held);
                driver.check_peer(&uri).map_err(|error| error.to_string())
            });
            let panicked = |_| Err("the driver panicked".to_owned());
            (index, connected.await.unwrap_or_else(panicked))
        });
    }
    let mut results = vec![None; peers.len()];
    // What is left at the deadline is not begun, or ends by itself.
    while let Ok(Some(joined)) = timeout_at(deadline, connecting.join_next()).await {
        if let Ok((index, result)) = joined {
            results[index] = Some(result);
        }
    }
    results
}

fn hypervisor(driver: &dyn Driver) -> Result<HypervisorFacts, String> {
    let info = driver.info().map_err(|error| error.to_string())?;
    let domains = driver.domains().map_err(|error| error.to_string())?;
    Ok(HypervisorFacts {
        name: info.hypervisor,
        version: info.version,
        assignments: domains
            .into_iter()
            .map(|known| known.domain.assignment)
            .collect(),
        free_pages: driver.free_pages().map_err(|error| error.to_string()),
    })
}

fn machine(driver: &dyn Driver, tls: TlsPolicy, sources: &Sources) -> MachineFacts {
    MachineFacts {
        tls_fault: match tls {
            TlsPolicy::Off => None,
            TlsPolicy::Require | TlsPolicy::Prefer => {
                driver.check_tls().err().map(|error| error.to_string())
            }
        },
        directories: sources.directories.iter().map(directory).collect(),
        cpu: sources.cpuinfo.as_deref().and_then(cpu_model),
    }
}

fn directory(directory: &Directory) -> DirectoryFacts {
    DirectoryFacts {
        key: directory.key,
        path: directory.path.display().to_string(),
        must_write: directory.must_write,
        space: space(&directory.path),
    }
}

/// Reads what a directory is like. Nothing is written to it: the kernel, or the server of NFS, reports
/// whether the agent may.
fn space(path: &Path) -> Result<Space, String> {
    let is_directory = fs::metadata(path)
        .map_err(|error| error.to_string())?
        .is_dir();
    if !is_directory {
        return Err("it is no directory".to_owned());
    }
    let read = Access::READ_OK | Access::EXEC_OK;
    rustix::fs::access(path, read).map_err(|error| format!("the agent cannot read it: {error}"))?;
    let statistics = rustix::fs::statvfs(path).map_err(|error| error.to_string())?;
    Ok(Space {
        is_writable: rustix::fs::access(path, Access::WRITE_OK).is_ok(),
        free_bytes: statistics.f_bavail.saturating_mul(statistics.f_frsize),
    })
}

/// Returns the model of the processor, on architectures whose kernels report it.
fn cpu_model(cpuinfo: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut head = Vec::new();
    let file = fs::File::open(cpuinfo).ok()?;
    file.take(CPUINFO_MAX as u64).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head);
    let line = head.lines().find(|line| line.starts_with("model name"))?;
    let (_, model) = line.split_once(':')?;
    let model = model.trim();
    (!model.is_empty()).then(|| model.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_looked_at_without_a_trace() {
        let directory = tempfile::tempdir().unwrap();
        let good = space(directory.path()).unwrap();
        assert!(good.is_writable && good.free_bytes > 0, "{good:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let absent = space(&directory.path().join("absent")).unwrap_err();
        assert!(absent.contains("No such file"), "{absent}");
        let file = directory.path().join("file");
        fs::write(&file, "x").unwrap();
        assert_eq!(space(&file).unwrap_err(), "it is no directory");
    }

    #[test]
    fn the_model_of_the_processor_is_in_the_first_lines() {
        let directory = tempfile::tempdir().unwrap();
        let model = |text: &str| {
            let file = directory.path().join("cpuinfo");
            fs::write(&file, text).unwrap();
            cpu_model(&file)
        };
        let two = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(model(two).as_deref(), Some("Some CPU @ 2 GHz"));
        for none in ["", "model name", "model name\t: \n", "processor\t: 0\n"] {
            assert_eq!(model(none), None, "{none:?}");
        }
        assert_eq!(cpu_model(&directory.path().join("absent")), None);
    }

    #[test]
    fn requests_are_bounded() {
        let peer = |host: &str, uri: &str| HypervisorPeer {
            host: host.to_owned(),
            migration_uri: uri.to_owned(),
        };
        let request = |count: usize, seconds: Option<i64>| CheckHostRequest {
            peers: vec![peer("hosts/h2", "sim://h2"); count],
            timeout: seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
        };
        let seconds = |result: Result<(Vec<Peer>, Duration), Invalid>| result.unwrap().1.as_secs();
        assert_eq!(seconds(read(request(HOSTS_MAX, None))), 30);
        assert_eq!(seconds(read(request(0, Some(3_600)))), 60);
        assert!(read(request(HOSTS_MAX + 1, None)).is_err());
        for (host, uri) in [("h2", "sim://h2"), ("hosts/h2", "")] {
            let request = CheckHostRequest {
                peers: vec![peer(host, uri)],
                timeout: None,
            };
            assert!(read(request).is_err(), "{host} {uri}");
        }
    }
}
