//! Asks the members until the one that leads has answered: what clients of the scheduler do.

use std::collections::BTreeMap;

use crate::chance::Chance;
use crate::packet::{CallNumber, Node, Packet, Question, Told};

/// How long to wait for an answer before another member is asked.
const PATIENCE_MS: u64 = 2_000;

/// What a node wants the world to do.
#[derive(Debug)]
pub enum Out {
    /// Send this.
    Send(Node, Packet),
    /// Wake me after so many milliseconds with this.
    Timer(u64, Timer),
}

/// What a node is woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// A question may have gone unanswered.
    Unanswered(CallNumber),
    /// A question is to be asked again.
    Again(CallNumber),
    /// An agent may not have answered.
    AgentSilent(CallNumber),
    /// A saga's wait is over.
    Elapsed(berth_domain::id::OperationId, u64),
    /// A saga is told that its transfer has ended.
    TransferEnded(berth_domain::id::OperationId, u64),
    /// Leases are to be prolonged.
    Renew,
    /// Orphaned operations are to be looked for.
    Look,
    /// A wish is to be uttered, or uttered again.
    Wish(usize),
    /// A client is to write again.
    Write,
    /// A member that joins queries the next peer.
    Join,
}

/// Gives out call numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbers(u64);

impl Numbers {
    /// Returns the next number.
    pub fn fresh(&mut self) -> CallNumber {
        self.0 += 1;
        CallNumber(self.0)
    }
}

/// Questions under way, each with what its answer is for.
#[derive(Clone, Debug)]
pub struct Asker<P> {
    members: u64,
    leader: u64,
    pending: BTreeMap<CallNumber, (Question, P)>,
}

impl<P> Asker<P> {
    /// Returns an asker of the members on machines 1 to `members`.
    #[must_use]
    pub fn new(members: u64) -> Self {
        Self {
            members,
            leader: 1,
            pending: BTreeMap::new(),
        }
    }

    /// Asks the member that is thought to lead.
    pub fn ask(&mut self, question: Question, purpose: P, numbers: &mut Numbers) -> Vec<Out> {
        let call = numbers.fresh();
        let packet = Packet::Question(call, Box::new(question.clone()));
        self.pending.insert(call, (question, purpose));
        vec![
            Out::Send(Node::Member(self.leader), packet),
            Out::Timer(PATIENCE_MS, Timer::Unanswered(call)),
        ]
    }

    /// Returns whether this is a question of its own that is under way.
    #[must_use]
    pub fn asks(&self, call: CallNumber) -> bool {
        self.pending.contains_key(&call)
    }

    /// Asks again, elsewhere, if there is no answer yet.
    pub fn unanswered(&mut self, call: CallNumber, numbers: &mut Numbers) -> Vec<Out> {
        let Some((question, purpose)) = self.pending.remove(&call) else {
            return Vec::new();
        };
        self.leader = self.leader % self.members + 1;
        self.ask(question, purpose, numbers)
    }

    /// Asks again where the leader is thought to be.
    pub fn again(&mut self, call: CallNumber, numbers: &mut Numbers) -> Vec<Out> {
        let Some((question, purpose)) = self.pending.remove(&call) else {
            return Vec::new();
        };
        self.ask(question, purpose, numbers)
    }

    /// Takes what a member told. Returns an answer with what it is for, or what to do to get one.
    pub fn told(
        &mut self,
        call: CallNumber,
        told: Told,
        chance: &mut Chance,
    ) -> Result<(P, Told), Vec<Out>> {
        let leader = match told {
            Told::NotLeader(leader) => leader,
            Told::Lost => None,
            Told::Decided(_)
            | Told::Facts(_)
            | Told::Drain(_)
            | Told::Expired(_)
            | Told::Registered(_)
            | Told::Service(_)
            | Told::Expected(_)
            | Told::Erasures(_)
            | Told::Volumes(_)
            | Told::Members(_) => {
                let Some((_, purpose)) = self.pending.remove(&call) else {
                    return Err(Vec::new());
                };
                return Ok((purpose, told));
            }
        };
        if !self.pending.contains_key(&call) {
            return Err(Vec::new());
        }
        self.leader = leader.unwrap_or(self.leader % self.members + 1);
        Err(vec![Out::Timer(
            chance.between(10, 200),
            Timer::Again(call),
        )])
    }
}
