//! The metrics and the health of a conductor.
//!
//! ```text
//!   operations, their steps ──counted where they are driven──▶ scrape
//!
//!   livez    the supervisor has not ended
//!   readyz   it is registered, and a scheduler answers
//! ```
//!
//! Not here: the listener and the text (`berth_process::metrics`).
//!
//! Invariant: operations are counted by kind, steps by title: closed sets, without a name of a VM.

mod kinds;

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::operation::{Kind, Operation, Outcome, Step};
use berth_process::BoxFuture;
use berth_process::access::table;
use berth_process::bounds::Bounds as Held;
use berth_process::metrics::{
    Bounds, Check, Count, Definition, Durations, DurationsBy, Exposition, GrpcRequests, Observed,
    Pairs, grpc,
};
use berth_saga::Ended;
use tokio_util::sync::CancellationToken;

use crate::scheduler::Scheduler;
use crate::supervisor::Handle;
use kinds::OperationKind;

static DRIVEN: Definition = Definition::gauge(
    "berth_conductor_operations_running",
    &[],
    "Operations that this conductor carries out now.",
);
static ENDED: Definition = Definition::counter(
    "berth_conductor_operations_total",
    &["kind", "result"],
    "Operations that this conductor carried out, by how they ended here.",
);
static DURATION: Definition = Definition::histogram(
    "berth_conductor_operation_duration_seconds",
    &["kind"],
    "Time that this conductor carried out an operation.",
);
static STEPS: Definition = Definition::counter(
    "berth_conductor_steps_total",
    &["step", "result"],
    "Calls to agents for a step of an operation, by how they were answered.",
);
static STEP_DURATION: Definition = Definition::histogram(
    "berth_conductor_step_duration_seconds",
    &["step"],
    "Time of a call to an agent for a step of an operation.",
);
static TRANSFER: Definition = Definition::histogram(
    "berth_conductor_transfer_duration_seconds",
    &[],
    "Time of the hypervisors' transfer of a live migration, as the source's agent reported it.",
);
static REGISTERED: Definition = Definition::gauge(
    "berth_conductor_registered",
    &[],
    "Whether this conductor is registered with the scheduler, as it was heard last.",
);

/// How long a scheduler may take to answer a probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1_500);

berth_process::label! {
    /// How an operation ended at this conductor.
    pub(crate) enum End {
        Succeeded = "succeeded",
        Failed = "failed",
        /// Another conductor has it now.
        LeaseLost = "lease_lost",
        /// It is carried on elsewhere or later.
        Stopped = "stopped",
    }
}

berth_process::label! {
    /// How an agent answered.
    pub(crate) enum Answer { Ok = "ok", Refused = "refused", Unreachable = "unreachable" }
}

/// What is counted of one step.
#[derive(Debug)]
struct StepCounts {
    step: Step,
    answers: [Count; 3],
    took: Durations,
}

/// What is counted while a conductor works.
#[derive(Debug)]
pub(crate) struct Metrics {
    ended: Pairs<OperationKind, End>,
    took: DurationsBy<OperationKind>,
    steps: Vec<StepCounts>,
    transfers: Durations,
    registered: Count,
    pub(crate) grpc: Arc<GrpcRequests>,
}

impl Metrics {
    /// Returns those of a conductor that serves these services.
    pub(crate) fn new(services: &'static [&'static str]) -> Arc<Self> {
        let counts = |step| StepCounts {
            step,
            answers: Default::default(),
            took: Durations::new(Bounds::LONG),
        };
        Arc::new(Self {
            ended: Pairs::default(),
            took: DurationsBy::new(Bounds::LONG),
            steps: Step::ALL.into_iter().map(counts).collect(),
            transfers: Durations::new(Bounds::LONG),
            registered: Count::default(),
            grpc: GrpcRequests::new(table::methods_of(services)),
        })
    }

    /// Begins to measure an operation.
    pub(crate) fn begin(self: &Arc<Self>, kind: &Kind) -> Timer {
        Timer {
            metrics: self.clone(),
            kind: kind.into(),
            begun: Instant::now(),
            end: End::Stopped,
        }
    }

    /// Counts an agent's answer to a step.
    pub(crate) fn answered(&self, step: Step, answer: Answer, took: Duration) {
        if let Some(counts) = self.steps.iter().find(|counts| counts.step == step) {
            counts.answers[answer as usize].increment();
            counts.took.observe(took);
        }
    }

    /// Counts the transfer of a live migration.
    pub(crate) fn transferred(&self, took: Duration) {
        self.transfers.observe(took);
    }

    /// Records whether it is registered.
    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.set(registered.into());
    }

    fn expose_steps(&self, out: &mut Exposition) {
        use berth_process::metrics::Label as _;
        out.declare(&STEPS);
        out.declare(&STEP_DURATION);
        for counts in &self.steps {
            for (answer, count) in Answer::ALL.iter().zip(&counts.answers) {
                if count.get() > 0 {
                    let labels = [counts.step.title(), answer.as_str()];
                    out.add(&STEPS, labels, count.get());
                }
            }
        }
        for counts in &self.steps {
            let took = counts.took.read();
            if took.count() > 0 {
                out.add(&STEP_DURATION, [counts.step.title()], took);
            }
        }
    }
}

/// Counts an operation when it is dropped.
pub(crate) struct Timer {
    metrics: Arc<Metrics>,
    kind: OperationKind,
    begun: Instant,
    end: End,
}

impl Timer {
    /// Records how the operation ended.
    pub(crate) fn end(mut self, ended: Ended, operation: &Operation) {
        self.end = match (ended, &operation.outcome) {
            (Ended::LeaseLost, _) => End::LeaseLost,
            (Ended::Finished, Some(Outcome::Succeeded)) => End::Succeeded,
            (Ended::Finished, Some(Outcome::Failed(_)) | None) => End::Failed,
        };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.metrics.ended.of(self.kind, self.end).increment();
        self.metrics
            .took
            .of(self.kind)
            .observe(self.begun.elapsed());
    }
}

/// A conductor as those who watch it see it.
pub(crate) struct Watched {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) held: Arc<Held>,
    pub(crate) supervisor: Handle,
    pub(crate) scheduler: Scheduler,
    pub(crate) stopping: CancellationToken,
}

impl Observed for Watched {
    fn expose<'a>(&'a self, out: &'a mut Exposition) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let metrics = &self.metrics;
            out.set(&REGISTERED, metrics.registered.get());
            out.set(&DRIVEN, self.supervisor.count());
            metrics.ended.expose_nonzero(&ENDED, out);
            metrics.took.expose_nonempty(&DURATION, out);
            metrics.expose_steps(out);
            out.set(&TRANSFER, metrics.transfers.read());
            metrics.grpc.expose(out);
            grpc::expose_held(&self.held, out);
        })
    }

    fn live(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async move {
            let works = self.supervisor.is_running();
            vec![Check::holds(
                "supervisor",
                works,
                "the supervisor has ended",
            )]
        })
    }

    fn ready(&self) -> BoxFuture<'_, Vec<Check>> {
        Box::pin(async move {
            let stopping = self.stopping.is_cancelled();
            let registered = self.metrics.registered.get() == 1;
            let reached = tokio::time::timeout(PROBE_TIMEOUT, self.scheduler.reach_leader()).await;
            let reached = match reached {
                Ok(Ok(())) => Ok(()),
                Ok(Err(refusal)) => Err(refusal.message),
                Err(_) => Err("no scheduler answers".to_owned()),
            };
            let reason = "this conductor is not registered yet";
            vec![
                Check::holds("running", !stopping, "it is stopping"),
                Check::holds("registered", registered, reason),
                Check::new("scheduler", reached),
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_is_dropped_was_stopped() {
        let metrics = Metrics::new(&[]);
        drop(metrics.begin(&Kind::Boot));
        metrics.answered(Step::Spawn, Answer::Unreachable, Duration::from_secs(1));
        let mut out = Exposition::default();
        metrics.ended.expose_nonzero(&ENDED, &mut out);
        metrics.expose_steps(&mut out);
        let text = out.to_open_metrics();
        for line in [
            "berth_conductor_operations_total{kind=\"boot\",result=\"stopped\"} 1\n",
            "berth_conductor_steps_total{step=\"spawn\",result=\"unreachable\"} 1\n",
            "berth_conductor_step_duration_seconds_count{step=\"spawn\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
