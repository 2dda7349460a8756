//! Configuration of an agent: one struct, read from TOML, overridden by flags.
//!
//! Invariant: unknown keys are refused, and all faults are reported at once. The sample under
//! `deploy/` holds every key with its default.

pub mod images;
pub mod networks;
pub mod volumes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use berth_domain::cpu_set::CpuSet;
use berth_domain::name::{HostName, PmemName};
use berth_domain::resource::Trait;
use berth_domain::version::ServiceVersion;
use berth_driver::libvirt::driver::has_parameters;
use berth_host::description::Description;
use berth_host::{ReservedPages, pci};
use berth_pmem::Configured;
use berth_process::configuration::{self, Bounded, Faults, check_bounds};
use berth_process::listening::{Listening, check_host_port, check_listen};
use berth_process::schedulers::{self, SCHEDULER_DEFAULT};
use berth_process::{KeyLocations, Keys, Log, Traces};
use serde::Deserialize;

use crate::migration_tls::Migration;
use images::Settings as ImageSettings;
use networks::PhysicalNetwork;
use volumes::{Manager, Settings as VolumeSettings};

/// What a watchdog may have as its timeout. It is fed once a second, and a machine that is busy must
/// not be reset for that.
pub(crate) const TIMEOUT_S_MIN: u64 = 5;
pub(crate) const TIMEOUT_S_MAX: u64 = 3_600;

/// Default listen address.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7300";

/// Which hypervisor is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DriverKind {
    /// QEMU through libvirt.
    #[default]
    Libvirt,
    /// A simulated one.
    Sim,
    /// None: the host makes volumes and runs no guests.
    None,
}

/// How guests are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Virtualisation {
    /// By translation; works everywhere.
    #[default]
    Qemu,
    /// KVM. Has no default, since `/dev/kvm` may be present and unusable.
    Kvm,
}

/// Settings of the libvirt driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Libvirt {
    /// The hypervisor.
    pub uri: String,
    /// What other hypervisors dial to send guests here; made from the host's name if absent.
    pub migration_uri: Option<String>,
    /// Whether that may be a URI over plain TCP in a cluster with certificates.
    pub insecure_migration_uri: bool,
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
    /// The logs of QEMU's processes, as libvirt writes them.
    pub log_dir: PathBuf,
    /// The most that a transfer may take of the network; no limit if absent.
    pub bandwidth_mib_per_s_max: Option<u64>,
}

impl Default for Libvirt {
    fn default() -> Self {
        Self {
            uri: "qemu:///system".into(),
            migration_uri: None,
            insecure_migration_uri: false,
            virt_type: Virtualisation::Qemu,
            machine: "q35".into(),
            emulator: None,
            image_dir: "/var/lib/berth/images".into(),
            instance_dir: "/var/lib/berth/instances".into(),
            runtime_dir: "/run/berth".into(),
            disk_cache: "none".into(),
            qemu_img: "qemu-img".into(),
            log_dir: "/var/log/libvirt/qemu".into(),
            bandwidth_mib_per_s_max: None,
        }
    }
}

/// The programs for persistent memory; bare names are looked for on the usual path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmemPrograms {
    /// Lists namespaces.
    pub ndctl: PathBuf,
    /// Erases them.
    pub daxio: PathBuf,
}

impl Default for PmemPrograms {
    fn default() -> Self {
        Self {
            ndctl: "ndctl".into(),
            daxio: "daxio".into(),
        }
    }
}

/// Settings of the simulated driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sim {
    /// Where it listens for guests of other simulated hypervisors.
    pub listen: String,
    /// What others dial, as `host:port`; the listening address if absent.
    pub advertise: Option<String>,
    /// How long a transfer takes.
    pub transfer_ms: u64,
    /// How much persistent memory is erased in a second.
    pub erase_mib_per_s: u64,
    /// Where guests are kept over a restart; they end with the process if absent.
    pub state_file: Option<PathBuf>,
    /// File with injected events: foreign domains, crashes and the like.
    pub story_file: Option<PathBuf>,
    /// Where the disks of its guests are, as files; hosts with the same one share them. Nothing is kept of
    /// them if absent.
    pub disk_dir: Option<PathBuf>,
    /// Where the images of the cluster are; it has none if absent.
    pub image_dir: Option<PathBuf>,
    /// How much swap space the machine has.
    pub swap_mib: u64,
    /// Whether it has what encrypted transfers take; they are simulated.
    pub can_encrypt: bool,
}

impl Default for Sim {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            advertise: None,
            transfer_ms: 500,
            erase_mib_per_s: berth_driver::sim::driver::ERASE_MIB_PER_S,
            state_file: None,
            story_file: None,
            disk_dir: None,
            image_dir: None,
            swap_mib: 0,
            can_encrypt: true,
        }
    }
}

/// Settings of the watchdog device, which resets the machine unless it is fed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watchdog {
    /// The device; there is none, and nothing is promised of guests, if absent.
    pub device: Option<PathBuf>,
    /// Time without feeding after which the machine is reset; read from the device if absent.
    pub timeout_s: Option<u64>,
}

/// Configuration of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The host's name in the cluster; the machine's own if absent.
    pub name: Option<String>,
    /// Where it listens, for conductors, and what they dial.
    pub listening: Listening,
    /// The schedulers, as `host:port`. Further ones are learnt from them, but at the first start one
    /// of these must run.
    pub schedulers: Vec<String>,
    /// Where the learnt schedulers are stored over restarts; in memory only if absent.
    pub data_dir: Option<PathBuf>,
    /// The service version that it behaves like.
    pub service_version: u32,
    /// Which hypervisor is driven.
    pub driver: DriverKind,
    /// CPUs dedicated to one vCPU each, in the kernel's list notation.
    pub cpu_dedicated_set: Option<CpuSet>,
    /// CPUs over which vCPUs float. With neither set, all CPUs are shared; with only one of them set,
    /// the other is empty.
    pub cpu_shared_set: Option<CpuSet>,
    /// CPUs for guests of both kinds, instead of the two sets above.
    pub vcpu_pin_set: Option<CpuSet>,
    /// Pages that no guest may take.
    pub reserved_pages: Vec<ReservedPages>,
    /// PCI functions that guests may use; no other function is ever offered.
    pub pci: Vec<pci::Rule>,
    /// With which bridges the host reaches physical networks.
    pub physical_networks: Vec<PhysicalNetwork>,
    /// Custom traits of the host, set by the operator; each name begins with `CUSTOM_`.
    pub traits: Vec<Trait>,
    /// Memory that the node itself needs (`mem_node`), unless the cluster's policy sets it.
    pub memory_reserved_mib: u64,
    /// Disk space for guests.
    pub disk_gib: u64,
    /// Identifies the storage of guest disks: hosts with the same one share `instance_dir`. Not
    /// shared with any host if absent.
    pub storage_id: Option<String>,
    /// A transfer that takes longer is stopped; the guest stays.
    pub transfer_timeout_ms: u64,
    /// How often what runs is compared with what the scheduler expects; 0: never.
    pub compare_interval_ms: u64,
    /// How often the memory of the host and its guests is measured; 0: never.
    pub signals_interval_ms: u64,
    /// How long the file of an image is kept that the cluster does not have any more; 0: for good.
    pub image_retention_ms: u64,
    /// Which images it downloads.
    pub images: ImageSettings,
    /// The namespaces of persistent memory that are for guests, `LABEL:NAME[|NAME…][,LABEL:…]`.
    pub pmem_namespaces: String,
    /// The programs that find and erase them.
    pub pmem: PmemPrograms,
    /// The root below which the kernel's files are read.
    pub root: PathBuf,
    /// A description of the machine, instead of the kernel's files; for simulated hosts.
    pub machine_file: Option<PathBuf>,
    /// As `machine_file`, for programs that embed an agent; goes before it.
    pub machine: Option<Description>,
    /// Settings of the libvirt driver.
    pub libvirt: Libvirt,
    /// Settings of live migrations.
    pub migration: Migration,
    /// Settings of the simulated driver.
    pub sim: Sim,
    /// What resets the machine unless it is fed.
    pub watchdog: Watchdog,
    /// The volumes of persistent memory.
    pub volumes: VolumeSettings,
    /// Which log lines are written, and how.
    pub log: Log,
    /// Where traces are sent.
    pub traces: Traces,
    /// Source locations of the settings, for error messages.
    pub locations: KeyLocations,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            listening: Listening::new(LISTEN_DEFAULT),
            schedulers: vec![SCHEDULER_DEFAULT.into()],
            data_dir: None,
            service_version: ServiceVersion::CURRENT.0,
            driver: DriverKind::Libvirt,
            cpu_dedicated_set: None,
            cpu_shared_set: None,
            vcpu_pin_set: None,
            reserved_pages: Vec::new(),
            pci: Vec::new(),
            physical_networks: Vec::new(),
            traits: Vec::new(),
            memory_reserved_mib: 1024,
            disk_gib: 100,
            storage_id: None,
            transfer_timeout_ms: 1_800_000,
            compare_interval_ms: 10_000,
            signals_interval_ms: 10_000,
            image_retention_ms: 3_600_000,
            images: ImageSettings::default(),
            pmem_namespaces: String::new(),
            pmem: PmemPrograms::default(),
            root: "/".into(),
            machine_file: None,
            machine: None,
            libvirt: Libvirt::default(),
            migration: Migration::default(),
            sim: Sim::default(),
            watchdog: Watchdog::default(),
            volumes: VolumeSettings::default(),
            log: Log::default(),
            traces: Traces::default(),
            locations: KeyLocations::default(),
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
    /// The namespaces of persistent memory that are for guests.
    pub pmem: Configured,
}

impl Config {
    /// Returns the configuration in this file, as overridden by `flags`.
    ///
    /// # Errors
    ///
    /// All faults: a file that cannot be read, unknown keys, values of a wrong type or out of
    /// range.
    pub fn load(file: Option<&Path>, flags: impl FnOnce(&mut Self)) -> Result<Self, Faults> {
        configuration::load(Self::default(), file, flags)
    }

    /// Returns what it comes down to, if nothing in the configuration is wrong.
    ///
    /// # Errors
    ///
    /// All faults.
    pub fn validate(&self) -> Result<Valid, Faults> {
        let mut faults = Vec::new();
        let name = self.host_name().map_err(|fault| faults.push(fault)).ok();
        let listen = self.listening.check(LISTEN_DEFAULT, &mut faults);
        let (key, insecure) = ("sim.listen", self.listening.is_open());
        let sim_listen = check_listen(key, &self.sim.listen, insecure, LISTEN_DEFAULT, &mut faults);
        if let Some(advertise) = &self.sim.advertise {
            check_host_port("sim.advertise", advertise, &mut faults);
        }
        schedulers::check(&self.schedulers, &mut faults);
        check_bounds(self.bounded(), &mut faults);
        self.libvirt.validate(&mut faults);
        if self.listening.encryption.is_configured() && self.driver == DriverKind::Libvirt {
            self.libvirt.check_migration_uri(&mut faults);
        }
        self.migration.validate(&mut faults);
        self.watchdog.validate(self.driver, &mut faults);
        self.traces.check(&mut faults);
        self.check_driver(&mut faults);
        self.volumes.validate(&mut faults);
        networks::check(&self.physical_networks, &mut faults);
        self.images.validate(&mut faults);
        for (index, rule) in self.pci.iter().enumerate() {
            let wrong = rule.faults().into_iter();
            faults.extend(wrong.map(|what| format!("pci.device_spec[{index}] {what}")));
        }
        for (index, name) in self.traits.iter().enumerate() {
            if !name.is_custom() {
                faults.push(format!(
                    "traits[{index}] = \"{name}\" does not begin with CUSTOM_: the agent finds out \
                     itself which standard traits a host has"
                ));
            }
        }
        let pmem = self.configured_pmem(&mut faults);
        match (name, listen, sim_listen) {
            (Some(name), Some(listen), Some(sim_listen)) if faults.is_empty() => Ok(Valid {
                name,
                listen,
                sim_listen,
                pmem,
            }),
            _ => Err(Faults(faults)),
        }
    }

    /// What goes with no driver.
    fn check_driver(&self, faults: &mut Vec<String>) {
        if self.driver != DriverKind::None {
            return;
        }
        for (key, is_set) in [
            ("cpu_dedicated_set", self.cpu_dedicated_set.is_some()),
            ("cpu_shared_set", self.cpu_shared_set.is_some()),
            ("vcpu_pin_set", self.vcpu_pin_set.is_some()),
            ("reserved_pages", !self.reserved_pages.is_empty()),
            ("pmem_namespaces", !self.pmem_namespaces.is_empty()),
            ("pci.device_spec", !self.pci.is_empty()),
            ("physical_networks", !self.physical_networks.is_empty()),
            ("watchdog.device", self.watchdog.device.is_some()),
        ] {
            if is_set {
                faults.push(format!(
                    "{key} has no effect with driver = \"none\": the host runs no VMs"
                ));
            }
        }
        if self.volumes.manager == Manager::None {
            faults.push(
                "driver = \"none\" requires volumes.manager: without one there is nothing to do"
                    .to_owned(),
            );
        }
    }

    fn configured_pmem(&self, faults: &mut Vec<String>) -> Configured {
        let configured = match Configured::parse(&self.pmem_namespaces) {
            Ok(configured) => configured,
            Err(invalid) => {
                faults.push(format!("pmem_namespaces: {invalid}"));
                return Configured::default();
            }
        };
        if self.compare_interval_ms == 0 && !configured.is_empty() {
            faults.push(
                "compare_interval_ms = 0 cannot be combined with pmem_namespaces: erasures are learned \
                 from the periodic comparison"
                    .to_owned(),
            );
        }
        for (name, _) in configured.iter() {
            if let Err(invalid) = PmemName::new(name) {
                faults.push(format!("pmem_namespaces: {invalid}"));
            }
        }
        configured
    }

    fn bounded(&self) -> [Bounded; 10] {
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
            ("compare_interval_ms", self.compare_interval_ms, 0, day_ms),
            (
                "image_retention_ms",
                self.image_retention_ms,
                0,
                30 * day_ms,
            ),
            ("signals_interval_ms", self.signals_interval_ms, 0, day_ms),
            ("sim.transfer_ms", self.sim.transfer_ms, 0, day_ms),
            ("sim.erase_mib_per_s", self.sim.erase_mib_per_s, 1, 1 << 30),
            ("sim.swap_mib", self.sim.swap_mib, 0, 1 << 30),
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
}

/// Reading and checking; as a configuration it is joined with the machine in `hypervisor`.
impl Config {
    /// Reads the keys of a file.
    pub(crate) fn read_keys(&mut self, keys: &mut Keys) {
        keys.take_some("name", &mut self.name);
        self.listening.read(keys);
        keys.take("schedulers", &mut self.schedulers);
        keys.take_some("data_dir", &mut self.data_dir);
        keys.take("service_version", &mut self.service_version);
        keys.take("driver", &mut self.driver);
        keys.take_some("cpu_dedicated_set", &mut self.cpu_dedicated_set);
        keys.take_some("cpu_shared_set", &mut self.cpu_shared_set);
        keys.take_some("vcpu_pin_set", &mut self.vcpu_pin_set);
        keys.take_each("reserved_pages", &mut self.reserved_pages);
        keys.take_each("traits", &mut self.traits);
        keys.take_each("physical_networks", &mut self.physical_networks);
        keys.take("memory_reserved_mib", &mut self.memory_reserved_mib);
        keys.take("disk_gib", &mut self.disk_gib);
        keys.take_some("storage_id", &mut self.storage_id);
        keys.take("transfer_timeout_ms", &mut self.transfer_timeout_ms);
        keys.take("compare_interval_ms", &mut self.compare_interval_ms);
        keys.take("image_retention_ms", &mut self.image_retention_ms);
        keys.take("signals_interval_ms", &mut self.signals_interval_ms);
        keys.take("pmem_namespaces", &mut self.pmem_namespaces);
        keys.table("pmem", |keys| {
            keys.take("ndctl", &mut self.pmem.ndctl);
            keys.take("daxio", &mut self.pmem.daxio);
        });
        keys.take("root", &mut self.root);
        keys.take_some("machine_file", &mut self.machine_file);
        self.log.read(keys);
        self.traces.read(keys);
        keys.table("libvirt", |keys| self.libvirt.read(keys));
        keys.table("migration", |keys| self.migration.read(keys));
        keys.table("sim", |keys| self.sim.read(keys));
        keys.table("watchdog", |keys| self.watchdog.read(keys));
        keys.table("images", |keys| self.images.read(keys));
        keys.table("volumes", |keys| self.volumes.read(keys));
        keys.table("pci", |keys| {
            keys.tables("device_spec", |keys| self.pci.push(read_rule(keys)));
        });
        self.locations = keys.locations().clone();
    }
}

fn read_rule(keys: &mut Keys) -> pci::Rule {
    let mut rule = pci::Rule::default();
    keys.take_some("vendor_id", &mut rule.vendor_id);
    keys.take_some("product_id", &mut rule.product_id);
    keys.take_some("address", &mut rule.address);
    keys.take_some("devname", &mut rule.devname);
    keys.take_some("physical_network", &mut rule.physical_network);
    keys.take_some("live_migratable", &mut rule.live_migratable);
    keys.take("tags", &mut rule.tags);
    rule
}

impl Libvirt {
    fn read(&mut self, keys: &mut Keys) {
        keys.take("uri", &mut self.uri);
        keys.take_some("migration_uri", &mut self.migration_uri);
        keys.take("insecure_migration_uri", &mut self.insecure_migration_uri);
        keys.take("virt_type", &mut self.virt_type);
        keys.take("machine", &mut self.machine);
        keys.take_some("emulator", &mut self.emulator);
        keys.take("image_dir", &mut self.image_dir);
        keys.take("instance_dir", &mut self.instance_dir);
        keys.take("runtime_dir", &mut self.runtime_dir);
        keys.take("disk_cache", &mut self.disk_cache);
        keys.take("qemu_img", &mut self.qemu_img);
        keys.take("log_dir", &mut self.log_dir);
        keys.take_some("bandwidth_mib_per_s_max", &mut self.bandwidth_mib_per_s_max);
    }

    /// Returns what other hypervisors dial to send guests to the host of that name. With certificates they
    /// dial over TLS; without, nothing else in the cluster is encrypted either.
    pub(crate) fn uri_for_peers(&self, host: &HostName, has_certificates: bool) -> String {
        let transport = if has_certificates { "tls" } else { "tcp" };
        let default = || format!("qemu+{transport}://{host}/system");
        self.migration_uri.clone().unwrap_or_else(default)
    }

    /// Refuses a libvirtd that accepts every client, beside programs that accept none without a certificate.
    fn check_migration_uri(&self, faults: &mut Vec<String>) {
        let Some(uri) = &self.migration_uri else {
            return;
        };
        let transport = uri.split("://").next().and_then(|s| s.split_once('+'));
        if transport.is_some_and(|(_, name)| name == "tcp") && !self.insecure_migration_uri {
            faults.push(format!(
                "libvirt.migration_uri = {uri:?} is not allowed with certificates (tls): over plain TCP, \
                 with auth_tcp = \"none\", every client on the network controls libvirtd; have libvirtd \
                 listen with TLS and use {:?}, or, in a lab, set libvirt.insecure_migration_uri = true",
                uri.replacen("+tcp:", "+tls:", 1)
            ));
        }
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
        // Other hosts refuse it: libvirt would run a program that it names there.
        if let Some(uri) = &self.migration_uri
            && has_parameters(uri)
        {
            faults.push(format!(
                "libvirt.migration_uri = {uri:?} has parameters: other hosts do not connect to it; leave \
                 them out"
            ));
        }
        for (key, path) in [
            ("image_dir", &self.image_dir),
            ("instance_dir", &self.instance_dir),
            ("runtime_dir", &self.runtime_dir),
            ("log_dir", &self.log_dir),
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
        keys.take("erase_mib_per_s", &mut self.erase_mib_per_s);
        keys.take("swap_mib", &mut self.swap_mib);
        keys.take("can_encrypt", &mut self.can_encrypt);
        keys.take_some("state_file", &mut self.state_file);
        keys.take_some("story_file", &mut self.story_file);
        keys.take_some("disk_dir", &mut self.disk_dir);
        keys.take_some("image_dir", &mut self.image_dir);
    }
}

impl Watchdog {
    fn read(&mut self, keys: &mut Keys) {
        keys.take_some("device", &mut self.device);
        keys.take_some("timeout_s", &mut self.timeout_s);
    }

    fn validate(&self, driver: DriverKind, faults: &mut Vec<String>) {
        let Some(device) = &self.device else {
            if self.timeout_s.is_some() {
                faults.push("watchdog.timeout_s requires watchdog.device".to_owned());
            }
            return;
        };
        if driver == DriverKind::Sim {
            faults.push(
                "watchdog.device has no effect with driver = \"sim\": simulated guests end with their \
                 agent"
                    .to_owned(),
            );
        }
        if !device.is_absolute() {
            let device = device.display().to_string();
            faults.push(format!(
                "watchdog.device = {device:?} is not an absolute path"
            ));
        }
        let range = TIMEOUT_S_MIN..=TIMEOUT_S_MAX;
        if let Some(seconds) = self.timeout_s.filter(|seconds| !range.contains(seconds)) {
            faults.push(format!(
                "watchdog.timeout_s = {seconds} is not from {TIMEOUT_S_MIN} to {TIMEOUT_S_MAX}"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
