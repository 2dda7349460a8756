//! The arguments of `berth backup`.

use std::path::PathBuf;

use clap::Subcommand;

/// Verbs of backups.
#[derive(Debug, Subcommand)]
pub enum Backup {
    /// Show what backups hold, without any server
    #[command(after_help = "\
Every checksum of the files is verified. Whether a state can be made of them is
checked by `berth backup verify`.")]
    Inspect {
        /// Paths of the files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Verify backups by loading and replaying them, without any server
    #[command(after_help = "\
The files are a full backup and the increments that follow it, in order. The
state is loaded, the increments are replayed, the hash of the state is compared
with the one in each file, and every invariant of the state is checked. This
takes as much memory as a scheduler has for the same state.
Example:
  berth backup verify monday.backup tuesday.backup wednesday.backup

Exit status: 0 when they verify, 1 otherwise.")]
    Verify {
        /// Paths of the files, a full backup first
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}
