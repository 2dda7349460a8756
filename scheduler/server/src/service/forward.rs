//! Forwarding of commands to the leader, for clients that cannot be redirected.
//!
//! ```text
//!   this member leads  ─▶ decided here
//!   another one leads  ─▶ forwarded to it, with a request id ─▶ decided there, never forwarded again
//!   no leader          ─▶ wait for a leader, for a short time
//! ```
//!
//! What the attempts mean together is [`berth_decide::forwarding`].
//!
//! Not retried is a command that this member proposed as the leader without learning its outcome: it
//! has no request id, since recording each one would add a cost to every write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_codec as codec;
use berth_decide::doubt::Attempt;
use berth_decide::forwarding::{Attempted, Forwarding, Next, Outcome, Response};
use berth_decide::{Action, DecisionRequest};
use berth_domain::id::{RequestId, TimeMs};
use berth_process::BoxFuture;
use berth_proto::client::is_unsent;
use berth_proto::status::{NOT_LEADER, refusal_of};
use berth_proto::types::v1::ReadConsistency;
use berth_replication::runtime::{Leader, ProposeError};
use berth_replication::transport::Answering;
use berth_state::State;
use berth_state::command::{Command, Envelope, RequestKey};
use bytes::Bytes;
use tokio::sync::watch::Receiver;
use tonic::{Code, Status};
use uuid::{NoContext, Timestamp, Uuid};
use xxhash_rust::xxh3::xxh3_128;

use super::context::{Context, NoOutcome, wall};
use super::refusal;

/// The method under which forwarded requests are recorded.
const METHOD: &str = "Forward";
/// The first pause before a retry; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

impl Context {
    /// Executes a command at the leader, and returns its outcome once it is
    /// durable.
    ///
    /// # Errors
    ///
    /// When the outcome is unknown, or there is no leader.
    pub(crate) fn execute_at_leader(
        &self,
        principal: String,
        command: Command,
    ) -> BoxFuture<'_, Result<Outcome, Status>> {
        Box::pin(self.execute_or_forward(principal, command))
    }

    /// As [`Self::execute_at_leader`], of a request with an id: however often it is made, it is carried out once.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn execute_once_at_leader(
        &self,
        principal: String,
        command: Command,
        method: &'static str,
        id: RequestId,
    ) -> BoxFuture<'_, Result<Outcome, Status>> {
        Box::pin(async move {
            let forwarded = ForwardedCommand::new(self, principal, command, method, id);
            forwarded.outcome().await
        })
    }

    async fn execute_or_forward(
        &self,
        principal: String,
        command: Command,
    ) -> Result<Outcome, Status> {
        if self.handle().leader().role.deciding {
            let request = DecisionRequest::new(principal.clone(), Action::Plain(command.clone()));
            match self.propose(Arc::new(request), |_, _| ()).await {
                Ok((done, ())) => return Ok(done.map(|done| done.reply)),
                Err(NoOutcome::Propose(ProposeError::NotLeader { .. })) => {}
                Err(error) => return Err(error.into_status(self.urls())),
            }
        }
        let time = self.bounded(self.stale(State::time)).await??;
        let id = request_id(time);
        let forwarded = ForwardedCommand::new(self, principal, command, METHOD, id);
        forwarded.outcome().await
    }
}

/// Why no further attempt is made. It states nothing about the attempts that were made.
enum GivenUp {
    /// No leader takes the command in time.
    NoLeader,
    /// This member cannot go on.
    Here(Status),
}

/// A command that is being forwarded.
struct ForwardedCommand<'c> {
    context: &'c Context,
    request: Arc<DecisionRequest>,
    envelope: Envelope,
    bytes: Bytes,
    core: Forwarding,
}

impl<'c> ForwardedCommand<'c> {
    fn new(
        context: &'c Context,
        principal: String,
        command: Command,
        method: &str,
        id: RequestId,
    ) -> Self {
        let mut envelope = Envelope {
            // The leader writes the time.
            at: TimeMs(0),
            principal,
            request: None,
            audit: None,
            command,
        };
        let key = RequestKey {
            method: method.to_owned(),
            id,
            payload_hash: xxh3_128(&codec::encode_command(&envelope)),
        };
        envelope.request = Some(key);
        Self {
            context,
            request: Arc::new(to_request(envelope.clone())),
            bytes: codec::encode_command(&envelope),
            envelope,
            core: Forwarding::default(),
        }
    }

    /// Returns the outcome, in the time that a request has.
    async fn outcome(mut self) -> Result<Outcome, Status> {
        let limit = self.context.request_timeout();
        let end = tokio::time::timeout(limit, self.execute()).await;
        self.response(end.unwrap_or(Err(GivenUp::NoLeader)))
    }

    /// Retries until there is an outcome. The caller bounds the time.
    async fn execute(&mut self) -> Result<Outcome, GivenUp> {
        let mut leader = self.context.handle().watch_leader();
        let (mut pause, begun) = (PAUSE_MIN, Instant::now());
        loop {
            let seen = leader.borrow_and_update().clone();
            if let Some(outcome) = self.attempt(&seen, &mut leader).await? {
                return Ok(outcome);
            }
            let waited = begun.elapsed() > self.context.leader_wait();
            if self.core.is_hopeless(seen.member.is_some(), waited) {
                return Err(GivenUp::NoLeader);
            }
            tokio::select! {
                () = self.context.stopping().cancelled() => {
                    return Err(GivenUp::Here(refusal::stopping()));
                }
                changed = leader.changed() => {
                    changed.map_err(|_| GivenUp::Here(refusal::stopping()))?;
                }
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Makes one attempt; returns `None` if it may be retried.
    async fn attempt(
        &mut self,
        seen: &Leader,
        leader: &mut Receiver<Leader>,
    ) -> Result<Option<Outcome>, GivenUp> {
        if seen.role.deciding {
            return self.attempt_here().await;
        }
        let member = seen.member.as_ref().filter(|member| member.id != seen.id);
        let Some(member) = member.filter(|member| !member.address.is_empty()) else {
            return Ok(None);
        };
        let replaced = |now: &Leader| now.role.leader.is_some_and(|id| id != member.id);
        let attempt = self.core.begin();
        let response = tokio::select! {
            biased;
            response = self.context.forwarder().forward(member, self.bytes.clone()) => response,
            _ = leader.wait_for(replaced) => return Ok(None),
        };
        let attempted = match response {
            Ok(bytes) => match codec::decode_outcome(&bytes) {
                Ok(outcome) => Attempted::Outcome(outcome),
                Err(error) => {
                    tracing::error!(%error, "failed to decode the leader's response");
                    return Err(GivenUp::Here(refusal::mismatch()));
                }
            },
            Err(status) => match self.classify(&status).await {
                Ok(attempted) => attempted,
                Err(given_up) => {
                    self.core.end(attempt, Attempted::NotDone);
                    return Err(given_up);
                }
            },
        };
        self.end(attempt, attempted)
    }

    async fn attempt_here(&mut self) -> Result<Option<Outcome>, GivenUp> {
        let attempt = self.core.begin();
        let attempted = match self.context.propose(self.request.clone(), |_, _| ()).await {
            Ok((done, ())) => Attempted::Outcome(done.map(|done| done.reply)),
            Err(NoOutcome::Propose(ProposeError::NotLeader { .. })) => Attempted::NotDone,
            Err(NoOutcome::Propose(ProposeError::Lost { .. }) | NoOutcome::TimedOut) => {
                Attempted::Unknown
            }
            Err(error @ NoOutcome::Propose(ProposeError::Stopped)) => {
                self.core.end(attempt, Attempted::NotDone);
                return Err(GivenUp::Here(error.into_status(self.context.urls())));
            }
        };
        self.end(attempt, attempted)
    }

    fn end(&mut self, attempt: Attempt, attempted: Attempted) -> Result<Option<Outcome>, GivenUp> {
        match self.core.end(attempt, attempted) {
            Next::Retry => Ok(None),
            Next::Outcome(outcome) => Ok(Some(outcome)),
            Next::GiveUp => Err(GivenUp::NoLeader),
        }
    }

    /// Classifies an attempt that another member answered with an error, or did not answer.
    async fn classify(&self, status: &Status) -> Result<Attempted, GivenUp> {
        let error = status.message();
        Ok(match Failed::of(status) {
            Failed::Undecodable => self.rejected().await?,
            Failed::Rejected => {
                tracing::warn!(error, "the leader rejects forwarded commands");
                Attempted::Rejected
            }
            Failed::NotReached => Attempted::NotDone,
            Failed::TooLarge => {
                tracing::warn!(error, "a forwarded command or its response is too large");
                Attempted::UnknownForGood
            }
            Failed::Unanswered => Attempted::Unknown,
        })
    }

    /// A command that another member cannot decode exceeds a limit of the state, which names it.
    async fn rejected(&self) -> Result<Attempted, GivenUp> {
        let state = self.context.state(ReadConsistency::Linearizable.into());
        let mut state = state.await.map_err(GivenUp::Here)?;
        Ok(
            match state.speculate(state.revision() + 1, &self.envelope) {
                Err(refusal) => Attempted::Outcome(Err(refusal)),
                Ok(_) => Attempted::Rejected,
            },
        )
    }

    /// Returns what the client gets.
    fn response(&self, end: Result<Outcome, GivenUp>) -> Result<Outcome, Status> {
        let (outcome, given_up) = match end {
            Ok(outcome) => (Some(outcome), GivenUp::NoLeader),
            Err(given_up) => (None, given_up),
        };
        match (self.core.response(outcome), given_up) {
            (Response::Outcome(outcome), _) => Ok(outcome),
            (Response::InDoubt, _) => Err(refusal::timed_out()),
            (Response::NotDone, GivenUp::Here(status)) => Err(status),
            (Response::NotDone, GivenUp::NoLeader) => Err(self.context.elsewhere()),
        }
    }
}

/// What an error states about an attempt at another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    /// Nothing: it may be executed.
    Unanswered,
    /// As [`Self::Unanswered`], and a retry is useless: the command or its response exceeds what
    /// members send each other, and the error does not distinguish them.
    TooLarge,
    /// The member cannot decode the command, and executed nothing.
    Undecodable,
    /// The member does not accept this one, or does not support forwarding, and executed nothing.
    Rejected,
    /// The member does not lead, or nothing was sent to it.
    NotReached,
}

impl Failed {
    fn of(status: &Status) -> Self {
        if is_unsent(status) {
            return Self::NotReached;
        }
        let refusal = refusal_of(status);
        if refusal.is_some_and(|refusal| refusal.reason == NOT_LEADER) {
            return Self::NotReached;
        }
        match status.code() {
            Code::InvalidArgument => Self::Undecodable,
            Code::Unimplemented | Code::FailedPrecondition | Code::PermissionDenied => {
                Self::Rejected
            }
            Code::OutOfRange => Self::TooLarge,
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::NotFound
            | Code::AlreadyExists
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
            | Code::Unauthenticated => Self::Unanswered,
        }
    }
}

/// Returns the request of an envelope.
fn to_request(envelope: Envelope) -> DecisionRequest {
    DecisionRequest {
        principal: envelope.principal,
        key: envelope.request,
        validate_only: false,
        action: Action::Plain(envelope.command),
    }
}

/// Returns a fresh id with its creation time. A machine whose clock is behind replicated time
/// must not create ids that count as forgotten.
fn request_id(time: TimeMs) -> RequestId {
    let now = wall().0.max(time.0);
    let nanos = u32::try_from(now % 1000).unwrap_or(0) * 1_000_000;
    RequestId(Uuid::new_v7(Timestamp::from_unix(
        NoContext,
        now / 1000,
        nanos,
    )))
}

#[tonic::async_trait]
impl Answering for Context {
    async fn answer(&self, envelope: Bytes) -> Result<Bytes, Status> {
        let read = codec::decode_command(&envelope);
        let envelope = read.map_err(|error| refusal::invalid("envelope", &error.to_string()))?;
        if envelope.request.is_none() {
            // It could not be repeated.
            return Err(refusal::invalid("envelope.request", "is required"));
        }
        let request = to_request(envelope);
        let proposed = self.propose(Arc::new(request), |_, _| ()).await;
        let (done, ()) = proposed.map_err(|error| error.into_status(self.urls()))?;
        Ok(codec::encode_outcome(&done.map(|done| done.reply)))
    }
}
