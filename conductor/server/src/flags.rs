//! The command line of `berth-conductor`. A flag overrides the configuration file.

use std::path::PathBuf;

use berth_process::Faults;
use berth_process::flags::{Common, replace, replace_some};
use clap::Parser;

use crate::config::Config;

/// Run a conductor
///
/// Any number of conductors can run beside each other; each takes over the operations of those that stop.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-conductor", version)]
pub struct Flags {
    /// The flags that every server has.
    #[command(flatten)]
    pub common: Common,
    /// Register this conductor in the cluster under this name [default: made from its address]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Listen on this address [default: 127.0.0.1:7200]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Connect to this scheduler; give several separated by commas or by repeating the option [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub scheduler: Vec<String>,
    /// Store the learnt schedulers in this directory over restarts [default: in memory only]
    #[arg(long, value_name = "DIRECTORY")]
    pub data_dir: Option<PathBuf>,
    /// Behave like a conductor of this service version [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    pub service_version: Option<u32>,
    /// Take leases of operations for this many milliseconds
    #[arg(long, value_name = "MS")]
    pub lease_ttl_ms: Option<u64>,
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
        replace_some(&mut config.name, flags.name);
        replace(&mut config.listening.address, flags.listen);
        replace(&mut config.service_version, flags.service_version);
        replace(&mut config.lease_ttl_ms, flags.lease_ttl_ms);
    }
}
