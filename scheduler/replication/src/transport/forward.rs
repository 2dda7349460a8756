//! The way to the leader for a command that a client sent to this member.
//!
//! One connection, to the last known leader. What is *not* here: repeating. Whether a command that was
//! not answered may be sent again is known to its author.

use std::sync::{Mutex, PoisonError};

use berth_proto::raft::v1::ForwardRequest;
use berth_store::{Identity, Member};
use bytes::Bytes;
use tonic::Status;
use tonic::transport::Channel;

use super::{Addresses, Options, hello, peer};
use crate::machine::Machine;
use crate::runtime::Inbox;

/// The way to the leader.
pub struct Forwarder {
    identity: Identity,
    address: String,
    addresses: Addresses,
    options: Options,
    /// The channel to the leader by its address and the generation of the certificates. It connects
    /// by itself, again and again.
    leader: Mutex<Option<(String, u64, Channel)>>,
}

impl Forwarder {
    /// Returns the way out of the member with this inbox, which others reach at `address`, and which
    /// reaches them at `addresses`.
    pub fn new<M: Machine>(
        inbox: &Inbox<M>,
        address: impl Into<String>,
        addresses: Addresses,
        options: Options,
    ) -> Self {
        Self {
            identity: inbox.identity().clone(),
            address: address.into(),
            addresses,
            options,
            leader: Mutex::default(),
        }
    }

    /// Has a member carry out what is in an envelope, and returns the outcome.
    ///
    /// # Errors
    ///
    /// What the member or the way to it says. It may have been carried out all the same.
    pub async fn forward(&self, to: &Member, envelope: Bytes) -> Result<Bytes, Status> {
        let request = ForwardRequest {
            hello: Some(hello(&self.identity, &self.address, to.id, &self.options)),
            envelope,
        };
        let channel = self.channel(&self.addresses.present(to))?;
        let response = peer::client(channel).forward(request).await?;
        Ok(response.into_inner().outcome)
    }

    fn channel(&self, address: &str) -> Result<Channel, Status> {
        let mut leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.options.dialer.generation();
        if let Some((known, made, channel)) = &*leader
            && known == address
            && *made == generation
        {
            return Ok(channel.clone());
        }
        let endpoint = peer::endpoint(address, &self.options)?;
        let channel = endpoint.connect_with_connector_lazy(peer::connector(&self.options));
        *leader = Some((address.to_owned(), generation, channel.clone()));
        Ok(channel)
    }
}
