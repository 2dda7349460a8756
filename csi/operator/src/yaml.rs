//! JSON values as YAML.
//!
//! Strings are double-quoted as in JSON, which is valid YAML, unless they are plain words that YAML takes
//! for nothing else; texts of several lines are block scalars, so that configuration files are readable.
//!
//! Invariant: what is rendered is read back as the same value.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// Returns documents as one text.
#[must_use]
pub fn documents(values: &[Value]) -> String {
    let documents: Vec<String> = values.iter().map(document).collect();
    documents.join("---\n")
}

fn document(value: &Value) -> String {
    let mut text = String::new();
    match is_nested(value) {
        true => block(&mut text, value, 0),
        false => scalar(&mut text, value, 0),
    }
    text
}

/// Objects and arrays that are not empty have lines of their own.
fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Renders the fields or elements of a value, each line at this indentation.
fn block(text: &mut String, value: &Value, indent: usize) {
    let start = " ".repeat(indent);
    // Whether the map is sorted depends on how serde_json is compiled.
    let fields: BTreeMap<&String, &Value> = value.as_object().into_iter().flatten().collect();
    for (key, value) in fields {
        text.push_str(&start);
        text.push_str(&word(key));
        text.push(':');
        match is_nested(value) {
            true => {
                text.push('\n');
                block(text, value, indent + 2);
            }
            false => scalar(text, value, indent),
        }
    }
    for element in value.as_array().into_iter().flatten() {
        text.push_str(&start);
        text.push('-');
        match is_nested(element) {
            true => {
                // Its first line follows the dash.
                let mut inner = String::new();
                block(&mut inner, element, indent + 2);
                text.push(' ');
                text.push_str(&inner[indent + 2..]);
            }
            false => scalar(text, element, indent),
        }
    }
}

/// Renders what fits behind a key or a dash, with the space before it and the end of the line.
fn scalar(text: &mut String, value: &Value, indent: usize) {
    match value.as_str() {
        Some(lines) if is_block(lines) => {
            text.push_str(" |\n");
            for line in lines.lines() {
                // Writing to a string does not fail.
                let _ = match line.is_empty() {
                    true => writeln!(text),
                    false => writeln!(text, "{}{line}", " ".repeat(indent + 2)),
                };
            }
        }
        Some(string) => {
            let _ = writeln!(text, " {}", word(string));
        }
        None => {
            let _ = writeln!(text, " {value}");
        }
    }
}

/// A block scalar keeps every line, and exactly one end of line at the end.
fn is_block(text: &str) -> bool {
    let is_plain = |line: &str| line.chars().all(|c| c == '\t' || !c.is_control());
    text.ends_with('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\n'])
        && text.lines().all(is_plain)
        && !text.contains('\r')
}

/// A plain word, or a quoted string.
fn word(text: &str) -> String {
    // These mean something else without quotes, in one version of YAML or another.
    const RESERVED: [&str; 12] = [
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity",
    ];
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    match is_word {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).expect("YAML")
    }

    #[test]
    fn it_is_readable() {
        let value = json!({
            "kind": "ConfigMap",
            "data": {"a.toml": "x = 1\n\n[tls]\n"},
            "list": [{"name": "a", "args": ["--x=1", "yes", ""]}, [], {}, [[1]]],
            "empty": {}, "n": null, "t": true, "f": 1.5,
        });
        let expected = "data:\n  a.toml: |\n    x = 1\n\n    [tls]\nempty: {}\nf: 1.5\nkind: ConfigMap\n\
                        list:\n  - args:\n      - \"--x=1\"\n      - \"yes\"\n      - \"\"\n    name: a\n  \
                        - []\n  - {}\n  - - - 1\n\"n\": null\nt: true\n";
        let text = documents(std::slice::from_ref(&value));
        assert_eq!(text, expected);
        assert_eq!(read(&text), [value]);
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z0-9 :#'\"{}\\[\\],&*!|>%@`~.=<?-]{0,12}".prop_map(Value::from),
            "([a-z =\\[\\]]{0,6}\n){1,3}".prop_map(Value::from),
            Just(Value::from("1.5")),
            Just(Value::from("0x1f")),
            Just(Value::from("2026-01-01")),
            Just(Value::from("No")),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-z0-9./:-]{1,6}", inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_rendered_is_read_back(value in values()) {
            let object = json!({"value": value});
            let text = documents(&[object.clone(), object.clone()]);
            prop_assert_eq!(read(&text), vec![object.clone(), object], "{}", text);
        }
    }
}
