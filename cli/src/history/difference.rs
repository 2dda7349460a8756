//! Which fields of a record differ, as lines for people.
//!
//! Records are compared in the form in which JSON shows them, so that a new field of a record needs
//! nothing here. Left out is what [`super::record`] says, and what changes with everything else: ids of
//! other records, times, generations.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::event::Record;
use serde_json::Value;

use crate::records;

/// The longest value that is shown, in characters.
const VALUE_MAX: usize = 60;
/// How many fields are shown; the others are counted.
const FIELDS_MAX: usize = 12;

/// Fields that are said elsewhere, or change with something else that is shown.
const LEFT_OUT: [&str; 9] = [
    "claim",
    "destination_claim",
    "error",
    "generation",
    "host",
    "operation",
    "owner",
    "source_claim",
    "state",
];

/// Returns whether a field is left out.
fn is_left_out(place: &str) -> bool {
    let first = place.split('.').next().unwrap_or_default();
    LEFT_OUT.contains(&first) || place.ends_with("_at")
}

/// Returns a line for each field that differs.
pub(super) fn of(before: &Record, after: &Record) -> Vec<String> {
    let (before, after) = (fields(before), fields(after));
    let names = before.keys().chain(after.keys());
    let names: BTreeSet<&String> = names.collect();
    let changed = names.into_iter().filter_map(|name| {
        let (was, is) = (before.get(name), after.get(name));
        (was != is).then(|| format!("{name}: {} -> {}", shown(was), shown(is)))
    });
    let mut lines: Vec<String> = changed.collect();
    if lines.len() > FIELDS_MAX {
        let more = lines.len() - FIELDS_MAX;
        lines.truncate(FIELDS_MAX);
        lines.push(format!("and {more} more fields"));
    }
    lines
}

/// Returns the fields of a record by their place, as `spec.flavor.name`.
fn fields(record: &Record) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    // What cannot be shown does not differ.
    let json = records::json(record).unwrap_or_default();
    flatten(String::new(), json, &mut fields);
    fields.retain(|place, _| !is_left_out(place));
    fields
}

fn flatten(place: String, value: Value, into: &mut BTreeMap<String, Value>) {
    let below = |name: &str| match place.is_empty() {
        true => name.to_owned(),
        false => format!("{place}.{name}"),
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                flatten(below(&name), value, into);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for (number, value) in values.into_iter().enumerate() {
                flatten(below(&number.to_string()), value, into);
            }
        }
        Value::Null => {}
        Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            into.insert(place, value);
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    let text = match value {
        None => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    match text.char_indices().nth(VALUE_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flat(value: Value) -> Vec<String> {
        let mut fields = BTreeMap::new();
        flatten(String::new(), value, &mut fields);
        let lines = fields.iter();
        lines
            .map(|(name, value)| format!("{name}={}", shown(Some(value))))
            .collect()
    }

    /// Goal: every value has one place, whatever it is nested in.
    #[test]
    fn values_have_places() {
        let nested =
            json!({"a": 1, "b": {"c": "x", "d": [1, 2]}, "e": [{"f": true}, {"f": null}], "g": {}});
        assert_eq!(
            flat(nested),
            ["a=1", "b.c=x", "b.d=[1,2]", "e.0.f=true", "g={}"]
        );
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let long = "ä".repeat(VALUE_MAX + 1);
        let cut = shown(Some(&Value::String(long)));
        assert_eq!(cut.chars().count(), VALUE_MAX + 1);
        assert!(cut.ends_with('…'));
        assert_eq!(shown(None), "none");
    }
}
