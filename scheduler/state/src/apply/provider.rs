//! Resource providers that clients make and delete.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::id::{Generation, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::Refusal;

use crate::refusals::{exists, invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

/// The longest name of a provider in bytes.
const NAME_MAX: usize = 200;

/// Refuses a change of what a host reports.
pub(super) fn read_only(provider: &ResourceProvider) -> Result<(), Refusal> {
    let Some(host) = &provider.host else {
        return Ok(());
    };
    Err(precondition(
        "PROVIDER_READ_ONLY",
        format!(
            "resource provider {} is reported by host {host}: only its agent and claims change it",
            provider.id
        ),
    )
    .with("provider", provider.id)
    .with("host", host))
}

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn create_provider(
        &mut self,
        id: ProviderId,
        name: &str,
        parent: Option<ProviderId>,
    ) -> Result<Reply, Refusal> {
        if !(1..=NAME_MAX).contains(&name.len()) {
            return Err(invalid(
                "INVALID_PROVIDER_NAME",
                format!("the name of a resource provider has 1 to {NAME_MAX} bytes"),
            ));
        }
        if self.state.provider(id).is_some() {
            return Err(exists("provider", id));
        }
        if self.state.provider_named(name).is_some() {
            return Err(exists("provider", name));
        }
        let root = match parent {
            None => id,
            Some(parent) => {
                let above = self.state.provider(parent);
                above
                    .ok_or_else(|| Refusal::not_found("provider", parent))?
                    .root
            }
        };
        Ok(Reply::Provider(self.put_provider(ResourceProvider {
            id,
            name: name.to_owned(),
            generation: Generation::default(),
            parent,
            root,
            host: None,
            inventories: BTreeMap::new(),
            traits: BTreeSet::new(),
        })))
    }

    pub(super) fn delete_provider(&mut self, id: ProviderId) -> Result<Reply, Refusal> {
        let provider = self.state.provider(id);
        read_only(provider.ok_or_else(|| Refusal::not_found("provider", id))?)?;
        let in_use = |what: String| {
            let message = format!("resource provider {id} {what}");
            Err(precondition("PROVIDER_IN_USE", message).with("provider", id))
        };
        if let Some(child) = self.state.children_of(id).next() {
            return in_use(format!("has {} below it", child.id));
        }
        if let Some(consumer) = self.state.consumers_of(id).next() {
            return in_use(format!(
                "has allocations, among them of consumer {}",
                consumer.id
            ));
        }
        self.remove_provider(id);
        Ok(Reply::None)
    }
}
