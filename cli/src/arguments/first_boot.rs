//! Options of what a guest is given for its first boot.

use std::path::PathBuf;

use clap::Args;

/// What a guest is given for its first boot, as files of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct FirstBoot {
    /// User-data for cloud-init: a #cloud-config or a script, of at most 32 KiB
    ///
    /// The guest reads it from a small disk of its own, the seed, after its other disks.
    #[arg(long, value_name = "FILE")]
    pub user_data: Option<PathBuf>,
    /// Public SSH keys that may log in, lines as in authorized_keys (repeatable)
    #[arg(long = "ssh-key", value_name = "FILE")]
    pub ssh_keys: Vec<PathBuf>,
    /// Network configuration for cloud-init, of version 1 or 2
    #[arg(long, value_name = "FILE")]
    pub network_config: Option<PathBuf>,
}

impl FirstBoot {
    /// Returns whether none is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
