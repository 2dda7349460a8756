//! The arguments of `berth volume`.

use clap::{Args, Subcommand};

use super::{InProject, Selection, size};

/// Verbs of volumes.
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Create a volume on a host and region that are chosen for it
    #[command(after_help = "\
Examples:
  berth volume create db --size 40G --wait
  berth volume create scratch --size 8G --host h2
  berth volume create models --size 100G --cache 3    one on each of 3 hosts

Sizes are usable sizes in bytes, or with K, M, G or T for powers of 1024. They
are rounded up to the granularity of the region's device mode. The name makes
the command idempotent: a repeated one shows the existing volume.")]
    Create(VolumeCreate),
    /// List volumes of persistent memory
    #[command(after_help = "\
Volumes that no VM has and that could not be made at first:
  berth volume list --filter 'NOT attached_vm:* AND replicas.failure:*'")]
    List {
        /// Only the volumes of this host
        #[arg(long)]
        host: Option<String>,
        /// The entries that are shown
        #[command(flatten)]
        selection: Selection,
    },
    /// Show a volume and its location
    Show {
        /// Name or id of the volume
        volume: String,
    },
    /// Delete a volume; its host removes and erases it
    Delete {
        /// Name or id of the volume
        volume: String,
        /// Drop the replicas on removed hosts that are lost for good, without erasing them
        #[arg(long)]
        forget: bool,
    },
    /// Show the available space of each region
    Capacity {
        /// Names of the hosts (default: all)
        hosts: Vec<String>,
    },
    /// Plan which volumes to relocate so that one of a given size fits
    #[command(after_help = "\
In mode direct a volume is one contiguous piece, so that fragmented free space
may not suffice. The plan names the volumes with the fewest bytes to relocate,
and where they would fit. Nothing is moved: create a volume there, copy, and
delete the old one.")]
    #[command(name = "plan-room")]
    PlanSpace {
        /// Name of the host
        host: String,
        /// Size of the volume
        #[arg(long, value_parser = size::bytes)]
        size: u64,
        /// Name of the region [default: the one that needs the least]
        #[arg(long)]
        region: Option<String>,
    },
}

/// Arguments of `berth volume create`.
#[derive(Debug, Args)]
pub struct VolumeCreate {
    /// Name of the volume
    pub name: String,
    /// Minimum usable size of the volume
    #[arg(long, value_parser = size::bytes)]
    pub size: u64,
    /// Maximum size of the volume
    #[arg(long, value_parser = size::bytes)]
    pub limit: Option<u64>,
    /// Name of an allowed host (repeatable)
    #[arg(long)]
    pub host: Vec<String>,
    /// Name of a preferred host (repeatable, tried in order)
    #[arg(long, value_name = "HOST")]
    pub prefer: Vec<String>,
    /// Preferred NUMA node of the host
    #[arg(long)]
    pub cell: Option<u32>,
    /// Create a cache on this number of hosts, each with its own contents
    #[arg(long, value_name = "HOSTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub cache: Option<u32>,
    /// Put the file system into an image for Kata Containers
    #[arg(long)]
    pub kata: bool,
    /// Keep the contents on the device when the volume is deleted
    #[arg(long)]
    pub no_erase: bool,
    /// Wait until the volume is ready
    #[arg(long)]
    pub wait: bool,
    /// The project that it belongs to
    #[command(flatten)]
    pub project: InProject,
}
