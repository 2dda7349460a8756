//! `berth vm …`: what is done to a VM on the host that holds it.

use clap::Subcommand;

use super::Run;

/// Verbs of VMs that leave them on their host.
#[derive(Debug, Subcommand)]
pub enum Power {
    /// Stop VMs; they keep their hosts, CPUs and disks
    ///
    /// A guest is shut down as by its power button. If it is still running after the timeout, it is
    /// powered off. `berth vm start` starts it again. Of several VMs each is stopped, one after the other.
    Stop {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Time for the guest to shut down; 0 powers it off at once
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3600))]
        timeout: u64,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Start stopped VMs on their hosts
    ///
    /// Also for a VM that is ACTIVE while its guest has powered off by itself, or has crashed.
    Start {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Stop VMs and start them again
    ///
    /// A guest is shut down first, and powered off if it is still running after the timeout; with
    /// --hard it is powered off at once.
    Reboot {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Power the guest off at once
        #[arg(long)]
        hard: bool,
        /// Time for the guest to shut down
        #[arg(long, value_name = "SECONDS", default_value_t = 60, conflicts_with = "hard", value_parser = clap::value_parser!(u64).range(0..=3600))]
        timeout: u64,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Recreate the disks of a VM from images; their contents are lost
    ///
    /// The VM keeps its host, its CPUs and its addresses. It runs afterwards, unless it was stopped.
    /// If it fails half-way the VM is in ERROR and keeps its claim: repeat the command, or delete the VM.
    #[command(after_help = "\
From the images that its disks have:
  berth vm rebuild web
From another one, as the first of two disks:
  berth vm rebuild web --image debian-13.qcow2 --image data.qcow2
A disk keeps the format that it was created with, and its images must have it.")]
    Rebuild {
        /// Name of the VM
        vm: String,
        /// Image of the next disk, or file in the hosts' image directory (one for each disk, or none)
        #[arg(long = "image", value_name = "IMAGE")]
        images: Vec<String>,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Copy a disk of a VM into its host's image directory
    ///
    /// A running VM continues to run, so that its file systems are only crash-consistent in the copy:
    /// stop the VM first for a clean one. The copy has the format of the disk's own image, whatever its
    /// name is, and is used in no other one.
    #[command(after_help = "\
  berth vm snapshot web web-golden.qcow2
  berth vm create web2 --flavor small --disk web-golden.qcow2:4
Of a disk over a raw image:
  berth vm snapshot data data-golden.img
  berth vm create data2 --flavor small --disk data-golden.img:4:raw")]
    Snapshot {
        /// Name of the VM
        vm: String,
        /// File name of the new image
        image: String,
        /// Index of the disk, from 0
        #[arg(long, default_value_t = 0)]
        disk: u32,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
}
