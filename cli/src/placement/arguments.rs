//! The arguments of `berth placement`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Verbs of another Placement.
#[derive(Debug, Subcommand)]
pub enum Placement {
    /// Import providers, inventories, traits, aggregates and allocations
    #[command(after_help = "\
Preview first, then import, and repeat after changes at the source:
  export OS_TOKEN=$(openstack token issue -f value -c id)
  berth placement import --from https://controller/placement --dry-run
  berth placement import --from https://controller/placement

Exit status: 0 both sides are the same (or --dry-run), 1 refused or failed,
             2 wrong usage, 3 no server could be reached, 4 the sides differ.")]
    Import(Import),
    /// Compare both sides without writing
    #[command(after_help = "\
Exit status: 0 both sides are the same, 1 refused or failed, 2 wrong usage,
             3 no server could be reached, 4 the sides differ.")]
    Compare(Compare),
}

/// The source, and how it is read.
#[derive(Debug, Args)]
pub struct Source {
    /// URL of the source's API, such as http://controller/placement
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// File with the token (default: the environment variable OS_TOKEN)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file with further trusted certificates, beside the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Name of the source, by which an import recognises earlier ones
    /// [default: the URL without its scheme]
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Maximum number of concurrent requests to the source
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Timeout of a request to the source, which is sent at most four times
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub timeout: u16,
    /// Maximum number of differences, conflicts and refusals listed of each kind
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// Arguments of `berth placement import`.
#[derive(Debug, Args)]
pub struct Import {
    /// The source, and how it is read.
    #[command(flatten)]
    pub source: Source,
    /// Only show what would be written
    #[arg(long)]
    pub dry_run: bool,
    /// Write nothing if there is any conflict
    #[arg(long)]
    pub strict: bool,
    /// Delete what an earlier import created and the source no longer has
    #[arg(long)]
    pub delete: bool,
    /// Overwrite also records that were created or changed here
    #[arg(long)]
    pub overwrite: bool,
}

/// Arguments of `berth placement compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// The source, and how it is read.
    #[command(flatten)]
    pub source: Source,
}
