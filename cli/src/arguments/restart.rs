//! Options of when a VM is started again by itself.

use berth_domain::vm::{PER_HOUR_MAX, PRIORITY_MAX, RestartAction, RestartPolicy};
use clap::{Args, ValueEnum};

/// What is done when a guest does not run although it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnEvent {
    /// Mark the VM and leave it to an operator
    Leave,
    /// Start the VM again
    Restart,
}

impl From<OnEvent> for RestartAction {
    fn from(on_event: OnEvent) -> Self {
        match on_event {
            OnEvent::Leave => Self::Leave,
            OnEvent::Restart => Self::Restart,
        }
    }
}

/// When a VM is started again by itself; what is not given stays as it is.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Restart {
    /// What to do when the guest ends without shutting down
    #[arg(long, value_name = "ACTION")]
    pub on_crash: Option<OnEvent>,
    /// What to do when its host is proven dead, or has restarted without it
    #[arg(long, value_name = "ACTION")]
    pub on_host_failure: Option<OnEvent>,
    /// Priority: VMs with a higher one are started first
    #[arg(long, value_name = "0..100", value_parser = clap::value_parser!(u32).range(0..=i64::from(PRIORITY_MAX)))]
    pub restart_priority: Option<u32>,
    /// Restarts that are permitted within an hour
    #[arg(long, value_name = "1..20", value_parser = clap::value_parser!(u32).range(1..=i64::from(PER_HOUR_MAX)))]
    pub restarts_per_hour: Option<u32>,
}

impl Restart {
    /// Returns whether none is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.on_crash.is_none()
            && self.on_host_failure.is_none()
            && self.restart_priority.is_none()
            && self.restarts_per_hour.is_none()
    }

    /// Returns the policy with what is given.
    #[must_use]
    pub fn apply_to(&self, policy: &RestartPolicy) -> RestartPolicy {
        RestartPolicy {
            on_crash: self.on_crash.map_or(policy.on_crash, Into::into),
            on_host_failure: self
                .on_host_failure
                .map_or(policy.on_host_failure, Into::into),
            priority: self.restart_priority.unwrap_or(policy.priority),
            per_hour_max: self.restarts_per_hour.unwrap_or(policy.per_hour_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::vm::{PER_HOUR_DEFAULT, PRIORITY_DEFAULT};

    use super::*;

    /// Goal: the help of the command names the defaults of the policy.
    #[test]
    fn the_defaults_are_those_in_the_help() {
        let policy = Restart::default().apply_to(&RestartPolicy::default());
        assert_eq!((policy.priority, policy.per_hour_max), (50, 3));
        assert_eq!((PRIORITY_DEFAULT, PER_HOUR_DEFAULT), (50, 3));
        assert_eq!(policy.on_crash, RestartAction::Leave);
        assert_eq!(policy.on_host_failure, RestartAction::Leave);
    }
}
