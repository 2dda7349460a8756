//! Why an agent cannot start, or stopped by itself.

use std::io;
use std::path::PathBuf;

use berth_driver::libvirt::driver::ConfigError;
use berth_driver::sim::driver::StartError;
use berth_host::{description, sysfs};

use berth_process::{Faults, ListenError};

use crate::watchdog;

/// Why an agent cannot start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Faults),
    /// The machine cannot be read, or does not go with the configuration.
    #[error("this machine cannot be discovered")]
    Discover(#[from] sysfs::Error),
    /// The description of the machine cannot be read.
    #[error("{} cannot be read", .path.display())]
    MachineFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The machine that a file describes is none, or does not go with the configuration.
    #[error("the machine that {} describes cannot be used", .path.display())]
    MachineInFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: description::Error,
    },
    /// As above, of a machine that the embedding program describes.
    #[error("the described machine cannot be used")]
    Machine(#[from] description::Error),
    /// The configured persistent memory is not there like that.
    #[error("pmem_namespaces: {0}")]
    Pmem(String),
    /// The simulated hypervisor cannot start.
    #[error(transparent)]
    Sim(#[from] StartError),
    /// The libvirt driver cannot work as it is configured.
    #[error(transparent)]
    Libvirt(#[from] ConfigError),
    /// The hypervisor does not list its guests; without the list no guest may be started.
    #[error("the hypervisor does not list the guests of this host")]
    Hypervisor(#[from] berth_driver::Error),
    /// What is written down of volumes cannot be read or written.
    #[error(transparent)]
    Volumes(#[from] berth_pmem::volume::Error),
    /// As above, of what is simulated.
    #[error("{} cannot be read or written", .path.display())]
    VolumeState {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kubelet's socket is taken or cannot be made.
    #[error(transparent)]
    Socket(#[from] berth_process::socket::Error),
    /// The watchdog that is configured is of no use.
    #[error(transparent)]
    Watchdog(#[from] watchdog::Error),
    /// The address to listen on is taken or not ours.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The scheduler does not take the host as it is configured.
    #[error("{0}{hint}", hint = .0.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Refused(berth_domain::refusal::Refusal),
    /// The server failed.
    #[error("the server failed")]
    Serve(#[from] tonic::transport::Error),
    /// A part of the program ended that never should.
    #[error("{0} ended unexpectedly")]
    Task(&'static str),
}
