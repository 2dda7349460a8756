//! `berth vm …`: what is done to a VM on the host that holds it.

use clap::Subcommand;

use super::Run;

/// What is done to a VM on the host that holds it.
#[derive(Debug, Subcommand)]
pub enum Power {
    /// Stop a VM; its host, its CPUs and its disks stay its own
    ///
    /// The guest is asked to power off, as by its power button. If it has not after the timeout, its
    /// plug is pulled. `berth vm start` brings it back.
    Stop {
        /// The VM
        vm: String,
        /// Give the guest this long to power off; 0 pulls its plug at once
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
        timeout: u64,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Start a stopped VM where it is, with the disks that it has
    ///
    /// Also for a VM that is ACTIVE while its guest has powered off by itself, or has crashed.
    Start {
        /// The VM
        vm: String,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Stop a VM and start it again
    ///
    /// The guest is asked to power off first, and its plug is pulled if it has not after the timeout;
    /// with --hard it is pulled at once.
    Reboot {
        /// The VM
        vm: String,
        /// Pull the plug at once
        #[arg(long)]
        hard: bool,
        /// Give the guest this long to power off
        #[arg(long, value_name = "SECONDS", default_value_t = 60, conflicts_with = "hard", value_parser = clap::value_parser!(u64).range(0..=3600))]
        timeout: u64,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Make the disks of a VM anew from their images; what is on them is lost
    ///
    /// The VM keeps its host, its CPUs and its addresses. It runs afterwards, unless it was stopped.
    /// If it fails half-way the VM is in ERROR and keeps its place: ask again, or delete it.
    #[command(after_help = "\
From the images that its disks have:
  berth vm rebuild web
From another one, as the first of two disks:
  berth vm rebuild web --image debian-13.qcow2 --image data.raw")]
    Rebuild {
        /// The VM
        vm: String,
        /// Make the next disk from this image, a file in the hosts' image directory (once per disk,
        /// or not at all)
        #[arg(long = "image", value_name = "IMAGE")]
        images: Vec<String>,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Copy a disk of a VM into its host's image directory
    ///
    /// A VM that runs goes on running. To the file systems on the disk its copy is then a power cut:
    /// stop the VM first where that will not do. The copy has the format of the disk's own image.
    #[command(after_help = "\
  berth vm snapshot web web-golden.qcow2
  berth vm create web2 --flavor small --disk web-golden.qcow2:4")]
    Snapshot {
        /// The VM
        vm: String,
        /// The file name of the new image
        image: String,
        /// Which disk, counted from 0
        #[arg(long, default_value_t = 0)]
        disk: u32,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
}
