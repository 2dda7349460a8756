//! JSON values as YAML, for terminals too.
//!
//! A string is a plain word where YAML 1.1 and 1.2 take it for nothing else; any other is double-quoted,
//! with escapes for all that [`is_hidden`]. There are no block scalars: a guest's text must not look like
//! a key.
//!
//! Invariant: what is rendered is read back as the same value, and no character of it acts on a terminal.

use std::fmt::Write as _;

use berth_process::terminal::is_hidden;
use serde_json::Value;

/// Returns a value as the lines of a document, without a line that separates it from others.
pub(super) fn document(value: &Value) -> String {
    let mut text = String::new();
    match is_nested(value) {
        true => block(&mut text, value, 0),
        false => {
            text.push_str(&scalar(value));
            text.push('\n');
        }
    }
    text
}

/// Whether a value has lines of its own: it is an object or an array with something in it.
fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Renders the fields or elements of a value, each line behind so many spaces.
fn block(text: &mut String, value: &Value, indent: usize) {
    let start = " ".repeat(indent);
    for (key, value) in value.as_object().into_iter().flatten() {
        // Writing to a string does not fail.
        let _ = write!(text, "{start}{}:", string(key));
        match is_nested(value) {
            true => {
                text.push('\n');
                block(text, value, indent + 2);
            }
            false => {
                let _ = writeln!(text, " {}", scalar(value));
            }
        }
    }
    for element in value.as_array().into_iter().flatten() {
        match is_nested(element) {
            true => {
                // Its first line follows the dash.
                let mut inner = String::new();
                block(&mut inner, element, indent + 2);
                let _ = write!(text, "{start}- {}", &inner[indent + 2..]);
            }
            false => {
                let _ = writeln!(text, "{start}- {}", scalar(element));
            }
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        // As in JSON; those that are not empty have lines of their own.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// Returns a string as a plain word, or in quotes.
fn string(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        let code = u32::from(character);
        let _ = match character {
            '"' | '\\' => write!(quoted, "\\{character}"),
            '\n' => write!(quoted, "\\n"),
            '\r' => write!(quoted, "\\r"),
            '\t' => write!(quoted, "\\t"),
            hidden if is_hidden(hidden) => match code {
                0..=0xff => write!(quoted, "\\x{code:02x}"),
                0x100..=0xffff => write!(quoted, "\\u{code:04x}"),
                _ => write!(quoted, "\\U{code:08x}"),
            },
            seen => write!(quoted, "{seen}"),
        };
    }
    quoted.push('"');
    quoted
}

/// Whether a string is itself without quotes. What begins with a letter is no number, date or time, and of
/// the characters that follow none begins a comment or a key.
fn is_plain(text: &str) -> bool {
    // These mean something else without quotes, in one version of YAML or another.
    const RESERVED: [&str; 12] = [
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity",
    ];
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./+".contains(c))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use yaml_rust2::{Yaml, YamlLoader};

    use super::*;

    /// Returns what a reader of YAML takes a document for.
    fn read(text: &str) -> Value {
        let documents = YamlLoader::load_from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(documents.len(), 1, "{text}");
        to_json(&documents[0])
    }

    fn to_json(yaml: &Yaml) -> Value {
        match yaml {
            Yaml::Null => Value::Null,
            Yaml::Boolean(is_so) => (*is_so).into(),
            Yaml::Integer(number) => (*number).into(),
            Yaml::Real(text) => match text.parse::<u64>() {
                // Beyond the integers of the reader.
                Ok(large) => large.into(),
                Err(_) => text.parse::<f64>().expect("a number").into(),
            },
            Yaml::String(text) => text.as_str().into(),
            Yaml::Array(elements) => elements.iter().map(to_json).collect(),
            Yaml::Hash(fields) => {
                let fields = fields.iter();
                let fields = fields.map(|(key, value)| {
                    let key = key.as_str().expect("a key is a string");
                    (key.to_owned(), to_json(value))
                });
                Value::Object(fields.collect())
            }
            Yaml::Alias(_) | Yaml::BadValue => panic!("no value: {yaml:?}"),
        }
    }

    fn check(value: &Value) {
        let text = document(value);
        assert_eq!(&read(&text), value, "{text}");
        let hidden = text.chars().find(|c| *c != '\n' && is_hidden(*c));
        assert_eq!(hidden, None, "{text:?}");
    }

    #[test]
    fn a_record_is_readable() {
        let value = json!({
            "name": "db-1",
            "host": null,
            "spec": {"vcpus": 2, "note": "two: words", "disks": []},
            "claims": [{"id": 7, "cpus": [0, 1]}, {}],
        });
        let expected = "\
claims:
  - cpus:
      - 0
      - 1
    id: 7
  - {}
host: null
name: db-1
spec:
  disks: []
  note: \"two: words\"
  vcpus: 2
";
        assert_eq!(document(&value), expected);
        check(&value);
    }

    /// Goal: a string comes back as a string, whatever YAML would take it for.
    #[test]
    fn strings_stay_strings() {
        for text in [
            "",
            " ",
            "a",
            "7",
            "-7",
            "007",
            "0x1F",
            "0o17",
            "1e3",
            "1_000",
            ".5",
            "1.",
            "+1",
            ".inf",
            "-.INF",
            ".nan",
            "true",
            "False",
            "yes",
            "No",
            "on",
            "OFF",
            "y",
            "N",
            "null",
            "Null",
            "~",
            "2026-11-29",
            "2026-11-29T12:00:00Z",
            "12:30:45",
            "190:20:30",
            "-",
            "- a",
            "a: b",
            "a:",
            ":a",
            "# a",
            "a #b",
            "a\nb",
            "a\n",
            "\n",
            "\na",
            "  a\n b",
            "a\r\nb",
            "a\tb",
            "---",
            "...",
            "--- a",
            "!a",
            "&a",
            "*a",
            "@a",
            "`a",
            "%a",
            "|",
            ">",
            "{}",
            "[]",
            "{a: b}",
            "a, b",
            "\"",
            "'",
            "\\",
            "a\\nb",
            "?",
            "? a",
            "<<",
            "=",
            "\u{0}",
            "\u{1b}[2J",
            "\u{7f}\u{85}\u{9b}",
            "\u{a0}",
            "\u{202e}",
            "\u{2028}",
            "\u{feff}",
            "\u{e0041}",
            "é漢😀",
            "e3",
            "e+3",
            "inf",
            "nan",
            "Infinity",
            "hosts/h-1",
            "a+b",
        ] {
            check(&json!(text));
            check(&json!([text, {text: text}]));
            check(&json!({text: [text], "key": {"inner": text}}));
        }
    }

    /// Goal: numbers of every size, and what is empty, come back too.
    #[test]
    fn other_values_come_back() {
        for value in [
            json!(null),
            json!(true),
            json!(false),
            json!(0),
            json!(-1),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1.5),
            json!(-0.25),
            json!(1e300),
            json!([]),
            json!({}),
            json!([[]]),
            json!([[1, [2]], [{}]]),
            json!({"a": {}}),
            json!([null, [null]]),
        ] {
            check(&value);
        }
    }

    /// Strings of what means something to YAML, and of anything.
    fn strings() -> impl Strategy<Value = String> {
        prop_oneof![
            "[-:#&*!|>'\"%@`{}\\[\\],?~. \\n\\t0-9a-fxnyNYtTre_+]{0,12}",
            "\\PC{0,8}",
            proptest::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter),
        ]
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            strings().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(strings(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_comes_back(value in values()) {
            check(&value);
        }
    }
}
