//! Restart policies, drawn.

use berth_domain::vm::{RestartAction, RestartPolicy};
use berth_state::command::Command;

use super::super::vm_name;
use super::{VMS, of};

/// Returns the policy of a VM: none, or any.
pub(super) fn policy(pick: [u8; 4]) -> RestartPolicy {
    if pick[0].is_multiple_of(3) {
        return RestartPolicy::default();
    }
    RestartPolicy {
        on_crash: of(&RestartAction::ALL, pick[1]),
        on_host_failure: of(&RestartAction::ALL, pick[2]),
        priority: u32::from(pick[3] % 101),
        per_hour_max: 1 + u32::from(pick[3] % 3),
    }
}

/// Sets the policy of a VM.
pub(super) fn set(pick: [u8; 4]) -> Command {
    Command::SetRestartPolicy {
        vm: vm_name(of(&VMS, pick[0])),
        policy: policy([1, pick[1], pick[2], pick[3]]),
    }
}
