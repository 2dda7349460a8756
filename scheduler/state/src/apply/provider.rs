//! Resource providers that clients make, move and delete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::id::{Generation, ProviderId};
use berth_domain::provider::{NAME_MAX, ResourceProvider, would_loop};
use berth_domain::refusal::{Code, Refusal};

use crate::refusals::{invalid, precondition};
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

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

/// Refuses a change that was decided on an older state of the provider.
pub(super) fn at_generation(provider: &ResourceProvider, given: Generation) -> Result<(), Refusal> {
    let actual = provider.generation;
    if actual == given {
        return Ok(());
    }
    let id = provider.id;
    Err(Refusal::new(
        Code::Aborted,
        "PROVIDER_GENERATION",
        format!("resource provider {id} is at generation {actual}, not {given}"),
    )
    .with_hint("read it again and repeat the change")
    .with("provider", id)
    .with("actual", actual)
    .with("given", given))
}

impl<J: Journal> Transaction<'_, J> {
    /// Returns a provider that a client may change.
    pub(super) fn clients_provider(
        &self,
        id: ProviderId,
    ) -> Result<&Arc<ResourceProvider>, Refusal> {
        let provider = self.state.provider(id);
        let provider = provider.ok_or_else(|| Refusal::not_found("provider", id))?;
        read_only(provider)?;
        Ok(provider)
    }

    pub(super) fn create_provider(
        &mut self,
        id: ProviderId,
        name: &str,
        parent: Option<ProviderId>,
    ) -> Result<Reply, Refusal> {
        examine_name(name)?;
        if parent == Some(id) {
            return Err(invalid(
                "PARENT_SELF",
                format!("resource provider {id} cannot be its own parent"),
            )
            .with("provider", id));
        }
        let root = match parent {
            None => id,
            Some(parent) => self.parent(parent)?.root,
        };
        if self.state.provider(id).is_some() {
            return Err(duplicate("DUPLICATE_ID", &id.to_string()).with("provider", id));
        }
        self.examine_free(name)?;
        Ok(Reply::Provider(self.put_provider(ResourceProvider {
            id,
            name: name.to_owned(),
            generation: Generation::default(),
            parent,
            root,
            host: None,
            inventories: BTreeMap::new(),
            traits: BTreeSet::new(),
            aggregates: BTreeSet::new(),
            origin: None,
            created_at: self.now(),
            updated_at: self.now(),
        })))
    }

    /// As in OpenStack Placement, neither a name nor a place in a tree counts in the generation.
    pub(super) fn update_provider(
        &mut self,
        id: ProviderId,
        name: Option<&str>,
        parent: Option<Option<ProviderId>>,
        reparent: bool,
    ) -> Result<Reply, Refusal> {
        let old = self.clients_provider(id)?.clone();
        name.map_or(Ok(()), examine_name)?;
        let parent = parent.unwrap_or(old.parent);
        let root = self.examine_move(&old, parent, reparent)?;
        let name = name.unwrap_or(&old.name);
        if name != old.name {
            self.examine_free(name)?;
        }
        if name == old.name && parent == old.parent {
            return Ok(Reply::Provider(old));
        }
        let updated_at = self.now();
        let provider = self.put_provider(ResourceProvider {
            name: name.to_owned(),
            parent,
            root,
            updated_at,
            ..(*old).clone()
        });
        if root != old.root {
            self.take_along(id, root);
        }
        Ok(Reply::Provider(provider))
    }

    /// Returns the root of the tree into which a provider is moved, if it may be.
    fn examine_move(
        &self,
        old: &ResourceProvider,
        parent: Option<ProviderId>,
        reparent: bool,
    ) -> Result<ProviderId, Refusal> {
        let id = old.id;
        if parent == old.parent {
            return Ok(old.root);
        }
        let Some(above) = parent else {
            if !reparent {
                return Err(fixed("UNPARENTING", id, "taking it out of its tree"));
            }
            return Ok(id);
        };
        let root = self.parent(above)?.root;
        if old.parent.is_some() && !reparent {
            return Err(fixed("REPARENTING", id, "moving it below another parent"));
        }
        if above == id || would_loop(id, above, |of| self.state.provider(of)?.parent) {
            return Err(invalid(
                "PARENT_LOOP",
                format!("resource provider {id} cannot be below itself or what is below it"),
            )
            .with("provider", id)
            .with("parent", above));
        }
        Ok(root)
    }

    /// Gives the new root to everything below a provider.
    pub(super) fn take_along(&mut self, top: ProviderId, root: ProviderId) {
        let updated_at = self.now();
        let mut below = vec![top];
        while let Some(parent) = below.pop() {
            let children: Vec<_> = self.state.children_of(parent).cloned().collect();
            for child in children {
                below.push(child.id);
                self.put_provider(ResourceProvider {
                    root,
                    updated_at,
                    ..(*child).clone()
                });
            }
        }
    }

    /// Returns a provider that others can be put below: any but a region, which goes as its host says.
    pub(super) fn parent(&self, id: ProviderId) -> Result<&Arc<ResourceProvider>, Refusal> {
        let parent = self.state.provider(id).ok_or_else(|| {
            invalid(
                "PARENT_NOT_FOUND",
                format!("parent resource provider {id} does not exist"),
            )
            .with("parent", id)
        })?;
        if !parent.is_root() {
            read_only(parent)?;
        }
        Ok(parent)
    }

    fn examine_free(&self, name: &str) -> Result<(), Refusal> {
        if self.state.provider_named(name).is_some() {
            return Err(duplicate("DUPLICATE_NAME", name).with("name", name));
        }
        Ok(())
    }

    pub(super) fn delete_provider(&mut self, id: ProviderId) -> Result<Reply, Refusal> {
        self.clients_provider(id)?;
        let in_use = |reason, what: String| {
            let message = format!("resource provider {id} has {what}");
            Err(precondition(reason, message).with("provider", id))
        };
        if let Some(child) = self.state.children_of(id).next() {
            return in_use("PROVIDER_HAS_CHILDREN", format!("{} below it", child.id));
        }
        if let Some(consumer) = self.state.consumers_of(id).next() {
            let what = format!("allocations, among them of consumer {}", consumer.id);
            return in_use("PROVIDER_HAS_ALLOCATIONS", what);
        }
        self.remove_provider(id);
        Ok(Reply::None)
    }
}

pub(super) fn examine_name(name: &str) -> Result<(), Refusal> {
    if (1..=NAME_MAX).contains(&name.chars().count()) {
        return Ok(());
    }
    Err(invalid(
        "INVALID_PROVIDER_NAME",
        format!("the name of a resource provider has 1 to {NAME_MAX} characters"),
    ))
}

pub(super) fn duplicate(reason: &str, what: &str) -> Refusal {
    let message = format!("resource provider {what} exists already");
    Refusal::new(Code::AlreadyExists, reason, message)
}

fn fixed(reason: &str, id: ProviderId, what: &str) -> Refusal {
    invalid(
        reason,
        format!("resource provider {id} has a parent, and {what} was not allowed by the request"),
    )
    .with("provider", id)
}
