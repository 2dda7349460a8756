//! What all services share: submitting requests to the replica, and reading its state.
//!
//! Everything here is cheap to clone and holds no lock across a wait.
//!
//! The futures that handlers await are boxed: the compiler proves for each handler that its
//! future is `Send`, and without the box it repeats that proof for the replica's handle, the
//! state and the transport in every one of 170 handlers. That was a third of this crate's build.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use berth_decide::upgrade::{self, MemberVersion};
use berth_decide::{
    Action, Answer, Clock, Decision, DecisionRequest, Proposal, Unexplained, audited,
};
use berth_domain::id::TimeMs;
use berth_domain::name::ServiceName;
use berth_domain::operation::Operation;
use berth_domain::refusal::Refusal;
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};
use berth_process::{BoxFuture, recent};
use berth_proto::client::Dialer;
use berth_proto::consistency::Staleness;
use berth_proto::operation::v1::{GrantTerms, SignedGrant};
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_replication::Retained;
use berth_replication::runtime::{
    Archive, Decision as Replicated, Handle, ProposeError, Proposed, Status as MemberState,
};
use berth_replication::transport::{Addresses, Forwarder, Versions};
use berth_selection::Choice;
use berth_selection::candidates::Index;
use berth_state::command::Command;
use berth_state::{Reply, State};
use berth_tls::{Identity, Role};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::backup::BACKUPS_MAX;
use super::command_span::{CommandSpan, Moments};
use super::keyed::Caller;
use super::refusal::{self, Urls};
use super::stale;
use super::table::{Loan, Table, Turn};
use crate::backup::status::{BackupStatus, SharedStatus};
use crate::contact::Contacts;
use crate::feed::Feed;
use crate::freshness::Freshness;
use crate::grants;
use crate::liveness::Liveness;
use crate::machine::Machine;
use crate::metrics::{End, Metrics};
use crate::page::PageAccess;
use crate::recovery::Outcomes;
use crate::refusals::Refusals;

/// Maximum number of refusals explained at the same time.
const EXPLANATIONS_MAX: usize = 2;
/// Maximum number of plans computed at the same time: each takes a processor for a while.
const PLANNERS_MAX: usize = 2;
/// How many filters are evaluated at a time: each may read the whole of a list.
const FILTERS_MAX: usize = 2;

/// The parts of a context.
pub(crate) struct Setup {
    pub(crate) handle: Handle<Machine>,
    /// Makes earlier states of this member.
    pub(crate) archive: Archive<Machine>,
    pub(crate) feed: Feed,
    pub(crate) cluster_id: String,
    pub(crate) liveness_limit_ms: u64,
    pub(crate) request_timeout: Duration,
    /// Forwards commands to the leader.
    pub(crate) forwarder: Forwarder,
    /// How long to wait for a new leader.
    pub(crate) leader_wait: Duration,
    /// Cancelled when the process stops.
    pub(crate) stopping: CancellationToken,
    /// This member's service version.
    pub(crate) level: ServiceVersion,
    /// The service versions that the other members reported.
    pub(crate) versions: Versions,
    /// How addresses of members are written for clients.
    pub(crate) urls: Urls,
    /// Where other members are reached.
    pub(crate) addresses: Addresses,
    /// When members were heard last.
    pub(crate) contacts: Contacts,
    /// What dials other members.
    pub(crate) dialer: Dialer,
    /// How browsers get to the page, if it is served.
    pub(crate) page: Option<PageAccess>,
    /// How scheduled backups went; absent if none are scheduled.
    pub(crate) scheduled_backups: Option<SharedStatus>,
    /// The configuration in force, for support; no value of it is a secret.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// What is counted.
    pub(crate) metrics: Arc<Metrics>,
}

/// How often, and how far apart, a new cluster is polled for its bootstrap.
const BOOTSTRAP_POLLS: u32 = 100;
const BOOTSTRAP_POLL_INTERVAL: Duration = Duration::from_millis(10);

struct Inner {
    setup: Setup,
    liveness: Mutex<Liveness>,
    clock: Mutex<Clock>,
    table: Arc<Table>,
    explanations: Arc<Semaphore>,
    planners: Arc<Semaphore>,
    filters: Arc<Semaphore>,
    backups: Arc<Semaphore>,
    histories: Arc<Semaphore>,
    refusals: Mutex<Refusals>,
    recovery_outcomes: Arc<Outcomes>,
    started: Instant,
    /// How old this member's own state may be.
    freshness: Freshness,
    /// Whether the cluster is known to be bootstrapped, or was waited for.
    bootstrapped: AtomicBool,
}

/// What all services share.
#[derive(Clone)]
pub(crate) struct Context {
    /// `Box<Inner>` behind its `Deref`: what is `Send` and `Sync` by declaration need not be proved
    /// field by field in every handler.
    inner: Arc<dyn Deref<Target = Inner> + Send + Sync>,
}

/// The outcome of a completed request.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) reply: Reply,
    /// The choice of the host; absent if none was chosen, and for a retry.
    pub(crate) choice: Option<Choice>,
}

/// Why the outcome of a request is unknown.
#[derive(Debug)]
pub(crate) enum NoOutcome {
    /// The replica failed to propose it.
    Propose(ProposeError),
    /// It was not durable in time: it may or may not be applied.
    TimedOut,
}

impl NoOutcome {
    /// Returns what a client gets.
    pub(crate) fn into_status(self, urls: Urls) -> Status {
        match self {
            Self::Propose(error) => urls.of_propose(error),
            Self::TimedOut => refusal::timed_out(),
        }
    }
}

impl Context {
    pub(crate) fn new(setup: Setup) -> Self {
        let liveness = Mutex::new(Liveness::new(setup.liveness_limit_ms));
        Self {
            inner: Arc::new(Box::new(Inner {
                setup,
                liveness,
                clock: Mutex::default(),
                table: Arc::default(),
                explanations: Arc::new(Semaphore::new(EXPLANATIONS_MAX)),
                planners: Arc::new(Semaphore::new(PLANNERS_MAX)),
                filters: Arc::new(Semaphore::new(FILTERS_MAX)),
                backups: Arc::new(Semaphore::new(BACKUPS_MAX)),
                histories: Arc::new(Semaphore::new(1)),
                refusals: Mutex::default(),
                recovery_outcomes: Arc::default(),
                started: Instant::now(),
                freshness: Freshness::default(),
                bootstrapped: AtomicBool::new(false),
            })),
        }
    }

    pub(crate) fn handle(&self) -> &Handle<Machine> {
        &self.inner.setup.handle
    }

    pub(crate) fn freshness(&self) -> &Freshness {
        &self.inner.freshness
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.inner.setup.feed
    }

    /// Waits for the turn to compute a plan. How many wait is bounded in front of the services.
    pub(crate) async fn planner_turn(&self) -> OwnedSemaphorePermit {
        let turn = self.inner.planners.clone().acquire_owned().await;
        turn.expect("the semaphore is never closed")
    }

    /// Waits for the turn to evaluate a filter on a list.
    ///
    /// # Errors
    ///
    /// When others have theirs for longer than a request may take.
    pub(super) async fn filter_turn(&self) -> Result<OwnedSemaphorePermit, Status> {
        let turn = self.bounded(self.inner.filters.clone().acquire_owned());
        Ok(turn.await?.expect("the semaphore is never closed"))
    }

    /// Returns how scheduled backups went, if there are any.
    pub(crate) fn scheduled_backups(&self) -> Option<BackupStatus> {
        let status = self.inner.setup.scheduled_backups.as_ref();
        status.map(SharedStatus::get)
    }

    /// Returns the permit to send a backup, unless as many are being sent as may be.
    pub(super) fn backup_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.inner.backups.clone().try_acquire_owned().ok()
    }

    /// Returns what makes earlier states of this member.
    pub(crate) fn archive(&self) -> &Archive<Machine> {
        &self.inner.setup.archive
    }

    /// Waits for the turn to make a history.
    pub(crate) async fn history_turn(&self) -> OwnedSemaphorePermit {
        let turn = self.inner.histories.clone().acquire_owned().await;
        turn.expect("the semaphore is never closed")
    }

    pub(crate) fn cluster_id(&self) -> &str {
        &self.inner.setup.cluster_id
    }

    /// Returns this member's service version.
    pub(crate) fn level(&self) -> ServiceVersion {
        self.inner.setup.level
    }

    /// Returns the service version that a member reported last; without one it is the oldest.
    pub(crate) fn version_of(&self, state: &MemberState, member: u64) -> Option<ServiceVersion> {
        if member == state.id {
            return Some(self.level());
        }
        let reported = self.inner.setup.versions.of(member);
        reported.map(ServiceVersion::from_wire)
    }

    /// Returns the service versions of all members, as far as they responded recently.
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

    pub(crate) fn addresses(&self) -> &Addresses {
        &self.inner.setup.addresses
    }

    pub(crate) fn contacts(&self) -> &Contacts {
        &self.inner.setup.contacts
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.inner.setup.dialer
    }

    /// Returns what a recovery would lead to, by revision.
    pub(crate) fn recovery_outcomes(&self) -> &Arc<Outcomes> {
        &self.inner.recovery_outcomes
    }

    /// Returns how browsers get to the page, if it is served.
    pub(super) fn page(&self) -> Option<&PageAccess> {
        self.inner.setup.page.as_ref()
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

    /// Returns how often an agent reports: three reports may be lost before it counts as down, and a few
    /// before it stops its guests, if it does.
    pub(crate) fn interval_ms(&self, self_fence_ms: Option<u64>) -> u64 {
        let interval_ms = (self.inner.setup.liveness_limit_ms / 4).max(1);
        self_fence_ms.map_or(interval_ms, |ms| interval_ms.min(ms / 5))
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

    /// Returns the configuration in force.
    pub(super) fn settings(&self) -> &[(&'static str, String)] {
        &self.inner.setup.settings
    }

    /// Returns what is counted.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.setup.metrics
    }

    /// Returns what this process retains beside the replica.
    pub(crate) fn retained(&self) -> Vec<Retained> {
        let refusals = self.refusals().retained();
        let log = recent::size();
        let log = Retained::counted("log_lines", log.lines, recent::LINES_MAX)
            .with_bytes(log.bytes as u64, recent::BYTES_MAX as u64);
        self.feed()
            .retained()
            .into_iter()
            .chain([refusals, log])
            .collect()
    }

    pub(crate) fn refusals(&self) -> MutexGuard<'_, Refusals> {
        // As above.
        let guard = self.inner.refusals.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the refusal of a client's request, which is in no log.
    fn record_refusal(&self, request: &DecisionRequest, refusal: &Refusal) {
        if request.validate_only {
            return;
        }
        if let Some(record) = audited::audit_record(request, None) {
            let mut refusals = self.refusals();
            refusals.record(wall(), &request.principal, record, refusal.clone());
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

    /// Records replicated time as this member has it, and the leader if it is another member.
    pub(crate) fn observe_time(&self, time: TimeMs, leader: Option<u64>) {
        self.clock().observe(time, leader, self.monotonic_ms());
    }

    /// Returns the replicated time that a command would get now. It stands still while
    /// no command is written.
    pub(crate) fn time_by_now(&self, state: &State) -> TimeMs {
        self.times(state.time()).0
    }

    /// Returns the replicated time by now, of a state with this one, and this machine's clock.
    pub(crate) fn times(&self, time: TimeMs) -> (TimeMs, TimeMs) {
        let wall = wall();
        (self.clock().now(time, self.monotonic_ms(), wall), wall)
    }

    /// Decides on a request and returns its outcome once it is durable.
    pub(crate) fn submit(&self, request: DecisionRequest) -> BoxFuture<'_, Result<Done, Status>> {
        Box::pin(async move {
            let (done, ()) = self.propose_and_read(request, |_, _| ()).await?;
            Ok(done)
        })
    }

    /// Like [`submit`](Self::submit), and reads further parts of the response from the state. The closure
    /// runs in the replica's task.
    pub(crate) fn submit_then<T: Default + Send + 'static>(
        &self,
        request: DecisionRequest,
        then: impl FnOnce(&State, &Reply) -> T + Send + 'static,
    ) -> BoxFuture<'_, Result<(Done, T), Status>> {
        Box::pin(self.propose_and_read(request, then))
    }

    async fn propose_and_read<T: Default + Send + 'static>(
        &self,
        request: DecisionRequest,
        then: impl FnOnce(&State, &Reply) -> T + Send + 'static,
    ) -> Result<(Done, T), Status> {
        let proposed = self.propose(Arc::new(request), then).await;
        let (done, read) = proposed.map_err(|error| error.into_status(self.urls()))?;
        Ok((done.map_err(|refusal| to_status(&refusal))?, read))
    }

    /// Decides on a request if this member leads, and returns its outcome once that is
    /// durable. The closure runs in the replica's task.
    pub(super) async fn propose<T: Default + Send + 'static>(
        &self,
        request: Arc<DecisionRequest>,
        then: impl FnOnce(&State, &Reply) -> T + Send + 'static,
    ) -> Result<(Result<Done, Refusal>, T), NoOutcome> {
        if !request.is_duty() {
            self.wait_for_bootstrap().await;
        }
        let metrics = self.metrics();
        let timer = metrics.decisions.begin(&request.action);
        let span = CommandSpan::begin(&request.action, request.validate_only);
        let moments = span.as_ref().map(|span| span.moments.clone());
        let proposed = self.decide_and_read(request, moments, then).await;
        if let Some(span) = span {
            span.end(&proposed);
        }
        timer.end(match &proposed {
            Ok((Ok(_), _)) => End::Done,
            Ok((Err(refusal), _)) => {
                metrics.refused.count(&refusal.reason);
                End::Refused
            }
            Err(NoOutcome::Propose(error)) => error.into(),
            Err(NoOutcome::TimedOut) => End::TimedOut,
        });
        proposed
    }

    async fn decide_and_read<T: Default + Send + 'static>(
        &self,
        request: Arc<DecisionRequest>,
        moments: Option<Arc<Moments>>,
        then: impl FnOnce(&State, &Reply) -> T + Send + 'static,
    ) -> Result<(Result<Done, Refusal>, T), NoOutcome> {
        // The decision is made in the replica's own task; the choice is not part of the command and comes
        // back through this cell.
        let chosen = Arc::new(OnceLock::new());
        let chosen_in = chosen.clone();
        let refused = request.clone();
        let context = self.clone();
        let applied = moments.clone();
        let decide = move |machine: &Machine| {
            let decision = machine.decide(context.stamp(machine), &request);
            Moments::decided(moments.as_ref());
            match decision {
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
                Decision::Explain(unexplained) => {
                    Replicated::Answer(Err(No::Unexplained(unexplained)))
                }
            }
        };
        let read = move |machine: &Machine, proposed: &Proposed<_, Answered>| {
            Moments::applied(applied.as_ref());
            match reply_of(proposed) {
                Some(reply) => then(machine.state(), reply),
                None => T::default(),
            }
        };
        let proposed = self.handle().propose_then(decide, read);
        let proposed = tokio::time::timeout(self.request_timeout(), proposed).await;
        let (proposed, read) = proposed
            .map_err(|_| NoOutcome::TimedOut)?
            .map_err(NoOutcome::Propose)?;
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
                    true => self.with_behind(refusal).await,
                    false => refusal,
                };
                self.record_refusal(&refused, &refusal);
                Err(refusal)
            }
        };
        Ok((done, read))
    }

    /// Adds to a refusal which members and conductors hold the cluster version back.
    async fn with_behind(&self, refusal: Refusal) -> Refusal {
        let (Some(status), Ok(state)) =
            (self.handle().status().await, self.stale(State::clone).await)
        else {
            return refusal;
        };
        upgrade::with_behind(refusal, &state, &self.member_versions(&status))
    }

    /// Explains a refusal outside the replica's task: a few at a time, so that many refusals
    /// do not delay other requests.
    async fn explain(&self, unexplained: Unexplained) -> Result<Refusal, NoOutcome> {
        let turn = self.inner.explanations.clone().acquire_owned();
        let turn = tokio::time::timeout(self.request_timeout(), turn).await;
        let turn = turn.map_err(|_| NoOutcome::TimedOut)?;
        let explained = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            unexplained.explain()
        });
        match explained.await {
            Ok(refusal) => Ok(refusal),
            Err(end) if end.is_panic() => std::panic::resume_unwind(end.into_panic()),
            // The member is stopping.
            Err(_) => Err(NoOutcome::TimedOut),
        }
    }

    /// Waits, once and for a second at most, until the first leader of a new cluster has given it
    /// its version and its name: what comes before would be carried out as in an old cluster.
    async fn wait_for_bootstrap(&self) {
        let inner: &Inner = &self.inner;
        if inner.bootstrapped.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..BOOTSTRAP_POLLS {
            let known = self.handle().leader();
            if known.role.leader.is_some_and(|leader| leader != known.id) {
                return;
            }
            // A new leader may decide before it has run its duties.
            let named = self.stale(|state| state.cluster().is_some()).await;
            if matches!(named, Ok(true)) {
                break;
            }
            tokio::time::sleep(BOOTSTRAP_POLL_INTERVAL).await;
        }
        inner.bootstrapped.store(true, Ordering::Relaxed);
    }

    /// As [`Self::submit`], for a command that leaves nothing to be decided.
    pub(crate) fn command(
        &self,
        caller: Caller,
        command: Command,
    ) -> BoxFuture<'_, Result<Reply, Status>> {
        let request = caller.into_request(false, Action::Plain(command));
        Box::pin(async move {
            let (done, ()) = self.propose_and_read(request, |_, _| ()).await?;
            Ok(done.reply)
        })
    }

    fn stamp(&self, machine: &Machine) -> TimeMs {
        let time = machine.state().time();
        self.clock().stamp(time, self.monotonic_ms(), wall())
    }

    /// Returns how addresses of members are written for clients.
    pub(crate) fn urls(&self) -> Urls {
        self.inner.setup.urls
    }

    /// Returns the status that redirects to the leader.
    pub(crate) fn elsewhere(&self) -> Status {
        let leader = self.handle().leader();
        self.urls().elsewhere(leader.member.as_ref())
    }

    /// Refuses what the leader alone can answer, if this member does not lead.
    pub(crate) fn must_lead(&self) -> Result<(), Status> {
        match self.handle().leader().role.deciding {
            true => Ok(()),
            false => Err(self.elsewhere()),
        }
    }

    /// As [`Self::must_lead`], unless the request takes an answer from this member's own state, in
    /// which what the leader alone knows is unknown.
    pub(super) fn must_lead_unless_stale(&self) -> Result<(), Status> {
        match stale::is_requested() {
            true => Ok(()),
            false => self.must_lead(),
        }
    }

    /// Returns a frozen state with the requested consistency; with the one of the request's metadata if
    /// that is stale.
    pub(crate) fn state(&self, consistency: i32) -> BoxFuture<'_, Result<State, Status>> {
        Box::pin(self.read_state(consistency))
    }

    async fn read_state(&self, consistency: i32) -> Result<State, Status> {
        let read = ReadConsistency::try_from(consistency);
        let read = match stale::is_requested() {
            true => read.map(|_| ReadConsistency::Stale),
            false => read,
        };
        match read {
            Ok(ReadConsistency::Unspecified | ReadConsistency::Linearizable) => {
                // Before that a state has revision 0, which a watch takes for "not complete".
                self.wait_for_bootstrap().await;
                self.bounded(self.handle().read(|machine| machine.state().clone()))
                    .await?
                    .map_err(|error| self.urls().of_read(error))
            }
            Ok(ReadConsistency::Stale) => self.bounded(self.stale(|state| state.clone())).await?,
            Err(_) => Err(refusal::invalid(
                "consistency",
                "must be one of the named values",
            )),
        }
    }

    /// Returns once a majority has confirmed that this member leads.
    pub(crate) fn confirm(&self) -> BoxFuture<'_, Result<(), Status>> {
        Box::pin(async {
            self.bounded(self.handle().read(|_| ()))
                .await?
                .map_err(|error| self.urls().of_read(error))
        })
    }

    /// Reads this member's state as it is. The closure runs in the replica's task.
    pub(crate) fn stale<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> BoxFuture<'_, Result<T, Status>> {
        Box::pin(async {
            // Before the state, which is then at least as young.
            let age = stale::is_requested().then(|| self.inner.freshness.age());
            let read = self.handle().read_stale(|machine| {
                let state = machine.state();
                (read(state), state.revision())
            });
            let (read, revision) = read.await.map_err(|error| self.urls().of_read(error))?;
            if let Some(age) = age {
                let known = self.handle().leader();
                stale::record(Staleness {
                    member: known.id,
                    revision,
                    age,
                    leader: known.role.leader,
                });
            }
            Ok(read)
        })
    }

    /// Returns the signed grant for the holder of an operation's lease, if the caller is the holder;
    /// without TLS callers have no names. Every member returns the same one for equal states.
    pub(crate) fn grant(
        state: &State,
        caller: Option<&Identity>,
        operation: &Operation,
    ) -> Option<SignedGrant> {
        let granted = || grants::signed(state, operation, state.time());
        Self::holds_lease(caller, operation).then(granted)?
    }

    /// Returns whether a caller is the holder of an operation's lease; without TLS any caller of one that
    /// has a lease may be.
    pub(crate) fn holds_lease(caller: Option<&Identity>, operation: &Operation) -> bool {
        let holds = |caller: &Identity, holder: &ServiceName| {
            caller.role == Role::Conductor && caller.name == holder.as_str()
        };
        let lease = operation.lease.as_ref();
        lease.is_some_and(|lease| caller.is_none_or(|caller| holds(caller, &lease.conductor)))
    }

    /// Returns what agents check grants with.
    pub(crate) fn grant_terms(&self, state: &State) -> GrantTerms {
        grants::terms(state, self.time_by_now(state))
    }

    /// Searches among the providers of this state or a newer one, away from the replica's task.
    ///
    /// # Errors
    ///
    /// When the search panicked.
    pub(crate) fn search<T: Send + 'static>(
        &self,
        state: State,
        work: impl FnOnce(&State, &Index) -> T + Send + 'static,
    ) -> BoxFuture<'_, Result<T, JoinError>> {
        Box::pin(self.inner.table.clone().search(state, work))
    }

    /// Returns the right to keep the searchable table while a reader catches up, once there is one.
    pub(super) async fn loan(&self) -> Loan {
        self.inner.table.loan().await
    }

    /// As [`Self::search`], for work that may wait for the reader of its results.
    ///
    /// # Errors
    ///
    /// When the search panicked.
    pub(super) fn search_for_reader<T: Send + 'static>(
        &self,
        state: State,
        loan: Option<Loan>,
        work: impl FnOnce(&State, &Index, &mut Turn<'_>) -> T + Send + 'static,
    ) -> BoxFuture<'_, Result<T, JoinError>> {
        let table = self.inner.table.clone();
        Box::pin(table.search_for_reader(state, loan, work))
    }

    pub(crate) async fn bounded<T>(&self, work: impl Future<Output = T>) -> Result<T, Status> {
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

/// Returns this machine's wall clock; what is made of it is in [`berth_decide::clock`].
pub(crate) fn wall() -> TimeMs {
    // Of a clock that was never set it is 0; replicated time goes on by itself.
    TimeMs(berth_process::wall_clock_ms())
}
