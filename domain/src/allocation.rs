//! Allocations: amounts of resources that a consumer takes from providers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{ConsumerId, Generation, ProviderId, TimeMs};
use crate::origin::Origin;
use crate::resource::{ConsumerType, ResourceClass};

/// The longest project or user of a consumer, in characters.
pub const OWNER_MAX: usize = 255;

/// Amounts by resource class.
pub type Resources = BTreeMap<ResourceClass, u64>;

/// A consumer and what it takes; claims are consumers of their own, held in [`crate::claim`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Consumer {
    /// Who it is.
    pub id: ConsumerId,
    /// Changes with every change of its allocations.
    pub generation: Generation,
    /// The project it belongs to, as the client names it.
    pub project: String,
    /// The user it belongs to, as the client names it.
    pub user: String,
    /// What kind of thing it is, if a client set it.
    pub consumer_type: Option<ConsumerType>,
    /// From where it was taken over; absent if it was made here. Written by imports only.
    pub origin: Option<Origin>,
    /// When it was made.
    pub created_at: TimeMs,
    /// When it changed last.
    pub updated_at: TimeMs,
    /// What it takes, by provider. Never empty: a consumer without allocations does not exist.
    pub allocations: BTreeMap<ProviderId, Resources>,
}

/// The generation at which a client expects a consumer to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConsumerGeneration {
    /// Whatever it is: clients of OpenStack before microversion 1.28 do not know of generations.
    Any,
    /// The consumer must not exist.
    New,
    /// The consumer must exist, at this generation.
    Exactly(Generation),
}

/// New allocations of one consumer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConsumerUpdate {
    /// Who.
    pub consumer: ConsumerId,
    /// The generation that the client saw.
    pub generation: ConsumerGeneration,
    /// The project it belongs to.
    pub project: String,
    /// The user it belongs to.
    pub user: String,
    /// What kind of thing it is; absent: what it was, if that was known.
    pub consumer_type: Option<ConsumerType>,
    /// What it takes from now on; empty takes the consumer away.
    pub allocations: BTreeMap<ProviderId, Resources>,
}
