//! A member on its way into the cluster, before it has an identity.
//!
//! Which peer is next and which refusals pass is [`berth_decide::joining`], as in production.

use berth_decide::joining::{Peers, is_transient};
use berth_domain::id::TimeMs;
use berth_domain::refusal::{Code, Refusal};

use super::{address_of, site_of};
use crate::asker::{Numbers, Out, Timer};
use crate::packet::{CallNumber, MembersRequest, MembersResponse, Node, Packet, Question, Told};

/// How long joining is retried.
const RETRY_MS: u64 = 20_000;
const PAUSE_MS: u64 = 200;
const CALL_TIMEOUT_MS: u64 = 1_500;

/// A join under way.
#[derive(Debug)]
pub(super) struct Joiner {
    address: String,
    disk: String,
    peers: Peers,
    deadline: Option<TimeMs>,
    call: Option<CallNumber>,
}

/// What came of an attempt.
#[derive(Debug)]
pub enum Joining {
    /// It goes on.
    Goes(Vec<Out>),
    /// The member has this number.
    Joined(u64),
    /// The program ends with an error.
    Failed,
}

impl Joiner {
    /// Returns a member that joins through the members on these machines.
    pub(super) fn new(site: u64, disk: String, peers: &[u64]) -> Self {
        let peers: Vec<String> = peers.iter().map(|peer| address_of(*peer)).collect();
        Self {
            address: address_of(site),
            disk,
            peers: Peers::new(&peers),
            deadline: None,
            call: None,
        }
    }

    /// Queries the next peer.
    pub(super) fn query(&mut self, now: TimeMs, numbers: &mut Numbers) -> Vec<Out> {
        self.deadline.get_or_insert(TimeMs(now.0 + RETRY_MS));
        let peer = self.peers.take_next().and_then(|peer| site_of(&peer));
        let Some(peer) = peer else { return Vec::new() };
        let call = numbers.fresh();
        self.call = Some(call);
        let request = MembersRequest::Join(self.address.clone(), self.disk.clone());
        vec![
            Out::Send(
                Node::Member(peer),
                Packet::Question(call, Box::new(Question::Members(request))),
            ),
            Out::Timer(CALL_TIMEOUT_MS, Timer::Unanswered(call)),
        ]
    }

    /// Takes a response, if it is one to the query under way.
    pub(super) fn take(&mut self, now: TimeMs, call: CallNumber, told: Told) -> Joining {
        if self.call.take_if(|own| *own == call).is_none() {
            return Joining::Goes(Vec::new());
        }
        let unavailable = Refusal::new(Code::Unavailable, "UNAVAILABLE", "not now");
        let (refusal, leader) = match told {
            Told::Members(MembersResponse::Member(id)) => return Joining::Joined(id),
            Told::Members(MembersResponse::Refused(refusal)) => (refusal, None),
            Told::NotLeader(leader) => (unavailable, leader),
            Told::Members(MembersResponse::Status(_) | MembersResponse::Done)
            | Told::Lost
            | Told::Decided(_)
            | Told::Facts(_)
            | Told::Drain(_)
            | Told::Expired(_)
            | Told::Registered(_)
            | Told::Service(_)
            | Told::Expected(_)
            | Told::Erasures(_)
            | Told::Volumes(_) => (unavailable, None),
        };
        if !is_transient(&refusal) || self.deadline.is_some_and(|deadline| now >= deadline) {
            return Joining::Failed;
        }
        let pause = match self.peers.learn(leader.map(address_of)) {
            true => 0,
            false => PAUSE_MS,
        };
        Joining::Goes(vec![Out::Timer(pause, Timer::Join)])
    }
}
