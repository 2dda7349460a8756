//! The fields of messages and their types, as the descriptors state them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use super::names::{collection, default_stands_for, is_left_out};
use crate::DESCRIPTOR_SET;

/// All messages and enumerations, by their full names with a dot in front.
pub(super) struct Schema {
    messages: BTreeMap<String, Message>,
    choices: BTreeMap<String, Choices>,
}

/// The fields of a message, in the order of its file.
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
}

/// A field of a message.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) is_repeated: bool,
    /// Whether an absent one differs from one that has the default value.
    pub(super) has_presence: bool,
    /// Why no filter reads it.
    pub(super) is_left_out: bool,
    /// Of resource names: their collection, as `hosts`.
    pub(super) collection: Option<&'static str>,
    /// What its default value stands for, if it is another one.
    pub(super) stands_for: Option<&'static str>,
}

/// The type of a field, or of the values of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message(String),
    /// Entries with a key and a value.
    Map(Box<[Self; 2]>),
    Text,
    Bool,
    Number(Encoding),
    Choice(String),
    /// `google.protobuf.Timestamp`.
    Time,
    /// `google.protobuf.Duration`.
    Duration,
    /// Bytes, and numbers of types that no list has: no filter reads them.
    Opaque,
}

/// How a number lies in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// A varint, without a sign.
    Unsigned,
    /// A varint of 64 bits in two's complement.
    Signed,
}

/// The values of an enumeration without its default, as tables show them.
pub(super) struct Choices {
    /// What stands before each value in its full name, as `STATE_`.
    pub(super) prefix: String,
    pub(super) values: Vec<(String, i32)>,
}

/// Returns what the descriptors of this build state.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(Schema::new)
}

impl Schema {
    fn new() -> Self {
        let set = FileDescriptorSet::decode(DESCRIPTOR_SET).expect("the build wrote descriptors");
        let mut schema = Self {
            messages: BTreeMap::new(),
            choices: BTreeMap::new(),
        };
        for file in &set.file {
            let scope = format!(".{}", file.package());
            for message in &file.message_type {
                schema.declare(&scope, message);
            }
            for choices in &file.enum_type {
                schema.declare_choices(&scope, choices);
            }
        }
        schema
    }

    fn declare(&mut self, scope: &str, message: &DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for nested in &message.nested_type {
            self.declare(&name, nested);
        }
        for choices in &message.enum_type {
            self.declare_choices(&name, choices);
        }
        let fields = message.field.iter();
        let fields = fields.map(|field| Field::new(&name, message, field));
        let fields = fields.collect();
        self.messages.insert(name, Message { fields });
    }

    fn declare_choices(&mut self, scope: &str, choices: &EnumDescriptorProto) {
        let name = format!("{scope}.{}", choices.name());
        let default = choices.value.first().map(|value| value.name());
        let prefix = default.and_then(|name| name.strip_suffix("UNSPECIFIED"));
        let prefix = prefix.unwrap_or_default().to_owned();
        let values = choices.value.iter().filter(|value| value.number() != 0);
        let values = values.map(|value| {
            let short = value.name().strip_prefix(&prefix).unwrap_or(value.name());
            (short.to_owned(), value.number())
        });
        let values = values.collect();
        self.choices.insert(name, Choices { prefix, values });
    }

    /// Returns a message that descriptors name.
    pub(super) fn message(&self, name: &str) -> &Message {
        let message = self.messages.get(name);
        message.expect("the descriptors have every message that they name")
    }

    /// Returns an enumeration that descriptors name.
    pub(super) fn choices(&self, name: &str) -> &Choices {
        let choices = self.choices.get(name);
        choices.expect("the descriptors have every enumeration that they name")
    }
}

impl Field {
    fn new(owner: &str, message: &DescriptorProto, field: &FieldDescriptorProto) -> Self {
        let kind = kind(message, field);
        let is_map = matches!(kind, Kind::Map(_));
        Self {
            name: field.name().to_owned(),
            number: field.number().unsigned_abs(),
            is_repeated: field.label() == Label::Repeated && !is_map,
            has_presence: field.oneof_index.is_some() || field.r#type() == Type::Message,
            is_left_out: kind == Kind::Opaque || is_left_out(owner, field.name()),
            collection: (kind == Kind::Text)
                .then(|| collection(owner, field.name()))
                .flatten(),
            stands_for: default_stands_for(owner, field.name()),
            kind,
        }
    }
}

/// Returns the type of a field of a message, in which the entries of its maps are declared.
fn kind(message: &DescriptorProto, field: &FieldDescriptorProto) -> Kind {
    match field.r#type() {
        Type::String => Kind::Text,
        Type::Bool => Kind::Bool,
        Type::Uint32 | Type::Uint64 => Kind::Number(Encoding::Unsigned),
        Type::Int32 | Type::Int64 => Kind::Number(Encoding::Signed),
        Type::Enum => Kind::Choice(field.type_name().to_owned()),
        Type::Message | Type::Group => message_kind(message, field.type_name()),
        Type::Bytes
        | Type::Double
        | Type::Float
        | Type::Sint32
        | Type::Sint64
        | Type::Fixed32
        | Type::Fixed64
        | Type::Sfixed32
        | Type::Sfixed64 => Kind::Opaque,
    }
}

fn message_kind(message: &DescriptorProto, name: &str) -> Kind {
    match name {
        ".google.protobuf.Timestamp" => return Kind::Time,
        ".google.protobuf.Duration" => return Kind::Duration,
        _ => {}
    }
    let short = name.rsplit('.').next().unwrap_or(name);
    let mut nested = message.nested_type.iter();
    let entry = nested.find(|nested| {
        let is_entry = nested.options.as_ref().is_some_and(|o| o.map_entry());
        is_entry && nested.name() == short
    });
    match entry.map(|entry| entry.field.as_slice()) {
        Some([key, value]) => Kind::Map(Box::new([kind(message, key), kind(message, value)])),
        Some(_) | None => Kind::Message(name.to_owned()),
    }
}
