//! The schemas of all bodies and queries, by microversion.
//!
//! Each is built once, when it is first needed.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fault::Fault;
use super::microversion::Microversion;
use super::query::Query;
use super::schema::{List, Object, Pattern, Schema, Text, UuidForm};

/// The greatest number that Placement's database holds.
const INT_MAX: i64 = 2_147_483_647;
/// The greatest ratio that Placement's database holds: a float of single precision.
const RATIO_MAX: f64 = 3.402_823_466e38;
/// The longest name of a class, trait, project, user or type.
const NAME_MAX: usize = 255;

fn is_upper(text: &str) -> bool {
    let mut bytes = text.bytes();
    let good = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    !text.is_empty() && bytes.all(good)
}

/// Says whether a text could be the name of a custom class or trait.
pub(super) fn is_custom(text: &str) -> bool {
    text.strip_prefix("CUSTOM_").is_some_and(is_upper) && text.len() <= NAME_MAX
}

fn is_uuid_like(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_hexdigit() || b == b'-';
    text.len() == 36 && text.bytes().all(good)
}

/// A group's suffix before 1.33: a number.
pub(super) fn is_number(text: &str) -> bool {
    !text.starts_with('0') && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A group's suffix from 1.33 on.
pub(super) fn is_suffix(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(is_of_suffix)
}

fn is_of_suffix(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

static UPPER: Pattern = Pattern {
    text: "^[A-Z0-9_]+$",
    matches: is_upper,
};
static CUSTOM: Pattern = Pattern {
    text: "^CUSTOM_[A-Z0-9_]+$",
    matches: |text| text.strip_prefix("CUSTOM_").is_some_and(is_upper),
};
static REQUESTED_TYPE: Pattern = Pattern {
    text: "^[A-Z0-9_]+$|^all|^unknown$",
    matches: |text| is_upper(text) || text == "all" || text == "unknown",
};
static UUID: Pattern = Pattern {
    text: "^[0-9a-fA-F-]{36}$",
    matches: is_uuid_like,
};
static LIMIT: Pattern = Pattern {
    text: "^[1-9][0-9]*$",
    matches: is_number,
};
static SUFFIX: Pattern = Pattern {
    text: "[a-zA-Z0-9_-]{1,64}",
    // Without anchors: one letter of these is enough, and the empty suffix has none.
    matches: |text| text.bytes().any(is_of_suffix),
};

macro_rules! group_patterns {
    ($($name:ident, $old:ident, $prefix:literal;)*) => {$(
        static $old: Pattern = Pattern {
            text: concat!("^", $prefix, "([1-9][0-9]*)?$"),
            matches: |text| {
                let suffix = text.strip_prefix($prefix);
                suffix.is_some_and(|suffix| suffix.is_empty() || is_number(suffix))
            },
        };
        static $name: Pattern = Pattern {
            text: concat!("^", $prefix, "([a-zA-Z0-9_-]{1,64})?$"),
            matches: |text| {
                let suffix = text.strip_prefix($prefix);
                suffix.is_some_and(|suffix| suffix.is_empty() || is_suffix(suffix))
            },
        };
    )*};
}

group_patterns! {
    RESOURCES, RESOURCES_OLD, "resources";
    REQUIRED, REQUIRED_OLD, "required";
    MEMBER_OF, MEMBER_OF_OLD, "member_of";
    IN_TREE, IN_TREE_OLD, "in_tree";
}

fn any_text() -> Schema {
    Schema::Text(Text::default())
}

fn text(min_length: usize, max_length: usize, pattern: Option<&'static Pattern>) -> Schema {
    Schema::Text(Text {
        min_length,
        max_length: Some(max_length),
        pattern,
        ..Text::default()
    })
}

fn uuid(form: UuidForm) -> Schema {
    Schema::Text(Text {
        uuid: Some(form),
        ..Text::default()
    })
}

fn any_integer() -> Schema {
    Schema::Integer(i64::MIN, i64::MAX)
}

fn object(properties: Vec<(&'static str, Schema)>, required: &[&'static str]) -> Object {
    Object {
        properties,
        required: required.to_vec(),
        ..Object::default()
    }
}

fn map(pattern: &'static Pattern, of: Schema, min_properties: usize) -> Schema {
    Schema::Object(Object {
        patterns: vec![(pattern, of)],
        min_properties,
        ..Object::default()
    })
}

fn list(items: Schema, min_items: usize, unique: bool) -> Schema {
    Schema::List(List {
        items: Box::new(items),
        min_items,
        unique,
    })
}

macro_rules! once {
    ($schema:expr) => {{
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| $schema);
        &SCHEMA
    }};
}

/// `POST /resource_providers`.
pub(super) fn create_provider(has_parent: bool) -> &'static Schema {
    fn build(has_parent: bool) -> Schema {
        let mut properties = vec![("name", text(0, 200, None)), ("uuid", uuid(UuidForm::Any))];
        if has_parent {
            properties.push(("parent_provider_uuid", parent()));
        }
        Schema::Object(object(properties, &["name"]))
    }
    match has_parent {
        true => once!(build(true)),
        false => once!(build(false)),
    }
}

/// `PUT /resource_providers/{uuid}`.
pub(super) fn update_provider(has_parent: bool) -> &'static Schema {
    fn build(has_parent: bool) -> Schema {
        let mut properties = vec![("name", text(0, 200, None))];
        if has_parent {
            properties.push(("parent_provider_uuid", parent()));
        }
        Schema::Object(object(properties, &["name"]))
    }
    match has_parent {
        true => once!(build(true)),
        false => once!(build(false)),
    }
}

fn parent() -> Schema {
    Schema::OrNull(Box::new(uuid(UuidForm::Any)))
}

fn inventory_record(more: Vec<(&'static str, Schema)>, required: &[&'static str]) -> Schema {
    let mut properties = vec![
        ("resource_provider_generation", any_integer()),
        ("total", Schema::Integer(1, INT_MAX)),
        ("reserved", Schema::Integer(0, INT_MAX)),
        ("min_unit", Schema::Integer(1, INT_MAX)),
        ("max_unit", Schema::Integer(1, INT_MAX)),
        ("step_size", Schema::Integer(1, INT_MAX)),
        ("allocation_ratio", Schema::Number(RATIO_MAX)),
    ];
    properties.extend(more);
    Schema::Object(object(properties, required))
}

fn inventory_set() -> Schema {
    let record = inventory_record(Vec::new(), &["total"]);
    let properties = vec![
        ("resource_provider_generation", any_integer()),
        ("inventories", map(&UPPER, record, 0)),
    ];
    let required = ["resource_provider_generation", "inventories"];
    Schema::Object(object(properties, &required))
}

/// `POST /resource_providers/{uuid}/inventories`.
pub(super) fn create_inventory() -> &'static Schema {
    once!({
        let class = Schema::Text(Text {
            pattern: Some(&UPPER),
            ..Text::default()
        });
        inventory_record(
            vec![("resource_class", class)],
            &["total", "resource_class"],
        )
    })
}

/// `PUT /resource_providers/{uuid}/inventories/{class}`.
pub(super) fn inventory() -> &'static Schema {
    once!(inventory_record(
        Vec::new(),
        &["total", "resource_provider_generation"]
    ))
}

/// `PUT /resource_providers/{uuid}/inventories`.
pub(super) fn inventories() -> &'static Schema {
    once!(inventory_set())
}

/// `PUT /resource_providers/{uuid}/aggregates`.
pub(super) fn aggregates(version: Microversion) -> &'static Schema {
    fn items() -> Schema {
        list(uuid(UuidForm::Any), 0, true)
    }
    match version.has(19) {
        false => once!(items()),
        true => once!({
            let generation = ("resource_provider_generation", any_integer());
            let properties = vec![("aggregates", items()), generation];
            let required = ["aggregates", "resource_provider_generation"];
            Schema::Object(object(properties, &required))
        }),
    }
}

/// `PUT /resource_providers/{uuid}/traits`.
pub(super) fn provider_traits() -> &'static Schema {
    once!({
        let properties = vec![
            ("traits", list(text(1, NAME_MAX, None), 0, false)),
            ("resource_provider_generation", any_integer()),
        ];
        let required = ["traits", "resource_provider_generation"];
        Schema::Object(object(properties, &required))
    })
}

/// `POST /resource_classes`, and `PUT /resource_classes/{name}` before 1.7.
pub(super) fn class() -> &'static Schema {
    once!({
        let name = text(0, NAME_MAX, Some(&CUSTOM));
        Schema::Object(object(vec![("name", name)], &["name"]))
    })
}

/// Amounts by class.
fn amounts() -> Schema {
    map(&UPPER, Schema::Integer(1, i64::MAX), 1)
}

/// Allocations as they were written before 1.12: a list.
fn allocation_list() -> Schema {
    let provider = object(vec![("uuid", uuid(UuidForm::Any))], &["uuid"]);
    let properties = vec![
        ("resource_provider", Schema::Object(provider)),
        ("resources", amounts()),
    ];
    let item = Schema::Object(object(properties, &["resource_provider", "resources"]));
    list(item, 1, false)
}

/// The allocations of one consumer as an object by provider, from 1.12 on.
fn consumer(minor: u64, min_properties: usize) -> Schema {
    let properties = vec![("generation", any_integer()), ("resources", amounts())];
    let allocation = Schema::Object(object(properties, &["resources"]));
    let mut properties = vec![
        ("allocations", map(&UUID, allocation, min_properties)),
        ("project_id", text(1, NAME_MAX, None)),
        ("user_id", text(1, NAME_MAX, None)),
    ];
    let mut required = vec!["allocations", "project_id", "user_id"];
    if minor >= 28 {
        properties.push(("consumer_generation", Schema::IntegerOrNull));
        required.push("consumer_generation");
    }
    if minor >= 34 {
        let mapping = list(uuid(UuidForm::Any), 1, false);
        let mappings = Object {
            patterns: vec![(&SUFFIX, mapping)],
            min_properties: 1,
            open: true,
            ..Object::default()
        };
        properties.push(("mappings", Schema::Object(mappings)));
    }
    if minor >= 38 {
        properties.push(("consumer_type", text(1, NAME_MAX, Some(&UPPER))));
        required.push("consumer_type");
    }
    Schema::Object(object(properties, &required))
}

/// `PUT /allocations/{consumer}`.
pub(super) fn allocations(version: Microversion) -> &'static Schema {
    fn old(minor: u64) -> Schema {
        let mut properties = vec![("allocations", allocation_list())];
        let mut required = vec!["allocations"];
        if minor >= 8 {
            properties.push(("project_id", text(1, NAME_MAX, None)));
            properties.push(("user_id", text(1, NAME_MAX, None)));
            required.extend(["project_id", "user_id"]);
        }
        Schema::Object(object(properties, &required))
    }
    match version {
        v if v.has(38) => once!(consumer(38, 0)),
        v if v.has(34) => once!(consumer(34, 0)),
        v if v.has(28) => once!(consumer(28, 0)),
        v if v.has(12) => once!(consumer(12, 1)),
        v if v.has(8) => once!(old(8)),
        _ => once!(old(0)),
    }
}

/// `POST /allocations`.
pub(super) fn all_allocations(version: Microversion) -> &'static Schema {
    fn build(minor: u64) -> Schema {
        map(&UUID, consumer(minor, 0), 1)
    }
    match version {
        v if v.has(38) => once!(build(38)),
        v if v.has(34) => once!(build(34)),
        v if v.has(28) => once!(build(28)),
        _ => once!(build(13)),
    }
}

/// `POST /reshaper`.
pub(super) fn reshaper(version: Microversion) -> &'static Schema {
    fn build(minor: u64) -> Schema {
        let properties = vec![
            ("inventories", map(&UUID, inventory_set(), 1)),
            ("allocations", map(&UUID, consumer(minor, 0), 0)),
        ];
        Schema::Object(object(properties, &["inventories", "allocations"]))
    }
    match version {
        v if v.has(38) => once!(build(38)),
        v if v.has(34) => once!(build(34)),
        _ => once!(build(30)),
    }
}

/// The query of `GET /resource_providers`.
pub(super) fn provider_query(version: Microversion) -> &'static Schema {
    fn build(minor: u64) -> Schema {
        let mut properties = vec![("name", any_text()), ("uuid", uuid(UuidForm::Dashed))];
        for (since, key) in [(3, "member_of"), (4, "resources"), (18, "required")] {
            if minor >= since {
                properties.push((key, any_text()));
            }
        }
        if minor >= 14 {
            properties.push(("in_tree", uuid(UuidForm::Dashed)));
        }
        Schema::Object(object(properties, &[]))
    }
    match version {
        v if v.has(18) => once!(build(18)),
        v if v.has(14) => once!(build(14)),
        v if v.has(4) => once!(build(4)),
        v if v.has(3) => once!(build(3)),
        _ => once!(build(0)),
    }
}

/// The query of `GET /traits`.
pub(super) fn trait_query() -> &'static Schema {
    once!({
        let properties = vec![("name", any_text()), ("associated", any_text())];
        Schema::Object(object(properties, &[]))
    })
}

/// The query of `GET /usages`.
pub(super) fn usage_query(version: Microversion) -> &'static Schema {
    fn build(has_type: bool) -> Schema {
        let mut properties = vec![
            ("project_id", text(1, NAME_MAX, None)),
            ("user_id", text(1, NAME_MAX, None)),
        ];
        if has_type {
            properties.push(("consumer_type", text(1, NAME_MAX, Some(&REQUESTED_TYPE))));
        }
        Schema::Object(object(properties, &["project_id"]))
    }
    match version.has(38) {
        true => once!(build(true)),
        false => once!(build(false)),
    }
}

/// The query of `GET /allocation_candidates`.
pub(super) fn candidate_query(version: Microversion) -> &'static Schema {
    match version {
        v if v.has(36) => once!(candidates(36)),
        v if v.has(35) => once!(candidates(35)),
        v if v.has(33) => once!(candidates(33)),
        v if v.has(31) => once!(candidates(31)),
        v if v.has(25) => once!(candidates(25)),
        v if v.has(21) => once!(candidates(21)),
        v if v.has(17) => once!(candidates(17)),
        v if v.has(16) => once!(candidates(16)),
        _ => once!(candidates(10)),
    }
}

fn candidates(minor: u64) -> Schema {
    let mut schema = Object::default();
    if minor >= 16 {
        let limit = Schema::Text(Text {
            min_length: 1,
            pattern: Some(&LIMIT),
            ..Text::default()
        });
        schema.properties.push(("limit", limit));
    }
    if minor < 25 {
        schema.properties.push(("resources", any_text()));
        schema.required.push("resources");
        for (since, key) in [(17, "required"), (21, "member_of")] {
            if minor >= since {
                schema.properties.push((key, any_text()));
            }
        }
        return Schema::Object(schema);
    }
    let policy = Schema::Text(Text {
        one_of: &["none", "isolate"],
        ..Text::default()
    });
    schema.properties.push(("group_policy", policy));
    for (since, key) in [(35, "root_required"), (36, "same_subtree")] {
        if minor >= since {
            schema.properties.push((key, any_text()));
        }
    }
    let patterns: [&'static Pattern; 4] = match minor >= 33 {
        true => [&RESOURCES, &REQUIRED, &MEMBER_OF, &IN_TREE],
        false => [&RESOURCES_OLD, &REQUIRED_OLD, &MEMBER_OF_OLD, &IN_TREE_OLD],
    };
    let known = if minor >= 31 { 4 } else { 3 };
    schema.patterns = patterns[..known].iter().map(|p| (*p, any_text())).collect();
    Schema::Object(schema)
}

/// Reads a body and validates it.
pub(super) fn read_body(body: &[u8], schema: &Schema) -> Result<Value, Fault> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Fault::bad_request(format!("Malformed JSON: {error}")))?;
    match schema.check(&value) {
        Ok(()) => Ok(value),
        Err(wrong) => Err(Fault::bad_request(format!(
            "JSON does not validate: {wrong}"
        ))),
    }
}

/// Judges a query.
pub(super) fn check_query(query: &Query, schema: &Schema) -> Result<(), Fault> {
    let pairs = query.pairs();
    // Of a repeated key the last value is validated, as clients expect.
    let map: Map<String, Value> = pairs
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    schema
        .check(&Value::Object(map))
        .map_err(|wrong| Fault::bad_request(format!("Invalid query string parameters: {wrong}")))
}

#[cfg(test)]
mod tests {
    use super::super::microversion::agreed as version;
    use super::*;
    use serde_json::json;

    /// Goal: each version takes its own form of a body and no other. Method: a table.
    #[test]
    fn allocations_have_the_form_of_their_version() {
        let provider = "b4c1f8e2-5d3a-4f6b-9c7d-1e2f3a4b5c6d";
        let by_list = json!([{"resource_provider": {"uuid": provider}, "resources": {"VCPU": 1}}]);
        let by_map = json!({provider: {"resources": {"VCPU": 1}, "generation": 3}});
        let forms = [
            json!({"allocations": by_list}),
            json!({"allocations": by_list, "project_id": "p", "user_id": "u"}),
            json!({"allocations": by_map, "project_id": "p", "user_id": "u"}),
            json!({"allocations": by_map, "project_id": "p", "user_id": "u",
                   "consumer_generation": null}),
            json!({"allocations": {}, "project_id": "p", "user_id": "u",
                   "consumer_generation": 1, "mappings": {"": [provider]}}),
            json!({"allocations": by_map, "project_id": "p", "user_id": "u",
                   "consumer_generation": 1, "consumer_type": "INSTANCE"}),
        ];
        for (minor, taken) in [
            (0, vec![0]),
            (8, vec![1]),
            (12, vec![2]),
            (28, vec![3]),
            (34, vec![3, 4]),
            (38, vec![5]),
        ] {
            let schema = allocations(version(minor));
            let good: Vec<usize> = (0..forms.len())
                .filter(|form| schema.check(&forms[*form]).is_ok())
                .collect();
            assert_eq!(good, taken, "1.{minor}");
        }
    }

    #[test]
    fn queries_know_the_keys_of_their_version() {
        for (minor, query, good) in [
            (10, "resources=VCPU:1", true),
            (10, "limit=1&resources=VCPU:1", false),
            (10, "", false),
            (16, "limit=0&resources=VCPU:1", false),
            (25, "resources1=VCPU:1&group_policy=none", true),
            (25, "resources1=VCPU:1&group_policy=bogus", false),
            (25, "resources_A=VCPU:1", false),
            (33, "resources_A=VCPU:1&in_tree_A=x", true),
            (34, "root_required=A", false),
            (36, "root_required=A&same_subtree=_A", true),
        ] {
            let query = Query::parse(Some(query)).unwrap();
            let schema = candidate_query(version(minor));
            assert_eq!(
                check_query(&query, schema).is_ok(),
                good,
                "1.{minor} {query:?}"
            );
        }
    }
}
