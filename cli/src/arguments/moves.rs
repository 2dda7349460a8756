//! `berth vm …`: what moves a VM while it does not run.

use clap::{Args, Subcommand};

use super::Run;

/// What moves the VMs of a host away.
#[derive(Debug, Subcommand)]
pub enum HostMoves {
    /// Move every VM away from a host
    ///
    /// Shows the plan first. Then nothing new is placed on the host, and its VMs are moved, so many
    /// at a time: those that run while they run, those that are stopped as they are. If the command is
    /// interrupted, moves that have begun go on; given again, it goes on with what is left. Lift it
    /// with `berth host uncordon`.
    Drain {
        /// The host
        host: String,
        /// How to go about it
        #[command(flatten)]
        how: DrainHow,
    },
    /// Start every VM of a dead host elsewhere
    ///
    /// The host has to be proven dead first, by `berth host fence HOST`. The VMs' disks have to be where
    /// other hosts see them.
    Evacuate {
        /// The host
        host: String,
        /// How to go about it
        #[command(flatten)]
        how: DrainHow,
    },
}

/// How the VMs of a host are moved away.
#[derive(Debug, Args)]
pub struct DrainHow {
    /// Move so many VMs at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub parallel: u32,
    /// Only show the plan
    #[arg(long, visible_alias = "dry-run")]
    pub validate_only: bool,
}

/// What moves a VM while it does not run.
#[derive(Debug, Subcommand)]
pub enum Moves {
    /// Give a VM another flavor
    ///
    /// The VM is stopped and started again with the new flavor, on the host that suits it best, which
    /// may be the one where it is. Disks that the new host does not see are copied meanwhile. What it
    /// had before is kept until `berth vm confirm-resize`, and `berth vm revert-resize` brings the VM
    /// back to it.
    Resize {
        /// The VM
        vm: String,
        /// Its flavor from now on
        #[arg(long)]
        flavor: String,
        /// Put it on this host rather than on the best
        #[arg(long)]
        host: Option<String>,
        /// Keep nothing of what it had: there is nothing to confirm, and no way back
        #[arg(long)]
        no_verify: bool,
        /// Only say where it would go, and what it would get there, or why it would not
        #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
        validate_only: bool,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Keep what a resize brought, and give back what the VM had before
    ///
    /// Disks that were copied to another host for it are deleted on the one where they were.
    ConfirmResize {
        /// The VM
        vm: String,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Bring a VM back to what it had before its resize
    ///
    /// Where its disks were copied to another host for it, it comes back to them as they were, and the
    /// copies are deleted with what was written to them since.
    RevertResize {
        /// The VM
        vm: String,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Start a VM elsewhere whose host is dead
    ///
    /// Its disks have to be where the other host sees them. The host has to be proven dead first, by
    /// `berth host fence HOST`: a guest that still runs there must not run twice.
    Evacuate {
        /// The VM
        vm: String,
        /// Start it on this host rather than on the best
        #[arg(long)]
        host: Option<String>,
        /// Only say where it would go, and what it would get there, or why it would not
        #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
        validate_only: bool,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Stop a VM and give its host back
    ///
    /// Its disks stay where they are. `berth vm unshelve` starts it again, on any host that sees them.
    Shelve {
        /// The VM
        vm: String,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
    /// Start a shelved VM on a host that is chosen anew
    Unshelve {
        /// The VM
        vm: String,
        /// Start it on this host rather than on the best
        #[arg(long)]
        host: Option<String>,
        /// Only say where it would go, and what it would get there, or why it would not
        #[arg(long, visible_alias = "dry-run", conflicts_with_all = ["no_wait", "request_id"])]
        validate_only: bool,
        /// How to go about it
        #[command(flatten)]
        run: Run,
    },
}
