//! What a member does with writes that come to it while another one leads: forwards them, under the
//! virtual clock and in the order of production.
//!
//! ```text
//!   writer ──write──▶ member ──question, with a request id──▶ leader
//!     ◀──told──────────┘  ◀──────────────told────────────────┘
//! ```
//!
//! What the attempts mean together is [`berth_decide::forwarding`], as in production.

use berth_decide::doubt::Attempt;
use berth_decide::forwarding::{Attempted, Forwarding, Next, Outcome, Response};
use berth_decide::{Action, DecisionRequest};
use berth_domain::id::{RequestId, TimeMs};
use berth_replication::Role;
use berth_state::command::{Command, RequestKey};
use uuid::Uuid;

use crate::bug::Bug;
use crate::packet::{CallNumber, Node, Told};

/// How long a client's request may take.
const REQUEST_MS: u64 = 4_000;
/// How long to wait for a leader.
const LEADER_WAIT_MS: u64 = 2_000;
/// After how long without a response a connection counts as broken.
const BROKEN_MS: u64 = 900;

/// What is to be done for a write.
#[derive(Debug)]
pub(crate) enum Step {
    /// Decide on this here.
    Here(CallNumber, Box<DecisionRequest>),
    /// Send this to the leader.
    Ask(u64, CallNumber, Box<DecisionRequest>),
    /// Tell the writer.
    Tell(Node, CallNumber, Box<Told>),
}

/// An attempt under way.
#[derive(Debug)]
struct UnderWay {
    member: u64,
    call: CallNumber,
    since: TimeMs,
    attempt: Attempt,
}

/// A write that is being forwarded.
#[derive(Debug)]
struct Forward {
    writer: Node,
    call: CallNumber,
    since: TimeMs,
    request: DecisionRequest,
    core: Forwarding,
    under_way: Option<UnderWay>,
}

/// The writes that a member forwards.
#[derive(Debug)]
pub(crate) struct Forwarder {
    member: u64,
    /// Numbers the attempts; unique over all members and all their lives.
    last_call: u64,
    open: Vec<Forward>,
}

impl Forwarder {
    pub(crate) fn new(member: u64, life: u64) -> Self {
        Self {
            member,
            last_call: (1 << 63) | (member << 56) | (life << 32),
            open: Vec::new(),
        }
    }

    /// Takes a write. Its request id is made of what the writer's call is named, which is unique.
    pub(crate) fn take(&mut self, now: TimeMs, writer: Node, call: CallNumber, command: Command) {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&call.0.to_be_bytes());
        let id = uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid();
        let key = RequestKey {
            method: "Forward".to_owned(),
            id: RequestId(id),
            payload_hash: Uuid::as_u128(&id),
        };
        self.open.push(Forward {
            writer,
            call,
            since: now,
            request: DecisionRequest {
                key: Some(key),
                ..DecisionRequest::new("writer", Action::Plain(command))
            },
            core: Forwarding::default(),
            under_way: None,
        });
    }

    /// Takes what a member, perhaps this one, told of an attempt.
    pub(crate) fn told(&mut self, call: CallNumber, told: Told, bug: Option<Bug>) -> Vec<Step> {
        let at = |f: &Forward| f.under_way.as_ref().is_some_and(|u| u.call == call);
        let Some(at) = self.open.iter().position(at) else {
            return Vec::new();
        };
        let attempted = match told {
            Told::Decided(outcome) => Attempted::Outcome(outcome),
            Told::NotLeader(_) => Attempted::NotDone,
            Told::Lost if bug == Some(Bug::ForgetDoubt) => Attempted::NotDone,
            Told::Lost
            | Told::Facts(_)
            | Told::Drain(_)
            | Told::Expired(_)
            | Told::Registered(_)
            | Told::Service(_)
            | Told::Expected(_)
            | Told::Erasures(_)
            | Told::Volumes(_)
            | Told::Members(_) => Attempted::Unknown,
        };
        let forward = &mut self.open[at];
        match forward.end(attempted) {
            Next::Retry => Vec::new(),
            Next::Outcome(outcome) => vec![self.close(at, Some(outcome))],
            Next::GiveUp => vec![self.close(at, None)],
        }
    }

    /// Goes on with every write, now that time has passed or another member leads.
    pub(crate) fn go_on(&mut self, now: TimeMs, role: Role, bug: Option<Bug>) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = 0;
        while at < self.open.len() {
            self.last_call += 1;
            let next = CallNumber(self.last_call);
            match self.open[at].go_on(now, self.member, role, next, bug) {
                Progress::Wait => at += 1,
                Progress::Attempt(step) => {
                    steps.push(step);
                    at += 1;
                }
                Progress::GiveUp => steps.push(self.close(at, None)),
            }
        }
        steps
    }

    fn close(&mut self, at: usize, outcome: Option<Outcome>) -> Step {
        let forward = self.open.remove(at);
        let told = match forward.core.response(outcome) {
            Response::Outcome(outcome) => Told::Decided(outcome),
            Response::InDoubt => Told::Lost,
            Response::NotDone => Told::NotLeader(None),
        };
        Step::Tell(forward.writer, forward.call, Box::new(told))
    }
}

enum Progress {
    Wait,
    Attempt(Step),
    GiveUp,
}

impl Forward {
    fn end(&mut self, attempted: Attempted) -> Next {
        match self.under_way.take() {
            Some(under_way) => self.core.end(under_way.attempt, attempted),
            None => Next::Retry,
        }
    }

    fn go_on(
        &mut self,
        now: TimeMs,
        own: u64,
        role: Role,
        call: CallNumber,
        bug: Option<Bug>,
    ) -> Progress {
        if now.0 >= self.since.0 + REQUEST_MS {
            return Progress::GiveUp;
        }
        if let Some(under_way) = &self.under_way {
            let is_replaced = role.leader.is_some_and(|leader| leader != under_way.member);
            let is_broken = now.0 >= under_way.since.0 + BROKEN_MS && under_way.member != own;
            if !is_replaced && !is_broken {
                return Progress::Wait;
            }
            // No outcome was seen, so that it stays in doubt.
            let known = match bug {
                Some(Bug::ForgetDoubt) => Attempted::NotDone,
                Some(_) | None => Attempted::Unknown,
            };
            self.end(known);
        }
        let leader = role.leader.filter(|leader| *leader != own);
        let member = match leader {
            _ if role.deciding => own,
            Some(leader) => leader,
            None => {
                let waited = now.0 >= self.since.0 + LEADER_WAIT_MS;
                return match self.core.is_hopeless(role.leader.is_some(), waited) {
                    true => Progress::GiveUp,
                    false => Progress::Wait,
                };
            }
        };
        let attempt = self.core.begin();
        self.under_way = Some(UnderWay {
            member,
            call,
            since: now,
            attempt,
        });
        let request = Box::new(self.request.clone());
        Progress::Attempt(match member == own {
            true => Step::Here(call, request),
            false => Step::Ask(member, call, request),
        })
    }
}
