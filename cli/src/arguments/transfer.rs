//! The options of a transfer.

use berth_domain::transfer::{TimeoutAction, TransferOverrides};
use clap::Args;

/// Options of one migration that override the cluster's policy, which `berth policy show` lists as
/// `migration.…`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Transfer")]
pub struct Transfer {
    /// Maximum network bandwidth in MiB/s
    #[arg(long, value_name = "MIB_S")]
    pub bandwidth_mib_s: Option<u32>,
    /// Maximum downtime of the guest in ms
    #[arg(long, value_name = "MS")]
    pub downtime_ms: Option<u32>,
    /// Throttle the guest if it writes memory faster than it is sent
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub auto_converge: Option<bool>,
    /// Allow post-copy: the guest resumes before all memory is sent
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub post_copy: Option<bool>,
    /// Timeout of the transfer in ms
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u64>,
    /// Action at the timeout: abort, force-complete or post-copy
    #[arg(long, value_name = "ACTION", value_parser = action)]
    pub timeout_action: Option<TimeoutAction>,
}

fn action(text: &str) -> Result<TimeoutAction, String> {
    let action = TimeoutAction::parse(text);
    action.ok_or_else(|| "must be abort, force-complete or post-copy".to_owned())
}

impl Transfer {
    /// Returns the parameters of the transfer.
    #[must_use]
    pub fn params(&self) -> TransferOverrides {
        TransferOverrides {
            bandwidth_mib_per_s_max: self.bandwidth_mib_s,
            downtime_ms_max: self.downtime_ms,
            auto_converge: self.auto_converge,
            post_copy: self.post_copy,
            timeout_ms: self.timeout_ms,
            timeout_action: self.timeout_action,
        }
    }
}
