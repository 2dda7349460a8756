//! Forwarding of commands to the leader, for clients that cannot be redirected.
//!
//! ```text
//!   this member leads  ─▶ decided here
//!   another one leads  ─▶ forwarded to it, with a request id ─▶ decided there, never forwarded again
//!   no leader          ─▶ wait for a leader, for a short time
//! ```
//!
//! An attempt without a response may have been executed, or may be later. It is retried with the
//! same request id, at the same leader or at the next one, and the state's record of requests
//! returns the first response again. So every response is for one execution.
//!
//! A refusal is a response to one attempt: it is not in that record, and an earlier attempt that
//! arrives late can still be executed. So it is returned only while no other attempt is in doubt.
//!
//! Not retried is a command that this member proposed as the leader without learning its outcome: it
//! has no request id, since recording each one would add a cost to every write.
//!
//! Invariant: a command that may be executed, now or later, is never reported as not executed. What
//! ends the attempts ([`GivenUp`]) is not a response; [`ForwardedCommand::response`] makes one of
//! it, the only place that does, and looks at the [`Doubt`] first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::id::{RequestId, TimeMs};
use berth_domain::refusal::Refusal;
use berth_process::BoxFuture;
use berth_proto::client::is_unsent;
use berth_proto::status::{NOT_LEADER, refusal_of};
use berth_proto::types::v1::ReadConsistency;
use berth_replication::runtime::{Leader, ProposeError};
use berth_replication::transport::Answering;
use berth_state::command::{Command, Envelope, RequestKey};
use berth_state::request::OUTCOME_FORGOTTEN;
use berth_state::{Reply, State};
use berth_store::codec;
use bytes::Bytes;
use tokio::sync::watch::Receiver;
use tonic::{Code, Status};
use uuid::{NoContext, Timestamp, Uuid};
use xxhash_rust::xxh3::xxh3_128;

use super::context::{Context, NoOutcome, wall};
use super::doubt::{Attempt, Doubt};
use super::refusal;
use crate::core::{Action, DecisionRequest};

/// The method under which forwarded requests are recorded.
const METHOD: &str = "Forward";
/// The first pause before a retry; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Refusals of an attempt that do not say what came of an earlier one: the record of requests does
/// not reach back far enough, the outcome is forgotten, or (before outcomes were recorded) what the
/// request made is not there any more.
const RECALLED: [&str; 3] = ["REQUEST_ID_FORGOTTEN", OUTCOME_FORGOTTEN, "ANSWER_GONE"];

/// The outcome of a command.
type Outcome = Result<Reply, Refusal>;

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
                Err(error) => return Err(error.into()),
            }
        }
        let time = self.bounded(self.stale(State::time)).await??;
        let mut forwarded = ForwardedCommand::new(self, principal, command, time);
        let end = tokio::time::timeout(self.request_timeout(), forwarded.execute()).await;
        forwarded.response(end.unwrap_or(Err(GivenUp::NoLeader)))
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
    /// The attempts without an outcome.
    doubt: Doubt,
}

impl<'c> ForwardedCommand<'c> {
    fn new(context: &'c Context, principal: String, command: Command, time: TimeMs) -> Self {
        let mut envelope = Envelope {
            // The leader writes the time.
            at: TimeMs(0),
            principal,
            request: None,
            audit: None,
            command,
        };
        let key = RequestKey {
            method: METHOD.to_owned(),
            id: request_id(time),
            payload_hash: xxh3_128(&codec::encode_command(&envelope)),
        };
        envelope.request = Some(key);
        Self {
            context,
            request: Arc::new(to_request(envelope.clone())),
            bytes: codec::encode_command(&envelope),
            envelope,
            doubt: Doubt::default(),
        }
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
            if seen.member.is_none() && waited && !self.doubt.is_open() {
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
        let attempt = self.doubt.begin();
        let response = tokio::select! {
            biased;
            response = self.context.forwarder().forward(member, self.bytes.clone()) => response,
            _ = leader.wait_for(replaced) => return Ok(None),
        };
        match response {
            Ok(bytes) => match codec::decode_outcome(&bytes) {
                Ok(outcome) => {
                    self.doubt.close(attempt);
                    Ok(Some(outcome))
                }
                Err(error) => {
                    tracing::error!(%error, "failed to decode the leader's response");
                    Err(GivenUp::Here(refusal::mismatch()))
                }
            },
            Err(status) => self.classify(attempt, &status).await,
        }
    }

    async fn attempt_here(&mut self) -> Result<Option<Outcome>, GivenUp> {
        let attempt = self.doubt.begin();
        match self.context.propose(self.request.clone(), |_, _| ()).await {
            Ok((done, ())) => {
                self.doubt.close(attempt);
                Ok(Some(done.map(|done| done.reply)))
            }
            Err(NoOutcome::Propose(ProposeError::NotLeader { .. })) => {
                self.doubt.close(attempt);
                Ok(None)
            }
            Err(NoOutcome::Propose(ProposeError::Lost { .. }) | NoOutcome::TimedOut) => Ok(None),
            Err(error @ NoOutcome::Propose(ProposeError::Stopped)) => {
                self.doubt.close(attempt);
                Err(GivenUp::Here(error.into()))
            }
        }
    }

    /// Classifies an attempt that another member answered with an error, or did not answer.
    async fn classify(
        &mut self,
        attempt: Attempt,
        status: &Status,
    ) -> Result<Option<Outcome>, GivenUp> {
        match Failed::of(status) {
            Failed::Undecodable => {
                self.doubt.close(attempt);
                self.rejected().await
            }
            Failed::Rejected => {
                self.doubt.close(attempt);
                let error = status.message();
                tracing::warn!(error, "the leader rejects forwarded commands");
                Err(GivenUp::NoLeader)
            }
            Failed::NotReached => {
                self.doubt.close(attempt);
                Ok(None)
            }
            Failed::TooLarge => {
                let error = status.message();
                tracing::warn!(error, "a forwarded command or its response is too large");
                Err(GivenUp::NoLeader)
            }
            Failed::Unanswered => Ok(None),
        }
    }

    /// A command that another member cannot decode exceeds a limit of the state, which names it.
    async fn rejected(&self) -> Result<Option<Outcome>, GivenUp> {
        let state = self.context.state(ReadConsistency::Linearizable.into());
        let mut state = state.await.map_err(GivenUp::Here)?;
        match state.speculate(state.revision() + 1, &self.envelope) {
            Err(refusal) => Ok(Some(Err(refusal))),
            Ok(_) => Err(GivenUp::NoLeader),
        }
    }

    /// Returns what the client gets.
    fn response(&self, end: Result<Outcome, GivenUp>) -> Result<Outcome, Status> {
        match end {
            // The attempts are one execution: this is its outcome.
            Ok(Ok(reply)) => Ok(Ok(reply)),
            Ok(Err(_)) | Err(_) if self.doubt.is_open() => Err(refusal::timed_out()),
            Ok(Err(refusal)) if RECALLED.contains(&&*refusal.reason) => Err(refusal::timed_out()),
            Ok(Err(refusal)) => Ok(Err(refusal)),
            Err(GivenUp::NoLeader) => {
                let leader = self.context.handle().leader();
                Err(refusal::elsewhere(leader.member.as_ref()))
            }
            Err(GivenUp::Here(status)) => Err(status),
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
        let (done, ()) = self.propose(Arc::new(request), |_, _| ()).await?;
        Ok(codec::encode_outcome(&done.map(|done| done.reply)))
    }
}
