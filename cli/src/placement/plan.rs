//! The plan of an import, after which Berth holds what the source does. Pure: two worlds in, a plan out.
//!
//! Whether something here may be overwritten follows from its origin: what an import from this
//! source made, and what is still at the generation that it was given, is the import's. Everything
//! else belongs to another client, and is left alone unless the caller allows to overwrite it.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::id::{ConsumerId, Generation, ProviderId};
use berth_domain::import::{ConsumerImport, Origin, ProviderImport};
use berth_domain::resource::{ResourceClass, Trait};
use serde::Serialize;

use super::world::{Consumer, Here, Provider, World};

/// The options of an import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The name of the source.
    pub source: String,
    /// Whether what is not the import's is overwritten, too.
    pub overwrite: bool,
    /// Whether what no longer exists at the source is deleted.
    pub delete: bool,
}

/// The writes of an import, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Custom resource classes to make.
    pub classes: Vec<ResourceClass>,
    /// Custom traits to make.
    pub traits: Vec<Trait>,
    /// Providers that lose their name to another one: they are renamed first.
    pub nameless: Vec<ProviderId>,
    /// Providers to write, parents before what is below them. They keep inventories from which
    /// something is still taken.
    pub providers: Vec<ProviderImport>,
    /// Consumers to write; those without allocations go.
    pub consumers: Vec<ConsumerImport>,
    /// Providers to write once more, without those inventories.
    pub finally: Vec<ProviderImport>,
    /// Providers to take away, what is below them first.
    pub gone: Vec<ProviderId>,
    /// What is not done, and why.
    pub conflicts: Vec<Conflict>,
    /// How many providers and consumers of the plan are new here.
    pub new: (usize, usize),
    /// How many providers and consumers are here already as they are there.
    pub same: (usize, usize),
    /// How many providers and consumers no longer exist at the source and stay here.
    pub kept: (usize, usize),
}

/// Something that is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// What it is about, as `provider 0123…`.
    pub item: String,
    /// Why, for programs.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
    /// What to do about it.
    pub advice: String,
}

impl Plan {
    /// Returns whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
            && self.traits.is_empty()
            && self.nameless.is_empty()
            && self.providers.is_empty()
            && self.consumers.is_empty()
            && self.gone.is_empty()
    }

    /// Returns how many consumers go.
    #[must_use]
    pub fn leaving(&self) -> usize {
        let gone = |c: &&ConsumerImport| c.allocations.is_empty();
        self.consumers.iter().filter(gone).count()
    }
}

/// Returns what is to be done.
#[must_use]
pub fn plan(there: &World, here: &Here, options: &ImportOptions) -> Plan {
    let mut planner = Planner {
        there,
        here,
        options,
        taken: here.world.taken(),
        names: here
            .world
            .providers
            .iter()
            .map(|(id, p)| (p.name.as_str(), *id))
            .collect(),
        left_out: BTreeSet::new(),
        plan: Plan::default(),
    };
    let classes = there.classes.difference(&here.world.classes);
    planner.plan.classes = classes.cloned().collect();
    let traits = there.traits.difference(&here.world.traits);
    planner.plan.traits = traits.cloned().collect();
    for id in there.parents_first() {
        planner.provider(id, &there.providers[&id]);
    }
    for (id, consumer) in &there.consumers {
        planner.consumer(*id, consumer);
    }
    planner.gone_consumers();
    planner.gone_providers();
    planner.plan
}

struct Planner<'a> {
    there: &'a World,
    here: &'a Here,
    options: &'a ImportOptions,
    /// Which classes are taken from providers here.
    taken: BTreeMap<ProviderId, BTreeSet<ResourceClass>>,
    /// The owners of the names that are taken here.
    names: BTreeMap<&'a str, ProviderId>,
    /// Providers of the source that will not be here.
    left_out: BTreeSet<ProviderId>,
    plan: Plan,
}

impl Planner<'_> {
    fn provider(&mut self, id: ProviderId, it: &Provider) {
        let old = self.here.world.providers.get(&id);
        if old == Some(it) {
            self.plan.same.0 += 1;
            return;
        }
        let conflict = self.conflict_of(id, it, old);
        if let Some(conflict) = conflict {
            if old.is_none() {
                self.left_out.insert(id);
            }
            self.plan.conflicts.push(conflict);
            return;
        }
        let holder = self.names.get(it.name.as_str()).filter(|h| **h != id);
        self.plan.nameless.extend(holder);
        self.plan.new.0 += usize::from(old.is_none());
        let mut import = ProviderImport {
            id,
            name: it.name.clone(),
            parent: it.parent,
            generation: it.generation,
            inventories: it.inventories.clone(),
            traits: it.traits.clone(),
            aggregates: it.aggregates.clone(),
            seen: old.map(|old| old.generation),
        };
        let taken = self.taken.get(&id).into_iter().flatten();
        let taken: Vec<_> = taken.filter(|c| !it.inventories.contains_key(*c)).collect();
        if let Some(old) = old.filter(|_| !taken.is_empty()) {
            self.plan.finally.push(ProviderImport {
                seen: Some(it.generation),
                ..import.clone()
            });
            let kept = taken
                .into_iter()
                .filter_map(|c| old.inventories.get_key_value(c));
            import
                .inventories
                .extend(kept.map(|(c, i)| (c.clone(), *i)));
        }
        self.plan.providers.push(import);
    }

    /// Returns why a provider is left as it is, if it is.
    fn conflict_of(
        &self,
        id: ProviderId,
        it: &Provider,
        old: Option<&Provider>,
    ) -> Option<Conflict> {
        let item = named(id, &it.name);
        if let Some(host) = self.here.hosts.get(&id) {
            return Some(Conflict {
                item,
                reason: "PROVIDER_READ_ONLY",
                message: format!("it is reported here by host {host}"),
                advice: "leave it: the host's agent reports its inventories".to_owned(),
            });
        }
        if let Some(old) = old {
            let origin = self.here.provider_origins.get(&id);
            if let Some((reason, message)) = self.ownership_conflict(origin, old.generation) {
                return Some(overwriting(item, reason, message));
            }
        }
        if let Some(parent) = it.parent.filter(|parent| !self.is_planned(*parent)) {
            return Some(Conflict {
                item,
                reason: "PARENT_LEFT_OUT",
                message: format!("it is below provider {parent}, which is left out"),
                advice: "resolve the conflict of that provider".to_owned(),
            });
        }
        if let Some(name) = self.unknown(it) {
            return Some(Conflict {
                item,
                reason: "UNKNOWN_NAME",
                message: format!("it has {name}, which is not custom and not known here"),
                advice: "take it from the provider at the source, or upgrade Berth".to_owned(),
            });
        }
        let holder = *self.names.get(it.name.as_str())?;
        if holder == id || self.releases_name(holder, &it.name) {
            return None;
        }
        Some(Conflict {
            item,
            reason: "NAME_TAKEN",
            message: format!("its name is that of provider {holder} here"),
            advice: match self.here.hosts.get(&holder) {
                Some(host) => format!("rename it at the source, or remove host {host} here"),
                None if self.is_from_source(self.here.provider_origins.get(&holder)) => {
                    "that one no longer exists at the source: --delete deletes it here".to_owned()
                }
                None => "rename or delete the one here (berth provider update, delete)".to_owned(),
            },
        })
    }

    /// Returns why something is not the import's to change, if it is not.
    fn ownership_conflict(
        &self,
        origin: Option<&Origin>,
        now: Generation,
    ) -> Option<(&'static str, String)> {
        if self.options.overwrite {
            return None;
        }
        let source = &self.options.source;
        match origin {
            None => Some((
                "NOT_IMPORTED",
                "it is here already, and was not taken over".to_owned(),
            )),
            Some(origin) if origin.source != *source => Some((
                "OTHER_SOURCE",
                format!(
                    "it was taken over from {}, not from {source}",
                    origin.source
                ),
            )),
            Some(origin) if origin.generation != now => Some((
                "CHANGED_HERE",
                format!(
                    "it was taken over at generation {} and changed here since: it is at {now}",
                    origin.generation
                ),
            )),
            Some(_) => None,
        }
    }

    fn is_planned(&self, id: ProviderId) -> bool {
        let comes = self.there.providers.contains_key(&id) && !self.left_out.contains(&id);
        comes || self.here.world.providers.contains_key(&id)
    }

    /// Returns a class or trait that cannot be created here.
    fn unknown(&self, it: &Provider) -> Option<String> {
        let class = |c: &&ResourceClass| !c.is_custom() && !self.here.standard_classes.contains(*c);
        let unknown_trait = |t: &&Trait| !t.is_custom() && !self.here.standard_traits.contains(*t);
        let class = it.inventories.keys().find(class).map(ToString::to_string);
        class.or_else(|| {
            it.traits
                .iter()
                .find(unknown_trait)
                .map(ToString::to_string)
        })
    }

    /// Returns whether the plan renames or deletes a provider here.
    fn releases_name(&self, holder: ProviderId, name: &str) -> bool {
        let Some(old) = self.here.world.providers.get(&holder) else {
            return false;
        };
        let origin = self.here.provider_origins.get(&holder);
        let ours = !self.here.hosts.contains_key(&holder)
            && self.ownership_conflict(origin, old.generation).is_none();
        match self.there.providers.get(&holder) {
            Some(after) => ours && after.name != name,
            None => ours && self.options.delete && self.is_from_source(origin),
        }
    }

    fn is_from_source(&self, origin: Option<&Origin>) -> bool {
        origin.is_some_and(|origin| origin.source == self.options.source)
    }

    fn consumer(&mut self, id: ConsumerId, it: &Consumer) {
        let old = self.here.world.consumers.get(&id);
        if old == Some(it) {
            self.plan.same.1 += 1;
            return;
        }
        let item = format!("consumer {id}");
        let mut from = it.allocations.keys();
        let absent = from.find(|id| !self.is_planned(**id) || self.here.hosts.contains_key(*id));
        if let Some(provider) = absent {
            self.plan.conflicts.push(Conflict {
                item,
                reason: "PROVIDER_LEFT_OUT",
                message: format!("it takes from provider {provider}, which is left out"),
                advice: "resolve the conflict of that provider".to_owned(),
            });
            return;
        }
        if let Some(old) = old {
            let origin = self.here.consumer_origins.get(&id);
            if let Some((reason, message)) = self.ownership_conflict(origin, old.generation) {
                self.plan.conflicts.push(overwriting(item, reason, message));
                return;
            }
        }
        self.plan.new.1 += usize::from(old.is_none());
        self.plan.consumers.push(ConsumerImport {
            id,
            generation: it.generation,
            project: it.project.clone(),
            user: it.user.clone(),
            consumer_type: it.consumer_type.clone(),
            allocations: it.allocations.clone(),
            seen: old.map(|old| old.generation),
        });
    }

    /// Consumers that an import made, and that take nothing at the source any more.
    fn gone_consumers(&mut self) {
        for (id, old) in &self.here.world.consumers {
            let origin = self.here.consumer_origins.get(id);
            if self.there.consumers.contains_key(id) || !self.is_from_source(origin) {
                continue;
            }
            if !self.options.delete {
                self.plan.kept.1 += 1;
                continue;
            }
            if let Some((reason, message)) = self.ownership_conflict(origin, old.generation) {
                let item = format!("consumer {id}, deleted at the source");
                self.plan.conflicts.push(overwriting(item, reason, message));
                continue;
            }
            self.plan.consumers.push(ConsumerImport {
                id: *id,
                generation: old.generation,
                project: old.project.clone(),
                user: old.user.clone(),
                consumer_type: None,
                allocations: BTreeMap::new(),
                seen: Some(old.generation),
            });
        }
    }

    /// Providers that an import made, and that no longer exist at the source.
    fn gone_providers(&mut self) {
        let mut order = self.here.world.parents_first();
        order.reverse();
        for id in order {
            let old = &self.here.world.providers[&id];
            let origin = self.here.provider_origins.get(&id);
            if self.there.providers.contains_key(&id) || !self.is_from_source(origin) {
                continue;
            }
            if !self.options.delete {
                self.plan.kept.0 += 1;
                continue;
            }
            match self.ownership_conflict(origin, old.generation) {
                Some((reason, message)) => {
                    let item = format!("{}, deleted at the source", named(id, &old.name));
                    self.plan.conflicts.push(overwriting(item, reason, message));
                }
                None => self.plan.gone.push(id),
            }
        }
    }
}

fn named(id: ProviderId, name: &str) -> String {
    format!("provider {id} ({name})")
}

fn overwriting(item: String, reason: &'static str, message: String) -> Conflict {
    Conflict {
        item,
        reason,
        message,
        advice: "check it; --overwrite replaces it by what the source has".to_owned(),
    }
}
