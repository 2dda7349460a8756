//! Arguments of `berth vm console`.

use clap::Args;

use super::EscapeKey;

/// Arguments of `berth vm console`.
#[derive(Debug, Args)]
pub struct Console {
    /// Name of the VM
    pub vm: String,
    /// Keep printing new output until interrupted
    #[arg(long, short)]
    pub follow: bool,
    /// Type on the console; press Ctrl-] and then q to leave it
    ///
    /// The session goes on while the guest is migrated. One user types on a console at a time, any number
    /// read it. Each session is recorded in the audit.
    #[arg(long, short, conflicts_with = "follow")]
    pub interactive: bool,
    /// End the session of another user who types on this console
    #[arg(long, requires = "interactive")]
    pub take_over: bool,
    /// Leave the console with this key instead of Ctrl-]
    #[arg(
        long,
        value_name = "KEY",
        default_value = "^]",
        requires = "interactive"
    )]
    pub escape: EscapeKey,
}
