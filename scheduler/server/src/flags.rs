//! The command line of `berth-scheduler`.
//!
//! Invariant: a flag goes before the configuration file; nothing is decided here.

use std::path::PathBuf;

use clap::Parser;

use crate::config::{Config, Faults, LogFormat, Start};

/// Run a member of the scheduler
///
/// The first member of a cluster is started once with --bootstrap, each further one once with
/// --join. A restart needs neither.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-scheduler", version)]
pub struct Flags {
    /// Read this configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keep the member's data in this directory
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Listen on this address [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Tell others to dial this address
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Listen beyond loopback although connections are not encrypted
    #[arg(long)]
    pub insecure_listen: bool,
    /// Refuse a directory of another cluster than this
    #[arg(long, value_name = "UUID")]
    pub cluster_id: Option<String>,
    /// Make a new cluster with this member alone
    #[arg(long, conflicts_with = "join")]
    pub bootstrap: bool,
    /// Join the cluster of this running member; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub join: Vec<String>,
    /// Write log lines like this
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// Write these log lines, as info,berth_replication=debug
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
    /// Count a host as down after so many milliseconds without a report
    #[arg(long, value_name = "MS")]
    pub liveness_limit_ms: Option<u64>,
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
        set(&mut config.data_dir, flags.data_dir);
        set(&mut config.listen, flags.listen);
        set(&mut config.log_format, flags.log_format);
        set(&mut config.log_filter, flags.log_filter);
        set(&mut config.liveness_limit_ms, flags.liveness_limit_ms);
        config.advertise = flags.advertise.or(config.advertise.take());
        config.cluster_id = flags.cluster_id.or(config.cluster_id.take());
        config.insecure_listen |= flags.insecure_listen;
        config.start = match (flags.bootstrap, flags.join.is_empty()) {
            (true, _) => Start::Bootstrap,
            (false, false) => Start::Join(flags.join),
            (false, true) => Start::Restart,
        };
    }
}

fn set<T>(value: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *value = flag;
    }
}
