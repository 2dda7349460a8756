//! The arguments of `berth audit`.

use clap::{Args, Subcommand};

/// Verbs of the audit.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// List requests and their outcome, the latest first
    #[command(after_help = "\
The number of an entry is the revision at which it was decided. Requests that
were refused before they entered the log are numbered r1, r2 and so on; the
leader keeps them in memory and loses them when it stops. To follow and store
the audit:
  berth watch audit --output json")]
    List(AuditList),
    /// Show an entry: the request, its outcome and the reason
    Show {
        /// Number of the entry, such as 4711, or r7 for a refusal
        entry: String,
    },
}

/// Arguments of `berth audit list`.
#[derive(Debug, Args)]
pub struct AuditList {
    /// Only requests about this VM
    #[arg(long)]
    pub vm: Option<String>,
    /// Only requests that name this host or chose it
    #[arg(long)]
    pub host: Option<String>,
    /// Only requests of this principal
    #[arg(long)]
    pub principal: Option<String>,
    /// Only requests of this method, such as ScheduleVm
    #[arg(long)]
    pub method: Option<String>,
    /// Only requests since a time (2026-01-31T12:00:00Z) or for a duration (90s, 15m, 2h, 7d)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Maximum number of entries
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}
