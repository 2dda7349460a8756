//! The arguments of `berth cluster backup` and `berth backup`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `berth cluster backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
The scheduler that is reached first sends its own state, with or without a
leader; nothing is stopped. The file is complete when it has its name. It holds
everything that is replicated, secrets among it: protect it like a private key.
Example: a full backup, and what has changed since then:
  berth cluster backup monday.backup
  berth cluster backup tuesday.backup --since monday.backup
  berth backup verify monday.backup tuesday.backup

A cluster is made of backups by `berth-scheduler restore`. See docs/backup.md.")]
pub struct ClusterBackup {
    /// Path of the new file, or - for standard output
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Back up only the changes since the end of this backup
    #[arg(long, value_name = "FILE")]
    pub since: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}

/// Verbs of recovery.
#[derive(Debug, Subcommand)]
pub enum ClusterRecovery {
    /// Show which hosts have not reported, and what differs from the restored state
    ///
    /// The recovery ends by itself when every host has reported and nothing conflicts.
    Status,
    /// End the recovery although guests are left that cannot be settled
    ///
    /// Without --accept-conflicts it ends only if nothing conflicts, as it does by itself.
    End {
        /// Leave the conflicts: their VMs are in ERROR, other guests keep what they hold
        #[arg(long)]
        accept_conflicts: bool,
    },
}

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
