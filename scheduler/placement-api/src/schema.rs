//! Validates bodies and queries by a schema, and reports faults in the words of JSON Schema.
//!
//! Not a JSON Schema interpreter: a schema is built in Rust ([`super::schemas`]) of the few
//! keywords that Placement's documents use. The words are those that OpenStack's clients and
//! tests look for: the keyword, the path of the schema, the value.
//!
//! Invariant: of several faults the one nearest to the top is reported, and reports are bounded.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::fault::quoted;

/// Faults are looked for until there are so many.
const FAULTS_MAX: usize = 256;

/// What a text must look like.
#[derive(Debug)]
pub(super) struct Pattern {
    /// The expression as it is reported.
    pub(super) text: &'static str,
    /// Says whether a text matches it.
    pub(super) matches: fn(&str) -> bool,
}

/// What a value must be.
#[derive(Debug)]
pub(super) enum Schema {
    /// A text.
    Text(Text),
    /// A whole number within bounds.
    Integer(i64, i64),
    /// A whole number or null.
    IntegerOrNull,
    /// A number that is at most so great.
    Number(f64),
    /// The first, or null.
    OrNull(Box<Schema>),
    /// A list.
    List(List),
    /// An object.
    Object(Object),
}

/// A text.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) min_length: usize,
    pub(super) max_length: Option<usize>,
    pub(super) pattern: Option<&'static Pattern>,
    pub(super) one_of: &'static [&'static str],
    pub(super) uuid: Option<UuidForm>,
}

/// Which spellings of a UUID are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UuidForm {
    /// With dashes, without, in braces, with `urn:uuid:`.
    Any,
    /// With dashes only.
    Dashed,
}

/// A list.
#[derive(Debug)]
pub(super) struct List {
    pub(super) items: Box<Schema>,
    pub(super) min_items: usize,
    pub(super) unique: bool,
}

/// An object.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub(super) properties: Vec<(&'static str, Schema)>,
    pub(super) patterns: Vec<(&'static Pattern, Schema)>,
    pub(super) required: Vec<&'static str>,
    /// Whether other keys are let through unseen.
    pub(super) open: bool,
    pub(super) min_properties: usize,
}

impl Schema {
    /// Validates a value.
    ///
    /// # Errors
    ///
    /// What is wrong, in several lines.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        let mut validator = Validator::default();
        validator.value(self, value, &Path::Root);
        match validator.best {
            None => Ok(()),
            Some((_, message)) => Err(message),
        }
    }
}

/// Where in the document and in the schema one is.
enum Path<'p> {
    Root,
    /// A property, and how the schema came to it.
    Key(&'p Path<'p>, &'p str, Step),
    /// An item of a list.
    Item(&'p Path<'p>, usize),
}

#[derive(Clone, Copy)]
enum Step {
    Property,
    Pattern(&'static Pattern),
}

impl Path<'_> {
    fn depth(&self) -> usize {
        match self {
            Path::Root => 0,
            Path::Key(above, ..) | Path::Item(above, _) => above.depth() + 1,
        }
    }

    fn in_schema(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Key(above, key, Step::Property) => {
                format!("{}['properties']['{key}']", above.in_schema())
            }
            Path::Key(above, _, Step::Pattern(pattern)) => {
                format!(
                    "{}['patternProperties']['{}']",
                    above.in_schema(),
                    pattern.text
                )
            }
            Path::Item(above, _) => format!("{}['items']", above.in_schema()),
        }
    }

    fn in_instance(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Key(above, key, _) => format!("{}[{}]", above.in_instance(), text(key)),
            Path::Item(above, index) => format!("{}[{index}]", above.in_instance()),
        }
    }
}

/// Collects faults and keeps the one nearest to the top.
#[derive(Default)]
struct Validator {
    seen: usize,
    best: Option<(usize, String)>,
}

impl Validator {
    fn fault(&mut self, path: &Path<'_>, keyword: &str, value: &Value, message: &str) {
        self.seen += 1;
        let depth = path.depth();
        if self.best.as_ref().is_some_and(|(best, _)| *best <= depth) {
            return;
        }
        let (schema, instance) = (path.in_schema(), path.in_instance());
        let message = format!(
            "{message}\n\nFailed validating '{keyword}' in schema{schema}\n\n\
             On instance{instance}:\n    {}",
            shown(value)
        );
        self.best = Some((depth, message));
    }

    fn value(&mut self, schema: &Schema, value: &Value, path: &Path<'_>) {
        if self.seen >= FAULTS_MAX {
            return;
        }
        match (schema, value) {
            (Schema::Text(rule), Value::String(text)) => self.text(rule, text, value, path),
            (Schema::Integer(min, max), Value::Number(number)) if is_whole(number) => {
                self.bounds(lower(*min), upper(*max), number, value, path);
            }
            (Schema::Number(max), Value::Number(number)) => {
                self.bounds(f64::MIN, *max, number, value, path);
            }
            (Schema::IntegerOrNull, Value::Number(number)) if is_whole(number) => {}
            (Schema::IntegerOrNull | Schema::OrNull(_), Value::Null) => {}
            (Schema::OrNull(inner), value) => {
                let message = format!(
                    "{} is not valid under any of the given schemas",
                    shown(value)
                );
                if inner.check(value).is_err() {
                    self.fault(path, "anyOf", value, &message);
                }
            }
            (Schema::List(rule), Value::Array(items)) => self.list(rule, items, value, path),
            (Schema::Object(rule), Value::Object(map)) => self.object(rule, map, value, path),
            (schema, value) => {
                let expected = match schema {
                    Schema::Text(_) | Schema::OrNull(_) => "'string'",
                    Schema::Integer(..) => "'integer'",
                    Schema::IntegerOrNull => "'integer', 'null'",
                    Schema::Number(_) => "'number'",
                    Schema::List(_) => "'array'",
                    Schema::Object(_) => "'object'",
                };
                let message = format!("{} is not of type {expected}", shown(value));
                self.fault(path, "type", value, &message);
            }
        }
    }

    fn text(&mut self, rule: &Text, text: &str, value: &Value, path: &Path<'_>) {
        let length = text.chars().count();
        if length < rule.min_length {
            let message = too_few(value, rule.min_length, "is too short");
            self.fault(path, "minLength", value, &message);
        }
        if rule.max_length.is_some_and(|max| length > max) {
            self.fault(
                path,
                "maxLength",
                value,
                &format!("{} is too long", shown(value)),
            );
        }
        if let Some(pattern) = rule.pattern
            && !(pattern.matches)(text)
        {
            let message = format!("{} does not match '{}'", shown(value), pattern.text);
            self.fault(path, "pattern", value, &message);
        }
        if let Some(form) = rule.uuid
            && !form.matches(text)
        {
            self.fault(
                path,
                "format",
                value,
                &format!("{} is not a 'uuid'", shown(value)),
            );
        }
        if !rule.one_of.is_empty() && !rule.one_of.contains(&text) {
            let message = format!(
                "{} is not one of ['{}']",
                shown(value),
                rule.one_of.join("', '")
            );
            self.fault(path, "enum", value, &message);
        }
    }

    fn bounds(&mut self, min: f64, max: f64, number: &Number, value: &Value, path: &Path<'_>) {
        let Some(float) = number.as_f64() else { return };
        if float < min {
            let message = format!("{} is less than the minimum of {min}", shown(value));
            self.fault(path, "minimum", value, &message);
        }
        if float > max {
            let message = format!("{} is greater than the maximum of {max}", shown(value));
            self.fault(path, "maximum", value, &message);
        }
    }

    fn list(&mut self, rule: &List, items: &[Value], value: &Value, path: &Path<'_>) {
        if items.len() < rule.min_items {
            let message = too_few(value, rule.min_items, "is too short");
            self.fault(path, "minItems", value, &message);
        }
        if rule.unique {
            let mut texts: Vec<String> = items.iter().map(Value::to_string).collect();
            texts.sort_unstable();
            if texts.windows(2).any(|pair| pair[0] == pair[1]) {
                let message = format!("{} has non-unique elements", shown(value));
                self.fault(path, "uniqueItems", value, &message);
            }
        }
        for (index, item) in items.iter().enumerate() {
            self.value(&rule.items, item, &Path::Item(path, index));
        }
    }

    fn object(&mut self, rule: &Object, map: &Map<String, Value>, value: &Value, path: &Path<'_>) {
        for required in &rule.required {
            if !map.contains_key(*required) {
                let message = format!("'{required}' is a required property");
                self.fault(path, "required", value, &message);
            }
        }
        if map.len() < rule.min_properties {
            let message = too_few(
                value,
                rule.min_properties,
                "does not have enough properties",
            );
            self.fault(path, "minProperties", value, &message);
        }
        let mut unexpected = Vec::new();
        for (key, inner) in map {
            let property = rule.properties.iter().find(|(name, _)| name == key);
            let pattern = rule
                .patterns
                .iter()
                .find(|(pattern, _)| (pattern.matches)(key));
            match (property, pattern) {
                (Some((_, schema)), _) => {
                    self.value(schema, inner, &Path::Key(path, key, Step::Property));
                }
                (None, Some((pattern, schema))) => {
                    let step = Step::Pattern(pattern);
                    self.value(schema, inner, &Path::Key(path, key, step));
                }
                (None, None) => unexpected.push(&**key),
            }
        }
        if !rule.open && !unexpected.is_empty() {
            let message = not_expected(rule, &unexpected);
            self.fault(path, "additionalProperties", value, &message);
        }
    }
}

impl UuidForm {
    fn matches(self, text: &str) -> bool {
        match self {
            Self::Any => super::uuids::parse(text).is_some(),
            Self::Dashed => super::uuids::is_dashed(text),
        }
    }
}

// The ends of the type are no bounds: what a client writes may lie beyond.

fn lower(min: i64) -> f64 {
    match min {
        i64::MIN => f64::MIN,
        min => min as f64,
    }
}

fn upper(max: i64) -> f64 {
    match max {
        i64::MAX => f64::MAX,
        max => max as f64,
    }
}

/// 1.0 is as whole as 1.
fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}

fn too_few(value: &Value, least: usize, otherwise: &str) -> String {
    match least {
        1 => format!("{} should be non-empty", shown(value)),
        _ => format!("{} {otherwise}", shown(value)),
    }
}

fn not_expected(rule: &Object, keys: &[&str]) -> String {
    let some: Vec<String> = keys.iter().take(8).map(|key| text(key)).collect();
    let some = some.join(", ");
    if rule.patterns.is_empty() {
        let were = if keys.len() == 1 { "was" } else { "were" };
        return format!("Additional properties are not allowed ({some} {were} unexpected)");
    }
    let mut patterns: Vec<_> = rule.patterns.iter().map(|(p, _)| text(p.text)).collect();
    patterns.sort_unstable();
    let (verb, patterns) = (
        if keys.len() == 1 { "does" } else { "do" },
        patterns.join(", "),
    );
    format!("{some} {verb} not match any of the regexes: {patterns}")
}

/// Shows a value as the messages of JSON Schema do, cut.
fn shown(value: &Value) -> String {
    let mut out = String::new();
    show(value, &mut out);
    quoted(&out)
}

fn show(value: &Value, out: &mut String) {
    // Longer than what is quoted; the rest would be cut.
    if out.len() > 4096 {
        return;
    }
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => {
            // Writing into a string does not fail.
            let _ = write!(out, "{number}");
        }
        Value::String(string) => out.push_str(&text(string)),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                show(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                out.push_str(&text(key));
                out.push_str(": ");
                show(item, out);
            }
            out.push('}');
        }
    }
}

/// Shows a text in quotes, cut.
fn text(text: &str) -> String {
    let text = quoted(text).replace('\\', "\\\\").replace('\n', "\\n");
    match text.contains('\'') {
        false => format!("'{text}'"),
        true if !text.contains('"') => format!("\"{text}\""),
        true => format!("'{}'", text.replace('\'', "\\'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas;
    use serde_json::json;

    #[track_caller]
    fn wrong(schema: &Schema, value: Value, parts: &[&str]) {
        let message = schema.check(&value).unwrap_err();
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in\n{message}");
        }
    }

    #[test]
    fn faults_are_reported_with_keyword_and_path() {
        let schema = schemas::inventory();
        let good = json!({"total": 1.0, "resource_provider_generation": 3, "allocation_ratio": 2});
        assert_eq!(schema.check(&good), Ok(()));
        let zero = json!({"total": 0, "resource_provider_generation": 1});
        let path = "Failed validating 'minimum' in schema['properties']['total']";
        wrong(
            schema,
            zero,
            &[
                "0 is less than the minimum of 1",
                path,
                "On instance['total']",
            ],
        );
        let text = json!({"total": "x", "resource_provider_generation": 1});
        wrong(schema, text, &["'x' is not of type 'integer'", "'type'"]);
        let huge =
            json!({"total": 99_999_999_999_999_999_999.0, "resource_provider_generation": 1});
        wrong(
            schema,
            huge,
            &["greater than the maximum of 2147483647", "'maximum'"],
        );
        wrong(
            schema,
            json!({"total": 1}),
            &["'resource_provider_generation' is a required property"],
        );
    }

    #[test]
    fn the_fault_nearest_to_the_top_is_reported() {
        let schema = schemas::create_provider(true);
        let both = json!({"name": "x".repeat(300), "uuid": "no", "color": 1});
        wrong(
            schema,
            both,
            &["Additional properties are not allowed ('color' was unexpected)"],
        );
        wrong(
            schema,
            json!({"name": "a", "uuid": "no"}),
            &["'no' is not a 'uuid'", "'format'"],
        );
    }

    /// Goal: a hostile body costs no more than its own length, and the answer stays short.
    #[test]
    fn what_is_quoted_is_cut() {
        let deep = json!({"name": vec![vec!["x".repeat(100_000)]; 100]});
        let message = schemas::create_provider(true).check(&deep).unwrap_err();
        assert!(message.len() < 4096, "{}", message.len());
        let keys: Map<String, Value> = (0..10_000).map(|n| (format!("k{n}"), json!(1))).collect();
        let message = schemas::create_provider(true)
            .check(&Value::Object(keys))
            .unwrap_err();
        assert!(message.len() < 4096, "{}", message.len());
    }
}
