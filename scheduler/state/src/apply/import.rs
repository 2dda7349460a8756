//! What is taken over from another Placement, with its generations; all or none.
//!
//! Whether there is capacity is not checked: the other Placement has given it away already, and its
//! inventories may have become smaller since. What must hold of every state is checked all the same.
//!
//! ```text
//! providers ──examine one after the other──▶ those before as they will be ──▶ rows, new roots
//! ```

use std::collections::BTreeSet;

use berth_domain::allocation::Consumer;
use berth_domain::id::{Generation, ProviderId};
use berth_domain::import::{ConsumerImport, GENERATION_MAX, Origin, ProviderImport, SOURCE_MAX};
use berth_domain::inventory::UNITS_MAX;
use berth_domain::provider::{ResourceProvider, root_of, would_loop};
use berth_domain::refusal::{Code, Refusal};

use super::allocation::{Interim, examine_names_of, no_inventory, provider_gone};
use super::inventory::{examine_count, examine_inventories, examine_removal};
use super::provider::{duplicate, examine_name, read_only};
use crate::refusals::invalid;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn import_providers(
        &mut self,
        source: &str,
        imports: &[ProviderImport],
    ) -> Result<Reply, Refusal> {
        examine_source(source)?;
        let mut after = Interim::new();
        for import in imports {
            let provider = self.examine_import(source, import, &after)?;
            if after.insert(import.id, provider).is_some() {
                return Err(twice("provider", import.id));
            }
        }
        self.examine_names(&after)?;
        let roots: Vec<_> = after
            .keys()
            .map(|id| root_of(*id, |of| self.parent_after(of, &after)))
            .collect();
        let mut moved = Vec::new();
        for (provider, root) in after.into_values().zip(roots) {
            let old = self.state.provider(provider.id);
            if old.is_some_and(|old| old.root != root) {
                moved.push((provider.id, root));
            }
            self.put_provider(ResourceProvider { root, ..provider });
        }
        // Once every provider is where it belongs, what is below one of them is below its root.
        for (id, root) in moved {
            self.take_along(id, root);
        }
        Ok(Reply::None)
    }

    /// Returns a provider as it will be, if it may be so after those before it.
    fn examine_import(
        &self,
        source: &str,
        import: &ProviderImport,
        before: &Interim,
    ) -> Result<ResourceProvider, Refusal> {
        let id = import.id;
        let old = self.state.provider(id);
        old.map_or(Ok(()), |old| read_only(old))?;
        examine_seen("provider", id, old.map(|o| o.generation), import.seen)?;
        examine_generation(import.generation)?;
        examine_name(&import.name)?;
        if let Some(parent) = import.parent {
            if !before.contains_key(&parent) {
                self.parent(parent)?;
            }
            if parent == id || would_loop(id, parent, |of| self.parent_after(of, before)) {
                return Err(invalid(
                    "PARENT_LOOP",
                    format!("resource provider {id} cannot be below itself or what is below it"),
                )
                .with("provider", id)
                .with("parent", parent));
            }
        }
        examine_inventories(self.state, &import.inventories)?;
        examine_removal(id, &import.inventories, &self.state.used_of(id))?;
        self.examine_traits(&import.traits)?;
        examine_count(import.aggregates.len(), "aggregates")?;
        Ok(ResourceProvider {
            id,
            name: import.name.clone(),
            generation: import.generation,
            parent: import.parent,
            // Known when all are.
            root: id,
            host: None,
            inventories: import.inventories.clone(),
            traits: import.traits.clone(),
            aggregates: import.aggregates.clone(),
            origin: Some(Origin {
                source: source.to_owned(),
                generation: import.generation,
            }),
            created_at: old.map_or(self.now(), |old| old.created_at),
            updated_at: self.now(),
        })
    }

    /// Returns the parent of a provider as it will be.
    fn parent_after(&self, of: ProviderId, after: &Interim) -> Option<ProviderId> {
        match after.get(&of) {
            Some(provider) => provider.parent,
            None => self.state.provider(of)?.parent,
        }
    }

    /// Refuses a name that two would have, if only for a moment.
    fn examine_names(&self, after: &Interim) -> Result<(), Refusal> {
        let mut names = BTreeSet::new();
        for (id, provider) in after {
            let name = &provider.name;
            let holder = self.state.provider_named(name);
            if holder.is_some_and(|holder| holder.id != *id) || !names.insert(name) {
                let refusal = duplicate("DUPLICATE_NAME", name);
                return Err(refusal.with("name", name).with("provider", id));
            }
        }
        Ok(())
    }

    pub(super) fn import_consumers(
        &mut self,
        source: &str,
        imports: &[ConsumerImport],
    ) -> Result<Reply, Refusal> {
        examine_source(source)?;
        let mut seen = BTreeSet::new();
        for import in imports {
            if !seen.insert(import.id) {
                return Err(twice("consumer", import.id));
            }
            self.examine_consumer_import(import)?;
        }
        for import in imports {
            self.take_consumer(source, import);
        }
        Ok(Reply::None)
    }

    fn examine_consumer_import(&self, import: &ConsumerImport) -> Result<(), Refusal> {
        let id = import.id;
        self.examine_owner(id)?;
        let known = self.state.consumer(id).map(|c| c.generation);
        examine_seen("consumer", id, known, import.seen)?;
        examine_generation(import.generation)?;
        examine_count(import.allocations.len(), "providers of one consumer")?;
        examine_names_of(id, &import.project, &import.user)?;
        for (from, resources) in &import.allocations {
            let provider = self.state.provider(*from);
            let provider = provider.ok_or_else(|| provider_gone(*from))?;
            read_only(provider)?;
            let amounts = resources.values();
            let good =
                !resources.is_empty() && amounts.into_iter().all(|n| (1..=UNITS_MAX).contains(n));
            if !good {
                return Err(invalid(
                    "INVALID_ALLOCATION",
                    format!(
                        "consumer {id} takes amounts from resource provider {from} that are not 1 \
                         to {UNITS_MAX}"
                    ),
                )
                .with("consumer", id)
                .with("provider", from));
            }
            let absent = resources
                .keys()
                .find(|c| !provider.inventories.contains_key(c));
            absent.map_or(Ok(()), |class| Err(no_inventory(*from, class)))?;
        }
        Ok(())
    }

    fn take_consumer(&mut self, source: &str, import: &ConsumerImport) {
        let old = self.state.consumer(import.id).cloned();
        if import.allocations.is_empty() {
            if old.is_some() {
                self.remove_consumer(import.id);
            }
            return;
        }
        let now = self.now();
        self.put_consumer(Consumer {
            id: import.id,
            generation: import.generation,
            project: import.project.clone(),
            user: import.user.clone(),
            consumer_type: import.consumer_type.clone(),
            origin: Some(Origin {
                source: source.to_owned(),
                generation: import.generation,
            }),
            created_at: old.map_or(now, |c| c.created_at),
            updated_at: now,
            allocations: import.allocations.clone(),
        });
    }
}

fn examine_source(source: &str) -> Result<(), Refusal> {
    // What is stored must be readable again.
    if (1..=SOURCE_MAX).contains(&source.chars().count()) {
        return Ok(());
    }
    Err(invalid(
        "INVALID_SOURCE",
        format!("the name of another Placement has 1 to {SOURCE_MAX} characters"),
    ))
}

/// Refuses what would leave no room for counting on.
fn examine_generation(generation: Generation) -> Result<(), Refusal> {
    if generation.0 <= GENERATION_MAX {
        return Ok(());
    }
    Err(invalid(
        "INVALID_GENERATION",
        format!("generation {generation} is more than {GENERATION_MAX}"),
    ))
}

/// Refuses to overwrite what the importer has not seen.
fn examine_seen(
    kind: &str,
    id: impl std::fmt::Display,
    known: Option<Generation>,
    seen: Option<Generation>,
) -> Result<(), Refusal> {
    if known == seen {
        return Ok(());
    }
    let text = |generation: Option<Generation>| {
        generation.map_or_else(|| "absent".to_owned(), |g| format!("at generation {g}"))
    };
    let reason = format!("{}_GENERATION", kind.to_uppercase());
    let message = format!("{kind} {id} is {}, not {}", text(known), text(seen));
    Err(Refusal::new(Code::Aborted, &reason, message)
        .with_hint("another client changes it: read it again and repeat the import")
        .with(kind, id))
}

fn twice(kind: &str, id: impl std::fmt::Display) -> Refusal {
    let reason = format!("{}_TWICE", kind.to_uppercase());
    invalid(&reason, format!("{kind} {id} is named twice")).with(kind, id)
}
