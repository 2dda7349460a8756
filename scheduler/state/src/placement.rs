//! The look-ups of counted placement: providers, consumers, resource classes, traits.
//!
//! Those of the tables themselves are in [`crate::state`].

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::allocation::{Consumer, Resources};
use berth_domain::id::{AggregateId, ConsumerId, ProviderId};
use berth_domain::name::VmName;
use berth_domain::provider::ResourceProvider;
use berth_domain::resource::{ConsumerType, Custom, ResourceClass, Trait};
use imbl::{OrdMap, OrdSet};
use uuid::Uuid;

use crate::state::State;

/// Which consumers are counted by [`State::usages`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerTypes {
    /// All of them.
    Every,
    /// Those of which no type is known.
    Unknown,
    /// Those of this type.
    Only(ConsumerType),
}

/// What consumers of one type take together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many consumers there are.
    pub consumers: u64,
    /// What they take.
    pub resources: Resources,
}

/// The type of the consumer that a claim is.
pub const CLAIM_CONSUMER_TYPE: &str = "BERTH_CLAIM";

fn claim_type() -> ConsumerType {
    ConsumerType::new(CLAIM_CONSUMER_TYPE).expect("upper case and an underscore make a type")
}

impl Usage {
    /// Counts another consumer.
    fn add<'r>(&mut self, resources: impl IntoIterator<Item = (&'r ResourceClass, &'r u64)>) {
        self.consumers += 1;
        for (class, amount) in resources {
            *self.resources.entry(class.clone()).or_default() += amount;
        }
    }
}

impl ConsumerTypes {
    fn hold(&self, consumer_type: Option<&ConsumerType>) -> bool {
        match self {
            Self::Every => true,
            Self::Unknown => consumer_type.is_none(),
            Self::Only(only) => consumer_type == Some(only),
        }
    }
}

impl State {
    /// Returns all custom resource classes; the standard ones are in `berth_domain::standard`.
    #[must_use]
    pub fn classes(&self) -> &OrdMap<ResourceClass, Arc<Custom<ResourceClass>>> {
        &self.classes
    }

    /// Returns all custom traits; the standard ones are in `berth_domain::standard`.
    #[must_use]
    pub fn custom_traits(&self) -> &OrdMap<Trait, Arc<Custom<Trait>>> {
        &self.traits
    }

    /// Returns whether the resource class is a standard one or was created.
    #[must_use]
    pub fn knows_class(&self, class: &ResourceClass) -> bool {
        self.classes.contains_key(class) || class.is_standard()
    }

    /// Returns whether the trait is a standard one or was created.
    #[must_use]
    pub fn knows_trait(&self, name: &Trait) -> bool {
        self.traits.contains_key(name) || name.is_standard()
    }

    /// Returns the provider of this name, if there is one.
    #[must_use]
    pub fn provider_named(&self, name: &str) -> Option<&Arc<ResourceProvider>> {
        let id = self.index.provider_names.get(name)?;
        self.providers.get(id)
    }

    /// Returns the providers right below this one.
    pub fn children_of(
        &self,
        parent: ProviderId,
    ) -> impl Iterator<Item = &Arc<ResourceProvider>> + '_ {
        self.providers_under(&self.index.children, parent)
    }

    /// Returns the providers of the tree that has this root, the root included.
    pub fn tree_of(&self, root: ProviderId) -> impl Iterator<Item = &Arc<ResourceProvider>> + '_ {
        self.providers_under(&self.index.trees, root)
    }

    /// Returns the providers that have this trait.
    pub fn providers_with(&self, name: &Trait) -> impl Iterator<Item = &Arc<ResourceProvider>> {
        self.providers_under(&self.index.trait_providers, name.clone())
    }

    /// Returns the providers that belong to this aggregate.
    pub fn members_of(
        &self,
        aggregate: AggregateId,
    ) -> impl Iterator<Item = &Arc<ResourceProvider>> + '_ {
        self.providers_under(&self.index.aggregate_providers, aggregate)
    }

    /// Returns the providers that have something of this custom resource class.
    pub(crate) fn providers_of_custom(
        &self,
        class: &ResourceClass,
    ) -> impl Iterator<Item = &Arc<ResourceProvider>> + '_ {
        self.providers_under(&self.index.class_providers, class.clone())
    }

    fn providers_under<'s, K: Ord + Clone + 's>(
        &'s self,
        index: &'s OrdSet<(K, ProviderId)>,
        key: K,
    ) -> impl Iterator<Item = &'s Arc<ResourceProvider>> + use<'s, K> {
        let (low, high) = (ProviderId(Uuid::nil()), ProviderId(Uuid::max()));
        index
            .range((key.clone(), low)..=(key, high))
            .filter_map(|(_, provider)| self.providers.get(provider))
    }

    /// Returns the consumers that take something from this provider; claims are not among them.
    pub fn consumers_of(&self, provider: ProviderId) -> impl Iterator<Item = &Arc<Consumer>> + '_ {
        let (low, high) = (ConsumerId(Uuid::nil()), ConsumerId(Uuid::max()));
        self.index
            .provider_consumers
            .range((provider, low)..=(provider, high))
            .filter_map(|(_, consumer)| self.consumers.get(consumer))
    }

    /// Returns the VMs of this project.
    #[must_use]
    pub fn vms_of_project(&self, project: &str) -> Option<&OrdSet<VmName>> {
        self.index.project_vms.get(project)
    }

    /// Returns the consumers of this project that are not claims.
    pub fn consumers_of_project(&self, project: &str) -> impl Iterator<Item = &Arc<Consumer>> + '_ {
        let project: Arc<str> = project.into();
        let (low, high) = (ConsumerId(Uuid::nil()), ConsumerId(Uuid::max()));
        self.index
            .project_consumers
            .range((project.clone(), low)..=(project, high))
            .filter_map(|(_, consumer)| self.consumers.get(consumer))
    }

    /// Returns what is taken from this provider, by claims or by other consumers.
    #[must_use]
    pub fn used_of(&self, provider: ProviderId) -> Resources {
        let provider = self.providers.get(&provider);
        let used = provider.and_then(|provider| self.used_of_this(provider));
        used.cloned().unwrap_or_default()
    }

    /// As [`Self::used_of`], of a provider that was looked up; absent where nothing is taken.
    #[must_use]
    pub fn used_of_this(&self, provider: &ResourceProvider) -> Option<&Resources> {
        // What is taken from the regions below a host is counted as from clients' providers.
        let host = provider.host.as_ref().filter(|_| provider.is_root());
        match host.and_then(|name| self.hosts.get(name)) {
            Some(view) => Some(&view.used),
            None => Some(&**self.index.provider_used.get(&provider.id)?),
        }
    }

    /// Returns what is taken from clients' providers, without those from which nothing is. What is
    /// taken from hosts is in their views.
    #[must_use]
    pub fn client_used(&self) -> &OrdMap<ProviderId, Arc<Resources>> {
        &self.index.provider_used
    }

    /// Returns what the consumers of a project take, claims of its VMs among them, by their type. The
    /// user of a claim is its VM. `None` holds those of which no
    /// type is known. Types without consumers are left out.
    #[must_use]
    pub fn usages(
        &self,
        project: &str,
        user: Option<&str>,
        types: &ConsumerTypes,
    ) -> BTreeMap<Option<ConsumerType>, Usage> {
        let mut usages: BTreeMap<Option<ConsumerType>, Usage> = BTreeMap::new();
        for consumer in self.consumers_of_project(project) {
            if user.is_some_and(|user| consumer.user != user)
                || !types.hold(consumer.consumer_type.as_ref())
            {
                continue;
            }
            let usage = usages.entry(consumer.consumer_type.clone()).or_default();
            usage.add(consumer.allocations.values().flatten());
        }
        let claimed = claim_type();
        if types.hold(Some(&claimed)) {
            let vms = self.vms_of_project(project).into_iter().flatten();
            let vms = vms.filter(|vm| user.is_none_or(|user| vm.as_str() == user));
            for claim in vms.flat_map(|vm| self.claims_of_vm(vm)) {
                let usage = usages.entry(Some(claimed.clone())).or_default();
                usage.add(&claim.resources);
            }
        }
        usages
    }
}
