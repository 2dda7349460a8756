//! The contents of a Placement, of either side.
//!
//! Invariant: both sides are read into the same types, so that comparing them is comparing values.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::allocation::Resources;
use berth_domain::id::{AggregateId, ConsumerId, Generation, ProviderId};
use berth_domain::import::Origin;
use berth_domain::inventory::Inventory;
use berth_domain::name::HostName;
use berth_domain::resource::{ConsumerType, ResourceClass, Trait};

/// A resource provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The display name.
    pub name: String,
    /// The provider above it.
    pub parent: Option<ProviderId>,
    /// Its generation.
    pub generation: Generation,
    /// What it has.
    pub inventories: BTreeMap<ResourceClass, Inventory>,
    /// Its traits.
    pub traits: BTreeSet<Trait>,
    /// The groups that it belongs to.
    pub aggregates: BTreeSet<AggregateId>,
}

/// A consumer with what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its generation.
    pub generation: Generation,
    /// The project it belongs to.
    pub project: String,
    /// The user it belongs to.
    pub user: String,
    /// What kind of thing it is, if that is known.
    pub consumer_type: Option<ConsumerType>,
    /// What it takes, by provider.
    pub allocations: BTreeMap<ProviderId, Resources>,
}

/// Everything that a Placement holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Custom resource classes.
    pub classes: BTreeSet<ResourceClass>,
    /// Custom traits.
    pub traits: BTreeSet<Trait>,
    /// Resource providers.
    pub providers: BTreeMap<ProviderId, Provider>,
    /// Consumers.
    pub consumers: BTreeMap<ConsumerId, Consumer>,
}

/// What Berth holds, and its origins.
#[derive(Clone, Debug, Default)]
pub struct Here {
    /// What it holds. Claims are not among the consumers.
    pub world: World,
    /// Which standard classes it knows.
    pub standard_classes: BTreeSet<ResourceClass>,
    /// Which standard traits it knows.
    pub standard_traits: BTreeSet<Trait>,
    /// Providers that a host reports.
    pub hosts: BTreeMap<ProviderId, HostName>,
    /// Providers that were taken over.
    pub provider_origins: BTreeMap<ProviderId, Origin>,
    /// Consumers that were taken over.
    pub consumer_origins: BTreeMap<ConsumerId, Origin>,
}

impl World {
    /// Returns the providers, each after the one above it. Those that are below none that is here
    /// come as if they were roots.
    #[must_use]
    pub fn parents_first(&self) -> Vec<ProviderId> {
        let mut below: BTreeMap<Option<ProviderId>, Vec<ProviderId>> = BTreeMap::new();
        for (id, provider) in &self.providers {
            let parent = provider.parent.filter(|p| self.providers.contains_key(p));
            below.entry(parent).or_default().push(*id);
        }
        let mut order = below.remove(&None).unwrap_or_default();
        let mut next = 0;
        while let Some(id) = order.get(next) {
            next += 1;
            order.extend(below.remove(&Some(*id)).unwrap_or_default());
        }
        order
    }

    /// Returns which classes are taken from each provider.
    #[must_use]
    pub fn taken(&self) -> BTreeMap<ProviderId, BTreeSet<ResourceClass>> {
        let mut taken: BTreeMap<ProviderId, BTreeSet<ResourceClass>> = BTreeMap::new();
        let allocations = self.consumers.values().flat_map(|c| &c.allocations);
        for (id, resources) in allocations {
            taken
                .entry(*id)
                .or_default()
                .extend(resources.keys().cloned());
        }
        taken
    }
}

/// Returns the names that clients made.
pub fn custom<N: Ord + Clone>(all: &BTreeSet<N>, is_custom: impl Fn(&N) -> bool) -> BTreeSet<N> {
    all.iter().filter(|name| is_custom(name)).cloned().collect()
}
