//! The connections to the scheduler and the conductors, and calls over them.
//!
//! Invariant: every refusal reaches the caller as a [`Refusal`], with its hosts, causes and hint.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use berth_domain::ownership::Ownership;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{Feature, ServiceVersion, TOO_OLD};
use berth_process::bounds::Resource;
use berth_proto::client::members::{Known, Learner};
use berth_proto::client::own::OwnAnswer;
use berth_proto::client::{self, Dialer, InvalidAddress, Policy, SchedulerChannel, conductor};
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{GetClusterStatusRequest, ListServicesRequest, Service};
use berth_proto::conductor::v1::GetServiceInfoRequest;
use berth_proto::consistency::{Consistency, ReadChannel};
use berth_proto::for_cluster::{self, ForCluster, MemberChannel, OTHER_CLUSTER};
use berth_proto::status::{OUTCOME_UNKNOWN, from_status, refusal_of};
use berth_tls::{Expected, Tls};
use serde_json::json;
use tokio::task::{AbortHandle, JoinSet};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::address;
use crate::offline::{self, Offline};
use crate::other_clusters::{self, Chosen};
use crate::output::{self, Format};
use crate::remedies::with_hint;
use crate::stale::{self, LEADER_PATIENCE, Reading, Source};
use crate::trace_parent::{ConductorClient, TraceParent};
use crate::usage::Usage;

/// The maximum search for a scheduler before the call fails. Long enough for one that is
/// being started, and a person waits.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The duration of a command from which on it learns further schedulers: a watch, or a wait for an
/// operation, goes on when the only one that it was given is lost. A shorter one needs no more calls.
const LEARNING_AFTER: Duration = Duration::from_secs(1);

/// How long a read waits for what the schedulers of the command answer before it chooses a cluster of them.
const READ_PATIENCE: Duration = Duration::from_millis(200);
/// How long a command waits for it that changes something: one of a later cluster may be slow.
const CHANGE_PATIENCE: Duration = SILENCE_MAX;

/// How often a scheduler is called that is busy with a plan of the same caller, and the pause in between.
const BUSY_ATTEMPTS_MAX: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// The reason of a stream that ended before what it is about.
pub const STREAM_BROKEN: &str = "STREAM_BROKEN";

/// The connections of a command to the cluster.
pub struct Session {
    scheduler: SchedulerChannel,
    /// The cluster that the command is for, chosen before the first call.
    chosen: Mutex<Chosen>,
    /// How long schedulers were waited for when it was chosen.
    looked: tokio::sync::Mutex<Duration>,
    /// Whether it goes on with a cluster that is recovered meanwhile.
    follows_recoveries: bool,
    /// Learns further schedulers from the first call on; in memory only.
    learning: OnceLock<AbortHandle>,
    /// Whether the command may have changed something.
    has_changed: AtomicBool,
    /// How the command reads.
    reading: Reading,
    /// The scheduler that answered alone last.
    source: Mutex<Option<Source>>,
    /// The state of files, where these are read instead of schedulers.
    offline: Option<Offline>,
    /// The audience of the output.
    pub output: Format,
}

impl Session {
    /// Returns a session with these schedulers; nothing is dialled yet.
    ///
    /// # Errors
    ///
    /// When an address is invalid.
    pub fn new(scheduler: &[String], output: Format) -> anyhow::Result<Self> {
        Self::with_certificates(scheduler, output, None)
    }

    /// As [`Self::new`], with certificates.
    ///
    /// # Errors
    ///
    /// When an address is invalid.
    pub fn with_certificates(
        scheduler: &[String],
        output: Format,
        tls: Option<Tls>,
    ) -> anyhow::Result<Self> {
        let dialer = Dialer::new(tls);
        let endpoints: Vec<String> = scheduler.iter().map(|a| address::url(&dialer, a)).collect();
        for (typed, endpoint) in scheduler.iter().zip(&endpoints) {
            if SchedulerChannel::new([endpoint]).is_err() {
                return Err(Usage(address::invalid(typed)).into());
            }
        }
        let policy = Policy {
            silence_max: SILENCE_MAX,
            ..Policy::default()
        };
        Ok(Self {
            scheduler: SchedulerChannel::new(endpoints)?
                .with_policy(policy)
                .with_dialer(dialer),
            chosen: Mutex::default(),
            looked: tokio::sync::Mutex::default(),
            follows_recoveries: false,
            learning: OnceLock::new(),
            has_changed: AtomicBool::new(false),
            reading: Reading::default(),
            source: Mutex::default(),
            offline: None,
            output,
        })
    }

    /// Returns a session that reads from files and reaches no scheduler.
    ///
    /// # Errors
    ///
    /// None that is to be expected.
    pub fn of_files(offline: Offline, output: Format) -> anyhow::Result<Self> {
        let mut session = Self::new(&[offline::ADDRESS.to_owned()], output)?;
        session.scheduler = session.scheduler.clone().with_dialer(offline.dialer());
        session.offline = Some(offline);
        Ok(session)
    }

    /// Returns the same session with another way to read.
    #[must_use]
    pub fn with_reading(mut self, reading: Reading) -> Self {
        self.reading = reading;
        self
    }

    /// Returns whether programs read the output.
    #[must_use]
    pub fn for_programs(&self) -> bool {
        self.output.is_of_value()
    }

    /// Reports what a command did that has no record to show: a line for people, on standard error,
    /// or an object for programs, with the resource's name and what became of it.
    ///
    /// # Errors
    ///
    /// None that is to be expected.
    pub fn done(
        &self,
        name: &str,
        result: &str,
        sentence: impl Into<output::Lines>,
    ) -> anyhow::Result<()> {
        if self.for_programs() {
            return output::value(&json!({ "name": name, "result": result }));
        }
        output::message(sentence);
        Ok(())
    }

    /// Has the scheduler that leads change something, following it when it changes.
    ///
    /// # Errors
    ///
    /// The scheduler's refusal, that no scheduler could be reached, or that the outcome is unknown.
    pub async fn scheduler<T, F>(&self, call: impl Fn(MemberChannel) -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.check_may_change()?;
        self.begin(CHANGE_PATIENCE).await;
        let response = self.scheduler.call(call).await;
        let answer = response.map_err(|status| self.explain(from_status(&status)))?;
        self.has_changed.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    /// Returns what a refusal means for the command as a whole.
    fn explain(&self, refusal: Refusal) -> Refusal {
        with_hint(match self.has_changed.load(Ordering::Relaxed) {
            true => for_cluster::after_change(refusal),
            false => refusal,
        })
    }

    /// As [`Self::scheduler`], where nothing is changed.
    ///
    /// # Errors
    ///
    /// The scheduler's refusal, or that no scheduler could be reached.
    pub async fn read<T, F>(&self, call: impl Fn(ReadChannel) -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        if let Some(offline) = &self.offline {
            return offline.read(self.output, &call).await;
        }
        self.begin(READ_PATIENCE).await;
        // What belongs together is read at one scheduler.
        let is_begun = self.source().is_some();
        match self.reading {
            Reading::Leader => self.read_at_leader(&self.scheduler, &call).await,
            Reading::LeaderOrStale if !is_begun => self.read_or_fall_back(&call).await,
            Reading::LeaderOrStale | Reading::Stale => {
                let own = self.scheduler.read_own(&call).await;
                own.and_then(|own| self.take(own))
            }
            Reading::Revision(revision) => {
                let own = self.scheduler.read_revision(revision, &call).await;
                own.and_then(|own| self.take(own))
            }
        }
        .map_err(|refusal| self.explain(refusal))
    }

    /// Has any scheduler answer for itself, the first that is reached: what each of them knows needs no
    /// leader.
    ///
    /// # Errors
    ///
    /// The scheduler's refusal, or that no scheduler could be reached.
    pub async fn any<T, F>(&self, call: impl Fn(MemberChannel) -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.check_running()?;
        self.begin(READ_PATIENCE).await;
        let response = self.scheduler.read(call).await;
        response.map_err(|status| with_hint(from_status(&status)))
    }

    async fn read_at_leader<T, F>(
        &self,
        scheduler: &SchedulerChannel,
        call: &impl Fn(ReadChannel) -> F,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let linearizable = |channel| call(Consistency::Linearizable.over(channel));
        let response = scheduler.read(linearizable).await;
        response.map_err(|status| from_status(&status))
    }

    /// Reads through the leader; from one scheduler if there is no leader.
    async fn read_or_fall_back<T, F>(&self, call: &impl Fn(ReadChannel) -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let hasty = self.scheduler.clone().with_deadline(LEADER_PATIENCE);
        let refusal = match self.read_at_leader(&hasty, call).await {
            Err(refusal) if stale::is_without_leader(&refusal) => refusal,
            answered => return answered,
        };
        match self.read_own_when_free(call).await {
            // It is only slow, or was elected meanwhile.
            Ok(own) if source_of(&own).has_leader() => {}
            Ok(own) => return self.take(own),
            Err(_) => return Err(refusal),
        }
        let refusal = match self.read_at_leader(&self.scheduler, call).await {
            Err(refusal) if stale::is_without_leader(&refusal) => refusal,
            answered => return answered,
        };
        match self.read_own_when_free(call).await {
            Ok(own) => self.take(own),
            Err(_) => Err(refusal),
        }
    }

    /// Reads at one scheduler. The attempt at the leader that was given up may still count as the caller's plan
    /// there, of which one is permitted.
    async fn read_own_when_free<T, F>(
        &self,
        call: &impl Fn(ReadChannel) -> F,
    ) -> Result<OwnAnswer<T>, Refusal>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        for _ in 0..BUSY_ATTEMPTS_MAX {
            let own = self.scheduler.read_own(call).await?;
            let refusal = own.answer.as_ref().err().and_then(refusal_of);
            if refusal.is_none_or(|refusal| refusal.reason != Resource::Plans.reason()) {
                return Ok(own);
            }
            tokio::time::sleep(BUSY_PAUSE).await;
        }
        self.scheduler.read_own(call).await
    }

    /// Returns the answer of one scheduler, after the user was informed that it is one.
    fn take<T>(&self, own: OwnAnswer<T>) -> Result<T, Refusal> {
        if own.answer.is_err() && own.staleness.is_none() {
            // Refused before a state was read: by a server that supports such reads, or not.
            return own.answer.map_err(|status| from_status(&status));
        }
        let source = Source {
            is_earlier: matches!(self.reading, Reading::Revision(_)),
            ..source_of(&own)
        };
        if source.is_earlier && source.staleness.is_none() {
            return Err(stale::without_revisions(&source.address));
        }
        let before = self.source().replace(source.clone());
        if before.is_none_or(|before| !source.is_like(&before)) {
            source.report(self.output);
        }
        own.answer.map_err(|status| from_status(&status))
    }

    /// Has a command that may fall back read from one scheduler from now on: it knows that there is no
    /// leader. Returns whether that is so.
    #[must_use]
    pub fn fall_back(&mut self) -> bool {
        let may = self.reading == Reading::LeaderOrStale;
        if may {
            self.reading = Reading::Stale;
        }
        may
    }

    /// Returns whether what a leader alone judges, as whether a host is up, is known: not in the answers of
    /// a scheduler that knows no leader.
    #[must_use]
    pub fn knows_liveness(&self) -> bool {
        !self.reads_state() && self.source().as_ref().is_none_or(Source::has_leader)
    }

    /// Returns whether the state of a file is read, which has only what is replicated.
    #[must_use]
    pub fn reads_state(&self) -> bool {
        let is_earlier = matches!(self.reading, Reading::Revision(_));
        is_earlier || self.offline.as_ref().is_some_and(Offline::is_state)
    }

    /// Returns the URL of a scheduler's address.
    #[must_use]
    pub fn url(&self, address: &str) -> String {
        address::url(self.scheduler.dialer(), address)
    }

    /// Returns a channel to a program, which is dialled when it is first called.
    ///
    /// # Errors
    ///
    /// When the address is none.
    pub(crate) fn channel(&self, url: &str, expected: Expected) -> Result<Channel, InvalidAddress> {
        self.scheduler.dialer().channel(url, expected)
    }

    /// Returns the files that are read instead of schedulers, if they are.
    pub(crate) fn offline(&self) -> Option<&Offline> {
        self.offline.as_ref()
    }

    /// Returns whether files are read instead of schedulers.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.offline.is_some()
    }

    fn source(&self) -> MutexGuard<'_, Option<Source>> {
        // It is replaced as a whole.
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what needs a running cluster, where files are read.
    pub(crate) fn check_running(&self) -> Result<(), Refusal> {
        match self.is_offline() {
            true => Err(offline::not_a_read()),
            false => Ok(()),
        }
    }

    /// Refuses what may change something, where the user requested stale reads, or files are read.
    pub(crate) fn check_may_change(&self) -> Result<(), Refusal> {
        self.check_running()?;
        match self.reading {
            Reading::Stale | Reading::Revision(_) => Err(stale::not_a_read()),
            Reading::Leader | Reading::LeaderOrStale => Ok(()),
        }
    }

    /// Prepares a call: chooses the cluster that the command is for.
    async fn begin(&self, patience: Duration) {
        if self.choose(patience).await {
            self.report_clusters();
        }
        self.learning.get_or_init(|| self.start_learning());
    }

    /// Chooses the cluster that the command is for, with more time than reads have, and does not report it.
    pub(crate) async fn look_for_clusters(&self) -> Chosen {
        self.choose(SILENCE_MAX).await;
        self.chosen()
    }

    /// Reports which schedulers are left out, if any.
    pub(crate) fn report_clusters(&self) {
        other_clusters::report(&self.chosen(), self.output);
    }

    /// Returns what was chosen last.
    fn chosen(&self) -> Chosen {
        let chosen = self.chosen.lock();
        chosen.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Chooses a cluster, unless that was done with as much patience, or every scheduler has answered; returns
    /// whether another one, or other schedulers, were chosen than before.
    async fn choose(&self, patience: Duration) -> bool {
        if self.is_offline() || self.scheduler.configured().len() < 2 {
            return false;
        }
        let mut looked = self.looked.lock().await;
        if *looked >= patience {
            return false;
        }
        let get_status = |channel| async move {
            let request = GetClusterStatusRequest {};
            ClusterServiceClient::new(channel)
                .get_cluster_status(request)
                .await
        };
        let each = self.each(patience, get_status).await;
        let is_complete = !each.is_silent;
        *looked = if is_complete { Duration::MAX } else { patience };
        let chosen = other_clusters::choose(each.responses);
        if chosen.cluster_id.is_empty() {
            return false;
        }
        for other in &chosen.others {
            self.scheduler.leave_out(&other.address, true);
        }
        for address in &chosen.addresses {
            self.scheduler.leave_out(address, false);
        }
        // One that is silent is not waited for first.
        let current = self.scheduler.current();
        match chosen.addresses.first() {
            Some(first) if !chosen.addresses.contains(&current) => self.scheduler.prefer(first),
            Some(_) | None => {}
        }
        self.keep_to(&chosen.cluster_id);
        let mut known = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = known.cluster_id != chosen.cluster_id || known.others != chosen.others;
        *known = chosen;
        has_changed
    }

    /// Has every further call be for this cluster; schedulers of earlier builds do not state theirs.
    fn keep_to(&self, cluster_id: &str) {
        if !self.follows_recoveries && !cluster_id.is_empty() {
            self.scheduler.keep_to(ForCluster::of(cluster_id));
        }
    }

    /// Has a command that only shows what is go on with a cluster that is recovered meanwhile.
    pub fn follow_recoveries(&mut self) {
        self.follows_recoveries = true;
    }

    /// Learns the schedulers now: for a command that goes on for long.
    pub async fn learn_schedulers(&self) {
        // If it fails, the background task will repeat it.
        let _ = self.learner().learn().await;
    }

    /// Returns what learns further schedulers, of the cluster that was chosen.
    fn learner(&self) -> Learner {
        let learner = Learner::new(self.scheduler.clone(), None);
        let Chosen {
            cluster_id, era, ..
        } = self.chosen();
        match cluster_id.is_empty() {
            true => learner,
            false => learner.with_known(Known {
                cluster_id,
                era,
                configured: self.scheduler.configured().to_vec(),
                members: Vec::new(),
            }),
        }
    }

    fn start_learning(&self) -> AbortHandle {
        let learner = self.learner();
        let learning = async {
            tokio::time::sleep(LEARNING_AFTER).await;
            learner.run().await;
        };
        tokio::spawn(learning).abort_handle()
    }

    /// Makes the next call begin at another scheduler than the last one that answered.
    pub fn move_on(&self) {
        self.scheduler.move_on();
    }

    /// Returns the address of the scheduler at which the next call begins.
    #[must_use]
    pub fn current_scheduler(&self) -> String {
        self.scheduler.current()
    }

    /// Calls one scheduler and no other, as it answers for itself; `None` if it does not.
    pub async fn only<T, F>(&self, address: &str, call: impl FnOnce(Channel) -> F) -> Option<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let dialer = self.scheduler.dialer();
        let channel = dialer.channel(address, Expected::Scheduler).ok()?;
        let response = tokio::time::timeout(SILENCE_MAX, call(channel)).await;
        response.ok()?.ok().map(Response::into_inner)
    }

    /// Calls one of the configured schedulers and no other, as it answers for itself.
    ///
    /// # Errors
    ///
    /// What it refuses, or that it does not answer.
    pub async fn at_one<T, F>(
        &self,
        address: &str,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let channel = self.scheduler.channel_to(address);
        let unreachable = |why: &str| {
            let message = format!("{address} does not answer: {why}");
            Refusal::new(Code::Unavailable, client::UNREACHABLE, message)
        };
        let channel = channel.map_err(|error| unreachable(&error.to_string()))?;
        match tokio::time::timeout(SILENCE_MAX, call(channel)).await {
            Err(_) => Err(unreachable("it is silent")),
            Ok(Err(status)) if client::is_unanswered(&status) => Err(unreachable(status.message())),
            Ok(answer) => answer
                .map(Response::into_inner)
                .map_err(|status| with_hint(from_status(&status))),
        }
    }

    /// Returns the addresses of the configured schedulers.
    pub fn schedulers(&self) -> &[String] {
        self.scheduler.configured()
    }

    /// Calls every configured scheduler at once, as each answers for itself.
    async fn each<T, F>(&self, within: Duration, call: impl Fn(Channel) -> F) -> Each<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<Response<T>, Status>> + Send + 'static,
    {
        let configured = self.scheduler.configured();
        let mut calls = JoinSet::new();
        for (at, address) in configured.iter().enumerate() {
            let Ok(channel) = self.scheduler.channel_to(address) else {
                continue;
            };
            let response = tokio::time::timeout(within, call(channel));
            calls.spawn(async move { (at, response.await) });
        }
        let mut responses = BTreeMap::new();
        let mut is_silent = false;
        while let Some(ended) = calls.join_next().await {
            match ended {
                Ok((at, Ok(Ok(response)))) => drop(responses.insert(at, response.into_inner())),
                Ok((_, Ok(Err(_)))) | Err(_) => {}
                Ok((_, Err(_))) => is_silent = true,
            }
        }
        let responses = responses.into_iter();
        let responses = responses.map(|(at, response)| (configured[at].clone(), response));
        Each {
            responses: responses.collect(),
            is_silent,
        }
    }

    /// Returns a client of a conductor: of those that registered, the first that can be reached.
    ///
    /// # Errors
    ///
    /// When none has registered, or none can be reached.
    pub async fn conductor(&self) -> Result<ConductorClient, Refusal> {
        self.conductor_for(None).await
    }

    /// As [`Self::conductor`], of one that supports a feature: an older one would silently drop the
    /// parameter.
    ///
    /// # Errors
    ///
    /// When all that can be reached are too old, too.
    pub async fn conductor_for(
        &self,
        feature: Option<Feature>,
    ) -> Result<ConductorClient, Refusal> {
        self.check_may_change()?;
        self.begin(CHANGE_PATIENCE).await;
        let list = ListServicesRequest::default();
        let listed = self
            .read(|channel| {
                let list = list.clone();
                async move { ClusterServiceClient::new(channel).list_services(list).await }
            })
            .await?;
        // A conductor that has gone over to another cluster refuses what it would do there.
        self.keep_to(&listed.cluster_id);
        let is_choice = listed.services.len() > 1;
        let request = || Request::new(GetServiceInfoRequest {});
        let (mut tried, mut too_old, mut of_other) = (Vec::new(), Vec::new(), Vec::new());
        for service in listed.services {
            let version = ServiceVersion::from_wire(service.service_version);
            if let Some(Err(old)) = feature.map(|feature| feature.gate_host(version)) {
                too_old.push(format!("{} is at {old}", short(&service.name)));
                continue;
            }
            let cluster = self.scheduler.cluster();
            let why = match conductor::connect(self.scheduler.dialer(), &service, &cluster).await {
                // One alone refuses what it would do by itself.
                Ok(channel) if !is_choice => return Ok(self.conduct_over(channel)),
                Ok(channel) => match conductor::check(&channel, request()).await {
                    Err(refusal) if refusal.reason == OTHER_CLUSTER => {
                        of_other.push(refusal);
                        "it follows another cluster".to_owned()
                    }
                    Err(refusal) if refusal.code == Code::Unavailable => refusal.message,
                    // What it refuses here it refuses of the command too, with its reason.
                    Ok(()) | Err(_) => return Ok(self.conduct_over(channel)),
                },
                Err(why) => why,
            };
            tried.push(format!("{} ({why})", service.address));
        }
        let are_all_of_others = too_old.is_empty() && of_other.len() == tried.len();
        if let Some(refusal) = of_other.pop().filter(|_| are_all_of_others) {
            return Err(with_hint(refusal));
        }
        if !too_old.is_empty() && tried.is_empty() {
            let message = format!("no conductor is new enough: {}", too_old.join("; "));
            return Err(Refusal::new(Code::FailedPrecondition, TOO_OLD, message)
                .with_hint("upgrade a conductor"));
        }
        Err(no_conductor(&tried))
    }

    /// Checks that a conductor that registered answers, and works for the cluster.
    ///
    /// # Errors
    ///
    /// Why it does not.
    pub(crate) async fn check_conductor(&self, service: &Service) -> Result<(), String> {
        let cluster = self.scheduler.cluster();
        let channel = conductor::connect(self.scheduler.dialer(), service, &cluster).await?;
        let answered = conductor::check(&channel, Request::new(GetServiceInfoRequest {})).await;
        answered.map_err(|refusal| refusal.message)
    }

    /// Returns a client of a conductor that is about to be called.
    fn conduct_over(&self, channel: MemberChannel) -> ConductorClient {
        // What is read from now on may be of what has begun.
        self.has_changed.store(true, Ordering::Relaxed);
        TraceParent::of_environment().over(channel)
    }
}

/// What the configured schedulers answer, each for itself.
struct Each<T> {
    /// The responses with their addresses, in the order of the addresses.
    responses: Vec<(String, T)>,
    /// Whether one of them has not answered in time, with a refusal or otherwise.
    is_silent: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(learning) = self.learning.get() {
            learning.abort();
        }
    }
}

/// Returns why a stream ended. A connection that was cut is as good as a member that went away.
#[must_use]
pub fn ended(status: &Status) -> Refusal {
    if client::is_unanswered(status) {
        let message = "the connection to the server broke";
        return Refusal::new(Code::Unavailable, STREAM_BROKEN, message);
    }
    from_status(status)
}

/// Calls a conductor for a command that has `--request-id`, and returns the message of its response.
macro_rules! conduct {
    ($conductor:expr, $method:ident, $request:expr) => {{
        let request = $request;
        let id = request.request_id.clone();
        let response = $conductor.$method(request).await;
        response
            .map(tonic::Response::into_inner)
            .map_err(|status| $crate::session::not_begun(&status, Some(&id)))
    }};
}
pub(crate) use conduct;

/// Returns why a conductor did not carry a request out; or that this is not known, where the
/// connection broke before it answered, or where it does not know. The request id is that of a command
/// that can be repeated with it.
#[must_use]
pub fn not_begun(status: &Status, request_id: Option<&str>) -> Refusal {
    let refusal = match client::is_unanswered(status) {
        true => {
            let message = "the conductor was lost before it answered; the request may or may not be carried out";
            Refusal::new(Code::Unavailable, OUTCOME_UNKNOWN, message)
        }
        false => from_status(status),
    };
    if refusal.reason != OUTCOME_UNKNOWN {
        return with_hint(refusal);
    }
    let repeat = request_id.map(|id| {
        format!("; the same command with --request-id {id} is carried out once, however often it is repeated")
    });
    refusal.with_hint(format!(
        "`berth operation list` shows what has begun, maybe a moment later{}",
        repeat.unwrap_or_default()
    ))
}

/// Returns why the end of what has begun is not known, where no scheduler answers any more; the command is
/// one that shows it later.
#[must_use]
pub fn unknown_end(what: &str, lost: Refusal, command: &str) -> Refusal {
    if lost.code != Code::Unavailable {
        return lost;
    }
    let message = format!("{what} has begun, and may go on; {}", lost.message);
    Refusal::new(Code::Unavailable, OUTCOME_UNKNOWN, message)
        .with_hint(format!("once a scheduler answers: `{command}`"))
}

fn source_of<T>(own: &OwnAnswer<T>) -> Source {
    Source {
        address: own.address.clone(),
        staleness: own.staleness,
        is_earlier: false,
    }
}

fn no_conductor(tried: &[String]) -> Refusal {
    let message = if tried.is_empty() {
        "no conductor has registered with the schedulers".to_owned()
    } else {
        format!("no conductor can be reached at {}", tried.join(", "))
    };
    Refusal::new(Code::Unavailable, conductor::UNREACHABLE, message)
        .with_hint("start one: berth-conductor --scheduler ADDRESS")
}

/// Returns a resource name, as `hosts/h1` for `h1` and for `hosts/h1`.
#[must_use]
pub fn resource(collection: &str, name: &str) -> String {
    let prefix = format!("{collection}/");
    if name.starts_with(&prefix) {
        name.to_owned()
    } else {
        prefix + name
    }
}

/// Returns the last part of a resource name, as `h1` for `hosts/h1`.
#[must_use]
pub fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns a new request id, or the one that was given.
#[must_use]
pub fn request_id(given: Option<uuid::Uuid>) -> String {
    given.unwrap_or_else(uuid::Uuid::now_v7).to_string()
}

/// Converts the messages of a list.
///
/// # Errors
///
/// When one of them is invalid.
pub fn read_all<W, T: TryFrom<W>>(messages: Vec<W>) -> Result<Vec<T>, T::Error> {
    messages.into_iter().map(TryInto::try_into).collect()
}

/// Collects all pages of a list, or what a selector selects of one that can be filtered.
#[macro_export]
macro_rules! all_pages {
    ($session:expr, $client:ident, $method:ident, $request:expr, $field:ident) => {{
        let mut all = Vec::new();
        let mut request = $request;
        loop {
            let page = $session
                .read(|channel| {
                    let request = request.clone();
                    async move { $client::new(channel).$method(request).await }
                })
                .await?;
            all.extend(page.$field);
            if page.next_page_token.is_empty() {
                break all;
            }
            request.page_token = page.next_page_token;
        }
    }};
    ($session:expr, $client:ident, $method:ident, $request:expr, $field:ident, $selector:expr) => {{
        let selector = $selector;
        let mut all = Vec::new();
        let mut request = $request;
        request.filter.clone_from(&selector.text);
        request.page_size = selector.page_size();
        loop {
            let page = $session
                .read(|channel| {
                    let request = request.clone();
                    async move { $client::new(channel).$method(request).await }
                })
                .await?;
            if selector.take(&mut all, page.$field) || page.next_page_token.is_empty() {
                break all;
            }
            request.page_token = page.next_page_token;
        }
    }};
}

/// Calls one method of the scheduler that leads, which may change something.
#[macro_export]
macro_rules! call {
    ($session:expr, $client:ident, $method:ident, $request:expr) => {
        $crate::call!(scheduler: $session, $client, $method, $request)
    };
    ($way:ident: $session:expr, $client:ident, $method:ident, $request:expr) => {{
        let request = $request;
        $session
            .$way(|channel| {
                let request = request.clone();
                async move { $client::new(channel).$method(request).await }
            })
            .await
    }};
}

/// Calls one method of the scheduler that leads, which changes nothing.
#[macro_export]
macro_rules! read {
    ($session:expr, $client:ident, $method:ident, $request:expr) => {
        $crate::call!(read: $session, $client, $method, $request)
    };
}

/// Returns who created a record, as a field for people.
pub fn creator(ownership: &Ownership) -> String {
    match &*ownership.creator {
        "" => "-".to_owned(),
        creator => creator.to_owned(),
    }
}
