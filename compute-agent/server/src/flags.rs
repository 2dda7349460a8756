//! The command line of `berth-compute-agent`. A flag overrides the configuration file.

use std::path::PathBuf;

use berth_domain::cpu_set::CpuSet;
use berth_process::Faults;
use berth_process::flags::{Common, replace, replace_some};
use clap::Parser;

use crate::config::{Config, DriverKind};

/// Run the compute agent of this host
///
/// It reports what the host has to the scheduler, and drives the hypervisor for conductors.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-compute-agent", version)]
pub struct Flags {
    /// Flags that all servers share.
    #[command(flatten)]
    pub common: Common,
    /// Register this host in the cluster under this name [default: the machine's host name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Listen on this address [default: 127.0.0.1:7300]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Connect to this scheduler; give several separated by commas or by repeating the option [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub scheduler: Vec<String>,
    /// Store the learnt schedulers in this directory over restarts [default: in memory only]
    #[arg(long, value_name = "DIRECTORY")]
    pub data_dir: Option<PathBuf>,
    /// Behave like an agent of this service version [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    pub service_version: Option<u32>,
    /// Run guests with this hypervisor driver [default: libvirt]
    #[arg(long, value_name = "DRIVER", value_enum)]
    pub driver: Option<DriverKind>,
    /// Reserve these CPUs for dedicated vCPUs, one vCPU for each CPU, for example 2-7
    #[arg(long, value_name = "CPUS")]
    pub cpu_dedicated_set: Option<CpuSet>,
    /// Let shared vCPUs float over these CPUs, for example 0-1
    #[arg(long, value_name = "CPUS")]
    pub cpu_shared_set: Option<CpuSet>,
    /// Use these CPUs for both dedicated and shared vCPUs, instead of the two sets
    #[arg(long, value_name = "CPUS")]
    pub vcpu_pin_set: Option<CpuSet>,
    /// Offer these namespaces of persistent memory to guests by label, for example 128G:ns0|ns1,SMALL:ns2
    #[arg(long, value_name = "LABEL:NAME|NAME,...")]
    pub pmem_namespaces: Option<String>,
    /// Reserve this many MiB of memory for the host itself
    #[arg(long, value_name = "MIB")]
    pub memory_reserved_mib: Option<u64>,
    /// Identify the storage of guest disks, which other hosts may share
    #[arg(long, value_name = "NAME")]
    pub storage_id: Option<String>,
    /// Report the machine that this file describes instead of the real one
    #[arg(long, value_name = "FILE")]
    pub machine_file: Option<PathBuf>,
    /// Read kernels and disk images from this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub image_dir: Option<PathBuf>,
    /// Store the guests' disks and console logs in this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub instance_dir: Option<PathBuf>,
    /// Advertise this migration URI to other hypervisors
    #[arg(long, value_name = "URI")]
    pub migration_uri: Option<String>,
}

impl Flags {
    /// Returns the configuration that file and flags give together.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn config(&self) -> Result<Config, Faults> {
        let file = self.common.config.as_deref();
        Config::load(file, |config| self.apply(config))
    }

    fn apply(&self, config: &mut Config) {
        let flags = self.clone();
        flags.common.apply(&mut config.listening, &mut config.log);
        if !flags.scheduler.is_empty() {
            config.schedulers = flags.scheduler;
        }
        replace_some(&mut config.data_dir, flags.data_dir);
        for (key, flag, is_said) in [
            (
                "cpu_dedicated_set",
                "--cpu-dedicated-set",
                flags.cpu_dedicated_set.is_some(),
            ),
            (
                "cpu_shared_set",
                "--cpu-shared-set",
                flags.cpu_shared_set.is_some(),
            ),
            (
                "vcpu_pin_set",
                "--vcpu-pin-set",
                flags.vcpu_pin_set.is_some(),
            ),
            (
                "memory_reserved_mib",
                "--memory-reserved-mib",
                flags.memory_reserved_mib.is_some(),
            ),
        ] {
            if is_said {
                config.locations.set_by_flag(key, flag);
            }
        }
        replace_some(&mut config.name, flags.name);
        replace_some(&mut config.cpu_dedicated_set, flags.cpu_dedicated_set);
        replace_some(&mut config.cpu_shared_set, flags.cpu_shared_set);
        replace_some(&mut config.vcpu_pin_set, flags.vcpu_pin_set);
        replace_some(&mut config.storage_id, flags.storage_id);
        replace_some(&mut config.machine_file, flags.machine_file);
        replace_some(&mut config.libvirt.migration_uri, flags.migration_uri);
        replace(&mut config.listening.address, flags.listen);
        replace(&mut config.service_version, flags.service_version);
        replace(&mut config.pmem_namespaces, flags.pmem_namespaces);
        replace(&mut config.driver, flags.driver);
        replace(&mut config.memory_reserved_mib, flags.memory_reserved_mib);
        replace(&mut config.libvirt.image_dir, flags.image_dir);
        replace(&mut config.libvirt.instance_dir, flags.instance_dir);
    }
}
