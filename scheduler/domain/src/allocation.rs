//! Allocations: amounts of resources that a consumer takes from providers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{ConsumerId, Generation, ProviderId};
use crate::resource::ResourceClass;

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
    /// What it takes, by provider. Never empty: a consumer without allocations does not exist.
    pub allocations: BTreeMap<ProviderId, Resources>,
}

/// New allocations of one consumer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConsumerUpdate {
    /// Who.
    pub consumer: ConsumerId,
    /// The generation that the client saw; absent: the consumer must be new.
    pub generation: Option<Generation>,
    /// The project it belongs to.
    pub project: String,
    /// The user it belongs to.
    pub user: String,
    /// What it takes from now on; empty takes the consumer away.
    pub allocations: BTreeMap<ProviderId, Resources>,
}
