//! The custom names that a command may have left without a provider.
//!
//! Whether such a name is removed is decided at the end of the command, when another provider may have
//! it: see [`crate::apply`].

use std::collections::BTreeSet;

use berth_domain::provider::ResourceProvider;
use berth_domain::resource::{ResourceClass, Trait};

use crate::index::custom_classes;

/// Candidates: what providers of the command had and lost, and what its reports brought.
#[derive(Debug, Default)]
pub(crate) struct LeftNames {
    pub(crate) classes: BTreeSet<ResourceClass>,
    pub(crate) traits: BTreeSet<Trait>,
}

impl LeftNames {
    /// Records the custom names that a provider has no more.
    pub(crate) fn record(&mut self, old: &ResourceProvider, new: Option<&ResourceProvider>) {
        let has_class = |class: &ResourceClass| {
            new.is_some_and(|provider| provider.inventories.contains_key(class))
        };
        let classes = custom_classes(old).filter(|class| !has_class(class));
        self.classes.extend(classes.cloned());
        let has_trait = |name: &Trait| new.is_some_and(|provider| provider.traits.contains(name));
        let traits = old.traits.iter().filter(|name| name.is_custom());
        let traits = traits.filter(|name| !has_trait(name));
        self.traits.extend(traits.cloned());
    }
}
