//! What must hold of resource providers and of consumers that are no claims.
//!
//! Usage may be above capacity here: as in OpenStack Placement, a client may shrink an inventory
//! below what is taken from it.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::allocation::Resources;
use berth_domain::id::{ClaimId, ProviderId};
use berth_domain::resource::{ResourceClass, Trait};

use super::{Violation, rule};
use crate::state::State;

/// Every provider is below another that is there, in the same tree, or is a root.
pub(super) fn trees_hang_together(state: &State) -> Result<(), Violation> {
    for (id, provider) in &state.providers {
        let good = match provider.parent {
            None => provider.root == *id,
            Some(parent) => {
                let parent = state.providers.get(&parent);
                parent.is_some_and(|p| p.root == provider.root)
            }
        };
        rule(good, "trees_hang_together", format_args!("provider {id}"))?;
        let host = provider.host.as_ref();
        let reported = host.is_none_or(|name| {
            let view = state.hosts.get(name);
            let root = provider.parent.unwrap_or(*id);
            view.is_some_and(|v| v.host.provider == root)
        });
        let what = format_args!("provider {id} is of no host");
        rule(reported, "trees_hang_together", what)?;
    }
    // A provider that is its own ancestor is reached from no root.
    let mut children: BTreeMap<ProviderId, Vec<ProviderId>> = BTreeMap::new();
    let mut reached = Vec::new();
    for (id, provider) in &state.providers {
        match provider.parent {
            None => reached.push(*id),
            Some(parent) => children.entry(parent).or_default().push(*id),
        }
    }
    let mut next = 0;
    while let Some(id) = reached.get(next) {
        reached.extend(children.remove(id).unwrap_or_default());
        next += 1;
    }
    let all = reached.len() == state.providers.len();
    rule(all, "trees_hang_together", "a provider is below itself")
}

/// What providers have was created before or is standard; what is created is custom.
pub(super) fn classes_and_traits_exist(state: &State) -> Result<(), Violation> {
    const RULE: &str = "classes_and_traits_exist";
    let custom = state.classes.keys().all(ResourceClass::is_custom)
        && state.traits.keys().all(Trait::is_custom);
    rule(custom, RULE, "a created class or trait is not custom")?;
    for (id, provider) in &state.providers {
        let classes = provider.inventories.keys().all(|c| state.knows_class(c));
        let traits = provider.traits.iter().all(|t| state.knows_trait(t));
        let what = format_args!("provider {id} has classes or traits that were not created");
        rule(classes && traits, RULE, what)?;
    }
    Ok(())
}

/// A name that only reports of hosts brought is had by a provider.
pub(super) fn reported_names_are_had(state: &State) -> Result<(), Violation> {
    let providers = || state.providers.values();
    let classes: BTreeSet<_> = providers().flat_map(|p| p.inventories.keys()).collect();
    let traits: BTreeSet<_> = providers().flat_map(|p| &p.traits).collect();
    let mut custom = state.classes.values();
    let class = custom.find(|custom| custom.reported && !classes.contains(&custom.name));
    let mut custom = state.traits.values();
    let name = custom.find(|custom| custom.reported && !traits.contains(&custom.name));
    let what = format_args!("no provider has {class:?} or {name:?}");
    let good = class.is_none() && name.is_none();
    rule(good, "reported_names_are_had", what)
}

/// Consumers take something, from providers of clients, in classes that these have; volumes take from
/// regions of hosts.
pub(super) fn consumers_take_from_clients_providers(state: &State) -> Result<(), Violation> {
    const RULE: &str = "consumers_take_from_clients_providers";
    for (id, consumer) in &state.consumers {
        let alone = !state.claims.contains_key(&ClaimId(id.0));
        rule(alone, RULE, format_args!("consumer {id} is a claim too"))?;
        let something = !consumer.allocations.is_empty();
        rule(something, RULE, format_args!("consumer {id} takes nothing"))?;
        let is_volume = state.volume_of_consumer(*id).is_some();
        for (provider, resources) in &consumer.allocations {
            let from = state.providers.get(provider);
            let good = from.is_some_and(|from| {
                let has = |class| from.inventories.contains_key(class);
                let is_theirs = from.host.is_none() || is_volume && !from.is_root();
                is_theirs && !resources.is_empty() && resources.keys().all(has)
            });
            let what = format_args!("consumer {id} takes {resources:?} from {provider}");
            rule(good, RULE, what)?;
        }
    }
    Ok(())
}

/// Usage is kept step by step; here it is counted from scratch.
pub(super) fn usage_is_the_sum_of_consumers(state: &State) -> Result<(), Violation> {
    let mut counted: BTreeMap<ProviderId, Resources> = BTreeMap::new();
    for consumer in state.consumers.values() {
        for (provider, resources) in &consumer.allocations {
            let used = counted.entry(*provider).or_default();
            for (class, amount) in resources {
                *used.entry(class.clone()).or_default() += amount;
            }
        }
    }
    let kept = &state.index.provider_used;
    let kept: BTreeMap<_, _> = kept
        .iter()
        .map(|(id, used)| (*id, (**used).clone()))
        .collect();
    let what = format_args!("kept {kept:?}, counted {counted:?}");
    rule(kept == counted, "usage_is_the_sum_of_consumers", what)
}
