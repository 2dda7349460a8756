//! The command line of `berth-scheduler`.
//!
//! Invariant: a flag overrides the configuration file; nothing is decided here.

use std::path::PathBuf;

use berth_placement_api::Profile;
use berth_process::Faults;
use berth_process::flags::{Common, replace, replace_some};
use clap::Parser;

use crate::config::{Config, Start};

/// Run a member of the scheduler
///
/// The first member of a cluster is started once with --bootstrap, each further one once with
/// --join. A restart needs neither.
#[derive(Clone, Debug, Parser)]
#[command(name = "berth-scheduler", version)]
pub struct Flags {
    /// The flags that all servers share.
    #[command(flatten)]
    pub common: Common,
    /// Store the member's log, checkpoints and state in this directory
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Listen on this address [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Serve the OpenStack Placement REST API on this address
    #[arg(long, value_name = "HOST:PORT")]
    pub placement_listen: Option<String>,
    /// Grant callers of the REST API the rights of this profile; without --placement-tokens they are
    /// not authenticated
    #[arg(long, value_name = "PROFILE", value_enum)]
    pub placement_profile: Option<Profile>,
    /// Authenticate callers of the REST API by the tokens whose SHA-256 is in this file
    #[arg(long, value_name = "FILE")]
    pub placement_tokens: Option<PathBuf>,
    /// Refuse to start on a data directory of any cluster but this one
    #[arg(long, value_name = "UUID")]
    pub cluster_id: Option<String>,
    /// Create a new cluster with this member as its only one
    #[arg(long, conflicts_with = "join")]
    pub bootstrap: bool,
    /// Join the cluster of this running member; repeat the option to give several
    #[arg(long, value_name = "HOST:PORT")]
    pub join: Vec<String>,
    /// Mark a host as down after this many milliseconds without a heartbeat
    #[arg(long, value_name = "MS")]
    pub liveness_limit_ms: Option<u64>,
    /// Run as a member of this service version, which applies no newer cluster version
    /// [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    pub service_version: Option<u32>,
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
        replace(&mut config.data_dir, flags.data_dir);
        replace(&mut config.listening.address, flags.listen);
        replace(&mut config.liveness_limit_ms, flags.liveness_limit_ms);
        replace(&mut config.service_version, flags.service_version);
        replace_some(&mut config.cluster_id, flags.cluster_id);
        replace_some(&mut config.placement_listen, flags.placement_listen);
        replace_some(&mut config.placement_profile, flags.placement_profile);
        replace_some(&mut config.placement_tokens, flags.placement_tokens);
        config.start = match (flags.bootstrap, flags.join.is_empty()) {
            (true, _) => Start::Bootstrap,
            (false, false) => Start::Join(flags.join),
            (false, true) => Start::Restart,
        };
    }
}
