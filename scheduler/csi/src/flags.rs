//! The command line of `berth-csi-controller`. A flag goes before the configuration file.

use std::path::PathBuf;

use berth_process::flags::replace;
use berth_process::{Faults, LogFormat};
use clap::Parser;

use crate::config::Config;

/// Run a controller of persistent-memory volumes
///
/// It serves the Container Storage Interface to a provisioner beside it. Any number of controllers
/// can run beside each other; they keep nothing.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-csi-controller", version)]
pub struct Flags {
    /// Read this configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve on this socket [default: unix:///run/berth/csi-controller/csi.sock]
    #[arg(long, value_name = "ENDPOINT")]
    pub csi_endpoint: Option<String>,
    /// Use this scheduler; a list with commas, or repeated [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub scheduler: Vec<String>,
    /// Call the driver so [default: pmem-csi.intel.com]
    #[arg(long, value_name = "NAME")]
    pub driver_name: Option<String>,
    /// Write log lines like this
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// Write these log lines, as info,berth_proto=debug
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
}

impl Flags {
    /// Returns the configuration that file and flags give together.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it.
    pub fn config(&self) -> Result<Config, Faults> {
        Config::load(self.config.as_deref(), |config| self.apply(config))
    }

    fn apply(&self, config: &mut Config) {
        let flags = self.clone();
        if !flags.scheduler.is_empty() {
            config.schedulers = flags.scheduler;
        }
        replace(&mut config.csi_endpoint, flags.csi_endpoint);
        replace(&mut config.driver_name, flags.driver_name);
        replace(&mut config.log.format, flags.log_format);
        replace(&mut config.log.filter, flags.log_filter);
    }
}
