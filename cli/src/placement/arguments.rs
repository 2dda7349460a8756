//! What can be typed after `berth placement`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Verbs of another Placement.
#[derive(Debug, Subcommand)]
pub enum Placement {
    /// Take over providers, inventories, traits, aggregates and allocations, then compare
    #[command(after_help = "\
Look first, then do it, and again after changes at the source:
  export OS_TOKEN=$(openstack token issue -f value -c id)
  berth placement import --from https://controller/placement --dry-run
  berth placement import --from https://controller/placement

Exit status: 0 both sides are the same (or --dry-run), 1 refused or failed,
             2 wrong usage, 3 nobody answered, 4 the sides differ: see what is listed.")]
    Import(Import),
    /// Read both sides and list what differs; nothing is written
    #[command(after_help = "\
Exit status: 0 both sides are the same, 1 refused or failed, 2 wrong usage,
             3 nobody answered, 4 the sides differ.")]
    Compare(Compare),
}

/// Which Placement is read, and how.
#[derive(Debug, Args)]
pub struct Source {
    /// Read the Placement whose API is at this URL, as http://controller/placement
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// Read the token from this file rather than from the environment variable OS_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Trust the certificates of this PEM file, too; the system's are trusted anyway
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Call the source by this name; by it an import knows what an earlier one made
    /// [default: the URL without its scheme]
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Ask the source so many things at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Wait so long for an answer of the source, then ask again, four times in all
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub timeout: u16,
    /// List so many differences, conflicts and refusals of each kind
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// How a Placement is taken over.
#[derive(Debug, Args)]
pub struct Import {
    /// Which Placement is read, and how.
    #[command(flatten)]
    pub source: Source,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Write nothing if there is any conflict
    #[arg(long)]
    pub strict: bool,
    /// Take away what an earlier import from this source made and what is gone there
    #[arg(long)]
    pub delete: bool,
    /// Overwrite also what was not made by an import from this source, or was changed here since
    #[arg(long)]
    pub overwrite: bool,
}

/// How both sides are compared.
#[derive(Debug, Args)]
pub struct Compare {
    /// Which Placement is read, and how.
    #[command(flatten)]
    pub source: Source,
}
