//! Whether an object in the cluster is as it has to be.
//!
//! The API server adds defaults and other managers own fields, so equality is too strict: an object has
//! drifted if a field that the operator applies is missing or different, or if something was added to a
//! selector, of which a label more selects something else. A field that the operator no longer applies
//! changes the digest in its annotation.
//!
//! Invariant: reflexive, and true for every object that the API server returns for an apply; otherwise
//! the operator would write for ever.

use serde_json::{Map, Value};

use crate::spec::Quantity;

/// The maps that server-side apply replaces as a whole.
const ATOMIC: [&str; 5] = [
    "matchLabels",
    "namespaceSelector",
    "nodeSelector",
    "objectSelector",
    "selector",
];

/// Returns whether a live object has everything that is desired.
#[must_use]
pub fn covers(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        // The API server leaves out what is empty.
        (Value::Null, desired) => is_empty(desired),
        (Value::Object(live), Value::Object(desired)) => covers_object(live, desired),
        (Value::Array(live), Value::Array(desired)) => covers_list(live, desired),
        (live, desired) => live == desired,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn covers_object(live: &Map<String, Value>, desired: &Map<String, Value>) -> bool {
    desired.iter().all(|(key, desired)| {
        let live = live.get(key).unwrap_or(&Value::Null);
        match key.as_str() {
            "limits" | "requests" => has_amounts(live, desired),
            atomic if ATOMIC.contains(&atomic) => {
                covers(live, desired) && (is_empty(live) || covers(desired, live))
            }
            _ => covers(live, desired),
        }
    })
}

/// The API server writes quantities in their canonical form: `1000m` becomes `1`.
fn has_amounts(live: &Value, desired: &Value) -> bool {
    let Some(desired) = desired.as_object() else {
        return covers(live, desired);
    };
    desired.iter().all(|(name, desired)| {
        let amount = |value: &Value| Quantity::parse(value.as_str()?).ok()?.nano();
        live[name] == *desired
            || amount(&live[name]).is_some_and(|live| Some(live) == amount(desired))
    })
}

/// Lists of named elements are merged by name, as server-side apply merges them; all others are replaced
/// as a whole.
fn covers_list(live: &[Value], desired: &[Value]) -> bool {
    let name = |value: &Value| {
        let key = ["name", "uid", "mountPath"].into_iter();
        key.filter_map(|key| value.get(key)?.as_str().map(str::to_owned))
            .next()
    };
    if desired.iter().all(|element| name(element).is_some()) {
        return desired.iter().all(|desired| {
            live.iter()
                .any(|live| name(live) == name(desired) && covers(live, desired))
        });
    }
    live.len() == desired.len() && live.iter().zip(desired).all(|(l, d)| covers(l, d))
}

#[cfg(test)]
mod tests;
