//! The arguments of `berth volume`.

use clap::{Args, Subcommand};

use super::InProject;

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
    List {
        /// Only the volumes of this host
        #[arg(long)]
        host: Option<String>,
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
        #[arg(long, value_parser = size)]
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
    #[arg(long, value_parser = size)]
    pub size: u64,
    /// Maximum size of the volume
    #[arg(long, value_parser = size)]
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

/// Reads a size.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let shift = match unit.trim_end_matches('B').trim_end_matches('i') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err("a number of bytes, or with K, M, G or T behind it, as 40G".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "a whole number comes first, as 40G".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "no size is that large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4K", 4096),
            ("40G", 40 << 30),
            ("40Gi", 40 << 30),
            ("40GiB", 40 << 30),
            ("512MB", 512 << 20),
            ("2T", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in [
            "",
            "G",
            "-1",
            "1.5G",
            "4X",
            "4GG",
            "18446744073709551616",
            "99999999T",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
