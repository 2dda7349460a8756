//! What an agent is told when it starts: one struct, read from TOML, overridden by flags.
//!
//! Invariant: unknown keys are refused, and all faults are told at once. The sample under
//! `deploy/` holds every key with its default.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use berth_domain::cpu_set::CpuSet;
use berth_domain::name::HostName;
use berth_domain::version::ServiceVersion;
use berth_host::ReservedPages;
use berth_host::description::Description;
use serde::Deserialize;

use crate::keys::Keys;

/// Where an agent listens unless told otherwise.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7300";
/// The scheduler that is called unless told otherwise.
pub const SCHEDULER_DEFAULT: &str = "127.0.0.1:7100";

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Which hypervisor is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DriverKind {
    /// QEMU through libvirt.
    #[default]
    Libvirt,
    /// A simulated one.
    Sim,
}

/// How guests are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Virtualisation {
    /// By translation; works everywhere.
    #[default]
    Qemu,
    /// By the processor; must be said, since a device that is there may be of no use.
    Kvm,
}

/// What the libvirt driver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libvirt {
    /// The hypervisor.
    pub uri: String,
    /// What other hypervisors dial to send guests here; made from the host's name if absent.
    pub migration_uri: Option<String>,
    /// How guests are executed.
    pub virt_type: Virtualisation,
    /// The machine type of guests.
    pub machine: String,
    /// The emulator's program; libvirt's choice if absent.
    pub emulator: Option<PathBuf>,
    /// Kernels and disk images.
    pub image_dir: PathBuf,
    /// The guests' own disks and console logs.
    pub instance_dir: PathBuf,
    /// Console sockets, of this host alone.
    pub runtime_dir: PathBuf,
    /// How the host caches disks.
    pub disk_cache: String,
    /// The program that makes disks.
    pub qemu_img: PathBuf,
    /// The most that a transfer may take of the network; no limit if absent.
    pub bandwidth_mib_per_s_max: Option<u64>,
}

impl Default for Libvirt {
    fn default() -> Self {
        Self {
            uri: "qemu:///system".into(),
            migration_uri: None,
            virt_type: Virtualisation::Qemu,
            machine: "q35".into(),
            emulator: None,
            image_dir: "/var/lib/berth/images".into(),
            instance_dir: "/var/lib/berth/instances".into(),
            runtime_dir: "/run/berth".into(),
            disk_cache: "none".into(),
            qemu_img: "qemu-img".into(),
            bandwidth_mib_per_s_max: None,
        }
    }
}

/// What the simulated driver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sim {
    /// Where it listens for guests of other simulated hypervisors.
    pub listen: String,
    /// What others dial, as `host:port`; the listening address if absent.
    pub advertise: Option<String>,
    /// How long a transfer takes.
    pub transfer_ms: u64,
    /// Where guests are kept over a restart; they end with the process if absent.
    pub state_file: Option<PathBuf>,
}

impl Default for Sim {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            advertise: None,
            transfer_ms: 500,
            state_file: None,
        }
    }
}

/// What an agent is told when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The host's name in the cluster; the machine's own if absent.
    pub name: Option<String>,
    /// The address to listen on, for conductors.
    pub listen: String,
    /// What others dial to reach it, as `host:port`; the listening address if absent.
    pub advertise: Option<String>,
    /// Whether it may listen beyond loopback although nothing is encrypted or authenticated yet.
    pub insecure_listen: bool,
    /// The schedulers, as `host:port`. One is enough to find the others, but only while it runs.
    pub schedulers: Vec<String>,
    /// The service version that it behaves like.
    pub service_version: u32,
    /// Which hypervisor is driven.
    pub driver: DriverKind,
    /// CPUs that are given to one vCPU each, in the kernel's list notation.
    pub cpu_dedicated_set: Option<CpuSet>,
    /// CPUs over which vCPUs float. With neither set given all CPUs are shared; with one of them
    /// given the other is empty.
    pub cpu_shared_set: Option<CpuSet>,
    /// Pages that no guest may take.
    pub reserved_pages: Vec<ReservedPages>,
    /// Memory that the host keeps for itself.
    pub memory_reserved_mib: u64,
    /// Disk space for guests.
    pub disk_gib: u64,
    /// Identifies the storage of guest disks: hosts with the same one share `instance_dir`. Not
    /// shared with anybody if absent.
    pub storage_id: Option<String>,
    /// A transfer that takes longer is stopped; the guest stays.
    pub transfer_timeout_ms: u64,
    /// The root below which the kernel's files are read.
    pub root: PathBuf,
    /// A description of the machine, instead of the kernel's files; for simulated hosts.
    pub machine_file: Option<PathBuf>,
    /// As `machine_file`, for programs that embed an agent; goes before it.
    pub machine: Option<Description>,
    /// What the libvirt driver is told.
    pub libvirt: Libvirt,
    /// What the simulated driver is told.
    pub sim: Sim,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Which log lines are written, as `info,berth_compute_agent=debug`.
    pub log_filter: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            listen: LISTEN_DEFAULT.into(),
            advertise: None,
            insecure_listen: false,
            schedulers: vec![SCHEDULER_DEFAULT.into()],
            service_version: ServiceVersion::CURRENT.0,
            driver: DriverKind::Libvirt,
            cpu_dedicated_set: None,
            cpu_shared_set: None,
            reserved_pages: Vec::new(),
            memory_reserved_mib: 512,
            disk_gib: 100,
            storage_id: None,
            transfer_timeout_ms: 1_800_000,
            root: "/".into(),
            machine_file: None,
            machine: None,
            libvirt: Libvirt::default(),
            sim: Sim::default(),
            log_format: LogFormat::Text,
            log_filter: "info".into(),
        }
    }
}

/// What is left to be known once nothing in a configuration is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valid {
    /// The host's name.
    pub name: HostName,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Where the simulated driver listens.
    pub sim_listen: SocketAddr,
}

impl Config {
    /// Returns the configuration in this file, as overridden by `flags`.
    ///
    /// # Errors
    ///
    /// All faults: a file that cannot be read, unknown keys, values of a wrong type or out of
    /// range.
    pub fn load(file: Option<&Path>, flags: impl FnOnce(&mut Self)) -> Result<Self, Faults> {
        let (mut config, mut faults) = match file {
            None => (Self::default(), Vec::new()),
            Some(path) => match std::fs::read_to_string(path) {
                Ok(text) => Self::parse(&text),
                Err(error) => {
                    let fault = format!("{} cannot be read: {error}", path.display());
                    return Err(Faults(vec![fault]));
                }
            },
        };
        flags(&mut config);
        if let Err(more) = config.validate() {
            faults.extend(more.0);
        }
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(Faults(faults))
        }
    }

    /// Returns what a configuration file says, and what is wrong with it.
    fn parse(text: &str) -> (Self, Vec<String>) {
        let mut config = Self::default();
        let mut keys = match Keys::parse(text) {
            Ok(keys) => keys,
            Err(fault) => return (config, vec![fault]),
        };
        keys.take_some("name", &mut config.name);
        keys.take("listen", &mut config.listen);
        keys.take_some("advertise", &mut config.advertise);
        keys.take("insecure_listen", &mut config.insecure_listen);
        keys.take("schedulers", &mut config.schedulers);
        keys.take("service_version", &mut config.service_version);
        keys.take("driver", &mut config.driver);
        keys.take_some("cpu_dedicated_set", &mut config.cpu_dedicated_set);
        keys.take_some("cpu_shared_set", &mut config.cpu_shared_set);
        keys.take("reserved_pages", &mut config.reserved_pages);
        keys.take("memory_reserved_mib", &mut config.memory_reserved_mib);
        keys.take("disk_gib", &mut config.disk_gib);
        keys.take_some("storage_id", &mut config.storage_id);
        keys.take("transfer_timeout_ms", &mut config.transfer_timeout_ms);
        keys.take("root", &mut config.root);
        keys.take_some("machine_file", &mut config.machine_file);
        keys.take("log_format", &mut config.log_format);
        keys.take("log_filter", &mut config.log_filter);
        keys.table("libvirt", |keys| config.libvirt.read(keys));
        keys.table("sim", |keys| config.sim.read(keys));
        (config, keys.end())
    }

    /// Returns what it comes down to, if nothing in the configuration is wrong.
    ///
    /// # Errors
    ///
    /// All faults.
    pub fn validate(&self) -> Result<Valid, Faults> {
        let mut faults = Vec::new();
        let name = self.host_name().map_err(|fault| faults.push(fault)).ok();
        let listen = self.address("listen", &self.listen, &mut faults);
        if listen.is_some_and(|a| a.ip().is_unspecified()) && self.advertise.is_none() {
            faults.push(format!(
                "listen = {:?} names no address that others can dial: set advertise",
                self.listen
            ));
        }
        let sim_listen = self.address("sim.listen", &self.sim.listen, &mut faults);
        for (key, value) in [
            ("advertise", &self.advertise),
            ("sim.advertise", &self.sim.advertise),
        ] {
            if let Some(value) = value
                && !is_host_port(value)
            {
                faults.push(format!("{key} = {value:?} is not of the form host:port"));
            }
        }
        if self.schedulers.is_empty() {
            faults.push("schedulers is empty: name at least one as host:port".into());
        }
        for scheduler in &self.schedulers {
            if !is_host_port(bare(scheduler)) {
                faults.push(format!(
                    "scheduler {scheduler:?} is not of the form host:port"
                ));
            }
        }
        for (key, value, least, most) in self.ranges() {
            if !(least..=most).contains(&value) {
                faults.push(format!("{key} = {value} is not within {least} to {most}"));
            }
        }
        self.libvirt.validate(&mut faults);
        match (name, listen, sim_listen) {
            (Some(name), Some(listen), Some(sim_listen)) if faults.is_empty() => Ok(Valid {
                name,
                listen,
                sim_listen,
            }),
            _ => Err(Faults(faults)),
        }
    }

    fn ranges(&self) -> [(&'static str, u64, u64, u64); 5] {
        let version = u64::from(self.service_version);
        let (oldest, current) = (ServiceVersion::OLDEST.0, ServiceVersion::CURRENT.0);
        let day_ms = 86_400_000;
        [
            ("service_version", version, oldest.into(), current.into()),
            ("disk_gib", self.disk_gib, 0, 1 << 30),
            ("memory_reserved_mib", self.memory_reserved_mib, 0, 1 << 30),
            (
                "transfer_timeout_ms",
                self.transfer_timeout_ms,
                1_000,
                day_ms,
            ),
            ("sim.transfer_ms", self.sim.transfer_ms, 0, day_ms),
        ]
    }

    fn host_name(&self) -> Result<HostName, String> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => std::fs::read_to_string("/proc/sys/kernel/hostname")
                .map_err(|error| format!("the machine's name cannot be read: {error}; set name"))?
                .trim()
                .to_owned(),
        };
        HostName::new(&name).map_err(|error| error.to_string())
    }

    fn address(&self, key: &str, text: &str, faults: &mut Vec<String>) -> Option<SocketAddr> {
        let resolved = text.to_socket_addrs();
        let Some(address) = resolved.ok().and_then(|mut all| all.next()) else {
            faults.push(format!(
                "{key} = {text:?} is not an address to listen on, as {LISTEN_DEFAULT}"
            ));
            return None;
        };
        if !address.ip().is_loopback() && !self.insecure_listen {
            faults.push(format!(
                "{key} = {text:?} is not loopback and connections are not encrypted: add \
                 --insecure-listen if everybody who can reach it is trusted"
            ));
        }
        Some(address)
    }

    /// Returns the schedulers as URLs.
    #[must_use]
    pub fn scheduler_urls(&self) -> Vec<String> {
        let url = |address: &String| format!("http://{}", bare(address));
        self.schedulers.iter().map(url).collect()
    }
}

impl Libvirt {
    fn read(&mut self, keys: &mut Keys) {
        keys.take("uri", &mut self.uri);
        keys.take_some("migration_uri", &mut self.migration_uri);
        keys.take("virt_type", &mut self.virt_type);
        keys.take("machine", &mut self.machine);
        keys.take_some("emulator", &mut self.emulator);
        keys.take("image_dir", &mut self.image_dir);
        keys.take("instance_dir", &mut self.instance_dir);
        keys.take("runtime_dir", &mut self.runtime_dir);
        keys.take("disk_cache", &mut self.disk_cache);
        keys.take("qemu_img", &mut self.qemu_img);
        keys.take_some("bandwidth_mib_per_s_max", &mut self.bandwidth_mib_per_s_max);
    }

    fn validate(&self, faults: &mut Vec<String>) {
        const CACHES: [&str; 5] = ["none", "writeback", "writethrough", "directsync", "unsafe"];
        if !CACHES.contains(&self.disk_cache.as_str()) {
            faults.push(format!(
                "libvirt.disk_cache = {:?} is none of {}",
                self.disk_cache,
                CACHES.join(", ")
            ));
        }
        for (key, path) in [
            ("image_dir", &self.image_dir),
            ("instance_dir", &self.instance_dir),
            ("runtime_dir", &self.runtime_dir),
        ] {
            if !path.is_absolute() {
                faults.push(format!(
                    "libvirt.{key} = {:?} is not an absolute path",
                    path.display().to_string()
                ));
            }
        }
    }
}

impl Sim {
    fn read(&mut self, keys: &mut Keys) {
        keys.take("listen", &mut self.listen);
        keys.take_some("advertise", &mut self.advertise);
        keys.take("transfer_ms", &mut self.transfer_ms);
        keys.take_some("state_file", &mut self.state_file);
    }
}

/// Schedulers may be written as URLs as well: that is how others show them.
fn bare(address: &str) -> &str {
    address.strip_prefix("http://").unwrap_or(address)
}

fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        is_port && !host.is_empty() && !host.contains(['/', ' '])
    })
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<String>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is wrong")?;
        for fault in &self.0 {
            write!(f, "\n  {}", fault.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compute-agent.toml")
    }

    /// Goal: the sample is a working configuration and shows the true defaults, each key once.
    #[test]
    fn the_sample_holds_every_default() {
        let config = Config::load(Some(&sample()), |_| ()).unwrap();
        assert_eq!(config, Config::default());
        let text = std::fs::read_to_string(sample()).unwrap();
        let (_, faults) = Config::parse("x = 1\n[libvirt]\nx = 1\n[sim]\nx = 1");
        assert_eq!(faults.len(), 3, "{faults:?}");
        for fault in faults {
            for key in fault.rsplit_once("are ").unwrap().1.split(", ") {
                let begins = [format!("{key} ="), format!("[{key}]")];
                let lines = text.lines().map(|l| l.trim_start_matches("# "));
                let count = lines
                    .filter(|line| begins.iter().any(|b| line.starts_with(b)))
                    .count();
                let expected = if matches!(key, "listen" | "advertise") {
                    2
                } else {
                    1
                };
                assert_eq!(count, expected, "{key}");
            }
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let text = "listne = 1\ncpu_shared_set = \"a\"\ndriver = \"xen\"\n\
                    [libvirt]\nvirt_typ = 1\nmachine = 7\n[sim]\ntransfer_ms = \"x\"\n";
        let (_, faults) = Config::parse(text);
        assert_eq!(faults.len(), 6, "{faults:?}");
        let text = Faults(faults).to_string();
        for part in [
            "listne",
            "cpu_shared_set",
            "driver",
            "libvirt.machine",
            "virt_typ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let config = Config {
            name: Some("-".into()),
            listen: "0.0.0.0:1".into(),
            schedulers: vec!["h1".into()],
            service_version: 99,
            libvirt: Libvirt {
                disk_cache: "big".into(),
                image_dir: "images".into(),
                ..Libvirt::default()
            },
            ..Config::default()
        };
        let faults = config.validate().unwrap_err();
        assert_eq!(faults.0.len(), 7, "{faults}");
    }

    #[test]
    fn other_addresses_than_loopback_need_a_word() {
        let mut config = Config {
            listen: "0.0.0.0:7300".into(),
            advertise: Some("h1:7300".into()),
            sim: Sim {
                listen: "0.0.0.0:7400".into(),
                ..Sim::default()
            },
            ..Config::default()
        };
        assert_eq!(config.validate().unwrap_err().0.len(), 2);
        config.insecure_listen = true;
        assert!(config.validate().is_ok());
    }
}
