//! The leader's part in a recovery: it ends when every host has reported and nothing conflicts.

use std::sync::{Arc, Mutex, PoisonError};

use berth_decide::{Action, DecisionRequest};
use berth_replication::runtime::in_background;
use berth_state::State;
use berth_state::command::Command;
use berth_state::recovery::{Progress, RecoveryOutcome, Settled};

use crate::service::Context;

/// How many VMs are logged that are settled otherwise than they were recorded.
const LOGGED_MAX: usize = 1_000;

/// What a recovery would lead to, computed once for each revision: in a large cluster that takes seconds, and
/// everyone who waits for the end looks at it.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<Option<(u64, Option<Arc<RecoveryOutcome>>)>>);

impl Outcomes {
    /// Returns the outcome, if every host has reported. It may take long: for threads that may block.
    pub(crate) fn of(&self, state: &State) -> Option<Arc<RecoveryOutcome>> {
        // What it guards is replaced as a whole.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = state.revision();
        match &*known {
            Some((of, outcome)) if *of == revision => outcome.clone(),
            Some(_) | None => {
                let outcome = state.recovery_outcome().map(Arc::new);
                *known = Some((revision, outcome.clone()));
                outcome
            }
        }
    }
}

/// What the leader has seen of a recovery.
#[derive(Default)]
pub(crate) struct Ending {
    /// The revision at which it is known that the recovery cannot end.
    examined: u64,
    /// What was logged last.
    logged: Option<(usize, usize)>,
}

impl Ending {
    /// Ends a recovery if nothing is missing.
    pub(crate) async fn attempt(&mut self, context: &Context) {
        let examined = self.examined;
        let state = context.stale(move |state| {
            let changed = state.is_recovering() && state.revision() != examined;
            changed.then(|| state.clone())
        });
        let Ok(Some(state)) = state.await else {
            return;
        };
        let revision = state.revision();
        let outcomes = context.recovery_outcomes().clone();
        let look = move || {
            let awaited = awaited(&state);
            (awaited, outcomes.of(&state))
        };
        let looked = tokio::task::spawn_blocking(|| in_background(look));
        let Ok((awaited, outcome)) = looked.await else {
            return;
        };
        let conflicts = outcome.as_ref().map_or(0, |o| o.conflicts.len());
        if self.logged.replace((awaited, conflicts)) != Some((awaited, conflicts)) {
            tracing::warn!(
                hosts_awaited = awaited,
                conflicts,
                "the cluster recovers: nothing is started, moved or deleted until hosts are compared"
            );
        }
        match outcome.filter(|outcome| outcome.conflicts.is_empty()) {
            // Where that fails, as leadership was lost, it is attempted again although nothing has changed.
            Some(outcome) => end(context, &outcome).await,
            None => self.examined = revision,
        }
    }
}

/// Returns how many hosts have not reported.
fn awaited(state: &State) -> usize {
    let progress = state.recovery_progress();
    let awaited = progress.values();
    awaited
        .filter(|p| matches!(p, Progress::Awaited | Progress::Quiet))
        .count()
}

async fn end(context: &Context, outcome: &RecoveryOutcome) {
    let accept_conflicts = false;
    let command = Command::EndRecovery { accept_conflicts };
    let request = DecisionRequest::new(DecisionRequest::LEADER, Action::Plain(command));
    if let Err(status) = context.submit(request).await {
        tracing::info!(error = %status.message(), "recovery cannot end yet");
        return;
    }
    for settled in outcome.settled.iter().take(LOGGED_MAX) {
        match settled {
            Settled::Runs { vm, host } => {
                tracing::warn!(%vm, %host, "vm recovered: its guest runs elsewhere than recorded");
            }
            Settled::Added { vm, host } => {
                tracing::warn!(%vm, %host, "vm recovered: its guest was not recorded");
            }
            Settled::Off { vm } => {
                tracing::warn!(%vm, "vm recovered: no host runs its guest");
            }
            Settled::Failed { vm, refusal } => {
                tracing::warn!(%vm, reason = refusal.message, "vm recovered in ERROR");
            }
            Settled::Replaced(replaced) => {
                let (vm, reason) = (&replaced.vm, replaced.describe());
                tracing::warn!(%vm, reason, "vm removed by the recovery");
            }
        }
    }
    let vms = outcome.settled.len();
    tracing::info!(vms, "recovery ended");
}

#[cfg(test)]
mod tests {
    use berth_domain::version::ServiceVersion;
    use berth_testkit::state::World;
    use berth_testkit::state::scale::{self, Size};

    use super::*;

    /// Returns a world of one host that has reported, of a cluster that recovers.
    fn reported() -> World {
        let before = scale::state(Size {
            hosts: 1,
            vms_per_host: 2,
            seed: 1,
            version: ServiceVersion::CURRENT,
        });
        let host = scale::host(0);
        let mut world = World::of(before.clone()).recovered();
        let report = world.view(host.as_str()).host.report.clone();
        world.register(host.as_str(), report).unwrap();
        let guests: Vec<_> = scale::guests(&before, &host).collect();
        for _ in 0..2 {
            world.report_guests(host.as_str(), &guests).unwrap();
        }
        world
    }

    #[test]
    fn the_outcome_is_computed_once_for_each_revision() {
        let mut world = reported();
        let outcomes = Outcomes::default();
        let first = outcomes.of(&world.state).expect("the host has reported");
        let again = outcomes.of(&world.state).unwrap();
        assert!(Arc::ptr_eq(&first, &again), "it is computed again");
        let host = scale::host(0);
        let cordoned = true;
        world
            .run(Command::SetCordon { host, cordoned })
            .expect("it is cordoned");
        let later = outcomes.of(&world.state).unwrap();
        assert!(!Arc::ptr_eq(&first, &later), "it is of another state");
    }
}
