//! The machine and the driver that the configuration asks for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::topology::HostTopology;
use berth_driver::Driver;
use berth_driver::libvirt::{LibvirtDriver, driver as libvirt};
use berth_driver::sim::{SimDriver, driver as sim};
use berth_driver::xml::{Settings, VirtType};
use berth_host::description::Description;
use berth_host::{Discovery, Options, sysfs};

use crate::config::{Config, DriverKind, Valid, Virtualisation};
use crate::error::Error;

/// Returns the shape of the machine, real or described.
pub(crate) fn discover(config: &Config) -> Result<Arc<HostTopology>, Error> {
    let options = Options {
        cpu_dedicated_set: config.cpu_dedicated_set.clone(),
        cpu_shared_set: config.cpu_shared_set.clone(),
        reserved_pages: config.reserved_pages.clone(),
    };
    let Discovery { topology, warnings } = match (&config.machine, &config.machine_file) {
        (Some(machine), _) => machine.discover(&options)?,
        (None, Some(path)) => {
            let read = std::fs::read_to_string(path);
            let text = read.map_err(|source| Error::MachineFile {
                path: path.clone(),
                source,
            })?;
            let described = Description::parse(&text).and_then(|d| d.discover(&options));
            described.map_err(|source| Error::MachineInFile {
                path: path.clone(),
                source,
            })?
        }
        (None, None) => sysfs::discover(&config.root, &options)?,
    };
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(Arc::new(topology))
}

/// Returns the driver; the simulated one listens from here on.
pub(crate) fn driver(
    config: &Config,
    valid: &Valid,
    topology: &Arc<HostTopology>,
) -> Result<Arc<dyn Driver>, Error> {
    Ok(match config.driver {
        DriverKind::Sim => Arc::new(SimDriver::start(sim::Config {
            topology: topology.clone(),
            listen: valid.sim_listen,
            advertise: config.sim.advertise.clone(),
            state_file: config.sim.state_file.clone(),
            transfer: Duration::from_millis(config.sim.transfer_ms),
        })?),
        DriverKind::Libvirt => {
            let root = config.root.clone();
            let free_pages = move || {
                sysfs::free_pages(&root)
                    .map_err(|error| berth_driver::Error::refused(error.to_string()))
            };
            let driver = LibvirtDriver::new(libvirt_config(config, valid), Box::new(free_pages))?;
            Arc::new(driver)
        }
    })
}

fn libvirt_config(config: &Config, valid: &Valid) -> libvirt::Config {
    let told = config.libvirt.clone();
    libvirt::Config {
        uri: told.uri,
        migration_uri: told
            .migration_uri
            .unwrap_or_else(|| format!("qemu+tcp://{}/system", valid.name)),
        settings: Settings {
            virt_type: match told.virt_type {
                Virtualisation::Qemu => VirtType::Qemu,
                Virtualisation::Kvm => VirtType::Kvm,
            },
            machine: told.machine,
            emulator: told.emulator,
            image_dir: told.image_dir,
            instance_dir: told.instance_dir,
            runtime_dir: told.runtime_dir,
            disk_cache: told.disk_cache,
        },
        qemu_img: told.qemu_img,
        network_devices: PathBuf::from("/sys/class/net"),
        bandwidth_mib_per_s_max: told.bandwidth_mib_per_s_max,
    }
}
