//! Resource providers: the nodes of the trees that hold inventories and traits.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{AggregateId, Generation, ProviderId, TimeMs};
use crate::import::Origin;
use crate::inventory::Inventory;
use crate::name::HostName;
use crate::resource::{ResourceClass, Trait};

/// The longest name of a provider, in characters.
pub const NAME_MAX: usize = 200;

/// The most inventories, traits or aggregates of one provider, and the most providers that one
/// consumer takes from: what is stored is bounded.
pub const ENTRIES_MAX: usize = 10_000;

/// A resource provider, as in OpenStack Placement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceProvider {
    /// Who it is.
    pub id: ProviderId,
    /// What people call it; unique among providers.
    pub name: String,
    /// Counts the changes of its inventories, traits and aggregates, and the allocations that
    /// were written to it. As in OpenStack Placement, allocations that only go away do not count.
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
    /// The groups that it belongs to.
    pub aggregates: BTreeSet<AggregateId>,
    /// From where it was taken over; absent if it was made here. Written by imports only.
    pub origin: Option<Origin>,
    /// When it was made.
    pub created_at: TimeMs,
    /// When it, or what is taken from it, changed last.
    pub updated_at: TimeMs,
}

impl ResourceProvider {
    /// Returns whether it is at the top of its tree.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// Returns whether a host reports it, so that clients may only read it.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.host.is_some()
    }
}

/// Returns a provider and those above it, up to the root; `parent_of` looks one step up.
pub fn lineage(
    id: ProviderId,
    parent_of: impl Fn(ProviderId) -> Option<ProviderId>,
) -> impl Iterator<Item = ProviderId> {
    std::iter::successors(Some(id), move |id| parent_of(*id))
}

/// Returns the provider at the top of the tree.
pub fn root_of(id: ProviderId, parent_of: impl Fn(ProviderId) -> Option<ProviderId>) -> ProviderId {
    lineage(id, parent_of)
        .last()
        .expect("a lineage holds at least the provider itself")
}

/// Returns whether `child` would be above itself with `parent` as its parent.
pub fn would_loop(
    child: ProviderId,
    parent: ProviderId,
    parent_of: impl Fn(ProviderId) -> Option<ProviderId>,
) -> bool {
    lineage(parent, parent_of).any(|id| id == child)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn trees_are_climbed_and_kept_free_of_loops() {
        let id = |n| ProviderId(Uuid::from_u128(n));
        // 3 is below 2 is below 1; 4 stands alone.
        let parent_of = |of: ProviderId| match of.0.as_u128() {
            3 => Some(id(2)),
            2 => Some(id(1)),
            _ => None,
        };
        assert_eq!(
            lineage(id(3), parent_of).collect::<Vec<_>>(),
            [3, 2, 1].map(id)
        );
        assert_eq!(root_of(id(3), parent_of), id(1));
        assert!(would_loop(id(1), id(3), parent_of));
        assert!(would_loop(id(1), id(1), parent_of));
        assert!(!would_loop(id(4), id(3), parent_of));
    }
}
