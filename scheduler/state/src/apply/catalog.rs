//! Custom resource classes and traits: created, renamed, deleted while no provider has any.

use std::sync::Arc;

use berth_domain::allocation::Consumer;
use berth_domain::id::{ConsumerId, ProviderId};
use berth_domain::provider::ResourceProvider;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::{Custom, ResourceClass, Trait};

use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn create_class(&mut self, name: &ResourceClass) -> Result<Reply, Refusal> {
        examine_custom(name)?;
        if let Some(class) = self.state.class(name).cloned() {
            let class = match class.reported {
                true => self.put_class(created_by_client(&class)),
                false => class,
            };
            let existed = true;
            return Ok(Reply::Class { class, existed });
        }
        let class = self.put_class(Custom {
            name: name.clone(),
            created_at: self.now(),
            updated_at: self.now(),
            reported: false,
        });
        let existed = false;
        Ok(Reply::Class { class, existed })
    }

    /// Everything that is counted under the old name is counted under the new one from then on; as
    /// in OpenStack Placement, no generation changes.
    pub(super) fn rename_class(
        &mut self,
        from: &ResourceClass,
        to: &ResourceClass,
    ) -> Result<Reply, Refusal> {
        let old = self.class_to_change(from)?;
        if from == to {
            let (class, existed) = (old, true);
            return Ok(Reply::Class { class, existed });
        }
        examine_custom(to)?;
        if self.state.class(to).is_some() {
            return Err(Refusal::new(
                Code::AlreadyExists,
                "CLASS_EXISTS",
                format!("resource class {to} exists already"),
            )
            .with("class", to));
        }
        let providers: Vec<_> = self.state.providers_of_custom(from).cloned().collect();
        // A host goes on reporting what it has by the name that it knows.
        if let Some(reported) = providers.iter().find(|provider| provider.is_reported()) {
            super::provider::read_only(reported)?;
        }
        for provider in providers {
            self.rename_in(&provider, from, to);
        }
        self.remove_class(from);
        let class = self.put_class(Custom {
            name: to.clone(),
            created_at: old.created_at,
            updated_at: self.now(),
            reported: false,
        });
        let existed = false;
        Ok(Reply::Class { class, existed })
    }

    fn rename_in(&mut self, provider: &ResourceProvider, from: &ResourceClass, to: &ResourceClass) {
        let takes_it = |c: &&Arc<Consumer>| {
            let resources = c.allocations.get(&provider.id);
            resources.is_some_and(|r| r.contains_key(from))
        };
        let consumers = self.state.consumers_of(provider.id).filter(takes_it);
        let consumers: Vec<ConsumerId> = consumers.map(|c| c.id).collect();
        for id in consumers {
            self.rename_taken(id, provider.id, from, to);
        }
        let mut provider = provider.clone();
        if let Some(inventory) = provider.inventories.remove(from) {
            provider.inventories.insert(to.clone(), inventory);
        }
        self.put_provider(provider);
    }

    fn rename_taken(
        &mut self,
        consumer: ConsumerId,
        provider: ProviderId,
        from: &ResourceClass,
        to: &ResourceClass,
    ) {
        let Some(consumer) = self.state.consumer(consumer) else {
            return;
        };
        let mut consumer = (**consumer).clone();
        if let Some(resources) = consumer.allocations.get_mut(&provider)
            && let Some(amount) = resources.remove(from)
        {
            resources.insert(to.clone(), amount);
        }
        self.put_consumer(consumer);
    }

    pub(super) fn delete_class(&mut self, name: &ResourceClass) -> Result<Reply, Refusal> {
        self.class_to_change(name)?;
        if let Some(provider) = self.state.providers_of_custom(name).next() {
            let id = provider.id;
            return Err(precondition(
                "CLASS_IN_USE",
                format!("resource provider {id} has an inventory of {name}"),
            )
            .with("class", name)
            .with("provider", id));
        }
        self.remove_class(name);
        Ok(Reply::None)
    }

    fn class_to_change(&self, name: &ResourceClass) -> Result<Arc<Custom<ResourceClass>>, Refusal> {
        if name.is_standard() {
            return Err(standard_class(name));
        }
        let class = self.state.class(name).cloned();
        class.ok_or_else(|| {
            let message = format!("resource class {name} does not exist");
            Refusal::new(Code::NotFound, "CLASS_NOT_FOUND", message).with("class", name)
        })
    }

    pub(super) fn create_trait(&mut self, name: &Trait) -> Result<Reply, Refusal> {
        if name.is_standard() {
            return Err(standard_trait(name));
        }
        if !name.is_custom() {
            return Err(not_custom("trait", name.as_str()));
        }
        if let Some(custom) = self.state.custom_trait(name).cloned() {
            let custom = match custom.reported {
                true => self.put_trait(created_by_client(&custom)),
                false => custom,
            };
            let existed = true;
            return Ok(Reply::Trait { custom, existed });
        }
        let custom = self.put_trait(Custom {
            name: name.clone(),
            created_at: self.now(),
            updated_at: self.now(),
            reported: false,
        });
        let existed = false;
        Ok(Reply::Trait { custom, existed })
    }

    pub(super) fn delete_trait(&mut self, name: &Trait) -> Result<Reply, Refusal> {
        if name.is_standard() {
            return Err(standard_trait(name));
        }
        if self.state.custom_trait(name).is_none() {
            return Err(Refusal::not_found("trait", name));
        }
        if let Some(provider) = self.state.providers_with(name).next() {
            let id = provider.id;
            return Err(precondition(
                "TRAIT_IN_USE",
                format!("resource provider {id} has the trait {name}"),
            )
            .with("trait", name)
            .with("provider", id));
        }
        self.remove_trait(name);
        Ok(Reply::None)
    }
}

/// Returns a reported name as a client created it: it no longer goes with its last provider.
fn created_by_client<Name: Clone>(custom: &Custom<Name>) -> Custom<Name> {
    Custom {
        reported: false,
        ..custom.clone()
    }
}

fn examine_custom(name: &ResourceClass) -> Result<(), Refusal> {
    if name.is_standard() {
        return Err(standard_class(name));
    }
    if !name.is_custom() {
        return Err(not_custom("resource class", name.as_str()));
    }
    Ok(())
}

fn standard_class(name: &ResourceClass) -> Refusal {
    let message = format!("resource class {name} is a standard one, which clients do not change");
    invalid("STANDARD_CLASS", message).with("class", name)
}

fn standard_trait(name: &Trait) -> Refusal {
    let message = format!("trait {name} is a standard one, which clients do not change");
    invalid("STANDARD_TRAIT", message).with("trait", name)
}

fn not_custom(kind: &str, name: &str) -> Refusal {
    let message = format!("{kind} {name} does not begin with CUSTOM_");
    invalid("NOT_CUSTOM", message).with("name", name)
}
