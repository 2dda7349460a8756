//! How Berth's processes call each other: connections, and calls that find the leader.
//!
//! [`Dialer`] is the one place for the settings of connections. [`SchedulerChannel`] carries a
//! call to whichever scheduler leads; [`members`] learns further schedulers; [`conductor`] connects to one
//! of those; [`agent`] makes the calls of a conductor to an agent; [`own`] has one member answer from its own state.
//!
//! Invariant: a call is repeated only where a repetition does no harm. Reads may be repeated at
//! any time; requests that change something must carry a `request_id`, the same in each attempt.
//! A call that is given up while an attempt may have been executed ends with
//! [`OUTCOME_UNKNOWN`](crate::status::OUTCOME_UNKNOWN).

pub mod agent;
pub mod conductor;
mod dialer;
mod election;
pub mod members;
pub mod own;
mod registration;
pub mod revoked;
mod route;
mod server_url;
pub mod stored;
pub mod typed;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::for_cluster::{self, ForCluster, MemberChannel};
use crate::status;
use berth_tls::Expected;
pub use dialer::Dialer;
use election::Election;
pub use registration::NOT_A_SCHEDULER;
use route::Route;
use server_url::check_address;
pub use server_url::{InvalidAddress, is_address};

/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a connection with calls on it is probed: a peer that was cut off is noticed within
/// this and [`KEEP_ALIVE_TIMEOUT`].
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// How long a probe may stay unanswered.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason of a refusal that was made here because no scheduler answered at all.
pub const UNREACHABLE: &str = "SCHEDULER_UNREACHABLE";
/// The reason of a refusal that was made here because schedulers answered, and none of them leads.
pub const NO_LEADER: &str = "NO_LEADER";

/// Returns a channel in plain text: see [`Dialer::channel`].
///
/// # Errors
///
/// When the address is not a URL with a host.
pub fn channel(address: &str) -> Result<Channel, InvalidAddress> {
    Dialer::default().channel(address, Expected::AnyServer)
}

/// Returns what broke a connection in the first place.
pub fn cause_of(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause_of)
}

/// Returns whether a status was made here because no answer came. The server may or may not have
/// executed the call.
#[must_use]
pub fn is_unanswered(status: &Status) -> bool {
    // What a server sends has no source; what the transport makes of a broken connection has.
    std::error::Error::source(status).is_some()
        || (status.code() == tonic::Code::Unavailable && status::refusal_of(status).is_none())
}

/// Returns whether a status was made here because no connection could be made: nothing was sent.
#[must_use]
pub fn is_unsent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns whether the call that ended with this status may have been executed, or may be later.
#[must_use]
pub fn is_in_doubt(status: &Status) -> bool {
    match status::refusal_of(status) {
        Some(refusal) => refusal.reason == status::OUTCOME_UNKNOWN,
        // The transport's, or a proxy's.
        None => !is_unsent(status),
    }
}

/// Returns why a call was given up, where an attempt may have been executed.
fn doubtful(mut refusal: Refusal) -> Refusal {
    status::OUTCOME_UNKNOWN.clone_into(&mut refusal.reason);
    refusal.message += "; the request may or may not be carried out";
    refusal
}

/// How long and how often a call is attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The time for all attempts together, the calls themselves included.
    pub deadline: Duration,
    /// How long to go on while no endpoint has answered at all: each of them is tried at least
    /// once. Servers wait as long as for an answer, since they are started in any order; a person
    /// retries.
    pub silence_max: Duration,
    /// The greatest number of attempts.
    pub attempts_max: u32,
    /// The wait after the first failed round; it doubles with every further one.
    pub wait_min: Duration,
    /// The greatest wait.
    pub wait_max: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(15),
            silence_max: Duration::from_secs(15),
            attempts_max: 60,
            wait_min: Duration::from_millis(50),
            wait_max: Duration::from_millis(500),
        }
    }
}

/// Carries calls to the scheduler that leads, over a list of endpoints: the configured ones, and
/// those that were learnt. Cheap to clone; clones share their connections and what they know of the
/// members and the leader.
#[derive(Clone, Debug)]
pub struct SchedulerChannel {
    shared: Arc<Mutex<Shared>>,
    configured: Arc<[String]>,
    policy: Policy,
    dialer: Dialer,
}

#[derive(Debug)]
struct Shared {
    /// The address that is tried first: of the leader, as far as is known.
    current: String,
    /// The endpoints that were learnt: tried after the configured ones.
    learnt: Vec<String>,
    /// Those that are not tried: they belong to a cluster that is not to be followed.
    left_out: BTreeSet<String>,
    /// The cluster that calls are for, where one was chosen.
    cluster: ForCluster,
    /// One connection per address, made when it is needed, with the generation of its certificates.
    channels: BTreeMap<String, (u64, Channel)>,
}

impl SchedulerChannel {
    /// Returns a channel over these endpoints, as `http://127.0.0.1:7100`, with the default
    /// policy.
    ///
    /// # Errors
    ///
    /// When there is no endpoint, or when one is not an address.
    pub fn new<A: Into<String>>(
        endpoints: impl IntoIterator<Item = A>,
    ) -> Result<Self, InvalidAddress> {
        let endpoints: Arc<[String]> = endpoints.into_iter().map(Into::into).collect();
        for endpoint in &*endpoints {
            check_address(endpoint)?;
        }
        let current = endpoints.first().cloned().ok_or(InvalidAddress {
            address: String::new(),
        })?;
        Ok(Self {
            shared: Arc::new(Mutex::new(Shared {
                current,
                learnt: Vec::new(),
                left_out: BTreeSet::new(),
                cluster: ForCluster::default(),
                channels: BTreeMap::new(),
            })),
            configured: endpoints,
            policy: Policy::default(),
            dialer: Dialer::default(),
        })
    }

    /// Returns the same channel with connections of this dialer's.
    #[must_use]
    pub fn with_dialer(mut self, dialer: Dialer) -> Self {
        self.dialer = dialer;
        self
    }

    /// Returns what makes its connections.
    #[must_use]
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Returns the same channel with another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Returns the same channel with another time for all attempts together, as for a call that
    /// waits.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = deadline;
        self
    }

    /// Returns the endpoints that were given.
    #[must_use]
    pub fn configured(&self) -> &[String] {
        &self.configured
    }

    /// Returns all endpoints in the order in which they are tried: those that were given, then
    /// those that were learnt; without those that are left out, unless there are no others.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let shared = self.lock();
        let learnt = shared.learnt.iter();
        let learnt = learnt.filter(|endpoint| !self.configured.contains(endpoint));
        let all: Vec<&String> = self.configured.iter().chain(learnt).collect();
        let is_tried = |endpoint: &&&String| !shared.left_out.contains(**endpoint);
        let tried: Vec<String> = (all.iter().filter(is_tried))
            .map(|endpoint| (*endpoint).clone())
            .collect();
        match tried.is_empty() {
            true => all.into_iter().cloned().collect(),
            false => tried,
        }
    }

    /// Has an endpoint left out from now on, or tried again.
    pub fn leave_out(&self, address: &str, is_left_out: bool) {
        let mut shared = self.lock();
        match is_left_out {
            true => drop(shared.left_out.insert(address.to_owned())),
            false => drop(shared.left_out.remove(address)),
        }
        let is_current = shared.current == address;
        drop(shared);
        if is_left_out && is_current {
            self.move_on();
        }
    }

    /// Has all further calls be for this cluster: schedulers of others refuse them, and are left out then.
    pub fn keep_to(&self, cluster: ForCluster) {
        self.lock().cluster = cluster;
    }

    /// Returns the cluster that calls are for.
    #[must_use]
    pub fn cluster(&self) -> ForCluster {
        self.lock().cluster.clone()
    }

    /// Has the next call begin at this endpoint.
    pub fn prefer(&self, address: &str) {
        address.clone_into(&mut self.lock().current);
    }

    /// Replaces the learnt endpoints. Those that are none are left out.
    fn learn(&self, mut endpoints: Vec<String>) {
        endpoints.retain(|endpoint| check_address(endpoint).is_ok());
        self.lock().learnt = endpoints;
    }

    /// Returns the address that is tried first.
    #[must_use]
    pub fn current(&self) -> String {
        self.lock().current.clone()
    }

    /// Has the next call begin at another endpoint: the one that answered last has ended what it
    /// had begun, as a stream, and may be cut off.
    pub fn move_on(&self) {
        let endpoints = self.endpoints();
        let mut shared = self.lock();
        let position = endpoints.iter().position(|e| *e == shared.current);
        // One that is left out is none of them.
        let next = position.map_or(0, |at| (at + 1) % endpoints.len());
        shared.current.clone_from(&endpoints[next]);
    }

    /// Makes a call: again after it reached a member that does not lead, or one that did not
    /// answer, until the policy is exhausted. `call` is given a channel for each attempt:
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use berth_proto::client::SchedulerChannel;
    /// use berth_proto::scheduler::v1::GetVmRequest;
    /// use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
    ///
    /// let scheduler = SchedulerChannel::new(["http://127.0.0.1:7100"])?;
    /// let request = GetVmRequest {
    ///     name: "vms/a".to_owned(),
    ///     ..Default::default()
    /// };
    /// let answer = scheduler
    ///     .call(|channel| {
    ///         let request = request.clone();
    ///         async move { SchedulerServiceClient::new(channel).get_vm(request).await }
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the leader answered; or, once the policy is exhausted, why the last attempt failed, and
    /// [`OUTCOME_UNKNOWN`](crate::status::OUTCOME_UNKNOWN) where one may have been carried out.
    pub async fn call<T, F, Fut>(&self, call: F) -> Result<T, Status>
    where
        F: FnMut(MemberChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let given_up = match self.attempt(call).await {
            Ok(answer) => return answer,
            Err(given_up) => given_up,
        };
        Err(status::to_status(&match given_up.in_doubt {
            true => doubtful(given_up.refusal),
            false => given_up.refusal,
        }))
    }

    /// As [`Self::call`], of a method that changes nothing.
    ///
    /// # Errors
    ///
    /// What the leader answered; or, once the policy is exhausted, why the last attempt failed.
    pub async fn read<T, F, Fut>(&self, call: F) -> Result<T, Status>
    where
        F: FnMut(MemberChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let answer = self.attempt(call).await;
        answer.unwrap_or_else(|given_up| Err(status::to_status(&given_up.refusal)))
    }

    /// Makes attempts until the policy is exhausted or one is answered.
    async fn attempt<T, F, Fut>(&self, mut call: F) -> Result<Result<T, Status>, GivenUp>
    where
        F: FnMut(MemberChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let started = Instant::now();
        let deadline = started + self.policy.deadline;
        let mut silent = Silent::default();
        let mut route = Route::new(self.policy);
        let mut address = self.current();
        let mut election = Election::default();
        // Servers of another kind, and the one that was last named as the leader.
        let (mut others, mut hinted) = (BTreeSet::new(), None);
        let mut last = None;
        let mut in_doubt = false;
        for _ in 0..self.policy.attempts_max.max(1) {
            let channel = match self.member_channel_to(&address) {
                Ok(channel) => channel,
                Err(status) => return Ok(Err(status)),
            };
            let answer = tokio::time::timeout_at(deadline, call(channel)).await;
            let Ok(answer) = answer else {
                in_doubt = true;
                break;
            };
            let status = match answer {
                Ok(response) => {
                    self.lock().current = address;
                    return Ok(Ok(response.into_inner()));
                }
                Err(status) => status,
            };
            let hint = match self.follow(&status) {
                Follow::OtherCluster if self.is_last(&address) => {
                    let refusal = status::from_status(&status);
                    return Err(GivenUp { refusal, in_doubt });
                }
                Follow::OtherCluster => {
                    self.leave_out(&address, true);
                    None
                }
                Follow::Answered => {
                    self.lock().current = address;
                    return Ok(Err(status));
                }
                // A member has named it as the leader: a scheduler of an earlier build.
                Follow::OtherKind if hinted.as_ref() == Some(&address) => {
                    self.lock().current = address;
                    return Ok(Err(status));
                }
                Follow::OtherKind => {
                    others.insert(address.clone());
                    let endpoints = self.endpoints();
                    let may_know = |one: &String| !others.contains(one) && !silent.has(one);
                    if !silent.answered && !endpoints.iter().any(may_know) {
                        // The next call begins where this one did not end.
                        self.lock().current = address;
                        self.move_on();
                        if in_doubt {
                            let refusal = status::from_status(&status);
                            return Err(GivenUp { refusal, in_doubt });
                        }
                        return Ok(Err(status));
                    }
                    hinted = None;
                    let (next, wait) = route.next(None, &address, &endpoints);
                    address = next;
                    if Instant::now() + wait >= deadline {
                        break;
                    }
                    tokio::time::sleep(wait).await;
                    continue;
                }
                Follow::Elsewhere(hint) => hint,
            };
            // Further members may be learnt while this call is repeated.
            let endpoints = self.endpoints();
            silent.note(&address, &status);
            election.note(&address, &status);
            in_doubt |= is_in_doubt(&status);
            last = Some(status);
            if silent.is_of_all(&endpoints) && started.elapsed() >= self.policy.silence_max {
                break;
            }
            hinted.clone_from(&hint);
            let (next, wait) = route.next(hint, &address, &endpoints);
            address = next;
            if Instant::now() + wait >= deadline {
                break;
            }
            if let Some(leader) = self.pause(wait, &mut election).await {
                hinted = Some(leader.clone());
                address = leader;
            }
        }
        self.lock().current = address;
        let refusal = self.exhausted(last, &silent);
        Err(GivenUp { refusal, in_doubt })
    }

    /// Waits before the next round of attempts, no longer than until a member reports a new leader,
    /// which is returned.
    async fn pause(&self, wait: Duration, election: &mut Election) -> Option<String> {
        if wait.is_zero() {
            return None;
        }
        let until = Instant::now() + wait;
        if let Some((witness, lost)) = election.question()
            && let Ok(channel) = self.channel_to(witness)
            && let Some(leader) = election::leader_after(channel, lost, until).await
            && check_address(&leader).is_ok()
            && election.is_news(&leader)
        {
            return Some(leader);
        }
        tokio::time::sleep_until(until).await;
        None
    }

    fn exhausted(&self, last: Option<Status>, silent: &Silent) -> Refusal {
        if let Some(other) = last.as_ref().filter(|status| for_cluster::is_other(status)) {
            return status::from_status(other);
        }
        let endpoints = self.endpoints();
        let is_silent = silent.is_of_all(&endpoints);
        let endpoints = endpoints.join(", ");
        if let Some(status) = last.as_ref().filter(|_| is_silent) {
            let cause = first_cause(status);
            let message = format!("no scheduler answers at {endpoints}: {cause}");
            let refusal = Refusal::new(Code::Unavailable, UNREACHABLE, message);
            return refusal.with("endpoints", endpoints);
        }
        let seen = last
            .as_ref()
            .map_or("no answer in time", |status| status.message());
        let message = format!("no scheduler of {endpoints} took the call: {seen}");
        let mut refusal = Refusal::new(Code::Unavailable, NO_LEADER, message);
        if let Some(unavailable) = last.as_ref().and_then(status::refusal_of) {
            // A member may be reachable and report what it lacks, as a quorum.
            refusal.hint = unavailable.hint;
        }
        refusal
    }

    fn follow(&self, status: &Status) -> Follow {
        // A single request may be for another cluster than the others of a program.
        match for_cluster::is_other(status) && self.cluster().is_one() {
            true => Follow::OtherCluster,
            false => follow(status),
        }
    }

    /// Returns whether there is no endpoint but this one that is tried.
    fn is_last(&self, address: &str) -> bool {
        self.endpoints().iter().all(|endpoint| endpoint == address)
    }

    /// Returns a channel whose calls are for the chosen cluster.
    fn member_channel_to(&self, address: &str) -> Result<MemberChannel, Status> {
        let channel = self.channel_to(address)?;
        Ok(self.cluster().over(channel))
    }

    /// Returns the connection to an address, for calls to whichever cluster is there.
    ///
    /// # Errors
    ///
    /// When the address is not a URL with a host.
    pub fn channel_to(&self, address: &str) -> Result<Channel, Status> {
        let generation = self.dialer.generation();
        let mut shared = self.lock();
        if let Some((made, channel)) = shared.channels.get(address)
            && *made == generation
        {
            return Ok(channel.clone());
        }
        let channel = self.dialer.channel(address, Expected::Scheduler);
        let channel = channel.map_err(|e| Status::internal(e.to_string()))?;
        // Calls that are under way on the connection before go on there.
        let known = (generation, channel.clone());
        shared.channels.insert(address.to_owned(), known);
        Ok(channel)
    }

    /// What is behind the lock is whole at any time, also where a holder panicked.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the operating system's error, as `Connection refused`.
fn first_cause(status: &Status) -> String {
    let mut cause: &dyn std::error::Error = status;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if std::ptr::addr_eq(cause, status) {
        status.message().to_owned()
    } else {
        cause.to_string()
    }
}

/// A call that no attempt carried through.
struct GivenUp {
    /// Why the last attempt failed.
    refusal: Refusal,
    /// Whether an attempt may have been carried out.
    in_doubt: bool,
}

/// Whose silence a call has met with so far.
#[derive(Default)]
struct Silent {
    /// The endpoints that were tried.
    tried: BTreeSet<String>,
    /// Whether any member has responded, be it that another one leads.
    answered: bool,
}

impl Silent {
    fn note(&mut self, address: &str, status: &Status) {
        self.tried.insert(address.to_owned());
        self.answered |= !is_unanswered(status);
    }

    fn has(&self, endpoint: &str) -> bool {
        self.tried.contains(endpoint)
    }

    fn is_of_all(&self, endpoints: &[String]) -> bool {
        !self.answered && endpoints.iter().all(|one| self.tried.contains(one))
    }
}

/// What to do after an attempt failed.
enum Follow {
    /// It was answered by one that may answer.
    Answered,
    /// It was refused by one of another cluster than it is for.
    OtherCluster,
    /// What answered does not know the method: a server of another kind, or a scheduler of an earlier build.
    OtherKind,
    /// It is to be repeated, with the leader's address if that is known.
    Elsewhere(Option<String>),
}

fn follow(status: &Status) -> Follow {
    if is_unanswered(status) {
        return Follow::Elsewhere(None);
    }
    if status.code() == tonic::Code::Unimplemented && status::refusal_of(status).is_none() {
        return Follow::OtherKind;
    }
    if status.code() != tonic::Code::Unavailable {
        return Follow::Answered;
    }
    let refusal = status::from_status(status);
    let hint = status::leader_hint(&refusal).filter(|hint| check_address(hint).is_ok());
    Follow::Elsewhere(hint.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints() -> Vec<String> {
        ["http://a:1", "http://b:1", "http://c:1"]
            .map(String::from)
            .to_vec()
    }

    #[test]
    fn only_addresses_are_taken() {
        assert!(SchedulerChannel::new(endpoints()).is_ok());
        assert!(SchedulerChannel::new(Vec::<String>::new()).is_err());
        assert!(SchedulerChannel::new(["m1:7100"]).is_err());
        assert!(channel("m1:7100").is_err());
    }

    /// Goal: every endpoint is tried, hints are followed at once, and no pattern of hints makes a
    /// busy loop. Method: the route alone.
    #[test]
    fn routes_visit_everyone_and_wait_between_rounds() {
        let all = endpoints();
        let mut route = Route::new(Policy::default());
        let ms = Duration::from_millis;
        let mut step = |hint: Option<&str>, failed: &str| {
            let (next, wait) = route.next(hint.map(str::to_owned), failed, &all);
            (next, wait)
        };
        assert_eq!(step(None, "http://a:1"), ("http://b:1".into(), ms(0)));
        assert_eq!(step(None, "http://b:1"), ("http://c:1".into(), ms(0)));
        assert_eq!(step(None, "http://c:1"), ("http://a:1".into(), ms(50)));
        // A leader that is none of the given endpoints is followed, and left again.
        let other = "http://d:1";
        assert_eq!(step(Some(other), "http://a:1"), (other.into(), ms(0)));
        assert_eq!(step(None, other), ("http://a:1".into(), ms(0)));
        assert_eq!(step(Some(other), "http://a:1"), (other.into(), ms(100)));
        // One that names itself is not queried again at once.
        assert_eq!(step(Some(other), other), (other.into(), ms(200)));
    }

    #[test]
    fn moving_on_goes_round_the_endpoints() {
        let scheduler = SchedulerChannel::new(endpoints()).unwrap();
        let next = || {
            scheduler.move_on();
            scheduler.current()
        };
        let all = ["http://b:1", "http://c:1", "http://a:1"];
        assert_eq!(all.map(|_| next()), all);
    }

    #[test]
    fn learnt_endpoints_come_after_the_configured_ones() {
        let scheduler = SchedulerChannel::new(["http://a:1"]).unwrap();
        let clone = scheduler.clone();
        clone.learn(
            ["http://b:1", "http://a:1", "b:1"]
                .map(String::from)
                .to_vec(),
        );
        assert_eq!(scheduler.endpoints(), ["http://a:1", "http://b:1"]);
        clone.learn(Vec::new());
        assert_eq!(scheduler.endpoints(), ["http://a:1"]);
    }

    #[tokio::test]
    async fn an_answer_ends_the_call_and_a_hint_moves_it() {
        let scheduler = SchedulerChannel::new(endpoints()).unwrap();
        let mut attempts = 0;
        let answer = scheduler
            .call(|_| {
                attempts += 1;
                let answer = match attempts {
                    1 => Err(status::to_status(&status::not_leader(Some("http://c:1")))),
                    2 => Ok(Response::new(7)),
                    _ => Err(Status::not_found("gone")),
                };
                async move { answer }
            })
            .await;
        assert_eq!((answer.unwrap(), attempts), (7, 2));
        assert_eq!(scheduler.current(), "http://c:1");

        let answer = scheduler
            .call(|_| async { Err::<Response<()>, _>(Status::not_found("gone")) })
            .await;
        assert_eq!(answer.unwrap_err().code(), tonic::Code::NotFound);
    }

    #[tokio::test]
    async fn attempts_and_time_are_bounded() {
        let policy = Policy {
            attempts_max: 5,
            wait_min: Duration::from_millis(1),
            ..Policy::default()
        };
        let scheduler = SchedulerChannel::new(endpoints())
            .unwrap()
            .with_policy(policy);
        let mut attempts = 0;
        let answer = scheduler
            .call(|_| {
                attempts += 1;
                async { Err::<Response<()>, _>(status::to_status(&status::not_leader(None))) }
            })
            .await;
        let refusal = status::from_status(&answer.unwrap_err());
        assert_eq!((attempts, &*refusal.reason), (5, "NO_LEADER"));

        let answer = scheduler
            .with_deadline(Duration::from_millis(20))
            .call(|_| std::future::pending::<Result<Response<()>, Status>>())
            .await;
        let refusal = status::from_status(&answer.unwrap_err());
        assert!(refusal.message.contains("no answer in time"), "{refusal}");
        assert_eq!(refusal.reason, status::OUTCOME_UNKNOWN);
    }

    /// Goal: who registers learns at once that nothing answers, and later waits for schedulers that are
    /// being started. Method: the number of attempts.
    #[tokio::test]
    async fn a_first_attempt_tries_each_endpoint_and_does_not_wait() {
        let policy = Policy {
            silence_max: Duration::from_millis(50),
            wait_min: Duration::from_millis(1),
            ..Policy::default()
        };
        let patient = SchedulerChannel::new(endpoints()).unwrap();
        let patient = patient.with_policy(policy);
        let count = async |scheduler: SchedulerChannel| {
            let mut attempts = 0;
            let call = |_| {
                attempts += 1;
                async { Err::<Response<()>, _>(Status::unavailable("refused")) }
            };
            let refusal = status::from_status(&scheduler.read(call).await.unwrap_err());
            assert_eq!(refusal.reason, UNREACHABLE);
            attempts
        };
        let all = endpoints().len();
        assert_eq!(count(patient.clone().without_patience()).await, all);
        assert!(count(patient).await > 2 * all);
    }

    /// Goal: an address of another program beside right ones keeps no call from a scheduler, wherever it stands
    /// and whatever was called before; alone, and where no scheduler knows the method, the answer is its.
    #[tokio::test]
    async fn a_server_of_another_kind_is_passed_over() {
        for wrong in 0..3 {
            let scheduler = SchedulerChannel::new(endpoints()).unwrap();
            for _ in 0..4 {
                let attempts = std::cell::Cell::new(0);
                let call = |_| {
                    let is_wrong = scheduler_at(&scheduler, attempts.get()) == wrong;
                    attempts.set(attempts.get() + 1);
                    async move {
                        match is_wrong {
                            true => Err(Status::unimplemented("")),
                            false => Ok(Response::new(())),
                        }
                    }
                };
                assert!(scheduler.read(call).await.is_ok(), "{wrong}");
                assert!(attempts.get() <= 2, "{wrong}");
            }
        }
        let scheduler = SchedulerChannel::new(endpoints()).unwrap();
        let mut attempts = 0;
        let call = |_| {
            attempts += 1;
            async { Err::<Response<()>, _>(Status::unimplemented("")) }
        };
        let status = scheduler.read(call).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
        assert_eq!(attempts, endpoints().len());
    }

    /// Returns the place of the endpoint of an attempt, counted from 0: they are tried in order.
    fn scheduler_at(scheduler: &SchedulerChannel, attempt: usize) -> usize {
        let current = scheduler.current();
        let first = endpoints().iter().position(|one| *one == current);
        (first.unwrap_or(0) + attempt) % endpoints().len()
    }

    #[test]
    fn a_server_of_another_kind_is_named() {
        let scheduler = SchedulerChannel::new(["http://a:7200"]).unwrap();
        let refusal = scheduler.not_registered(&Status::unimplemented(""));
        assert_eq!(refusal.reason, NOT_A_SCHEDULER);
        assert_eq!(
            refusal.message,
            "the server at http://a:7200 is no scheduler"
        );
        assert!(refusal.hint.is_some());
        let other = scheduler.not_registered(&Status::not_found("none"));
        assert_eq!(other.message, "none");
    }

    /// Goal: a call that is given up is not reported as not executed while one of its attempts may
    /// have been. Method: every order of three kinds of answers, of which the last is repeated.
    #[tokio::test]
    async fn a_call_that_is_given_up_in_doubt_says_so() {
        let follower = status::to_status(&status::not_leader(None));
        let unknown = Refusal::new(Code::Unavailable, status::OUTCOME_UNKNOWN, "it was lost");
        let kinds = [
            (follower, false),
            (status::to_status(&unknown), true),
            (Status::unavailable("the stream broke"), true),
        ];
        let policy = Policy {
            attempts_max: 4,
            wait_min: Duration::from_millis(1),
            ..Policy::default()
        };
        for order in 0..27 {
            let order = [order / 9, order / 3 % 3, order % 3];
            let scheduler = SchedulerChannel::new(endpoints()).unwrap();
            let scheduler = scheduler.with_policy(policy);
            let mut attempts = 0;
            let answer = scheduler.call(|_| {
                let (status, _) = kinds[order[attempts.min(2)]].clone();
                attempts += 1;
                async move { Err::<Response<()>, _>(status) }
            });
            let refusal = status::from_status(&answer.await.unwrap_err());
            let in_doubt = order.iter().any(|kind| kinds[*kind].1);
            assert_eq!(
                refusal.reason == status::OUTCOME_UNKNOWN,
                in_doubt,
                "{order:?}"
            );
            let mut attempts = 0;
            let answer = scheduler.read(|_| {
                let (status, _) = kinds[order[attempts.min(2)]].clone();
                attempts += 1;
                async move { Err::<Response<()>, _>(status) }
            });
            let refusal = status::from_status(&answer.await.unwrap_err());
            assert_ne!(refusal.reason, status::OUTCOME_UNKNOWN, "{order:?}");
        }
    }

    /// Goal: a port without a listener counts as unanswered. Method: a real connection.
    #[tokio::test]
    async fn a_closed_port_is_no_answer() {
        use crate::cluster::v1::cluster_service_client::ClusterServiceClient;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let mut client = ClusterServiceClient::new(channel(&address).unwrap());
        let status = client
            .get_cluster_status(crate::cluster::v1::GetClusterStatusRequest {})
            .await
            .unwrap_err();
        assert!(is_unanswered(&status), "{status:?}");
    }

    /// Goal: a user gets an early error when no member is reachable, with every address and what
    /// was met there; as long as a member responds, the call goes on. Method: closed ports, then
    /// one follower.
    #[tokio::test]
    async fn nobody_there_is_told_soon() {
        use crate::cluster::v1::cluster_service_client::ClusterServiceClient;
        let closed: Vec<String> = (0..2)
            .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
            .map(|listener| format!("http://{}", listener.local_addr().unwrap()))
            .collect();
        let policy = Policy {
            silence_max: Duration::from_millis(20),
            deadline: Duration::from_secs(3600),
            attempts_max: u32::MAX,
            ..Policy::default()
        };
        let scheduler = SchedulerChannel::new(closed.clone()).unwrap();
        let scheduler = scheduler.with_policy(policy);
        let ask = |channel: MemberChannel| async move {
            let request = crate::cluster::v1::GetClusterStatusRequest {};
            let mut client = ClusterServiceClient::new(channel);
            client.get_cluster_status(request).await
        };
        let unsent = ask(channel(&closed[0]).unwrap().into()).await.unwrap_err();
        assert!(is_unanswered(&unsent) && is_unsent(&unsent), "{unsent:?}");
        let refusal = status::from_status(&scheduler.call(ask).await.unwrap_err());
        assert_eq!(refusal.reason, UNREACHABLE);
        for part in [&*closed[0], &*closed[1], "onnection refused"] {
            assert!(refusal.message.contains(part), "{part}: {refusal}");
        }

        let follower = status::to_status(&status::not_leader(None));
        let mut attempts = 0;
        let answer = scheduler.call(|_| {
            attempts += 1;
            let answer = match attempts {
                1..10 => Err(follower.clone()),
                _ => Ok(Response::new(())),
            };
            async move { answer }
        });
        assert!(answer.await.is_ok(), "an election is waited for");
    }
}
