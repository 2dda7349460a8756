//! What all services share: asking the replica for something, and reading its state.
//!
//! Everything here is cheap to clone and holds no lock across a wait.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use berth_domain::id::TimeMs;
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_replication::runtime::{Decision as Replicated, Handle, Proposed};
use berth_selection::Choice;
use berth_state::{Reply, State};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::refusal;
use crate::core::{Answer, Ask, Decision, Proposal};
use crate::feed::Feed;
use crate::liveness::Liveness;
use crate::machine::Machine;

/// What a context is made of.
pub(crate) struct Setup {
    pub(crate) handle: Handle<Machine>,
    pub(crate) feed: Feed,
    pub(crate) cluster_id: String,
    pub(crate) liveness_limit_ms: u64,
    pub(crate) request_timeout: Duration,
    /// Ends what would otherwise wait for long.
    pub(crate) stopping: CancellationToken,
}

struct Inner {
    setup: Setup,
    liveness: Mutex<Liveness>,
    started: Instant,
}

/// What all services share.
#[derive(Clone)]
pub(crate) struct Context {
    inner: Arc<Inner>,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) reply: Reply,
    /// How the host was chosen; absent where none was, and for a retry.
    pub(crate) choice: Option<Choice>,
}

impl Context {
    pub(crate) fn new(setup: Setup) -> Self {
        let liveness = Mutex::new(Liveness::new(setup.liveness_limit_ms));
        Self {
            inner: Arc::new(Inner {
                setup,
                liveness,
                started: Instant::now(),
            }),
        }
    }

    pub(crate) fn handle(&self) -> &Handle<Machine> {
        &self.inner.setup.handle
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.inner.setup.feed
    }

    pub(crate) fn cluster_id(&self) -> &str {
        &self.inner.setup.cluster_id
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.inner.setup.stopping
    }

    /// Returns how often an agent reports: three reports may be lost before it counts as down.
    pub(crate) fn report_interval_ms(&self) -> u64 {
        (self.inner.setup.liveness_limit_ms / 4).max(1)
    }

    pub(crate) fn liveness(&self) -> MutexGuard<'_, Liveness> {
        // What it guards is whole between any two statements.
        let guard = self.inner.liveness.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns this process's monotonic time.
    pub(crate) fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.inner.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Decides on a request and answers once what was decided is durable.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Done, Status> {
        // The decision is made in the replica's own task; what is not part of the command comes
        // back by this side door.
        let chosen = Arc::new(OnceLock::new());
        let chosen_in = chosen.clone();
        let decide = move |machine: &Machine| match machine.decide(now(), &ask) {
            Decision::Command(proposal) => {
                let Proposal { envelope, choice } = *proposal;
                if let Some(choice) = choice {
                    // This closure runs once.
                    let _ = chosen_in.set(choice);
                }
                Replicated::Command(envelope)
            }
            Decision::Answer(answer) => Replicated::Answer(Ok(answer)),
            Decision::Refuse(refusal) => Replicated::Answer(Err(refusal)),
        };
        let proposed = self
            .bounded(self.handle().propose_with(decide))
            .await?
            .map_err(refusal::of_propose)?;
        match proposed {
            Proposed::Committed(committed) => Ok(Done {
                reply: committed.outcome.map_err(|r| to_status(&r))?,
                choice: chosen.get().cloned(),
            }),
            Proposed::Answered(Ok(answer)) => {
                let Answer { reply, choice } = *answer;
                Ok(Done { reply, choice })
            }
            Proposed::Answered(Err(refusal)) => Err(to_status(&refusal)),
        }
    }

    /// Returns a frozen state, as fresh as was asked for.
    pub(crate) async fn state(&self, consistency: i32) -> Result<State, Status> {
        match ReadConsistency::try_from(consistency) {
            Ok(ReadConsistency::Unspecified | ReadConsistency::Linearizable) => self
                .bounded(self.handle().read(|machine| machine.state().clone()))
                .await?
                .map_err(refusal::of_read),
            Ok(ReadConsistency::Stale) => self.stale(|state| state.clone()).await,
            Err(_) => Err(refusal::invalid(
                "consistency",
                "must be one of the named values",
            )),
        }
    }

    /// Reads this member's state as it is. The closure runs in the replica's task.
    pub(crate) async fn stale<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Status> {
        self.handle()
            .read_stale(|machine| read(machine.state()))
            .await
            .map_err(refusal::of_read)
    }

    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        tokio::time::timeout(self.inner.setup.request_timeout, work)
            .await
            .map_err(|_| refusal::timed_out())
    }
}

/// Returns this machine's clock. Replicated time is the greater of it and what was before.
pub(crate) fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 is a clock that was never set; replicated time goes on by itself.
    let millis = since.map_or(0, |elapsed| elapsed.as_millis());
    TimeMs(u64::try_from(millis).unwrap_or(u64::MAX))
}
