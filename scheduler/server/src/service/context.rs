//! What all services share: asking the replica for something, and reading its state.
//!
//! Everything here is cheap to clone and holds no lock across a wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_replication::runtime::{
    Decision as Replicated, Handle, ProposeError, Proposed, Status as MemberState,
};
use berth_replication::transport::{Forwarder, Versions};
use berth_selection::Choice;
use berth_selection::candidates::Index;
use berth_state::command::Command;
use berth_state::{Reply, State};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::keyed::Caller;
use super::refusal;
use super::table::{Loan, Table, Turn};
use crate::core::upgrade::{self, MemberVersion};
use crate::core::{Answer, Ask, Clock, Decision, Proposal, Request, Unexplained, audited};
use crate::feed::Feed;
use crate::liveness::Liveness;
use crate::machine::Machine;
use crate::refusals::Refusals;

/// How many reasons are worked out at once.
const EXPLANATIONS_MAX: usize = 2;
/// How many plans of the planner's are made at the same time: each takes a processor for a while.
const PLANNERS_MAX: usize = 2;

/// What a context is made of.
pub(crate) struct Setup {
    pub(crate) handle: Handle<Machine>,
    pub(crate) feed: Feed,
    pub(crate) cluster_id: String,
    pub(crate) liveness_limit_ms: u64,
    pub(crate) request_timeout: Duration,
    /// The way to whoever leads.
    pub(crate) forwarder: Forwarder,
    /// How long a new leader is waited for.
    pub(crate) leader_wait: Duration,
    /// How many watches of events are served at once.
    pub(crate) watches_max: usize,
    /// Ends what would otherwise wait for long.
    pub(crate) stopping: CancellationToken,
    /// What this member can do.
    pub(crate) level: ServiceVersion,
    /// What the other members can do, as they said.
    pub(crate) versions: Versions,
}

/// How often, and how far apart, it is looked whether a new cluster has begun.
const BEGIN_LOOKS: u32 = 100;
const BEGIN_PAUSE: Duration = Duration::from_millis(10);

struct Inner {
    setup: Setup,
    liveness: Mutex<Liveness>,
    clock: Mutex<Clock>,
    table: Arc<Table>,
    explanations: Arc<Semaphore>,
    planners: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    refusals: Mutex<Refusals>,
    started: Instant,
    /// Whether the cluster was seen to have its version and its name, or was waited for.
    begun: AtomicBool,
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

/// Why a request has no outcome.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The replica does not say.
    Propose(ProposeError),
    /// It was not seen to be durable in time: it may or may not be carried out.
    TimedOut,
}

impl From<Unanswered> for Status {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Propose(error) => refusal::of_propose(error),
            Unanswered::TimedOut => refusal::timed_out(),
        }
    }
}

impl Context {
    pub(crate) fn new(setup: Setup) -> Self {
        let liveness = Mutex::new(Liveness::new(setup.liveness_limit_ms));
        let watches = Arc::new(Semaphore::new(setup.watches_max));
        Self {
            inner: Arc::new(Inner {
                setup,
                liveness,
                clock: Mutex::default(),
                table: Arc::default(),
                explanations: Arc::new(Semaphore::new(EXPLANATIONS_MAX)),
                planners: Arc::new(Semaphore::new(PLANNERS_MAX)),
                watches,
                refusals: Mutex::default(),
                started: Instant::now(),
                begun: AtomicBool::new(false),
            }),
        }
    }

    pub(crate) fn handle(&self) -> &Handle<Machine> {
        &self.inner.setup.handle
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.inner.setup.feed
    }

    /// Returns the right to be told events, if it is still to be had.
    pub(crate) fn watch_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.inner.watches.clone().try_acquire_owned().ok()
    }

    /// Returns the right to make a plan, if it is to be had now.
    pub(crate) fn planner_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.inner.planners.clone().try_acquire_owned().ok()
    }

    pub(crate) fn cluster_id(&self) -> &str {
        &self.inner.setup.cluster_id
    }

    /// Returns what this member can do.
    pub(crate) fn level(&self) -> ServiceVersion {
        self.inner.setup.level
    }

    /// Returns what a member said last that it can do; one that does not say is the oldest.
    pub(crate) fn version_of(&self, state: &MemberState, member: u64) -> Option<ServiceVersion> {
        if member == state.id {
            return Some(self.level());
        }
        let told = self.inner.setup.versions.of(member);
        told.map(ServiceVersion::told)
    }

    /// Returns what all members can do, as far as this one has heard of them lately.
    pub(crate) fn member_versions(&self, state: &MemberState) -> Vec<MemberVersion> {
        let active = |id: u64| {
            let progress = state.progress.iter().find(|p| p.id == id);
            id == state.id || progress.is_some_and(|p| p.active)
        };
        let members = state.membership.members.iter();
        let version = |id: u64| self.version_of(state, id).filter(|_| active(id));
        let members = members.map(|member| MemberVersion {
            id: member.id,
            version: version(member.id),
        });
        members.collect()
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.inner.setup.stopping
    }

    pub(crate) fn forwarder(&self) -> &Forwarder {
        &self.inner.setup.forwarder
    }

    pub(crate) fn leader_wait(&self) -> Duration {
        self.inner.setup.leader_wait
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.inner.setup.request_timeout
    }

    /// Returns how often an agent reports: three reports may be lost before it counts as down.
    pub(crate) fn report_interval_ms(&self) -> u64 {
        (self.inner.setup.liveness_limit_ms / 4).max(1)
    }

    /// Returns after how long without a report an agent counts as down.
    pub(crate) fn liveness_limit_ms(&self) -> u64 {
        self.inner.setup.liveness_limit_ms
    }

    pub(crate) fn liveness(&self) -> MutexGuard<'_, Liveness> {
        // What it guards is whole between any two statements.
        let guard = self.inner.liveness.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn refusals(&self) -> MutexGuard<'_, Refusals> {
        // As above.
        let guard = self.inner.refusals.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a refusal that is in no log, if anybody asked for what was refused.
    fn note_refusal(&self, ask: &Ask, refusal: &Refusal) {
        if ask.validate_only {
            return;
        }
        if let Some(asked) = audited::asked(ask, None) {
            let mut refusals = self.refusals();
            refusals.note(wall(), &ask.principal, asked, refusal.clone());
        }
    }

    /// Returns this process's monotonic time.
    pub(crate) fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.inner.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        // As above.
        let guard = self.inner.clock.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of replicated time as this member has it, and of who else leads.
    pub(crate) fn observe_time(&self, time: TimeMs, leader: Option<u64>) {
        self.clock().observe(time, leader, self.monotonic_ms());
    }

    /// Returns what replicated time would be if something were asked now. It stands still while
    /// nothing is.
    pub(crate) fn time_by_now(&self, state: &State) -> TimeMs {
        self.clock().now(state.time(), self.monotonic_ms(), wall())
    }

    /// Decides on a request and answers once what was decided is durable.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Done, Status> {
        let (done, ()) = self.ask_then(ask, |_, _| ()).await?;
        Ok(done)
    }

    /// Like [`ask`](Self::ask), and reads of the state what belongs to the answer. The closure
    /// runs in the replica's task.
    pub(crate) async fn ask_then<T: Default + Send + 'static>(
        &self,
        ask: Ask,
        then: impl FnOnce(&State, &Reply) -> T + Send + 'static,
    ) -> Result<(Done, T), Status> {
        let (done, read) = self.propose(Arc::new(ask), then).await?;
        Ok((done.map_err(|refusal| to_status(&refusal))?, read))
    }

    /// Decides on a request if this member leads, and returns what came of it once that is
    /// durable. The closure runs in the replica's task.
    pub(super) async fn propose<T: Default + Send + 'static>(
        &self,
        ask: Arc<Ask>,
        then: impl FnOnce(&State, &Reply) -> T + Send + 'static,
    ) -> Result<(Result<Done, Refusal>, T), Unanswered> {
        if !ask.is_duty() {
            self.begun().await;
        }
        // The decision is made in the replica's own task; what is not part of the command comes
        // back by this side door.
        let chosen = Arc::new(OnceLock::new());
        let chosen_in = chosen.clone();
        let refused = ask.clone();
        let context = self.clone();
        let decide = move |machine: &Machine| match machine.decide(context.stamp(machine), &ask) {
            Decision::Command(proposal) => {
                let Proposal { envelope, choice } = *proposal;
                if let Some(choice) = choice {
                    // This closure runs once.
                    let _ = chosen_in.set(choice);
                }
                Replicated::Command(envelope)
            }
            Decision::Answer(answer) => Replicated::Answer(Ok(answer)),
            Decision::Refuse(refusal) => Replicated::Answer(Err(No::Refusal(refusal))),
            Decision::Explain(unexplained) => Replicated::Answer(Err(No::Unexplained(unexplained))),
        };
        let read = |machine: &Machine, proposed: &Proposed<_, Answered>| match reply_of(proposed) {
            Some(reply) => then(machine.state(), reply),
            None => T::default(),
        };
        let proposed = self.handle().propose_then(decide, read);
        let proposed = tokio::time::timeout(self.request_timeout(), proposed).await;
        let (proposed, read) = proposed
            .map_err(|_| Unanswered::TimedOut)?
            .map_err(Unanswered::Propose)?;
        let done = match proposed {
            Proposed::Committed(committed) => committed.outcome.map(|reply| Done {
                reply,
                choice: chosen.get().cloned(),
            }),
            Proposed::Answered(Ok(answer)) => {
                let Answer { reply, choice } = *answer;
                Ok(Done { reply, choice })
            }
            Proposed::Answered(Err(no)) => {
                let refusal = match no {
                    No::Refusal(refusal) => *refusal,
                    No::Unexplained(unexplained) => self.explain(*unexplained).await?,
                };
                let refusal = match refusal.reason == CLUSTER_TOO_OLD {
                    true => self.name_who_is_behind(refusal).await,
                    false => refusal,
                };
                self.note_refusal(&refused, &refusal);
                Err(refusal)
            }
        };
        Ok((done, read))
    }

    /// Says in a refusal whom the cluster version waits for.
    async fn name_who_is_behind(&self, refusal: Refusal) -> Refusal {
        let (Some(status), Ok(state)) =
            (self.handle().status().await, self.stale(State::clone).await)
        else {
            return refusal;
        };
        upgrade::name_who_is_behind(refusal, &state, &self.member_versions(&status))
    }

    /// Works out a reason, away from the replica's task: a few at a time, so that many who are
    /// refused do not keep others from being answered.
    async fn explain(&self, unexplained: Unexplained) -> Result<Refusal, Unanswered> {
        let turn = self.inner.explanations.clone().acquire_owned();
        let turn = tokio::time::timeout(self.request_timeout(), turn).await;
        let turn = turn.map_err(|_| Unanswered::TimedOut)?;
        let explained = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            unexplained.explain()
        });
        match explained.await {
            Ok(refusal) => Ok(refusal),
            Err(end) if end.is_panic() => std::panic::resume_unwind(end.into_panic()),
            // The member is stopping.
            Err(_) => Err(Unanswered::TimedOut),
        }
    }

    /// Waits, once and for a second at most, until the first leader of a new cluster has given it
    /// its version and its name: what comes before would be carried out as in an old cluster.
    async fn begun(&self) {
        let inner = &self.inner;
        if inner.begun.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..BEGIN_LOOKS {
            let known = self.handle().leader();
            if known.role.leader.is_some_and(|leader| leader != known.id) {
                return;
            }
            // One that does not decide yet may do so before it has looked at its duties.
            let named = self.stale(|state| state.cluster().is_some()).await;
            if matches!(named, Ok(true)) {
                break;
            }
            tokio::time::sleep(BEGIN_PAUSE).await;
        }
        inner.begun.store(true, Ordering::Relaxed);
    }

    /// As [`Self::ask`], for a command that leaves nothing to be decided.
    pub(crate) async fn command(&self, caller: Caller, command: Command) -> Result<Reply, Status> {
        let ask = caller.ask(false, Request::Plain(command));
        Ok(self.ask(ask).await?.reply)
    }

    fn stamp(&self, machine: &Machine) -> TimeMs {
        let time = machine.state().time();
        self.clock().stamp(time, self.monotonic_ms(), wall())
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

    /// Returns once a majority has confirmed that this member leads.
    pub(crate) async fn confirm(&self) -> Result<(), Status> {
        self.bounded(self.handle().read(|_| ()))
            .await?
            .map_err(refusal::of_read)
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

    /// Searches among the providers of this state or a newer one, away from the replica's task.
    ///
    /// # Errors
    ///
    /// When the search panicked.
    pub(crate) async fn search<T: Send + 'static>(
        &self,
        state: State,
        work: impl FnOnce(&State, &Index) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.inner.table.clone().search(state, work).await
    }

    /// Returns the right to keep the searchable table while a reader catches up, once there is one.
    pub(super) async fn loan(&self) -> Loan {
        self.inner.table.loan().await
    }

    /// As [`Self::search`], for work that may wait for whoever reads what it finds.
    ///
    /// # Errors
    ///
    /// When the search panicked.
    pub(super) async fn search_for_reader<T: Send + 'static>(
        &self,
        state: State,
        loan: Option<Loan>,
        work: impl FnOnce(&State, &Index, &mut Turn<'_>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let table = self.inner.table.clone();
        table.search_for_reader(state, loan, work).await
    }

    async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
        tokio::time::timeout(self.inner.setup.request_timeout, work)
            .await
            .map_err(|_| refusal::timed_out())
    }
}

/// What a decision without a command answers.
type Answered = Result<Box<Answer>, No>;

/// A "no", with its reason or without.
enum No {
    Refusal(Box<Refusal>),
    Unexplained(Box<Unexplained>),
}

/// Returns what is replied, unless it is a refusal.
fn reply_of(proposed: &Proposed<Result<Reply, Refusal>, Answered>) -> Option<&Reply> {
    match proposed {
        Proposed::Committed(committed) => committed.outcome.as_ref().ok(),
        Proposed::Answered(Ok(answer)) => Some(&answer.reply),
        Proposed::Answered(Err(_)) => None,
    }
}

/// Returns this machine's wall clock; what is made of it is in [`crate::core::clock`].
pub(crate) fn wall() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 is a clock that was never set; replicated time goes on by itself.
    let millis = since.map_or(0, |elapsed| elapsed.as_millis());
    TimeMs(u64::try_from(millis).unwrap_or(u64::MAX))
}
