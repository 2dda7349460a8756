//! The way in: what other members' streams carry goes to the inbox, and what they pass on to the
//! server.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use berth_proto::raft::v1::raft_service_server::RaftService;
use berth_proto::raft::v1::{
    ExchangeRequest, ExchangeResponse, ForwardRequest, ForwardResponse, Hello,
    InstallSnapshotRequest, InstallSnapshotResponse,
};
use bytes::Bytes;
use raft::eraftpb::Message;
use tonic::{Request, Response, Status, Streaming};

use super::decode::decode;
use super::{Answering, Known};
use crate::admission::{self, Rejection, Sender};
use crate::machine::Machine;
use crate::runtime::{Inbox, InboxError};

/// Receives what other members send.
pub struct RaftReceiver<M: Machine> {
    inbox: Inbox<M>,
    answering: Option<Arc<dyn Answering>>,
    /// The newest stream of each member; an older one, left by a broken connection, ends.
    streams: Arc<Mutex<HashMap<u64, u64>>>,
    turned_away: Arc<TurnedAway>,
    known: Known,
}

/// How many senders are remembered before those are forgotten that are no members.
const SENDERS_MAX: usize = 1024;
/// How many different refusals are logged, and how long they may be. Any client that reaches the
/// port can cause new ones.
const TURNED_AWAY_MAX: usize = 64;
const TURNED_AWAY_BYTES_MAX: usize = 1024;

/// Peers that were refused, with the reasons that were logged: a peer of another cluster retries
/// for as long as it runs.
#[derive(Default)]
struct TurnedAway(Mutex<BTreeSet<(String, String)>>);

impl TurnedAway {
    /// Returns whether this was not logged yet and may be, and records it.
    fn is_unlogged(&self, address: &str, reason: &str) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        address.len() + reason.len() <= TURNED_AWAY_BYTES_MAX
            && logged.len() < TURNED_AWAY_MAX
            && logged.insert((address.to_owned(), reason.to_owned()))
    }
}

impl<M: Machine> RaftReceiver<M> {
    pub(super) fn new(
        inbox: Inbox<M>,
        answering: Option<Arc<dyn Answering>>,
        known: Known,
    ) -> Self {
        Self {
            inbox,
            answering,
            streams: Arc::default(),
            turned_away: Arc::default(),
            known,
        }
    }

    /// Refuses peers of other clusters, logs that once, and remembers the addresses of the others.
    fn admit(&self, hello: Option<Hello>) -> Result<Hello, Status> {
        let hello = hello.ok_or_else(|| Status::invalid_argument("the stream has no hello"))?;
        if let Err(status) = self.check(&hello) {
            if self
                .turned_away
                .is_unlogged(&hello.from_address, status.message())
            {
                tracing::warn!(
                    from = hello.from,
                    address = hello.from_address,
                    reason = status.message(),
                    "a member was turned away"
                );
            }
            return Err(status);
        }
        let membership = self.inbox.membership();
        let Known {
            versions,
            addresses,
        } = &self.known;
        addresses.state(hello.from, &hello.from_address, &membership);
        versions.heard(hello.from, hello.from_version, &membership);
        Ok(hello)
    }

    fn check(&self, hello: &Hello) -> Result<(), Status> {
        let sender = Sender {
            cluster_id: &hello.cluster_id,
            from: hello.from,
            from_disk: &hello.from_disk,
            to: hello.to,
        };
        let checked = admission::check(self.inbox.identity(), &self.inbox.membership(), &sender);
        checked.map_err(|rejection| match rejection {
            Rejection::OtherCluster { .. } | Rejection::OtherMember { .. } => {
                Status::failed_precondition(rejection.to_string())
            }
            Rejection::OtherDisk { .. } | Rejection::Removed { .. } => {
                Status::permission_denied(rejection.to_string())
            }
        })
    }

    /// Makes this stream the newest of its sender.
    fn begin(&self, from: u64) -> u64 {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.len() >= SENDERS_MAX {
            // Numbers that were removed since, or that never were members.
            let membership = self.inbox.membership();
            streams.retain(|id, _| membership.get(*id).is_some() || *id == from);
        }
        let number = streams.entry(from).or_default();
        *number += 1;
        *number
    }

    fn is_newest(&self, from: u64, number: u64) -> bool {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.get(&from) == Some(&number)
    }

    async fn receive(
        &self,
        stream: &mut Streaming<ExchangeRequest>,
        from: u64,
    ) -> Result<(), Status> {
        let number = self.begin(from);
        while let Some(request) = stream.message().await? {
            if !self.is_newest(from, number) {
                return Err(Status::aborted("a newer stream took the place of this one"));
            }
            let mut messages = Vec::with_capacity(request.messages.len());
            for bytes in &request.messages {
                messages.push(self.decode(bytes, from)?);
            }
            if !self.inbox.deliver(messages).await {
                return Err(stopping());
            }
        }
        Ok(())
    }

    fn decode(&self, bytes: &Bytes, from: u64) -> Result<Message, Status> {
        let message = decode(bytes)
            .map_err(|_| Status::invalid_argument("bytes that are no Raft message"))?;
        if message.from != from || message.to != self.inbox.identity().member_id {
            return Err(Status::invalid_argument(
                "a Raft message of another sender or for another receiver",
            ));
        }
        Ok(message)
    }
}

#[tonic::async_trait]
impl<M: Machine> RaftService for RaftReceiver<M> {
    async fn exchange(
        &self,
        request: Request<Streaming<ExchangeRequest>>,
    ) -> Result<Response<ExchangeResponse>, Status> {
        let mut stream = request.into_inner();
        let first = stream.message().await?.unwrap_or_default();
        let hello = self.admit(first.hello)?;
        tokio::select! {
            biased;
            // The stream would keep a server from shutting down.
            () = self.inbox.closed() => Err(stopping()),
            ended = self.receive(&mut stream, hello.from) => {
                ended.map(|()| Response::new(ExchangeResponse {}))
            }
        }
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<InstallSnapshotRequest>>,
    ) -> Result<Response<InstallSnapshotResponse>, Status> {
        let mut stream = request.into_inner();
        let mut piece = stream.message().await?.unwrap_or_default();
        let hello = self.admit(piece.hello.take())?;
        let message = self.decode(&piece.message, hello.from)?;
        let mut incoming = self.inbox.begin_snapshot().map_err(|e| refused(&e))?;
        let mut offset = 0;
        loop {
            if piece.offset != offset || crc32fast::hash(&piece.chunk) != piece.crc32 {
                return Err(Status::data_loss(
                    "a piece of the snapshot is damaged or missing",
                ));
            }
            offset += piece.chunk.len() as u64;
            incoming.write(&piece.chunk).map_err(|e| refused(&e))?;
            if piece.last {
                break;
            }
            piece = stream
                .message()
                .await?
                .ok_or_else(|| Status::data_loss("the snapshot ends too early"))?;
        }
        self.inbox
            .finish_snapshot(message, incoming)
            .await
            .map_err(|e| refused(&e))?;
        Ok(Response::new(InstallSnapshotResponse {}))
    }

    async fn forward(
        &self,
        request: Request<ForwardRequest>,
    ) -> Result<Response<ForwardResponse>, Status> {
        let ForwardRequest { hello, envelope } = request.into_inner();
        self.admit(hello)?;
        let Some(answering) = &self.answering else {
            return Err(Status::unimplemented("nothing is carried out for others"));
        };
        let outcome = answering.answer(envelope).await?;
        Ok(Response::new(ForwardResponse { outcome }))
    }
}

fn stopping() -> Status {
    Status::unavailable("this member is stopping")
}

fn refused(error: &InboxError) -> Status {
    // The sender hears of it too, but it is this member's operator who can do something.
    tracing::warn!(%error, "receiving snapshot failed");
    match error {
        InboxError::Store(_) => Status::resource_exhausted(error.to_string()),
        InboxError::Content(_) => Status::data_loss(error.to_string()),
        InboxError::NotNeeded => Status::already_exists(error.to_string()),
        InboxError::Stopped => stopping(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the log names each peer and cause once, and no client can fill the log or the
    /// memory with them.
    #[test]
    fn each_peer_is_turned_away_aloud_once_per_cause() {
        let refusals = TurnedAway::default();
        assert!(refusals.is_unlogged("h1:7100", "another cluster"));
        assert!(!refusals.is_unlogged("h1:7100", "another cluster"));
        assert!(refusals.is_unlogged("h1:7100", "removed"));
        assert!(refusals.is_unlogged("h2:7100", "removed"));
        assert!(!refusals.is_unlogged("h3:7100", &"x".repeat(TURNED_AWAY_BYTES_MAX)));
        let more = (0..1000).filter(|n| refusals.is_unlogged("h4:7100", &n.to_string()));
        assert_eq!(more.count(), TURNED_AWAY_MAX - 3);
    }
}
