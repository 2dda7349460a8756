//! The command line of `berth-scheduler`.
//!
//! Invariant: a flag overrides the configuration file; nothing is decided here.

use std::path::PathBuf;

use berth_placement_api::Profile;
use berth_process::Faults;
use berth_process::flags::{Common, replace, replace_some};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{Config, Start};
use crate::moment::Moment;

/// Run a member of the scheduler
///
/// The first member of a cluster is started once with --bootstrap, each further one once with
/// --join. A restart needs neither. The commands make a new group of what is left of an old one; all
/// other flags stand before them.
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
    /// Serve the page of the cluster on this address
    #[arg(long, value_name = "HOST:PORT")]
    pub page_listen: Option<String>,
    /// Let browsers log in to the page by the link that `berth web login` prints
    #[arg(long)]
    pub page_login: bool,
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
    /// What to do instead of running a member.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// For whom a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people
    Table,
    /// One JSON object
    Json,
}

/// How a command prints.
#[derive(Clone, Copy, Debug, Args)]
pub struct Output {
    /// Print the result and a refusal for people or for programs
    #[arg(
        long,
        short,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: Format,
}

impl Command {
    /// Returns for whom it prints.
    #[must_use]
    pub fn output(&self) -> Format {
        match self {
            Self::Restore { output, .. } | Self::Recover { output, .. } => output.output,
        }
    }
}

/// What the program does instead of running a member.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Make the first member of a new group of backups
    ///
    /// The data directory has to be empty. The member has a new cluster id, and recovers when it is
    /// started: nothing is started, moved or deleted until its state is compared with all hosts.
    Restore {
        /// The full backup, then each increment in order
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// Restore the state at this revision, or at this time as 2026-11-27T18:42:31Z, instead of the
        /// end of the last file
        #[arg(long, value_name = "REVISION|TIME")]
        at: Option<Moment>,
        /// For whom it prints.
        #[command(flatten)]
        output: Output,
    },
    /// Make the first member of a new group of a member that has lost its quorum
    ///
    /// The member is stopped before. It is looked at with --inspect; choose the one with the newest log.
    Recover {
        /// Print what the data directory holds, and change nothing
        #[arg(
            long,
            conflicts_with = "force_new_group",
            required_unless_present = "force_new_group"
        )]
        inspect: bool,
        /// Give the other members up, and make a new group without them
        #[arg(long, requires = "into")]
        force_new_group: bool,
        /// Make the new member in this directory; the old one stays as it is
        #[arg(long, value_name = "DIR")]
        into: Option<PathBuf>,
        /// For whom it prints.
        #[command(flatten)]
        output: Output,
    },
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
        replace_some(&mut config.page_listen, flags.page_listen);
        config.page_login |= flags.page_login;
        replace_some(&mut config.placement_tokens, flags.placement_tokens);
        config.start = match (flags.bootstrap, flags.join.is_empty()) {
            (true, _) => Start::Bootstrap,
            (false, false) => Start::Join(flags.join),
            (false, true) => Start::Restart,
        };
    }
}
