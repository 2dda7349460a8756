//! The handle: how the rest of the server sends requests to a member.
//!
//! A handle is cheap to clone and holds no state. Requests go to the owner through bounded
//! channels: decisions through one that the owner leaves alone while its disk is busy, everything
//! else through another. Closures run there, on the owner's states, and must be short.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use berth_store::{Member, Membership};
use raft::eraftpb::Entry;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::effects::{AppliedBatch, Position, Replaced, Role};
use crate::error::Refused;
use crate::history::{HistoryError, Reached};
use crate::machine::Machine;
use crate::replica::{Change, MemberStatus};
use crate::retained::Retained;

/// What a decision came to.
pub enum Decision<C, R> {
    /// Replicate this command and answer with its outcome.
    Command(C),
    /// Nothing is to be changed: answer with this. It is returned only after everything that the
    /// decision saw is committed and the leader is known to lead still.
    Answer(R),
}

/// A command that is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed<O> {
    /// Where it stands in the log; also the revision of the state after it.
    pub index: u64,
    /// What it did.
    pub outcome: O,
}

/// What a request was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposed<O, R> {
    /// A command was replicated.
    Committed(Committed<O>),
    /// The decision needed none.
    Answered(R),
}

/// Who leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// The term, who leads it as far as known, and whether this member decides.
    pub role: Role,
    /// The leader's description, if known.
    pub member: Option<Member>,
    /// This member's id.
    pub id: u64,
}

/// Why a proposal has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another member leads; nothing happened.
    #[error("this member does not lead{}", hint(.leader))]
    NotLeader {
        /// The leader, if known.
        leader: Option<Member>,
    },
    /// Leadership was lost, or the member stopped, while the command was in flight; it may or may
    /// not commit.
    #[error("leadership was lost before the command was seen to commit{}", hint(.leader))]
    Lost {
        /// The new leader, if known.
        leader: Option<Member>,
    },
    /// The member is shutting down, or stopped, and had decided nothing; nothing happened.
    #[error("this member is stopping")]
    Stopped,
}

/// Why a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No majority confirmed it in time.
    #[error("the read was not confirmed in time{}", hint(.leader))]
    Unconfirmed {
        /// The leader, if known.
        leader: Option<Member>,
    },
    /// This member has not received a state yet.
    #[error("this member has no state yet")]
    NoState,
    /// The member is shutting down, or stopped.
    #[error("this member is stopping")]
    Stopped,
}

/// Why the membership did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// Not now, or not like this; nothing happened.
    #[error("{refused}{}", hint(.leader))]
    Refused {
        /// Why.
        refused: Refused,
        /// The leader, if known.
        leader: Option<Member>,
    },
    /// Leadership was lost, or the member stopped, while the change was in flight; it may or may
    /// not take effect.
    #[error("leadership was lost before the change was seen to take effect{}", hint(.leader))]
    Lost {
        /// The new leader, if known.
        leader: Option<Member>,
    },
    /// The member is shutting down, or stopped, and had begun nothing; nothing happened.
    #[error("this member is stopping")]
    Stopped,
}

/// Why the log thread stopped.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log could not be written.
    #[error(transparent)]
    Log(#[from] berth_store::log::Error),
    /// A received checkpoint could not be given its name.
    #[error(transparent)]
    Install(#[from] berth_store::checkpoints::Error),
    /// The engine gave up, most likely because a synchronisation failed.
    #[error(
        "the thread that writes the Raft log panicked; what it last wrote may not be durable: {0}"
    )]
    Panicked(String),
}

fn hint(leader: &Option<Member>) -> String {
    match leader {
        Some(member) => format!("; member {} at {} does", member.id, member.address),
        None => String::new(),
    }
}

/// What happened to the state, for those who follow it.
#[derive(Clone)]
pub enum Event<M: Machine> {
    /// Commands were applied.
    Applied(Arc<AppliedBatch<M>>),
    /// A snapshot took the place of the state; a follower must start over from it.
    Replaced(Arc<Replaced<M>>),
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// This member's id.
    pub id: u64,
    /// What it is to its cluster.
    pub role: Role,
    /// Where its state is.
    pub position: Position,
    /// Up to where it knows the log to be committed.
    pub committed: u64,
    /// The first entry that its log still has.
    pub first_index: u64,
    /// The end of its log.
    pub last_index: u64,
    /// The membership at the applied index.
    pub membership: Arc<Membership>,
    /// How far the members are; known to the leader only.
    pub progress: Vec<MemberStatus>,
    /// Decisions that wait to be made.
    pub queued: usize,
    /// Proposals that wait for their commit.
    pub pending: usize,
    /// What the replica retains besides the state.
    pub retained: Vec<Retained>,
    /// For how long the disk of the log has owed an answer, to the precision of a tick.
    pub disk_silent: Duration,
}

/// A decision to make and its answer to give, without its types.
pub(super) trait Job<M: Machine>: Send {
    /// Decides on the speculative state. Returns a command, or keeps its answer.
    fn decide(&mut self, state: &M) -> Option<M::Command>;
    /// Ends it: with the applied state, and what became of the command if there was one.
    fn finish(self: Box<Self>, result: Result<Settled<'_, M>, ProposeError>);
}

/// What ends a decision that stands.
pub(super) struct Settled<'m, M: Machine> {
    /// The applied state; it contains the command.
    pub(super) machine: &'m M,
    /// The command's outcome; `None` where the decision needed no command.
    pub(super) committed: Option<Committed<M::Outcome>>,
}

/// What a decision came to, and what was read of the state then.
type DecisionResult<M, R, T> = Result<(Proposed<<M as Machine>::Outcome, R>, T), ProposeError>;

struct DecideJob<M: Machine, F, R, G, T> {
    decide: Option<F>,
    answer: Option<R>,
    then: G,
    reply: DecisionReply<M, R, T>,
}

/// The way back for the result of a decision.
///
/// Invariant: the caller is answered. A job can end without an answer anywhere (its owner stops,
/// panics or is aborted), so what the caller then gets follows from what was begun, not from the
/// place: once the decision is made, the command may be on its way to other members.
struct DecisionReply<M: Machine, R, T> {
    sender: Option<oneshot::Sender<DecisionResult<M, R, T>>>,
    decided: bool,
}

impl<M: Machine, R, T> DecisionReply<M, R, T> {
    fn send(mut self, result: DecisionResult<M, R, T>) {
        if let Some(sender) = self.sender.take() {
            // The caller may have gone; the command stands all the same.
            let _ = sender.send(result);
        }
    }
}

impl<M: Machine, R, T> Drop for DecisionReply<M, R, T> {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            // As above.
            let _ = sender.send(Err(match self.decided {
                true => ProposeError::Lost { leader: None },
                false => ProposeError::Stopped,
            }));
        }
    }
}

impl<M, F, R, G, T> Job<M> for DecideJob<M, F, R, G, T>
where
    M: Machine,
    F: FnOnce(&M) -> Decision<M::Command, R> + Send,
    R: Send,
    G: FnOnce(&M, &Proposed<M::Outcome, R>) -> T + Send,
    T: Send,
{
    fn decide(&mut self, state: &M) -> Option<M::Command> {
        self.reply.decided = true;
        match self.decide.take()?(state) {
            Decision::Command(command) => Some(command),
            Decision::Answer(answer) => {
                self.answer = Some(answer);
                None
            }
        }
    }

    fn finish(self: Box<Self>, result: Result<Settled<'_, M>, ProposeError>) {
        let Self {
            answer,
            then,
            reply,
            ..
        } = *self;
        let outcome = result.and_then(|Settled { machine, committed }| {
            let proposed = match (committed, answer) {
                (Some(committed), _) => Proposed::Committed(committed),
                (None, Some(answer)) => Proposed::Answered(answer),
                (None, None) => return Err(ProposeError::Stopped),
            };
            let read = then(machine, &proposed);
            Ok((proposed, read))
        });
        reply.send(outcome);
    }
}

/// A read to serve, without its type.
pub(super) trait ReadJob<M>: Send {
    fn finish(self: Box<Self>, result: Result<&M, ReadError>);
}

struct ReadWith<F, T> {
    read: F,
    reply: oneshot::Sender<Result<T, ReadError>>,
}

impl<M, F, T> ReadJob<M> for ReadWith<F, T>
where
    F: FnOnce(&M) -> T + Send,
    T: Send,
{
    fn finish(self: Box<Self>, result: Result<&M, ReadError>) {
        let _ = self.reply.send(result.map(self.read));
    }
}

/// A request to the owner that waits for no disk.
pub(super) enum Request<M: Machine> {
    Read(Box<dyn ReadJob<M>>),
    ReadStale(Box<dyn ReadJob<M>>),
    Status(oneshot::Sender<Status>),
    Snapshot(oneshot::Sender<Result<Replaced<M>, ReadError>>),
    Log {
        after: Reached,
        bytes_max: u64,
        reply: oneshot::Sender<Result<Vec<Entry>, HistoryError>>,
    },
    AddMember {
        member: Member,
        reply: oneshot::Sender<Result<u64, MembershipError>>,
    },
    Change {
        changes: Vec<Change>,
        /// The membership that it was checked against.
        checked: Option<Arc<Membership>>,
        reply: oneshot::Sender<Result<u64, MembershipError>>,
    },
    Transfer {
        to: Option<u64>,
        reply: oneshot::Sender<Result<(), MembershipError>>,
    },
    Checkpoint,
}

impl<M: Machine> Request<M> {
    /// Ends a request that the owner has not begun.
    pub(super) fn stop(self) {
        match self {
            Self::AddMember { reply, .. } | Self::Change { reply, .. } => {
                // The caller may have gone.
                let _ = reply.send(Err(MembershipError::Stopped));
            }
            Self::Transfer { reply, .. } => {
                // As above.
                let _ = reply.send(Err(MembershipError::Stopped));
            }
            // Dropping these answers them.
            Self::Read(_)
            | Self::ReadStale(_)
            | Self::Status(_)
            | Self::Snapshot(_)
            | Self::Log { .. }
            | Self::Checkpoint => {}
        }
    }
}

/// Sends requests to a member.
pub struct Handle<M: Machine> {
    decisions: mpsc::Sender<Box<dyn Job<M>>>,
    pub(super) requests: mpsc::Sender<Request<M>>,
    events: broadcast::Sender<Event<M>>,
    leader: watch::Receiver<Leader>,
}

impl<M: Machine> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self {
            decisions: self.decisions.clone(),
            requests: self.requests.clone(),
            events: self.events.clone(),
            leader: self.leader.clone(),
        }
    }
}

impl<M: Machine> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("leader", &*self.leader.borrow())
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Handle<M> {
    pub(super) fn new(
        decisions: mpsc::Sender<Box<dyn Job<M>>>,
        requests: mpsc::Sender<Request<M>>,
        events: broadcast::Sender<Event<M>>,
        leader: watch::Receiver<Leader>,
    ) -> Self {
        Self {
            decisions,
            requests,
            events,
            leader,
        }
    }

    /// Decides on the speculative state of the leader, and answers when what was decided is
    /// committed.
    ///
    /// The closure runs in the owner's task and sees every decision made before it, committed or
    /// not; it must be short. It does not run at all on a member that does not lead.
    pub async fn propose_with<F, R>(
        &self,
        decide: F,
    ) -> Result<Proposed<M::Outcome, R>, ProposeError>
    where
        F: FnOnce(&M) -> Decision<M::Command, R> + Send + 'static,
        R: Send + 'static,
    {
        let (proposed, ()) = self.propose_then(decide, |_, _| ()).await?;
        Ok(proposed)
    }

    /// Like [`propose_with`](Self::propose_with), and reads something of the applied state in the
    /// same turn: a second call would cost another wait for the owner's task. `then` must be
    /// short, too.
    pub async fn propose_then<F, R, G, T>(
        &self,
        decide: F,
        then: G,
    ) -> Result<(Proposed<M::Outcome, R>, T), ProposeError>
    where
        F: FnOnce(&M) -> Decision<M::Command, R> + Send + 'static,
        R: Send + 'static,
        G: FnOnce(&M, &Proposed<M::Outcome, R>) -> T + Send + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = DecideJob::<M, F, R, G, T> {
            decide: Some(decide),
            answer: None,
            then,
            reply: DecisionReply {
                sender: Some(reply),
                decided: false,
            },
        };
        // A job that the owner does not take is dropped, which answers it.
        let _ = self.decisions.send(Box::new(job)).await;
        answer
            .await
            .unwrap_or(Err(ProposeError::Lost { leader: None }))
    }

    /// Replicates a command and answers with what it did.
    pub async fn propose(
        &self,
        command: M::Command,
    ) -> Result<Committed<M::Outcome>, ProposeError> {
        let decide =
            move |_: &M| Decision::<M::Command, std::convert::Infallible>::Command(command);
        match self.propose_with(decide).await? {
            Proposed::Committed(committed) => Ok(committed),
            Proposed::Answered(never) => match never {},
        }
    }

    /// Reads a state that contains everything acknowledged before this call, on any member.
    pub async fn read<F, T>(&self, read: F) -> Result<T, ReadError>
    where
        F: FnOnce(&M) -> T + Send + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::Read(Box::new(ReadWith { read, reply })))
            .await
            .map_err(|_| ReadError::Stopped)?;
        answer.await.unwrap_or(Err(ReadError::Stopped))
    }

    /// Returns a frozen state that contains everything acknowledged before this call, for reads
    /// too long for the owner's task.
    pub async fn state(&self) -> Result<M, ReadError> {
        self.read(M::clone).await
    }

    /// Reads this member's state as it is, however old that may be.
    pub async fn read_stale<F, T>(&self, read: F) -> Result<T, ReadError>
    where
        F: FnOnce(&M) -> T + Send + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::ReadStale(Box::new(ReadWith { read, reply })))
            .await
            .map_err(|_| ReadError::Stopped)?;
        answer.await.unwrap_or(Err(ReadError::Stopped))
    }

    /// Returns how this member is.
    pub async fn status(&self) -> Option<Status> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Status(reply)).await.ok()?;
        answer.await.ok()
    }

    /// Returns who leads, as far as this member knows.
    pub fn leader(&self) -> Leader {
        self.leader.borrow().clone()
    }

    /// Follows who leads.
    pub fn watch_leader(&self) -> watch::Receiver<Leader> {
        self.leader.clone()
    }

    /// Follows what is applied, from now on. A receiver that lags behind by thousands of batches
    /// gets that error and must start over.
    pub fn watch(&self) -> broadcast::Receiver<Event<M>> {
        self.events.subscribe()
    }

    /// Returns the membership at the applied index.
    pub async fn members(&self) -> Option<Arc<Membership>> {
        Some(self.status().await?.membership)
    }

    /// Adds a member as a learner and returns its id. `disk` is the identity of the disk it will
    /// use, empty if that is not known; with `promote` it becomes a voter when it has caught up.
    pub async fn add_member(
        &self,
        address: String,
        disk: String,
        promote: bool,
    ) -> Result<u64, MembershipError> {
        let member = Member {
            id: 0,
            address,
            disk,
            promote,
        };
        self.membership_request(|reply| Request::AddMember { member, reply })
            .await
    }

    /// Takes a member out of this membership; any other one is refused as a pending change, since
    /// the caller has not checked that it can spare the member. The leader hands leadership over
    /// instead and refuses: repeat it at the next leader.
    pub async fn remove_member(
        &self,
        id: u64,
        checked: Arc<Membership>,
    ) -> Result<u64, MembershipError> {
        self.membership_request(|reply| Request::Change {
            changes: vec![Change::Remove(id)],
            checked: Some(checked),
            reply,
        })
        .await
    }

    /// Records where members of this membership are reached from now on; any other one is refused as a
    /// pending change.
    pub async fn record_addresses(
        &self,
        addresses: Vec<(u64, String)>,
        checked: Arc<Membership>,
    ) -> Result<u64, MembershipError> {
        let addresses = addresses.into_iter();
        let changes = addresses.map(|(id, address)| Change::Address { id, address });
        self.membership_request(|reply| Request::Change {
            changes: changes.collect(),
            checked: Some(checked),
            reply,
        })
        .await
    }

    /// Makes a learner a voter now; refused unless it has caught up.
    pub async fn promote(&self, id: u64) -> Result<u64, MembershipError> {
        self.change_members(vec![Change::Promote(id)]).await
    }

    /// Changes several things about the membership in one joint step, and returns the index at
    /// which that was done.
    pub async fn change_members(&self, changes: Vec<Change>) -> Result<u64, MembershipError> {
        self.membership_request(|reply| Request::Change {
            changes,
            checked: None,
            reply,
        })
        .await
    }

    /// Hands leadership to this member, or to the one with the longest log. Returns when it was requested;
    /// watch the leader to see it happen.
    pub async fn transfer_leader(&self, to: Option<u64>) -> Result<(), MembershipError> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::Transfer { to, reply })
            .await
            .map_err(|_| MembershipError::Stopped)?;
        answer.await.unwrap_or(Err(MembershipError::Stopped))
    }

    /// Requests a checkpoint soon.
    pub async fn request_checkpoint(&self) {
        // A member that has stopped needs none.
        let _ = self.requests.send(Request::Checkpoint).await;
    }

    async fn membership_request(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<u64, MembershipError>>) -> Request<M>,
    ) -> Result<u64, MembershipError> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(request(reply))
            .await
            .map_err(|_| MembershipError::Stopped)?;
        // The owner ended without a word about it, and may have begun it.
        answer
            .await
            .unwrap_or(Err(MembershipError::Lost { leader: None }))
    }
}
