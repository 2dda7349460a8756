//! What becomes of each resource: declared and existing ones, compared. It does no I/O.
//!
//! ```text
//!   declared, not there ─▶ create          as declared ─▶ unchanged
//!   declared otherwise ──▶ change, or recreate-needed where no request changes it
//!   labelled, not declared ─▶ delete
//! ```
//!
//! Invariant: a plan with an obstacle is not carried out at all.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::document::{Declared, Origin};
use super::kind::Kind;
use super::resource::Resource;
use crate::session::short;

/// What identifies a resource: its kind, and its name without its collection.
pub(super) type Key = (Kind, String);

/// A resource that is there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Existing {
    /// What it is.
    pub(super) resource: Resource,
    /// Its generation, of those kinds that a change is refused of if it is another one by then.
    pub(super) generation: u64,
    /// What is known of a VM.
    pub(super) vm: Option<VmStatus>,
}

/// How far a VM is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VmStatus {
    /// This life of its name.
    pub(super) uid: String,
    /// The operation that builds it, if one does.
    pub(super) building: Option<String>,
    /// Whether it is being deleted.
    pub(super) is_deleting: bool,
    /// Whether it is in ERROR.
    pub(super) is_failed: bool,
    /// Whether it was resized, and that is not confirmed yet.
    pub(super) is_resized: bool,
}

/// What is there of what a plan is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct World {
    /// The resources that are declared and exist, and the VMs that are pruned if they are not declared.
    pub(super) existing: BTreeMap<Key, Existing>,
    /// Resources that are named by others, and that exist.
    pub(super) references: BTreeSet<Key>,
    /// Hosts that are named, and that exist.
    pub(super) hosts: BTreeSet<String>,
    /// The VMs that have the label of `--prune`.
    pub(super) labelled: BTreeSet<String>,
}

/// What is done with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// It is created.
    Create,
    /// It is changed in place.
    Change,
    /// It would have to be created again.
    RecreateNeeded,
    /// It is as it is declared.
    Unchanged,
    /// It is deleted.
    Delete,
}

impl Action {
    /// Returns the word for it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::RecreateNeeded => "recreate-needed",
            Self::Unchanged => "unchanged",
            Self::Delete => "delete",
        }
    }
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    /// Its path, as `labels.team`.
    pub(super) field: String,
    /// What it has; null where it has nothing.
    pub(super) old: Value,
    /// What it is to have.
    pub(super) new: Value,
}

/// Why a plan is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// The reason.
    pub(super) message: String,
    /// What the user does about it.
    pub(super) hint: String,
}

/// What becomes of one resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// Which.
    pub(super) key: Key,
    /// Where it is declared; of one that is deleted, nowhere.
    pub(super) origin: Option<Origin>,
    /// What is done.
    pub(super) action: Action,
    /// What differs.
    pub(super) differences: Vec<Difference>,
    /// Why that cannot be done.
    pub(super) obstacle: Option<Obstacle>,
    /// What the user should know of it.
    pub(super) note: Option<String>,
    /// What it is to be.
    pub(super) declared: Option<Resource>,
    /// What it is.
    pub(super) existing: Option<Existing>,
}

impl Entry {
    /// Returns whether it is a declared VM that is in ERROR.
    pub(super) fn is_failed(&self) -> bool {
        let vm = self
            .existing
            .as_ref()
            .and_then(|existing| existing.vm.as_ref());
        self.declared.is_some() && vm.is_some_and(|vm| vm.is_failed)
    }
}

/// Returns what becomes of each resource, in the order in which it is carried out.
pub(super) fn plan(declared: Vec<Declared>, world: &World) -> Vec<Entry> {
    let keys: BTreeSet<Key> = declared
        .iter()
        .map(|one| (one.resource.kind(), one.name.clone()))
        .collect();
    let mut entries: Vec<Entry> = declared
        .into_iter()
        .map(|one| entry(one, &keys, world))
        .collect();
    // Those of one kind stay in the order of the documents.
    entries.sort_by_key(|entry| entry.key.0);
    let undeclared = world
        .labelled
        .iter()
        .map(|name| (Kind::Vm, name.clone()))
        .filter(|key| !keys.contains(key));
    entries.extend(undeclared.map(|key| deletion(key, world)));
    entries
}

fn entry(declared: Declared, keys: &BTreeSet<Key>, world: &World) -> Entry {
    let Declared {
        origin,
        name,
        resource,
    } = declared;
    let key = (resource.kind(), name);
    let existing = world.existing.get(&key).cloned();
    let mut entry = Entry {
        action: Action::Create,
        differences: Vec::new(),
        obstacle: None,
        note: None,
        origin: Some(origin),
        declared: Some(resource),
        existing,
        key,
    };
    match (&entry.declared, &entry.existing) {
        (Some(resource), Some(existing)) => {
            let (new, old) = resource.compared_with(&existing.resource);
            differences("", &old, &new, &mut entry.differences);
            entry.obstacle = existing
                .vm
                .as_ref()
                .and_then(|vm| deleting(&entry.key.1, vm))
                .or_else(|| immutable(&entry.key, &entry.differences, resource, existing));
            entry.action = match (entry.differences.is_empty(), &entry.obstacle) {
                (true, _) => Action::Unchanged,
                (false, None) => Action::Change,
                (false, Some(_)) => Action::RecreateNeeded,
            };
            if entry.action == Action::Change {
                entry.obstacle = missing(resource, keys, world);
            }
            entry.note = existing.vm.as_ref().and_then(|vm| note(&entry.key.1, vm));
        }
        (Some(resource), None) => {
            entry.obstacle = missing(resource, keys, world);
            differences(
                "",
                &Value::Null,
                &resource.to_value(),
                &mut entry.differences,
            );
        }
        (None, _) => {}
    }
    entry
}

/// Collects the fields that differ. Objects are compared field by field, lists of objects element by element,
/// other lists as a whole.
fn differences(path: &str, old: &Value, new: &Value, all: &mut Vec<Difference>) {
    if old == new {
        return;
    }
    if let (Some(old), Some(new)) = (objects(old), objects(new)) {
        let null = &Value::Null;
        for at in 0..old.len().max(new.len()) {
            let (old, new) = (old.get(at), new.get(at));
            let path = format!("{path}[{at}]");
            differences(&path, old.unwrap_or(null), new.unwrap_or(null), all);
        }
        return;
    }
    let is_leaf = |value: &Value| !value.is_object() && !value.is_null();
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (old_fields, new_fields) = (fields(old), fields(new));
    let names: BTreeSet<&String> = old_fields.keys().chain(new_fields.keys()).collect();
    // One may have an object without fields, as the boot from a disk, and the other nothing.
    if is_leaf(old) || is_leaf(new) || names.is_empty() {
        all.push(Difference {
            field: path.to_owned(),
            old: old.clone(),
            new: new.clone(),
        });
        return;
    }
    for name in names {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        let null = &Value::Null;
        let (old, new) = (old_fields.get(name), new_fields.get(name));
        differences(&path, old.unwrap_or(null), new.unwrap_or(null), all);
    }
}

/// Returns the elements of a list that holds nothing but objects.
fn objects(value: &Value) -> Option<&Vec<Value>> {
    let elements = value.as_array()?;
    let are_objects = elements.iter().all(Value::is_object);
    are_objects.then_some(elements)
}

/// Returns why differences cannot be made by changing the resource.
fn immutable(
    key: &Key,
    differences: &[Difference],
    declared: &Resource,
    existing: &Existing,
) -> Option<Obstacle> {
    let (kind, name) = key;
    let all = differences
        .iter()
        .filter(|difference| !is_mutable(*kind, &difference.field));
    let all: Vec<&Difference> = all.collect();
    let first = all.first()?;
    let message = format!(
        "{} of a {} cannot be changed in place",
        first.field,
        kind.as_str()
    );
    let hint = match (kind, &*all) {
        (Kind::Vm, [only]) => command_for_vm(name, only, declared, existing),
        _ => command_for(*kind, name),
    };
    Some(Obstacle { message, hint })
}

/// Returns the command that makes the only difference of a VM which no request makes in place.
fn command_for_vm(
    name: &str,
    difference: &Difference,
    declared: &Resource,
    existing: &Existing,
) -> String {
    let new = difference.new.as_str().unwrap_or_default();
    let is_resized = existing.vm.as_ref().is_some_and(|vm| vm.is_resized);
    match &*difference.field {
        "flavor" if is_resized => format!(
            "end its resize first, by `berth vm revert-resize {name}` or `berth vm confirm-resize {name}`, \
             and apply again"
        ),
        "flavor" => {
            format!("`berth vm resize {name} --flavor {new}`, and `berth vm confirm-resize {name}`")
        }
        // A rebuild takes an image for each disk, and one may have none.
        "disks[0].image" if declared.vm().is_some_and(|vm| vm.disks.len() == 1) => {
            format!("`berth vm rebuild {name} --image {new}`, which destroys what is on its disk")
        }
        _ => command_for(Kind::Vm, name),
    }
}

/// Returns the command after which a resource is created again as it is declared.
fn command_for(kind: Kind, name: &str) -> String {
    let command = kind.command();
    match kind {
        Kind::Vm => format!("`berth vm delete {name}` and apply again, which destroys its disks"),
        Kind::Flavor | Kind::PciAlias => format!(
            "`berth {command} delete {name}` and apply again; VMs that were made with it keep what they have"
        ),
        Kind::Network => {
            format!("`berth {command} delete {name}` once no VM is on it, and apply again")
        }
        Kind::ServerGroup => {
            format!("`berth {command} delete {name}` once it has no members, and apply again")
        }
        // Requests change all of these.
        Kind::Aggregate | Kind::SchedulingPolicy => format!("`berth {command} --help`"),
    }
}

/// Returns whether there is a request that changes a field.
fn is_mutable(kind: Kind, field: &str) -> bool {
    let first = field.split(['.', '[']).next().unwrap_or(field);
    match kind {
        Kind::PciAlias | Kind::Network | Kind::Flavor | Kind::ServerGroup => false,
        Kind::Aggregate | Kind::SchedulingPolicy => true,
        Kind::Vm => ["labels", "description", "protected", "restart_policy"].contains(&first),
    }
}

fn deleting(name: &str, vm: &VmStatus) -> Option<Obstacle> {
    vm.is_deleting.then(|| Obstacle {
        message: "it is being deleted".to_owned(),
        hint: format!("apply again once `berth vm show {name}` does not find it"),
    })
}

fn note(name: &str, vm: &VmStatus) -> Option<String> {
    if vm.is_failed {
        let why = format!("it is in ERROR, which `berth vm show {name}` explains");
        return Some(format!(
            "{why}; `berth vm delete {name}` and apply again creates it again"
        ));
    }
    vm.building
        .as_ref()
        .map(|operation| format!("operation {} is still building it", short(operation)))
}

/// Returns what a resource names and is neither there nor declared.
fn missing(resource: &Resource, keys: &BTreeSet<Key>, world: &World) -> Option<Obstacle> {
    let is_host_missing = |name: &&String| !world.hosts.contains(*name);
    let hosts = hosts_named(resource);
    if let Some(name) = hosts.iter().find(is_host_missing) {
        return Some(Obstacle {
            message: format!("it names host {name}, which does not exist"),
            hint: "see `berth host list`; an agent registers its host when it starts".to_owned(),
        });
    }
    let missing = references(resource);
    let mut missing = missing.into_iter();
    let (kind, name) =
        missing.find(|key| !keys.contains(key) && !world.references.contains(key))?;
    let message = format!("it names {} {name}, which does not exist", kind.as_str());
    let hint = format!("declare it too, or see `berth {} list`", kind.command());
    Some(Obstacle { message, hint })
}

/// Returns what a resource names and cannot do without.
pub(super) fn references(resource: &Resource) -> Vec<Key> {
    match resource {
        Resource::Vm(template) => {
            let mut all = vec![(Kind::Flavor, short(&template.flavor).to_owned())];
            if !template.server_group.is_empty() {
                let group = short(&template.server_group).to_owned();
                all.push((Kind::ServerGroup, group));
            }
            let networks = template.nics.iter().map(|nic| short(&nic.network));
            let networks: BTreeSet<&str> = networks.filter(|name| !name.is_empty()).collect();
            all.extend(
                networks
                    .iter()
                    .map(|name| (Kind::Network, (*name).to_owned())),
            );
            all
        }
        Resource::SchedulingPolicy(settings) => {
            let groups = settings.groups.keys();
            groups.map(|name| (Kind::Aggregate, name.clone())).collect()
        }
        Resource::PciAlias(_)
        | Resource::Network(_)
        | Resource::Flavor(_)
        | Resource::Aggregate(_)
        | Resource::ServerGroup(_) => Vec::new(),
    }
}

/// Returns the hosts that a resource names and that have to be there.
pub(super) fn hosts_named(resource: &Resource) -> Vec<String> {
    match resource {
        Resource::Aggregate(aggregate) => {
            let hosts = aggregate.hosts.iter();
            hosts.map(|host| short(host).to_owned()).collect()
        }
        Resource::SchedulingPolicy(settings) => settings.hosts.keys().cloned().collect(),
        Resource::PciAlias(_)
        | Resource::Network(_)
        | Resource::Flavor(_)
        | Resource::ServerGroup(_)
        | Resource::Vm(_) => Vec::new(),
    }
}

fn deletion(key: Key, world: &World) -> Entry {
    let existing = world.existing.get(&key).cloned();
    let vm = existing
        .as_ref()
        .and_then(|existing| existing.resource.vm());
    let is_protected = vm.is_some_and(|vm| vm.protected);
    let obstacle = is_protected.then(|| Obstacle {
        message: "it is protected".to_owned(),
        hint: format!(
            "declare it, take its label away, or `berth vm set {} --unprotect`",
            key.1
        ),
    });
    Entry {
        key,
        origin: None,
        action: Action::Delete,
        differences: Vec::new(),
        obstacle,
        note: None,
        declared: None,
        existing,
    }
}
