//! Whether the failure of each host would be survived (N+1), for metrics and the page.
//!
//! Not here: the plans, which `VerifyCluster` returns.
//!
//! The leader verifies one host after the other in a thread of its own, which pauses nine times as long
//! after each, and ten times as long as all of it at the end. So the verdicts cost a tenth of a processor
//! while they are made and one percent on the whole, and those of a large cluster are minutes old.
//!
//! Invariant: only the leader has verdicts, and it has none of a state that another one led.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use berth_decide::verify::{Survey, survey};
use berth_process::metrics::{Definition, Exposition};
use berth_replication::runtime::in_background;
use berth_selection::failover::Budget;
use tokio::task::spawn_blocking;

use crate::service::Context;

static HOSTS: Definition = Definition::gauge(
    "berth_failover_hosts",
    &["verdict"],
    "Hosts by whether their guests could all be started elsewhere if they failed; known to the leader alone.",
);
static AGE: Definition = Definition::gauge(
    "berth_failover_age_seconds",
    &[],
    "Time since the failure of hosts was verified; known to the leader alone.",
);

/// The shortest pause between two surveys, and by how many times their duration they are apart.
const INTERVAL: Duration = Duration::from_secs(5);
const REST_FACTOR: u32 = 10;
/// By how many times its duration the thread pauses after each host, and how long at most.
const PAUSE_FACTOR: u32 = 9;
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The verdicts, and when their state was frozen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failover(Arc<Mutex<Option<(Instant, Survey)>>>);

impl Failover {
    /// Verifies until `context` stops.
    pub(crate) async fn run(self, context: Context) {
        let stopping = context.stopping().clone();
        let surveying = async {
            loop {
                let begun = Instant::now();
                let leads = || context.handle().leader().role.deciding;
                let surveyed = match leads() {
                    true => self.survey(&context).await,
                    false => None,
                };
                // A survey takes minutes, in which another member may have come to lead.
                let surveyed = surveyed.filter(|_| leads());
                self.set(surveyed.map(|survey| (begun, survey)));
                let rest = INTERVAL.max(begun.elapsed() * REST_FACTOR);
                let led = context.handle().leader().role;
                let mut leader = context.handle().watch_leader();
                tokio::select! {
                    () = tokio::time::sleep(rest) => {}
                    changed = leader.wait_for(|leader| leader.role != led) => {
                        if changed.is_err() {
                            return;
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = surveying => {}
        }
    }

    async fn survey(&self, context: &Context) -> Option<Survey> {
        let state = context.stale(Clone::clone).await.ok()?;
        let stopping = context.stopping().clone();
        let mut worked = Instant::now();
        let mut pause = move || {
            std::thread::sleep(PAUSE_MAX.min(worked.elapsed() * PAUSE_FACTOR));
            worked = Instant::now();
            stopping.is_cancelled()
        };
        let surveyed =
            spawn_blocking(move || in_background(|| survey(&state, Budget::default(), &mut pause)));
        // A panic is in the log.
        match surveyed.await.ok()? {
            Ok(survey) => survey,
            Err(refusal) => {
                tracing::debug!(%refusal, "failover of hosts cannot be verified");
                None
            }
        }
    }

    fn set(&self, survey: Option<(Instant, Survey)>) {
        // It is replaced as a whole.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = survey;
    }

    /// Returns the verdicts with their age; only the leader has any.
    pub(crate) fn get(&self) -> Option<(Duration, Survey)> {
        let taken = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.map(|(at, survey)| (at.elapsed(), survey))
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        out.declare(&HOSTS);
        out.declare(&AGE);
        let Some((age, survey)) = self.get() else {
            return;
        };
        let Survey {
            proven,
            refuted,
            unknown,
        } = survey;
        out.add(&HOSTS, ["survived"], proven);
        out.add(&HOSTS, ["not_survived"], refuted);
        out.add(&HOSTS, ["unknown"], unknown);
        out.set(&AGE, age);
    }
}
