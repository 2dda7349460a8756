//! When a VM is started again by itself, and when it was.

use berth_domain::vm::{
    PER_HOUR_DEFAULT, PER_HOUR_MAX, PRIORITY_DEFAULT, RestartAction, RestartPolicy, Restarts,
};
use prost_types::Timestamp;

use super::field::{self, Invalid};
use crate::types::v1;
use crate::types::v1::restart_policy::Action;

/// Writes a policy; the one of a VM for which none was set is absent.
#[must_use]
pub fn write(policy: &RestartPolicy) -> Option<v1::RestartPolicy> {
    (!policy.is_default()).then(|| policy.into())
}

/// Reads a policy; absent is the one of a VM for which none was set.
///
/// # Errors
///
/// When a value is none, or out of its bounds.
pub fn read(wire: Option<v1::RestartPolicy>, field: &str) -> Result<RestartPolicy, Invalid> {
    Ok(field::optional(wire, field)?.unwrap_or_default())
}

/// Reads the policy of a VM and what was done by it.
pub(super) fn read_restarts(
    policy: Option<v1::RestartPolicy>,
    times: Vec<Timestamp>,
    used_up: Option<Timestamp>,
) -> Result<Restarts, Invalid> {
    let begun_at = field::each_by(times, "restart_times", PER_HOUR_MAX as usize, |time| {
        field::time(Some(time), "time")
    })?;
    Ok(Restarts {
        policy: read(policy, "restart_policy")?,
        begun_at,
        gave_up_at: field::optional_time(used_up, "restarts_used_up_time")?,
    })
}

impl From<&RestartPolicy> for v1::RestartPolicy {
    fn from(policy: &RestartPolicy) -> Self {
        let or_absent = |value, default| (value != default).then_some(value);
        Self {
            on_crash: write_action(policy.on_crash),
            on_host_failure: write_action(policy.on_host_failure),
            priority: or_absent(policy.priority, PRIORITY_DEFAULT),
            per_hour_max: or_absent(policy.per_hour_max, PER_HOUR_DEFAULT),
        }
    }
}

impl TryFrom<v1::RestartPolicy> for RestartPolicy {
    type Error = Invalid;

    fn try_from(wire: v1::RestartPolicy) -> Result<Self, Invalid> {
        let policy = Self {
            on_crash: read_action(wire.on_crash, "on_crash")?,
            on_host_failure: read_action(wire.on_host_failure, "on_host_failure")?,
            priority: wire.priority.unwrap_or(PRIORITY_DEFAULT),
            per_hour_max: wire.per_hour_max.unwrap_or(PER_HOUR_DEFAULT),
        };
        match policy.faults().into_iter().next() {
            None => Ok(policy),
            Some(fault) => Err(Invalid::new(&fault.field, fault.rule)),
        }
    }
}

/// Nothing is the default, so that it takes no bytes.
fn write_action(action: RestartAction) -> i32 {
    match action {
        RestartAction::Leave => Action::Unspecified.into(),
        RestartAction::Restart => Action::Restart.into(),
    }
}

fn read_action(wire: i32, field: &str) -> Result<RestartAction, Invalid> {
    match Action::try_from(wire) {
        Ok(Action::Unspecified | Action::Leave) => Ok(RestartAction::Leave),
        Ok(Action::Restart) => Ok(RestartAction::Restart),
        Err(_) => Err(Invalid::new(field, "must be a value that this build knows")),
    }
}
