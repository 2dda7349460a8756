//! The arguments of `berth support`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Verbs of support.
#[derive(Debug, Subcommand)]
pub enum Support {
    /// Collect what helps to find a fault into one file without secrets
    Bundle(SupportBundle),
}

/// Arguments of `berth support bundle`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file is a tar archive: status, versions, membership, hosts, policies,
operations, audit and refusals of the cluster, and configuration and log lines
of each scheduler. It holds no keys, no tokens, no kernel command lines and no
consoles. Without --hash-names it holds names and addresses.
Examples:
  berth support bundle case7.tar --since 24h
  berth support bundle case7.tar --with-state --hash-names
  berth --bundle case7.tar cluster status

An operator's certificate is needed. See docs/support-bundle.md.")]
pub struct SupportBundle {
    /// Path of the new file
    #[arg(value_name = "FILE", default_value = "berth-support.tar")]
    pub file: PathBuf,
    /// Age or time from which on log lines are included, as 90s, 15m, 2h or 7d
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub since: String,
    /// Maximum number of operations, of audit entries and of refusals
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub operations: u32,
    /// Include the whole state, so that every command that reads can show it
    #[arg(long)]
    pub with_state: bool,
    /// Replace names, users, projects and addresses by hashes
    ///
    /// Equal names have equal hashes within one bundle. Texts that may hold names are removed, log lines
    /// among them.
    #[arg(long)]
    pub hash_names: bool,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}
