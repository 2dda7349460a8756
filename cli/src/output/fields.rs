//! Fields of JSON values, as `--output custom=` and `--sort` name them.
//!
//! `spec.flavor.vcpus` is a field of a field. Of an array, a number is one element, and any other word a
//! field of each. A key may hold dots itself, as `memory.ratio`: the longest that there is counts.
//!
//! Invariant: where a value is absent, or what would hold it is empty, no field is unknown.

use std::collections::BTreeSet;

use serde_json::Value;

/// Fields that a record leaves out where they hold nothing.
const OMITTED: [&str; 23] = [
    "bridge",
    "change",
    "cordoned_by",
    "cpu",
    "creator",
    "description",
    "hints",
    "image_properties",
    "labels",
    "mtu",
    "network",
    "pci_aliases",
    "planned",
    "pmem",
    "project",
    "protected",
    "read_only",
    "restart_obstacle",
    "restarts",
    "seed",
    "separated_at",
    "vlan",
    "volumes",
];

/// There is no such field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

/// Returns the value of a field; null where it is absent.
///
/// # Errors
///
/// What would hold it has other fields, or none at all.
pub(super) fn get(value: &Value, path: &str) -> Result<Value, Unknown> {
    if path.is_empty() {
        return Ok(value.clone());
    }
    match value {
        Value::Null => Ok(Value::Null),
        Value::Object(fields) if fields.is_empty() => Ok(Value::Null),
        Value::Array(elements) if elements.is_empty() => Ok(Value::Null),
        Value::Object(fields) => {
            let known = splits(path).find_map(|(key, rest)| Some((fields.get(key)?, rest)));
            match known {
                Some((inner, rest)) => get(inner, rest),
                None if is_omitted(path) => Ok(Value::Null),
                None => Err(Unknown),
            }
        }
        Value::Array(elements) => {
            let (first, rest) = path.split_once('.').unwrap_or((path, ""));
            if let Ok(at) = first.parse::<usize>() {
                return get(elements.get(at).unwrap_or(&Value::Null), rest);
            }
            let values: Vec<Value> = elements.iter().filter_map(|e| get(e, path).ok()).collect();
            match values.is_empty() {
                true => Err(Unknown),
                false => Ok(values.into()),
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(Unknown),
    }
}

fn is_omitted(path: &str) -> bool {
    let first = path.split('.').next().unwrap_or(path);
    OMITTED.contains(&first)
}

/// Returns a path as its beginning and the rest, the longest beginning first.
fn splits(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let dots = path.rmatch_indices('.');
    let shorter = dots.map(|(at, _)| (&path[..at], &path[at + 1..]));
    std::iter::once((path, "")).chain(shorter)
}

/// Returns what is wrong with a field that none of these values has; nothing if one has it, or if there is
/// no value.
pub(super) fn unknown(values: &[Value], path: &str) -> Option<String> {
    let has = |path: &str| values.iter().any(|value| get(value, path).is_ok());
    if values.is_empty() || has(path) {
        return None;
    }
    let parent = splits(path).map(|(of, _)| of).skip(1).find(|of| has(of));
    let parent = parent.unwrap_or("");
    let parents = values.iter().filter_map(|value| get(value, parent).ok());
    let mut keys = BTreeSet::new();
    parents.for_each(|parent| collect(&parent, &mut keys));
    let keys: Vec<String> = keys.into_iter().collect();
    let of = match parent {
        "" => "the output".to_owned(),
        parent => format!("`{parent}`"),
    };
    Some(match keys.is_empty() {
        true => format!("there is no field `{path}`: {of} has no fields"),
        false => format!("there is no field `{path}`: {of} has {}", keys.join(", ")),
    })
}

/// Adds the keys of an object, or of the objects in an array.
fn collect(value: &Value, keys: &mut BTreeSet<String>) {
    keys.extend(
        value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.clone()),
    );
    for element in value.as_array().into_iter().flatten() {
        collect(element, keys);
    }
}

/// Returns a value as the text of a cell: `-` where there is none.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(elements) if elements.is_empty() => "-".to_owned(),
        Value::Array(elements) if elements.iter().all(|e| !e.is_array() && !e.is_object()) => {
            elements.iter().map(cell).collect::<Vec<_>>().join(",")
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(path: &str, expected: &str) {
        let value = json!({
            "name": "a",
            "error": null,
            "labels": {},
            "settings": {"memory.ratio": "1.5", "memory": {"ratio": 2, "free": 7}},
            "spec": {"flavor": {"vcpus": 2}},
            "claims": [
                {"host": "h1", "cpus": [0, 1]},
                {"host": "h2", "cpus": []},
            ],
            "none": [],
        });
        let cell = get(&value, path).map_or("unknown".to_owned(), |value| cell(&value));
        assert_eq!(cell, expected, "{path}");
    }

    #[test]
    fn fields_are_found_by_their_path() {
        check("name", "a");
        check("spec.flavor.vcpus", "2");
        check("spec.flavor", r#"{"vcpus":2}"#);
        check("claims.host", "h1,h2");
        check("claims.1.host", "h2");
        check("claims.0.cpus", "0,1");
        check("claims.1.cpus", "-");
        check("claims.2.host", "-");
        check("claims.cpus", "[[0,1],[]]");
        check("settings.memory.ratio", "1.5");
        check("settings.memory.free", "7");
    }

    #[test]
    fn what_is_absent_is_no_mistake() {
        for path in [
            "error",
            "error.reason",
            "labels.a",
            "none.host",
            "project",
            "spec.hints.server_group",
        ] {
            check(path, "-");
        }
        for path in [
            "nmae",
            "name.x",
            "spec.flavour",
            "claims.hots",
            "settings.memory.x",
            ".",
        ] {
            check(path, "unknown");
        }
    }

    /// Goal: whether a field is unknown does not depend on what a record holds. Method: the sources of the
    /// records, for what they leave out.
    #[test]
    fn every_field_that_records_leave_out_is_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../domain/src");
        let mut folders = vec![std::path::PathBuf::from(folder)];
        let mut omitted = BTreeSet::from(["restart_obstacle".to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(path).expect("text");
                let behind = text.split("skip_serializing_if").skip(1);
                omitted.extend(behind.filter_map(|text| {
                    let (_, field) = text.split_once("pub ")?;
                    Some(field.split_once(':')?.0.to_owned())
                }));
            }
        }
        let listed: BTreeSet<String> = OMITTED.map(str::to_owned).into();
        assert_eq!(omitted, listed);
    }

    #[test]
    fn a_mistake_lists_what_there_is() {
        let values = [
            json!({"a": {"b": 1}}),
            json!({"a": {"c": [{"d": 1}]}, "e": 1}),
        ];
        let check = |path: &str, end: &str| {
            let why = unknown(&values, path).expect(path);
            assert!(why.ends_with(end), "{path}: {why}");
        };
        check("x", "the output has a, e");
        check("x.y", "the output has a, e");
        check("a.x", "`a` has b, c");
        check("a.c.x", "`a.c` has d");
        check("e.x", "`e` has no fields");
        assert_eq!(unknown(&values, "a.c"), None);
        assert_eq!(unknown(&[], "x"), None, "of nothing, no field is known");
    }
}
