//! How a guest is to be sent, as typed.

use berth_domain::transfer::{TimeoutAction, TransferWishes};
use clap::Args;

/// What one migration wants otherwise than the cluster's policy; `berth policy show` lists it as
/// `migration.…`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Transfer")]
pub struct Transfer {
    /// Take at most this much of the network, in MiB/s
    #[arg(long, value_name = "MIB_S")]
    pub bandwidth_mib_s: Option<u32>,
    /// Let the guest stand still for at most this long at the switch
    #[arg(long, value_name = "MS")]
    pub downtime_ms: Option<u32>,
    /// Slow the guest down if it writes faster than can be sent
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub auto_converge: Option<bool>,
    /// Allow that the guest goes on at the destination before all of its memory is there
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub post_copy: Option<bool>,
    /// Give the transfer this long
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u64>,
    /// Do this when it takes longer: abort, force-complete or post-copy
    #[arg(long, value_name = "ACTION", value_parser = action)]
    pub timeout_action: Option<TimeoutAction>,
}

fn action(text: &str) -> Result<TimeoutAction, String> {
    let action = TimeoutAction::parse(text);
    action.ok_or_else(|| "must be abort, force-complete or post-copy".to_owned())
}

impl Transfer {
    /// Returns what is wanted.
    #[must_use]
    pub fn wishes(&self) -> TransferWishes {
        TransferWishes {
            bandwidth_mib_per_s_max: self.bandwidth_mib_s,
            downtime_ms_max: self.downtime_ms,
            auto_converge: self.auto_converge,
            post_copy: self.post_copy,
            timeout_ms: self.timeout_ms,
            timeout_action: self.timeout_action,
        }
    }
}
