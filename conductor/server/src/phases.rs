//! Where the time of a live migration goes: before the hypervisor's transfer, in it, after it.
//!
//! ```text
//!   request ──prepare──▶ the source's agent has begun the transfer
//!                      ──transfer──▶ the hypervisor is done
//!                                    ──settle──▶ the VM is ACTIVE on the destination, recorded
//! ```
//!
//! Measured on this conductor's clock alone; the agent reports how long ago the transfer's end
//! was. One line of the log per migration, under the target `berth::phases`.
//!
//! Not a record: moments that were not observed, as before a takeover, are left out of the line.

use std::time::{Duration, Instant};

use berth_domain::operation::{Kind, Operation, Outcome, Step};

/// An agent's report of a transfer that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferEnd {
    /// How long ago that was.
    pub(crate) ended_for: Duration,
    /// How long the hypervisor took.
    pub(crate) took: Duration,
}

/// The moments of one operation that were observed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phases {
    requested_at: Option<Instant>,
    begun: Option<Instant>,
    ended: Option<Instant>,
    took: Option<Duration>,
}

impl Phases {
    /// An operation that was requested at this moment, if it was requested here.
    pub(crate) fn new(requested_at: Option<Instant>) -> Self {
        Self {
            requested_at,
            ..Self::default()
        }
    }

    /// An agent has answered a step.
    pub(crate) fn answered(&mut self, step: Step, now: Instant) {
        if step == Step::LiveMigration {
            self.begun.get_or_insert(now);
        }
    }

    /// An agent has reported the end of the transfer.
    pub(crate) fn ended(&mut self, end: TransferEnd, now: Instant) {
        self.ended = now.checked_sub(end.ended_for);
        self.took = Some(end.took);
    }

    /// Logs the phases of a migration that has succeeded.
    pub(crate) fn log(&self, operation: &Operation, now: Instant) {
        let arrived = operation.outcome == Some(Outcome::Succeeded);
        if !arrived || !matches!(operation.kind, Kind::LiveMigrate { .. }) {
            return;
        }
        let [prepare_us, transfer_us, settle_us] = self.micros(now);
        tracing::info!(
            target: "berth::phases",
            operation = %operation.id, vm = operation.subject_name(), prepare_us, transfer_us, settle_us,
            "migrated"
        );
    }

    fn micros(&self, now: Instant) -> [Option<u64>; 3] {
        let since =
            |from: Option<Instant>, to: Option<Instant>| Some(to?.saturating_duration_since(from?));
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        [
            since(self.requested_at, self.begun),
            self.took,
            since(self.ended, Some(now)),
        ]
        .map(|time| time.map(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other_and_leave_out_what_was_not_seen() {
        let requested_at = Instant::now();
        let at = |ms: u64| requested_at + Duration::from_millis(ms);
        let mut phases = Phases::new(Some(requested_at));
        phases.answered(Step::PreLiveMigration, at(3));
        assert_eq!(phases.micros(at(4)), [None; 3]);
        phases.answered(Step::LiveMigration, at(5));
        phases.answered(Step::LiveMigration, at(9));
        let end = TransferEnd {
            ended_for: Duration::from_millis(1),
            took: Duration::from_millis(200),
        };
        phases.ended(end, at(207));
        let expected = [Some(5_000), Some(200_000), Some(4_000)];
        assert_eq!(phases.micros(at(210)), expected);

        let mut taken_over = Phases::new(None);
        taken_over.ended(end, at(207));
        let expected = [None, Some(200_000), Some(4_000)];
        assert_eq!(taken_over.micros(at(210)), expected);
    }
}
