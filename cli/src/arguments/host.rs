//! Arguments of `berth host`.

use clap::{Args, Subcommand};

use super::{HistoryPart, HostMoves, Selection};

/// Verbs of hosts.
#[derive(Debug, Subcommand)]
pub enum Host {
    /// List hosts with their free resources
    #[command(after_help = "\
Cordoned hosts that report:
  berth host list --filter 'host.cordoned = true AND host.liveness = UP'")]
    List {
        /// Show the measured memory of the hosts instead
        #[arg(long, conflicts_with_all = ["filter", "limit"])]
        memory: bool,
        /// The entries that are shown
        #[command(flatten)]
        selection: Selection,
    },
    /// Show a host: its sockets, NUMA nodes and the owner of each CPU
    Show {
        /// Name of the host
        host: String,
    },
    /// Show what became of a host, by which commands, and who requested them
    ///
    /// It goes as far back as the log of the scheduler that answers: to the older of its two
    /// checkpoints. The claims on the host show which VMs came and went.
    History {
        /// Name of the host
        host: String,
        /// Which part of it is shown
        #[command(flatten)]
        part: HistoryPart,
    },
    /// Check hosts, and the connections between them
    Check(HostCheck),
    /// Stop placing VMs on a host; those that run there stay
    Cordon {
        /// Name of the host
        host: String,
    },
    /// Place VMs on a host again
    Uncordon {
        /// Name of the host
        host: String,
    },
    /// Verbs that move its VMs away
    #[command(flatten)]
    Moves(HostMoves),
    /// Declare a host dead, so that its VMs can be evacuated
    ///
    /// Runs the fence command of the conductor. Nothing is placed on the host until its agent is
    /// back and none of the evacuated guests runs there.
    Fence {
        /// Name of the host
        host: String,
        /// Skip the fence command; the operator has checked that the host is off
        #[arg(long)]
        confirm_off: bool,
        /// Idempotency key: a repeated request does not run the fence command again
        #[arg(long, value_name = "UUID")]
        request_id: Option<uuid::Uuid>,
    },
    /// Remove a host without VMs, claims and volumes, after its agent was stopped
    ///
    /// `berth host drain` empties a host. Its agent is stopped next: a running one would register the
    /// host again, so a host that is not DOWN is refused.
    Remove {
        /// Name of the host
        host: String,
    },
    /// Manage the persistent memory of a host
    #[command(subcommand)]
    Pmem(HostPmem),
}

/// Arguments of `berth host check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each agent checks its hypervisor, certificates, directories, huge pages and
clock, and connects to the hypervisors of the others as before a migration.
Nothing is changed. Without HOST all hosts that are UP are checked; without
--peer each with all hosts that are UP. At most 32 hosts take part in a check.
Example: a new host, with two of the others:
  berth host check m4 --peer m2 m3

Exit status: 0 when no result is FAILED, 1 otherwise.")]
pub struct HostCheck {
    /// Names of the hosts
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Hosts with which they exchange VMs
    #[arg(long = "peer", value_name = "HOST", num_args = 1..)]
    pub peers: Vec<String>,
    /// Longest duration of the check in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60))]
    pub timeout: u64,
}

/// Verbs of a host's persistent memory.
#[derive(Debug, Subcommand)]
pub enum HostPmem {
    /// Write off a claimed namespace that is lost for good
    ///
    /// Its agent then starts without it, and the host can be removed. Should the namespace come back,
    /// it is erased before it is assigned again.
    WriteOff {
        /// Name of the host
        host: String,
        /// Name of the persistent-memory namespace
        namespace: String,
    },
}
