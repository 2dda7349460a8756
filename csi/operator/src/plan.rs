//! The writes that make the cluster's objects the desired ones.
//!
//! ```text
//!   absent ─▶ Create      own, as desired ─▶ nothing      own, not desired at all ─▶ Delete
//!   foreign ─▶ refused    own, different ──▶ Apply        own, in a field that cannot change ─▶ Delete
//! ```
//!
//! Every write has a precondition, so that a plan made from an outdated view, or by a second operator,
//! fails instead of doing damage: a creation requires that there is no object, and the others name the
//! object's unique identifier. After each write the caller may plan again; a plan needs no memory of the
//! one before.
//!
//! Not here: objects of a deployment that is being deleted. Kubernetes removes them with their owner.
//!
//! Invariant: no write for an object that is as desired, and none for an object of another owner.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::desired::Owner;
use crate::diff::covers;
use crate::safety::{Ownership, Refusal, ownership};

/// What identifies an object in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its API group with version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty if it is in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// Returns the key of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Creates an object of which there is none.
    Create(Value),
    /// Applies an object to the one with this identifier, and takes over its fields.
    Apply {
        /// The object.
        object: Value,
        /// The identifier of the one in the cluster.
        uid: String,
    },
    /// Deletes the object with this identifier.
    Delete {
        /// Which.
        key: Key,
        /// Its identifier.
        uid: String,
    },
}

/// The writes, and what was left out of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In the order in which they are made.
    pub writes: Vec<Write>,
    /// Objects of others, which stay as they are.
    pub refusals: Vec<Refusal>,
}

/// Returns the writes that lead from the live objects to the desired ones.
///
/// `live` has the objects with the desired keys, of any owner, and all others of this owner.
#[must_use]
pub fn plan(owner: &Owner, desired: &[Value], live: &BTreeMap<Key, Value>) -> Plan {
    let mut plan = Plan::default();
    for object in desired {
        let existing = live.get(&Key::of(object));
        match ownership(existing, owner) {
            Ownership::Absent => plan.writes.push(Write::Create(object.clone())),
            Ownership::Foreign(refusal) => plan.refusals.push(refusal),
            Ownership::Own { uid } => {
                let existing = existing.unwrap_or(&Value::Null);
                plan.writes.extend(correction(existing, object, uid));
            }
        }
    }
    let kept: Vec<Key> = desired.iter().map(Key::of).collect();
    for (key, object) in live.iter().filter(|(key, _)| !kept.contains(key)) {
        match ownership(Some(object), owner) {
            Ownership::Own { uid } if !is_going(object) => plan.writes.push(Write::Delete {
                key: key.clone(),
                uid,
            }),
            Ownership::Own { .. } | Ownership::Absent | Ownership::Foreign(_) => {}
        }
    }
    plan
}

/// Returns the write for an object of this owner, if one is needed.
fn correction(live: &Value, desired: &Value, uid: String) -> Option<Write> {
    // It cannot be changed any more; it is created again when it has disappeared.
    if is_going(live) || covers(live, desired) {
        return None;
    }
    if is_unchangeable(live, desired) {
        let key = Key::of(desired);
        return Some(Write::Delete { key, uid });
    }
    Some(Write::Apply {
        object: desired.clone(),
        uid,
    })
}

fn is_going(live: &Value) -> bool {
    live["metadata"]["deletionTimestamp"].is_string()
}

/// Only objects of which the deletion stops no pod: an agent must not disappear because of a field.
fn is_unchangeable(live: &Value, desired: &Value) -> bool {
    const FIELDS: [(&str, &str); 3] = [
        ("ClusterRoleBinding", "/roleRef"),
        ("RoleBinding", "/roleRef"),
        ("CSIDriver", "/spec/volumeLifecycleModes"),
    ];
    FIELDS.iter().any(|(kind, pointer)| {
        let part = |object: &Value| object.pointer(pointer).cloned().unwrap_or(Value::Null);
        desired["kind"] == *kind && !covers(&part(live), &part(desired))
    })
}

#[cfg(test)]
mod tests;
