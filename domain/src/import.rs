//! What is taken over from another Placement: providers and consumers as they are there.
//!
//! Not how they are read: the command does that. The generations are taken over with the rest, so
//! that a service that remembers one goes on with it, and is notified where it missed a change.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocation::Resources;
use crate::id::{AggregateId, ConsumerId, Generation, ProviderId};
use crate::inventory::Inventory;
use crate::resource::{ConsumerType, ResourceClass, Trait};

pub use crate::origin::Origin;

/// The longest name of a source, in characters.
pub const SOURCE_MAX: usize = 255;

/// The greatest generation that is taken over: what OpenStack's database holds.
pub const GENERATION_MAX: u64 = 2_147_483_647;

/// A provider as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderImport {
    /// Who it is.
    pub id: ProviderId,
    /// What people call it.
    pub name: String,
    /// The provider above it.
    pub parent: Option<ProviderId>,
    /// At which generation it is from now on.
    pub generation: Generation,
    /// What it has.
    pub inventories: BTreeMap<ResourceClass, Inventory>,
    /// Which qualities it has.
    pub traits: BTreeSet<Trait>,
    /// The groups that it belongs to.
    pub aggregates: BTreeSet<AggregateId>,
    /// The generation here that the importer saw; absent: it must be new here.
    pub seen: Option<Generation>,
}

/// A consumer as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerImport {
    /// Who it is.
    pub id: ConsumerId,
    /// At which generation it is from now on.
    pub generation: Generation,
    /// The project it belongs to.
    pub project: String,
    /// The user it belongs to.
    pub user: String,
    /// What kind of thing it is, if that is known.
    pub consumer_type: Option<ConsumerType>,
    /// What it takes, by provider; empty takes the consumer away.
    pub allocations: BTreeMap<ProviderId, Resources>,
    /// The generation here that the importer saw; absent: it must be new here.
    pub seen: Option<Generation>,
}
