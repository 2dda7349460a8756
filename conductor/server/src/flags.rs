//! The command line of `berth-conductor`. A flag goes before the configuration file.

use std::path::PathBuf;

use clap::Parser;

use crate::config::{Config, Faults, LogFormat};

/// Run a conductor
///
/// Any number of conductors can run beside each other; each carries on what another one left.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-conductor", version)]
pub struct Flags {
    /// Read this configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Call this conductor so in the cluster [default: made from its address]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Listen on this address [default: 127.0.0.1:7200]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Tell others to dial this address
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Listen beyond loopback although connections are not encrypted
    #[arg(long)]
    pub insecure_listen: bool,
    /// Use this scheduler; a list with commas, or repeated [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub scheduler: Vec<String>,
    /// Behave like a conductor of this service version [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    pub service_version: Option<u32>,
    /// Hold operations for so many milliseconds at a time
    #[arg(long, value_name = "MS")]
    pub lease_ttl_ms: Option<u64>,
    /// Write log lines like this
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// Write these log lines, as info,berth_conductor=debug
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
        config.name = flags.name.or(config.name.take());
        config.advertise = flags.advertise.or(config.advertise.take());
        config.insecure_listen |= flags.insecure_listen;
        if !flags.scheduler.is_empty() {
            config.schedulers = flags.scheduler;
        }
        replace(&mut config.listen, flags.listen);
        replace(&mut config.service_version, flags.service_version);
        replace(&mut config.lease_ttl_ms, flags.lease_ttl_ms);
        replace(&mut config.log_format, flags.log_format);
        replace(&mut config.log_filter, flags.log_filter);
    }
}

fn replace<T>(value: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *value = flag;
    }
}
