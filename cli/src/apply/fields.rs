//! Fields as messages of the API, and messages as the values that are compared and shown: whatever the
//! descriptors state of them.
//!
//! Names of resources stand without their collection, values of enumerations without their prefix, and both
//! are read in either form. What has its default is left out.
//!
//! Invariant: a field that the message does not have is refused, and no value is converted into another type.

use berth_proto::convert::Invalid;
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind as Type, MapKey, MessageDescriptor,
    Value as Field,
};
use serde_json::{Map, Value, json};

use crate::session::{resource, short};

/// Reads the fields of a message.
///
/// # Errors
///
/// A field that it does not have, or a value that the field cannot have.
pub(super) fn read(
    of: &MessageDescriptor,
    fields: &Map<String, Value>,
) -> Result<DynamicMessage, Invalid> {
    let mut message = DynamicMessage::new(of.clone());
    for (name, value) in fields {
        let field = of
            .get_field_by_name(name)
            .or_else(|| of.get_field_by_json_name(name))
            .ok_or_else(|| unknown(of, name))?;
        if value.is_null() {
            continue;
        }
        let oneof = field.containing_oneof();
        let is_set = oneof.is_some_and(|one| one.fields().any(|other| message.has_field(&other)));
        if is_set || message.has_field(&field) {
            return Err(Invalid::new(name, "excludes another field that is set"));
        }
        let read = read_field(&field, value).map_err(|invalid| within(invalid, name))?;
        message.set_field(&field, read);
    }
    Ok(message)
}

/// Returns the refusal of a field that a message does not have.
fn unknown(of: &MessageDescriptor, name: &str) -> Invalid {
    let mut known: Vec<String> = of.fields().map(|f| f.name().to_owned()).collect();
    known.sort();
    let rule = format!("is not known; known fields are {}", known.join(", "));
    Invalid::new(name, rule)
}

/// Returns a fault as seen from what holds the value, as `disks[0].format`.
fn within(invalid: Invalid, field: &str) -> Invalid {
    match invalid.path.starts_with('[') {
        true => Invalid::new(format!("{field}{}", invalid.path), invalid.rule),
        false => invalid.within(field),
    }
}

fn read_field(field: &FieldDescriptor, value: &Value) -> Result<Field, Invalid> {
    if field.is_list() {
        let elements = value.as_array();
        let elements = elements.ok_or_else(|| Invalid::here("must be a list"))?;
        let each = elements.iter().enumerate();
        let read = each.map(|(at, element)| {
            read_one(field, element).map_err(|invalid| within(invalid, &format!("[{at}]")))
        });
        return Ok(Field::List(read.collect::<Result<_, _>>()?));
    }
    let Type::Message(entry) = field.kind() else {
        return read_one(field, value);
    };
    if !field.is_map() {
        return read_one(field, value);
    }
    let of = entry.map_entry_value_field();
    let entries = object(value)?.iter();
    let entries = entries.map(|(key, value)| {
        let value = read_one(&of, value).map_err(|invalid| within(invalid, key))?;
        Ok((MapKey::String(key.clone()), value))
    });
    Ok(Field::Map(entries.collect::<Result<_, _>>()?))
}

fn object(value: &Value) -> Result<&Map<String, Value>, Invalid> {
    let fields = value.as_object();
    fields.ok_or_else(|| Invalid::here("must have fields, as `name: value`"))
}

/// Reads a value that is no list and no map.
fn read_one(field: &FieldDescriptor, value: &Value) -> Result<Field, Invalid> {
    let text = || {
        let text = value.as_str();
        text.ok_or_else(|| Invalid::here("must be a text; a number or a word of YAML needs quotes"))
    };
    Ok(match field.kind() {
        Type::String => match collection(field) {
            Some(collection) if !text()?.is_empty() => Field::String(resource(collection, text()?)),
            Some(_) | None => Field::String(text()?.to_owned()),
        },
        Type::Bytes => Field::Bytes(text()?.to_owned().into()),
        Type::Enum(of) => Field::EnumNumber(choice(&of, text()?)?),
        Type::Message(of) => Field::Message(read(&of, object(value)?)?),
        Type::Bool => {
            let is_so = value.as_bool();
            Field::Bool(is_so.ok_or_else(|| Invalid::here("must be true or false"))?)
        }
        Type::Uint32 | Type::Fixed32 => Field::U32(number(value, u32::MAX.into())?),
        // JSON of gRPC has these as texts.
        Type::Uint64 | Type::Fixed64 => match value.as_str().and_then(|text| text.parse().ok()) {
            Some(parsed) => Field::U64(parsed),
            None => Field::U64(number(value, u64::MAX)?),
        },
        Type::Double
        | Type::Float
        | Type::Int32
        | Type::Int64
        | Type::Sint32
        | Type::Sint64
        | Type::Sfixed32
        | Type::Sfixed64 => return Err(Invalid::here("cannot be declared")),
    })
}

fn number<N: TryFrom<u64>>(value: &Value, max: u64) -> Result<N, Invalid> {
    let number = value.as_u64().and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| Invalid::here(format!("must be a whole number from 0 to {max}")))
}

/// Reads a value of an enumeration: `POLICY_ANTI_AFFINITY`, `ANTI_AFFINITY` or `anti-affinity`.
fn choice(of: &EnumDescriptor, text: &str) -> Result<i32, Invalid> {
    let letters = |text: &str| -> String {
        let all = text.chars().filter(|c| !matches!(c, '-' | '_'));
        all.map(|c| c.to_ascii_uppercase()).collect()
    };
    let typed = letters(text);
    let mut values = of.values().filter(|value| value.number() != 0);
    let value = values.find(|value| {
        [value.name(), without_prefix(of, value.name())]
            .iter()
            .any(|name| letters(name) == typed)
    });
    value.map(|value| value.number()).ok_or_else(|| {
        let all = of.values().filter(|value| value.number() != 0);
        let all: Vec<String> = all
            .map(|value| without_prefix(of, value.name()).to_owned())
            .collect();
        Invalid::here(format!("must be one of {}", all.join(", ")))
    })
}

fn without_prefix<'a>(of: &EnumDescriptor, name: &'a str) -> &'a str {
    let default = of.default_value();
    let prefix = default.name().strip_suffix("UNSPECIFIED");
    prefix
        .and_then(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name)
}

/// Returns the collection of the resources that a field names.
fn collection(field: &FieldDescriptor) -> Option<&'static str> {
    let of = field.parent_message();
    match (of.name(), field.name()) {
        ("Flavor", "name") | ("VmTemplate", "flavor") => Some("flavors"),
        ("PciAlias", "name") => Some("pciAliases"),
        ("Network", "name") | ("Nic", "network") => Some("networks"),
        ("Aggregate", "name") => Some("aggregates"),
        ("Aggregate", "hosts") => Some("hosts"),
        ("ServerGroup", "name") | ("VmTemplate", "server_group") => Some("serverGroups"),
        ("VolumeAttachment", "volume") => Some("volumes"),
        _ => None,
    }
}

/// Returns the fields of a message that are set.
pub(super) fn values(message: &DynamicMessage) -> Map<String, Value> {
    let fields = message.fields();
    let fields = fields.map(|(field, value)| (field.name().to_owned(), to_json(&field, value)));
    fields.collect()
}

fn to_json(field: &FieldDescriptor, value: &Field) -> Value {
    match value {
        Field::Bool(is_so) => json!(is_so),
        Field::I32(number) => json!(number),
        Field::I64(number) => json!(number),
        Field::U32(number) => json!(number),
        Field::U64(number) => json!(number),
        Field::F32(number) => json!(number),
        Field::F64(number) => json!(number),
        Field::String(text) => match collection(field) {
            Some(_) => json!(short(text)),
            None => json!(text),
        },
        Field::Bytes(bytes) => json!(String::from_utf8_lossy(bytes)),
        Field::EnumNumber(number) => {
            let Type::Enum(of) = field.kind() else {
                return json!(number);
            };
            let value = of.get_value(*number);
            value.map_or(json!(number), |value| {
                json!(without_prefix(&of, value.name()))
            })
        }
        Field::Message(message) => Value::Object(values(message)),
        Field::List(elements) => elements.iter().map(|e| to_json(field, e)).collect(),
        Field::Map(entries) => {
            let Type::Message(entry) = field.kind() else {
                return Value::Null;
            };
            let of = entry.map_entry_value_field();
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| (key_text(key), to_json(&of, value)));
            Value::Object(entries.collect())
        }
    }
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}
