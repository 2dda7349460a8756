//! `berth vm …`: what moves a VM while it does not run.

use clap::Subcommand;

use super::Run;

/// What moves a VM while it does not run.
#[derive(Debug, Subcommand)]
pub enum Moves {
    /// Give a VM another flavor
    ///
    /// The VM is stopped and started again with the new flavor, on the host that suits it best, which
    /// may be the one where it is. What it had before is kept until `berth vm confirm-resize`, and
    /// `berth vm revert-resize` brings the VM back to it.
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
    ConfirmResize {
        /// The VM
        vm: String,
    },
    /// Bring a VM back to what it had before its resize
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
