//! What can be typed of volumes of persistent memory.

use clap::{Args, Subcommand};

/// Verbs of volumes.
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Make a volume: choose a host and a region for it and claim what it takes there
    #[command(after_help = "\
Examples:
  berth volume create db --size 40G --wait
  berth volume create scratch --size 8G --host h2
  berth volume create models --size 100G --cache 3     the same size on three hosts

Sizes are what can be used of a volume: bytes, or with K, M, G or T for powers of 1024. They are
rounded up to what the region's device mode makes.
The name makes it repeatable: the same again shows the volume that is there.")]
    Create(VolumeCreate),
    /// List volumes
    List {
        /// Only those of this host
        #[arg(long)]
        host: Option<String>,
    },
    /// Show one volume and where it is
    Show {
        /// Its name, or its id
        volume: String,
    },
    /// Delete a volume; its space is free once its host has removed and erased it
    Delete {
        /// Its name, or its id
        volume: String,
        /// Forget what is left of it on hosts that were removed and are lost for good: it is never erased
        #[arg(long)]
        forget: bool,
    },
    /// Say what can really be made, in each region
    Capacity {
        /// Only these hosts
        hosts: Vec<String>,
    },
    /// Say which volumes would have to go elsewhere so that one of a given size fits on a host
    #[command(after_help = "\
In mode direct a volume lies in one piece, so that space which is free may be of no use. This says
which volumes lie in the way with the fewest bytes, and where they would fit. Nothing is moved: make
a volume there, copy, and delete the old one.")]
    PlanRoom {
        /// The host
        host: String,
        /// How large the volume is to be
        #[arg(long, value_parser = size)]
        size: u64,
        /// In this region [default: the one that needs the least]
        #[arg(long)]
        region: Option<String>,
    },
}

/// A volume to be made.
#[derive(Debug, Args)]
pub struct VolumeCreate {
    /// What it is called
    pub name: String,
    /// How much of it must be usable at least
    #[arg(long, value_parser = size)]
    pub size: u64,
    /// How much at most
    #[arg(long, value_parser = size)]
    pub limit: Option<u64>,
    /// Only on this host (can be repeated)
    #[arg(long)]
    pub host: Vec<String>,
    /// Rather on this host than on others (can be repeated, the first is tried first)
    #[arg(long, value_name = "HOST")]
    pub prefer: Vec<String>,
    /// Near to this cell of the host
    #[arg(long)]
    pub cell: Option<u32>,
    /// A cache: on so many hosts, with contents of its own on each
    #[arg(long, value_name = "HOSTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub cache: Option<u32>,
    /// Put the file system into an image that Kata Containers can hand to a guest
    #[arg(long)]
    pub kata: bool,
    /// Do not overwrite its contents when it is deleted
    #[arg(long)]
    pub no_erase: bool,
    /// Wait until its hosts have made it
    #[arg(long)]
    pub wait: bool,
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
