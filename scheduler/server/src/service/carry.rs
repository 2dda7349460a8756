//! Carrying a command to whoever leads, for a client that cannot be sent there.
//!
//! ```text
//!   this member leads  ─▶ decided here
//!   another one leads  ─▶ forwarded to it, under a request id ─▶ decided there, never passed on
//!   nobody leads       ─▶ wait for a leader, not for long
//! ```
//!
//! An attempt that ends without an answer may have been carried out. It is repeated under the same
//! request id, at the same leader or at the next one, and the state's memory of requests gives the
//! first answer again. So whoever is answered is answered for one execution.
//!
//! What is not repeated is a command that this member took as the leader and saw no end of: it has
//! no request id, for remembering each one would cost every write something.
//!
//! Invariant: nothing is told as undone that may have been done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_domain::id::{RequestId, TimeMs};
use berth_domain::refusal::Refusal;
use berth_proto::status::{NOT_LEADER, refusal_of};
use berth_proto::types::v1::ReadConsistency;
use berth_replication::runtime::{Leader, ProposeError};
use berth_replication::transport::Answering;
use berth_state::command::{Command, Envelope, RequestKey};
use berth_state::{Reply, State};
use berth_store::codec;
use bytes::Bytes;
use tokio::sync::watch::Receiver;
use tonic::{Code, Status};
use uuid::{NoContext, Timestamp, Uuid};
use xxhash_rust::xxh3::xxh3_128;

use super::context::{Context, Unanswered, wall};
use super::refusal;
use crate::core::{Ask, Request};

/// Under which method the memory of requests knows what was forwarded.
const METHOD: &str = "Forward";
/// The first pause before an attempt is repeated; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What came of a command.
type Outcome = Result<Reply, Refusal>;

impl Context {
    /// Has a command carried out by whoever leads, and returns what came of it once that is
    /// durable.
    ///
    /// # Errors
    ///
    /// When there is no telling, or nobody leads.
    pub(crate) async fn carry(
        &self,
        principal: String,
        command: Command,
    ) -> Result<Outcome, Status> {
        if self.handle().leader().role.deciding {
            let ask = Ask::new(principal.clone(), Request::Plain(command.clone()));
            match self.propose(Arc::new(ask), |_, _| ()).await {
                Ok((done, ())) => return Ok(done.map(|done| done.reply)),
                Err(Unanswered::Propose(ProposeError::NotLeader { .. })) => {}
                Err(unanswered) => return Err(unanswered.into()),
            }
        }
        let time = self.stale(State::time).await?;
        let mut errand = Errand::new(self, principal, command, time);
        let done = tokio::time::timeout(self.request_timeout(), errand.attempts()).await;
        done.unwrap_or_else(|_| Err(errand.given_up()))
    }
}

/// A command on its way.
struct Errand<'c> {
    context: &'c Context,
    ask: Arc<Ask>,
    envelope: Envelope,
    bytes: Bytes,
    /// Whether an attempt ended without an answer.
    is_in_doubt: bool,
}

impl<'c> Errand<'c> {
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
            ask: Arc::new(asked(envelope.clone())),
            bytes: codec::encode_command(&envelope),
            envelope,
            is_in_doubt: false,
        }
    }

    /// Attempts it until it is answered. Whoever calls bounds the time.
    async fn attempts(&mut self) -> Result<Outcome, Status> {
        let mut leader = self.context.handle().watch_leader();
        let (mut pause, begun) = (PAUSE_MIN, Instant::now());
        loop {
            let seen = leader.borrow_and_update().clone();
            if let Some(outcome) = self.attempt(&seen, &mut leader).await? {
                return self.told(outcome);
            }
            let waited = begun.elapsed() > self.context.leader_wait();
            if seen.member.is_none() && waited && !self.is_in_doubt {
                return Err(self.given_up());
            }
            tokio::select! {
                () = self.context.stopping().cancelled() => return Err(self.given_up()),
                changed = leader.changed() => changed.map_err(|_| self.given_up())?,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Attempts it once; nothing if it may be attempted again.
    async fn attempt(
        &mut self,
        seen: &Leader,
        leader: &mut Receiver<Leader>,
    ) -> Result<Option<Outcome>, Status> {
        if seen.role.deciding {
            return self.attempt_here().await;
        }
        let member = seen.member.as_ref().filter(|member| member.id != seen.id);
        let Some(member) = member.filter(|member| !member.address.is_empty()) else {
            return Ok(None);
        };
        let replaced = |now: &Leader| now.role.leader.is_some_and(|id| id != member.id);
        let answered = tokio::select! {
            biased;
            answered = self.context.forwarder().forward(member, self.bytes.clone()) => answered,
            _ = leader.wait_for(replaced) => {
                self.is_in_doubt = true;
                return Ok(None);
            }
        };
        match answered {
            Ok(bytes) => codec::decode_outcome(&bytes).map(Some).map_err(|error| {
                tracing::error!(%error, "the leader's answer cannot be read");
                refusal::mismatch()
            }),
            Err(status) if status.code() == Code::InvalidArgument => self.unreadable().await,
            Err(status) => self.unanswered(&status).map(|()| None),
        }
    }

    /// What another member cannot read is more than the state keeps: it says so itself.
    async fn unreadable(&self) -> Result<Option<Outcome>, Status> {
        let state = self.context.state(ReadConsistency::Linearizable.into());
        let mut state = state.await?;
        match state.speculate(state.revision() + 1, &self.envelope) {
            Err(refusal) => Ok(Some(Err(refusal))),
            Ok(_) => Err(self.given_up()),
        }
    }

    async fn attempt_here(&mut self) -> Result<Option<Outcome>, Status> {
        match self.context.propose(self.ask.clone(), |_, _| ()).await {
            Ok((done, ())) => Ok(Some(done.map(|done| done.reply))),
            Err(Unanswered::Propose(ProposeError::NotLeader { .. })) => Ok(None),
            Err(Unanswered::Propose(ProposeError::Lost { .. }) | Unanswered::TimedOut) => {
                self.is_in_doubt = true;
                Ok(None)
            }
            Err(unanswered @ Unanswered::Propose(ProposeError::Stopped)) => Err(unanswered.into()),
        }
    }

    /// Judges an attempt without an answer; an error if repeating it is of no use.
    fn unanswered(&mut self, status: &Status) -> Result<(), Status> {
        // The other one has nothing to do with this member, or does not know what is asked: it
        // did nothing.
        let useless = [
            Code::Unimplemented,
            Code::FailedPrecondition,
            Code::PermissionDenied,
            Code::OutOfRange,
        ];
        if useless.contains(&status.code()) {
            tracing::warn!(error = status.message(), "the leader takes no command");
            return Err(self.given_up());
        }
        let undone = refusal_of(status).is_some_and(|refusal| refusal.reason == NOT_LEADER);
        self.is_in_doubt |= !undone;
        Ok(())
    }

    /// Looks whether the memory of requests reached far enough.
    fn told(&self, outcome: Outcome) -> Result<Outcome, Status> {
        match outcome {
            Err(refusal) if refusal.reason == "REQUEST_ID_FORGOTTEN" => Err(refusal::timed_out()),
            outcome => Ok(outcome),
        }
    }

    fn given_up(&self) -> Status {
        match self.is_in_doubt {
            true => refusal::timed_out(),
            false => refusal::elsewhere(self.context.handle().leader().member.as_ref()),
        }
    }
}

/// Returns what an envelope asks for.
fn asked(envelope: Envelope) -> Ask {
    Ask {
        principal: envelope.principal,
        key: envelope.request,
        validate_only: false,
        request: Request::Plain(envelope.command),
    }
}

/// Returns a fresh id that tells when it was made. A machine whose clock is behind replicated time
/// must not make ids that count as forgotten.
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
        let ask = asked(envelope);
        let (done, ()) = self.propose(Arc::new(ask), |_, _| ()).await?;
        Ok(codec::encode_outcome(&done.map(|done| done.reply)))
    }
}
