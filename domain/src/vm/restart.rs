//! When a guest that does not run although it should is started again by itself.
//!
//! It decides whether that is due and how often it may be. It starts nothing: a conductor does,
//! with an operation of its own.
//!
//! Invariant: nothing is started elsewhere without proof that its host is dead
//! ([`crate::fence::may_evacuate`]), and within an hour no guest is started more often by its policy
//! than that permits. A guest that shut itself down stays off.

use serde::{Deserialize, Serialize};

use super::trouble::{Absence, Trouble};
use crate::field_fault::Fault;
use crate::id::TimeMs;

/// The highest priority; the VMs with the highest are started first.
pub const PRIORITY_MAX: u32 = 100;
/// The priority of a VM without one.
pub const PRIORITY_DEFAULT: u32 = 50;
/// The most restarts within an hour that a policy permits.
pub const PER_HOUR_MAX: u32 = 20;
/// How many restarts a policy permits within an hour by default.
pub const PER_HOUR_DEFAULT: u32 = 3;

/// The time over which restarts are counted.
const HOUR_MS: u64 = 3_600_000;
/// How much longer each further restart within the hour waits.
const BACKOFF_MS: u64 = 10_000;

/// What is done when a guest does not run although it should.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Action {
    /// Nothing: it is marked, and an operator decides.
    #[default]
    Leave,
    /// It is started again.
    Restart,
}

impl Action {
    /// Both, for tables.
    pub const ALL: [Self; 2] = [Self::Leave, Self::Restart];

    /// Returns it as it is typed and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leave => "leave",
            Self::Restart => "restart",
        }
    }
}

/// When a VM is started again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RestartPolicy {
    /// When its guest ended by itself and did not shut down, on a host that is alive.
    pub on_crash: Action,
    /// When its host is proven to be dead: elsewhere. And when its host has restarted without it:
    /// there.
    pub on_host_failure: Action,
    /// VMs with a higher one are started first, 0 to [`PRIORITY_MAX`].
    pub priority: u32,
    /// How many restarts are permitted within an hour, 1 to [`PER_HOUR_MAX`].
    pub per_hour_max: u32,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            on_crash: Action::Leave,
            on_host_failure: Action::Leave,
            priority: PRIORITY_DEFAULT,
            per_hour_max: PER_HOUR_DEFAULT,
        }
    }
}

impl RestartPolicy {
    /// Returns whether it is the one of a VM for which none was set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what is wrong with its numbers.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.priority > PRIORITY_MAX {
            let rule = format!("must be 0 to {PRIORITY_MAX}");
            faults.push(Fault::new("priority", self.priority, rule));
        }
        if !(1..=PER_HOUR_MAX).contains(&self.per_hour_max) {
            let rule = format!("must be 1 to {PER_HOUR_MAX}");
            faults.push(Fault::new("per_hour_max", self.per_hour_max, rule));
        }
        faults
    }

    /// Returns what it says about a guest that was found not to run on a host that is alive.
    #[must_use]
    pub fn on_absence(&self, absence: Absence) -> Action {
        match absence {
            Absence::ShutDown => Action::Leave,
            Absence::Stopped => self.on_crash,
            // Its hypervisor's process was killed, or the host has restarted.
            Absence::Missing => self.on_crash.max(self.on_host_failure),
        }
    }
}

/// The policy of a VM and what was done by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Restarts {
    /// The policy.
    pub policy: RestartPolicy,
    /// When restarts by it began, oldest first, within an hour before the last one.
    #[serde(default)]
    pub begun_at: Vec<TimeMs>,
    /// When the restarts were used up, and the VM was left STOPPED. Ends when it is started.
    #[serde(default)]
    pub gave_up_at: Option<TimeMs>,
}

/// Whether a restart is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The policy says that nothing is done.
    Never,
    /// As many were begun within the last hour as are permitted.
    UsedUp,
    /// From this time on.
    At(TimeMs),
}

impl Restarts {
    /// Returns whether there is nothing to store.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns how many restarts were begun within the hour before `now`.
    #[must_use]
    pub fn within_hour(&self, now: TimeMs) -> u32 {
        let recent = self.begun_at.iter().filter(|at| is_recent(**at, now));
        u32::try_from(recent.count()).unwrap_or(u32::MAX)
    }

    /// Returns whether one more is permitted at `now`.
    #[must_use]
    pub fn permits(&self, now: TimeMs) -> bool {
        self.within_hour(now) < self.policy.per_hour_max
    }

    /// Returns when a guest is started again that was found not to run on a host that is alive. The
    /// first restart within an hour is due at once, each further one later.
    #[must_use]
    pub fn due_after(&self, trouble: &Trouble, now: TimeMs) -> Due {
        match self.policy.on_absence(trouble.absence) {
            Action::Leave => Due::Never,
            Action::Restart if !self.permits(now) => Due::UsedUp,
            Action::Restart => {
                let last = self.begun_at.last().copied().unwrap_or_default();
                let wait_ms = BACKOFF_MS * u64::from(self.within_hour(now));
                Due::At(TimeMs(last.max(trouble.since).0.saturating_add(wait_ms)))
            }
        }
    }

    /// Returns whether a restart by the policy began at this time, and no user has started the VM since.
    #[must_use]
    pub fn began(&self, at: TimeMs) -> bool {
        self.begun_at.last() == Some(&at)
    }

    /// Records that a restart begins.
    pub fn record(&mut self, now: TimeMs) {
        self.begun_at.retain(|at| is_recent(*at, now));
        self.begun_at.push(now);
    }

    /// Forgets what was done: a user has started the VM.
    pub fn reset(&mut self) {
        self.begun_at.clear();
        self.gave_up_at = None;
    }
}

fn is_recent(at: TimeMs, now: TimeMs) -> bool {
    now.0.saturating_sub(at.0) < HOUR_MS
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::id::ClaimId;

    fn policy(on_crash: Action, on_host_failure: Action) -> RestartPolicy {
        RestartPolicy {
            on_crash,
            on_host_failure,
            ..RestartPolicy::default()
        }
    }

    fn trouble(absence: Absence, since: u64) -> Trouble {
        Trouble {
            absence,
            claim: ClaimId(Uuid::nil()),
            since: TimeMs(since),
        }
    }

    /// Goal: which absence is followed by a restart. Method: every policy, every absence.
    #[test]
    fn every_absence_meets_every_policy() {
        for on_crash in Action::ALL {
            for on_host_failure in Action::ALL {
                let policy = policy(on_crash, on_host_failure);
                for absence in Absence::ALL {
                    let expected = match absence {
                        Absence::ShutDown => Action::Leave,
                        Absence::Stopped => on_crash,
                        Absence::Missing => match (on_crash, on_host_failure) {
                            (Action::Leave, Action::Leave) => Action::Leave,
                            _ => Action::Restart,
                        },
                    };
                    assert_eq!(
                        policy.on_absence(absence),
                        expected,
                        "{policy:?} {absence:?}"
                    );
                }
            }
        }
    }

    /// Goal: a guest that always crashes at once is started as often as permitted, later each time,
    /// and again when the hour is over. Method: each restart begins when it is due.
    #[test]
    fn restarts_are_counted_by_the_hour() {
        for per_hour_max in [1, 3, PER_HOUR_MAX] {
            let mut restarts = Restarts {
                policy: RestartPolicy {
                    per_hour_max,
                    ..policy(Action::Restart, Action::Leave)
                },
                ..Restarts::default()
            };
            let mut now = TimeMs(1_000_000);
            let first = now;
            for number in 0..per_hour_max {
                let due = restarts.due_after(&trouble(Absence::Stopped, now.0), now);
                let expected = TimeMs(now.0 + BACKOFF_MS * u64::from(number));
                assert_eq!(due, Due::At(expected));
                now = expected;
                restarts.record(now);
            }
            let at = |now| restarts.due_after(&trouble(Absence::Stopped, now), TimeMs(now));
            assert_eq!(at(now.0), Due::UsedUp);
            assert_eq!(at(first.0 + HOUR_MS - 1), Due::UsedUp);
            assert!(matches!(at(first.0 + HOUR_MS), Due::At(_)));
            assert_eq!(restarts.begun_at.len() as u32, per_hour_max);
            restarts.record(TimeMs(now.0 + 2 * HOUR_MS));
            assert_eq!(restarts.begun_at.len(), 1, "older ones are not kept");
        }
    }

    #[test]
    fn numbers_are_bounded() {
        let check = |priority, per_hour_max, expected: &[&str]| {
            let policy = RestartPolicy {
                priority,
                per_hour_max,
                ..RestartPolicy::default()
            };
            let faults = policy.faults();
            let fields: Vec<&str> = faults.iter().map(|fault| &*fault.field).collect();
            assert_eq!(fields, expected);
        };
        check(0, 1, &[]);
        check(PRIORITY_MAX, PER_HOUR_MAX, &[]);
        check(PRIORITY_MAX + 1, 1, &["priority"]);
        check(0, 0, &["per_hour_max"]);
        check(0, PER_HOUR_MAX + 1, &["per_hour_max"]);
    }
}
