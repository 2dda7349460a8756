//! `berth vm …`: what moves a VM while it does not run.

use clap::{Args, Subcommand};

use super::Run;

/// Verbs of hosts that move their VMs away.
#[derive(Debug, Subcommand)]
pub enum HostMoves {
    /// Move all VMs to other hosts and cordon the host
    ///
    /// Shows the plan first. Then the host is cordoned and its VMs are moved, a limited number at a
    /// time: running ones live, stopped ones as they are. The drain is an operation: it goes on if the
    /// command is interrupted, `berth operation wait` follows it and `berth operation cancel` cancels it,
    /// which uncordons the host. Otherwise the host stays cordoned until `berth host uncordon`.
    Drain {
        /// Name of the host
        host: String,
        /// Stop VMs that cannot be moved while they run, move them and start them again
        #[arg(long)]
        cold: bool,
        /// Options of the moves
        #[command(flatten)]
        options: DrainOptions,
    },
    /// Restart all VMs of a dead host on other hosts
    ///
    /// The host must be fenced first, by `berth host fence HOST`; otherwise nothing is done. The VMs'
    /// disks must be on storage that other hosts share. The host is cordoned, and stays cordoned until
    /// `berth host uncordon`.
    Evacuate {
        /// Name of the host
        host: String,
        /// Options of the moves
        #[command(flatten)]
        options: DrainOptions,
    },
}

/// Options of `berth host drain` and `berth host evacuate`.
#[derive(Debug, Args)]
pub struct DrainOptions {
    /// Maximum number of VMs that move at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub parallel: u32,
    /// Only show the plan of the moves
    #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
    pub validate_only: bool,
    /// Options of the operation
    #[command(flatten)]
    pub run: Run,
}

/// Verbs of VMs that move them while they are stopped.
#[derive(Debug, Subcommand)]
pub enum Moves {
    /// Change the flavor of a VM
    ///
    /// The VM is stopped and started again with the new flavor on the best host, which may be the
    /// current one. Disks that the new host does not share are copied. The old resources are kept until
    /// `berth vm confirm-resize`; `berth vm revert-resize` returns the VM to them.
    Resize {
        /// Name of the VM
        vm: String,
        /// Name of the new flavor
        #[arg(long)]
        flavor: String,
        /// Name of the destination host (default: the best one)
        #[arg(long)]
        host: Option<String>,
        /// Release the old resources at once, without a way to revert
        #[arg(long)]
        no_verify: bool,
        /// Only show the host and the resources that would be chosen
        #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
        validate_only: bool,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Confirm resizes and release the old resources
    ///
    /// Disks that were copied to another host are deleted on the old one.
    ConfirmResize {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Revert resizes and release the new resources
    ///
    /// If the disks of a VM were copied to another host, it returns to the originals, and the copies are
    /// deleted with everything written to them since.
    RevertResize {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Restart VMs of a dead host on other hosts
    ///
    /// Their disks must be on storage that the other hosts share. The dead host must be fenced first, by
    /// `berth host fence HOST`: a guest that still runs there must not run twice.
    Evacuate {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Name of the host to start on (default: the best one)
        #[arg(long)]
        host: Option<String>,
        /// Only show the host and the resources that would be chosen
        #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
        validate_only: bool,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Stop VMs and release their hosts
    ///
    /// Disks stay where they are. `berth vm unshelve` starts a VM again, on any host that shares them.
    Shelve {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
    /// Start shelved VMs on newly chosen hosts
    Unshelve {
        /// Names of the VMs
        #[arg(value_name = "VM", required = true)]
        vms: Vec<String>,
        /// Name of the host to start on (default: the best one)
        #[arg(long)]
        host: Option<String>,
        /// Only show the host and the resources that would be chosen
        #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
        validate_only: bool,
        /// Options of the operation
        #[command(flatten)]
        run: Run,
    },
}
