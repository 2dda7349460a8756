//! What can be typed to look at the audit.

use clap::{Args, Subcommand};

/// Verbs of the audit.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// List what was asked for and what was decided, the latest first
    #[command(after_help = "\
An entry is called by the revision at which it was decided. What was refused before it came into
the log stands there with r and a number; the leader keeps it in memory, and so loses it when it
stops. To follow the audit and keep it elsewhere:
  berth watch audit --output json")]
    List(AuditList),
    /// Show one entry: what was asked, and why it was decided so
    Show {
        /// The entry, as 4711, or r7 for what was refused
        entry: String,
    },
}

/// Which entries are listed.
#[derive(Debug, Args)]
pub struct AuditList {
    /// Only what is about this VM
    #[arg(long)]
    pub vm: Option<String>,
    /// Only what is about this host, names it or led to it
    #[arg(long)]
    pub host: Option<String>,
    /// Only what this principal asked for
    #[arg(long)]
    pub principal: Option<String>,
    /// Only this method, as ScheduleVm
    #[arg(long)]
    pub method: Option<String>,
    /// Only since this moment (2026-01-31T12:00:00Z), or for so long (90s, 15m, 2h, 7d)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}
