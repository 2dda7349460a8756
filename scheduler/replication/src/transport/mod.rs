//! Raft messages over gRPC.
//!
//! Each member keeps one ordered stream to each other member and sends batches of raft-rs's own
//! bytes through it. A stream opens with a hello: cluster, sender, intended receiver, the
//! sender's address and disk. Snapshots travel on streams of their own, so that a large state
//! holds up no heartbeat.
//!
//! A command that a client sent to a follower travels to the leader by a call of its own
//! ([`Forwarder`]), under the same hello. What is in it is for the server's eyes.
//!
//! What is *not* here: who may send (the listener's, which with certificates takes members of the
//! scheduler alone), and reliability. Under pressure old
//! messages are dropped for newer ones; Raft repeats what matters.
//!
//! A receiver refuses other clusters, messages meant for another member, members that were
//! removed, and known members on an unknown disk. It accepts members that it does not know *yet*:
//! it may be the one that is behind.

mod addresses;
mod decode;
mod forward;
mod peer;
mod server;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_proto::client::Dialer;
use berth_proto::raft::v1::Hello;
use berth_proto::raft::v1::raft_service_server::RaftServiceServer;
use berth_store::{Identity, Member, Membership};
use bytes::Bytes;
use raft::eraftpb::Message;
use tonic::Status;

pub use self::addresses::Addresses;
pub use self::forward::Forwarder;
use self::peer::{Peer, Places};
pub use self::server::RaftReceiver;
use crate::machine::Machine;
use crate::runtime::{Inbox, Network, OutgoingSnapshot, SnapshotReport};

/// The most bytes of one gRPC message of this service: a batch of messages plus one large entry.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// How the transport behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// A silent connection is probed this often,
    pub keep_alive_interval: Duration,
    /// and given up after this long without an answer.
    pub keep_alive_timeout: Duration,
    /// The first pause after a failure; it doubles.
    pub backoff_min: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// Messages that may wait for one member before the oldest are dropped.
    pub queue: usize,
    /// What this member's program supports, which it reports to the others.
    pub version: u32,
    /// What makes the connections to the others.
    pub dialer: Dialer,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            queue: 4096,
            version: 0,
            dialer: Dialer::default(),
        }
    }
}

/// How many versions are remembered before those are forgotten that are of no members.
const VERSIONS_MAX: usize = 1024;

/// What the programs of other members can do, as each said last. Who was never heard of, or does
/// not say, is left out.
#[derive(Clone, Debug, Default)]
pub struct Versions(Arc<Mutex<HashMap<u64, u32>>>);

impl Versions {
    /// Returns what a member said, if it said anything.
    #[must_use]
    pub fn of(&self, member: u64) -> Option<u32> {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.get(&member).copied()
    }

    fn heard(&self, member: u64, version: u32, membership: &Membership) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = membership.get(member).is_some();
        if !is_known && said.len() >= VERSIONS_MAX {
            said.retain(|id, _| membership.get(*id).is_some());
        }
        said.insert(member, version);
    }
}

/// The network of a member, over gRPC.
pub struct GrpcNetwork<M: Machine> {
    inbox: Inbox<M>,
    options: Options,
    address: String,
    addresses: Addresses,
    peers: HashMap<u64, Peer>,
}

/// Carries out what other members pass on to this one.
#[tonic::async_trait]
pub trait Answering: Send + Sync {
    /// Answers an envelope with its outcome.
    async fn answer(&self, envelope: Bytes) -> Result<Bytes, Status>;
}

/// What both directions of the transport share with the rest of the member.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// What the programs of the others support.
    pub versions: Versions,
    /// Where the others are reached.
    pub addresses: Addresses,
}

/// Returns both directions of the transport: the network to run the member with, and the service
/// to serve at `address`, which is where the other members reach it. Without `answering` nothing
/// is carried out for them. What they say of themselves goes to `known`.
pub fn grpc<M: Machine>(
    inbox: Inbox<M>,
    address: impl Into<String>,
    options: Options,
    answering: Option<Arc<dyn Answering>>,
    known: Known,
) -> (GrpcNetwork<M>, RaftServiceServer<RaftReceiver<M>>) {
    let addresses = known.addresses.clone();
    let receiver = RaftReceiver::new(inbox.clone(), answering, known);
    let service = RaftServiceServer::new(receiver)
        .max_decoding_message_size(FRAME_BYTES_MAX)
        .max_encoding_message_size(FRAME_BYTES_MAX);
    let network = GrpcNetwork {
        inbox,
        options,
        address: address.into(),
        addresses,
        peers: HashMap::new(),
    };
    (network, service)
}

impl<M: Machine> GrpcNetwork<M> {
    /// Returns the peer at its present addresses, if there are any.
    fn peer(&mut self, member: &Member) -> Option<&Peer> {
        let generation = self.addresses.generation();
        let is_current = |peer: &Peer| peer.is_current(generation, &member.address);
        if !self.peers.get(&member.id).is_some_and(is_current) {
            self.connect(member, generation)?;
        }
        self.peers.get(&member.id)
    }

    /// Connects to a member unless that is under way at the addresses that it has now.
    fn connect(&mut self, member: &Member, generation: u64) -> Option<()> {
        let candidates = self.addresses.candidates(member);
        if candidates.is_empty() {
            return None;
        }
        if let Some(peer) = self.peers.get_mut(&member.id)
            && peer.confirm(generation, &member.address, &candidates)
        {
            return Some(());
        }
        let identity = self.inbox.identity();
        let hello = hello(identity, &self.address, member.id, &self.options);
        let inbox = self.inbox.clone();
        let to = member.id;
        let places = Places {
            generation,
            recorded: member.address.clone(),
            candidates,
            addresses: self.addresses.clone(),
        };
        let lost = move || inbox.unreachable(to);
        let peer = Peer::start(places, hello, self.options.clone(), lost);
        self.peers.insert(member.id, peer);
        Some(())
    }
}

fn hello(identity: &Identity, address: &str, to: u64, options: &Options) -> Hello {
    Hello {
        cluster_id: identity.cluster_id.clone(),
        from: identity.member_id,
        to,
        from_address: address.to_owned(),
        from_disk: identity.disk_id.clone(),
        from_version: options.version,
    }
}

impl<M: Machine> Network for GrpcNetwork<M> {
    fn send(&mut self, to: &Member, messages: Vec<Message>) {
        // Without an address the message is lost; the member will say hello.
        if let Some(peer) = self.peer(to) {
            peer.send(messages);
        }
    }

    fn send_snapshot(&mut self, to: &Member, snapshot: OutgoingSnapshot, report: SnapshotReport) {
        match self.peer(to) {
            Some(peer) => peer.send_snapshot(snapshot, report),
            None => report.finished(false),
        }
    }

    fn members(&mut self, membership: &Arc<Membership>) {
        // A member without a state answers those that it does not know.
        if !membership.members.is_empty() {
            self.addresses.retain(membership);
            self.peers
                .retain(|id, _| membership.get(*id).is_some() || *id >= membership.next_id);
        }
    }
}
