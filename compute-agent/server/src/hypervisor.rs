//! The machine and the driver that are configured.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::cpu_model::HostCpu;
use berth_domain::resource::Trait;
use berth_domain::topology::HostTopology;
use berth_domain::version::{Feature, ServiceVersion};
use berth_driver::libvirt::driver::HostSources;
use berth_driver::libvirt::{LibvirtDriver, driver as libvirt};
use berth_driver::sim::{SimDriver, driver as sim};
use berth_driver::xml::{Settings, VirtType};
use berth_driver::{Driver, Eraser, NoPmem};
use berth_host::description::{self, Description};
use berth_host::options::{self, Fault};
use berth_host::{Discovery, Options, sysfs};
use berth_process::configuration::Configuration;
use berth_process::{Faults, Keys};

use crate::config::{Config, DriverKind, Valid, Virtualisation};
use crate::error::Error;
use crate::images::ImageStore;
use crate::migration_tls;
use crate::no_driver::{self, NoDriver};
use crate::pmem::Memories;
use crate::self_fencing::SelfFencing;
use crate::watchdog::Device;

/// Returns the machine's description, if there is one.
pub(crate) fn description(config: &Config) -> Result<Option<Description>, Error> {
    let Some(path) = config
        .machine_file
        .as_ref()
        .filter(|_| config.machine.is_none())
    else {
        return Ok(config.machine.clone());
    };
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|source| Error::MachineFile {
        path: path.clone(),
        source,
    })?;
    let described = Description::parse(&text).map_err(|source| Error::MachineInFile {
        path: path.clone(),
        source,
    });
    described.map(Some)
}

/// Discovers the machine, with the operator's options applied.
fn discovery(config: &Config) -> Result<Discovery, Error> {
    let is_set = config.locations.contains("memory_reserved_mib");
    let options = Options {
        cpu_dedicated_set: config.cpu_dedicated_set.clone(),
        cpu_shared_set: config.cpu_shared_set.clone(),
        vcpu_pin_set: config.vcpu_pin_set.clone(),
        reserved_pages: config.reserved_pages.clone(),
        memory_reserved_mib: is_set.then_some(config.memory_reserved_mib),
        pci: config.pci.clone(),
    };
    let described = |error| match error {
        description::Error::Host(options::Error::Options(faults)) => located(config, &faults),
        other @ (description::Error::Host(_)
        | description::Error::Toml(_)
        | description::Error::Contradiction(_)) => match config.machine_file.clone() {
            Some(path) => Error::MachineInFile {
                path,
                source: other,
            },
            None => Error::Machine(other),
        },
    };
    match description(config)? {
        Some(machine) => machine.discover(&options).map_err(described),
        None => {
            let found = sysfs::discover(&config.root, &options);
            found.map_err(|error| match error {
                sysfs::Error::Host(options::Error::Options(faults)) => located(config, &faults),
                other @ (sysfs::Error::Host(_)
                | sysfs::Error::Read { .. }
                | sysfs::Error::Value { .. }) => Error::Discover(other),
            })
        }
    }
}

fn located(config: &Config, faults: &[Fault]) -> Error {
    let located = faults.iter().map(|fault| {
        let keys = fault.keys();
        let keys = keys.iter().map(String::as_str);
        config.locations.locate(keys, &fault.to_string())
    });
    Error::Config(Faults(located.collect()))
}

/// Returns in what the configuration contradicts the machine, with the lines. A machine that
/// cannot be read at all is no contradiction.
fn contradictions(config: &Config) -> Vec<String> {
    match discovery(config) {
        Err(Error::Config(faults)) => faults.0,
        Ok(_) | Err(_) => Vec::new(),
    }
}

impl Configuration for Config {
    fn read(&mut self, keys: &mut Keys) {
        self.read_keys(keys);
    }

    fn faults(&self) -> Vec<String> {
        self.validate()
            .err()
            .map_or_else(Vec::new, |faults| faults.0)
    }

    fn contradictions(&self) -> Vec<String> {
        contradictions(self)
    }
}

/// Returns the shape of the machine, real or described, and what its processor can do.
pub(crate) fn discover(config: &Config) -> Result<(Arc<HostTopology>, BTreeSet<Trait>), Error> {
    let Discovery {
        topology,
        traits,
        warnings,
    } = discovery(config)?;
    for warning in warnings {
        let key = warning.key();
        let warning = warning.to_string();
        tracing::warn!("{}", config.locations.locate(key.as_deref(), &warning));
    }
    match config.driver {
        DriverKind::Libvirt | DriverKind::Sim => Ok((Arc::new(topology), traits)),
        DriverKind::None => Ok((Arc::new(no_driver::shape(&topology)), BTreeSet::new())),
    }
}

/// Returns how the guests can be self-fenced. Simulated ones end with this process, or are on hold
/// until the next run; those of libvirt outlive it, and then only a watchdog can stop them.
pub(crate) fn self_fencing(config: &Config, watchdog: Option<&Device>) -> SelfFencing {
    let possible = config.service_version >= ServiceVersion::SELF_FENCE.0;
    match (config.driver, watchdog) {
        (DriverKind::Sim, _) => {
            let file = config.sim.state_file.as_deref();
            SelfFencing::new(possible, file.map(|file| file.with_extension("lease")))
        }
        (DriverKind::Libvirt, Some(device)) if possible => {
            let file = config.libvirt.runtime_dir.join("self-fence.lease");
            SelfFencing::by_reset(file, device.reset_after_ms())
        }
        (DriverKind::Libvirt, Some(_) | None) | (DriverKind::None, _) => {
            SelfFencing::new(false, None)
        }
    }
}

/// Returns where the file systems of guests' volumes are mounted: in a directory that emulators,
/// which may run as an unprivileged user, can reach.
pub(crate) fn volumes_dir(config: &Config) -> PathBuf {
    match config.driver {
        DriverKind::Sim | DriverKind::None => config.volumes.state_dir.join("guests"),
        DriverKind::Libvirt => config.libvirt.runtime_dir.join("volumes"),
    }
}

/// Returns the images of the cluster on this host; none where no directory is configured for them.
pub(crate) fn images(config: &Config, valid: &Valid) -> Option<ImageStore> {
    let directory = match config.driver {
        DriverKind::Libvirt => Some(config.libvirt.image_dir.clone()),
        DriverKind::Sim => config.sim.image_dir.clone(),
        DriverKind::None => None,
    };
    let directory = directory?;
    if config.driver == DriverKind::Sim
        && let Err(error) = std::fs::create_dir_all(&directory)
    {
        let directory = directory.display();
        tracing::warn!(%error, %directory, "the directory of images cannot be created");
    }
    let store = ImageStore::new(directory, valid.name.clone());
    if let Err(refusal) = store.remove_parts() {
        tracing::warn!(%refusal, "incomplete images are not removed");
    }
    Some(store)
}

/// Returns the driver; the simulated one listens from here on.
pub(crate) fn driver(
    config: &Config,
    valid: &Valid,
    topology: &Arc<HostTopology>,
    pmem: Option<&Memories>,
) -> Result<Arc<dyn Driver>, Error> {
    Ok(match config.driver {
        DriverKind::None => Arc::new(NoDriver),
        DriverKind::Sim => Arc::new(SimDriver::start(sim::Config {
            topology: topology.clone(),
            listen: valid.sim_listen,
            advertise: config.sim.advertise.clone(),
            state_file: config.sim.state_file.clone(),
            story_file: config.sim.story_file.clone(),
            disk_dir: config.sim.disk_dir.clone(),
            transfer: Duration::from_millis(config.sim.transfer_ms),
            erase_mib_per_s: config.sim.erase_mib_per_s,
            swap_mib: config.sim.swap_mib,
            can_encrypt: config.sim.can_encrypt,
            cpu: description(config)?.and_then(|machine| machine.cpu.map(|cpu| cpu.report())),
        })?),
        DriverKind::Libvirt => {
            let root = config.root.clone();
            let free_pages = move || {
                sysfs::free_pages(&root)
                    .map_err(|error| berth_driver::Error::refused(error.to_string()))
            };
            let driver_config = libvirt_config(config, valid);
            let eraser: Box<dyn Eraser> = match pmem {
                Some(pmem) => Box::new(pmem.clone()),
                None => Box::new(NoPmem),
            };
            let directory = config.migration.tls_dir.clone();
            let host = HostSources {
                free_pages: Box::new(free_pages),
                tls: migration_tls::check(directory, &driver_config.migration_uri),
            };
            let driver = LibvirtDriver::new(driver_config, host, eraser)?;
            Arc::new(driver)
        }
    })
}

/// Returns what the hypervisor offers to guests as a CPU. A host where that cannot be read still takes
/// guests for which no CPU is chosen. An agent that behaves like an older one does not report it.
pub(crate) fn cpu(driver: &dyn Driver, version: ServiceVersion) -> Option<Arc<HostCpu>> {
    if !version.can(Feature::CpuModels) {
        return None;
    }
    match driver.cpu() {
        Ok(cpu) => cpu.map(Arc::new),
        Err(error) => {
            let error = berth_process::error_chain(&error);
            tracing::warn!(%error, "CPU of the hypervisor cannot be read, and is not reported");
            None
        }
    }
}

fn libvirt_config(config: &Config, valid: &Valid) -> libvirt::Config {
    let configured = config.libvirt.clone();
    let has_certificates = config.listening.encryption.is_configured();
    libvirt::Config {
        migration_uri: configured.uri_for_peers(&valid.name, has_certificates),
        uri: configured.uri,
        settings: Settings {
            virt_type: match configured.virt_type {
                Virtualisation::Qemu => VirtType::Qemu,
                Virtualisation::Kvm => VirtType::Kvm,
            },
            machine: configured.machine,
            emulator: configured.emulator,
            image_dir: configured.image_dir,
            instance_dir: configured.instance_dir,
            runtime_dir: configured.runtime_dir,
            disk_cache: configured.disk_cache,
        },
        qemu_img: configured.qemu_img,
        network_devices: PathBuf::from("/sys/class/net"),
        proc: config.root.join("proc"),
        log_dir: configured.log_dir,
        bandwidth_mib_per_s_max: configured.bandwidth_mib_per_s_max,
    }
}
