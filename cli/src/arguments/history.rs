//! The arguments of `berth vm history` and `berth host history`.

use clap::Args;

/// Which part of a history is shown.
#[derive(Debug, Args)]
pub struct HistoryPart {
    /// Only since a time (2026-01-31T12:00:00Z) or for a duration (90s, 15m, 2h, 7d)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only what was done after this revision
    #[arg(long, value_name = "REVISION")]
    pub after: Option<u64>,
}
