//! Resource providers: the nodes of the trees that hold inventories and traits.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{Generation, ProviderId};
use crate::inventory::Inventory;
use crate::name::HostName;
use crate::resource::{ResourceClass, Trait};

/// A resource provider, as in OpenStack Placement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceProvider {
    /// Who it is.
    pub id: ProviderId,
    /// What people call it; unique among providers.
    pub name: String,
    /// Changes with every change of its inventories, traits or allocations.
    pub generation: Generation,
    /// The provider above it in the tree; absent at the root.
    pub parent: Option<ProviderId>,
    /// The provider at the top of its tree; itself at the root.
    pub root: ProviderId,
    /// The host that reports this provider; such a provider is read-only for clients.
    pub host: Option<HostName>,
    /// What it has, by class.
    pub inventories: BTreeMap<ResourceClass, Inventory>,
    /// Which qualities it has.
    pub traits: BTreeSet<Trait>,
}
