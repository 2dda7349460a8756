//! The messages of the API with the comments of their files, for who reads them without the files.
//!
//! What it is not: what filters read of a message; that is [`filter`](crate::filter).

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet,
};

use crate::DESCRIPTOR_SET;

/// All messages and enumerations of Berth's packages, by their full names, as `berth.type.v1.Flavor`.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// The messages.
    pub messages: BTreeMap<String, Message>,
    /// The enumerations.
    pub choices: BTreeMap<String, Choices>,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its comment, in one line.
    pub comment: String,
    /// Its fields, in the order of its file.
    pub fields: Vec<Field>,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its comment, in one line.
    pub comment: String,
    /// Its type; of a list, the type of each element.
    pub kind: Kind,
    /// Whether it is a list.
    pub is_list: bool,
}

/// A type of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A type that protobuf has, as `uint64`.
    Plain(&'static str),
    /// A message of the reference, or a foreign one.
    Message(String),
    /// An enumeration.
    Choice(String),
    /// A map: the types of its keys and of its values.
    Map(Box<[Self; 2]>),
}

/// An enumeration.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Its comment, in one line.
    pub comment: String,
    /// Its values with their comments. The first one is the default.
    pub values: Vec<(String, String)>,
}

impl Reference {
    /// Returns what the descriptors of this build state.
    ///
    /// # Panics
    ///
    /// Never: the build wrote the descriptors.
    #[must_use]
    pub fn new() -> Self {
        let set = FileDescriptorSet::decode(DESCRIPTOR_SET).expect("the build wrote descriptors");
        let mut reference = Self::default();
        for file in &set.file {
            if file.package().starts_with("berth.") {
                File::new(file).read(&mut reference);
            }
        }
        reference
    }

    /// Returns the full names of the messages and enumerations whose last part is this name.
    pub fn with_short_name(&self, short: &str) -> impl Iterator<Item = &str> {
        let names = self.messages.keys().chain(self.choices.keys());
        names
            .map(String::as_str)
            .filter(move |name| short_name(name) == short)
    }
}

/// Returns the last part of a full name, as `Flavor` of `berth.type.v1.Flavor`.
#[must_use]
pub fn short_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// A file, and the comments in it by where they stand.
struct File<'a> {
    file: &'a FileDescriptorProto,
    comments: HashMap<&'a [i32], String>,
}

impl<'a> File<'a> {
    fn new(file: &'a FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        let comments = locations.map(|location| {
            let words = location.leading_comments().split_whitespace();
            (&*location.path, words.collect::<Vec<_>>().join(" "))
        });
        Self {
            file,
            comments: comments.collect(),
        }
    }

    fn read(&self, to: &mut Reference) {
        let scope = self.file.package();
        // 4 is a message of a file, 5 an enumeration of one.
        for (message, path) in indexed(&self.file.message_type, vec![4]) {
            self.message(scope, message, &path, to);
        }
        for (choices, path) in indexed(&self.file.enum_type, vec![5]) {
            self.choices(scope, choices, &path, to);
        }
    }

    fn message(&self, scope: &str, message: &DescriptorProto, path: &[i32], to: &mut Reference) {
        let is_entry = |nested: &DescriptorProto| {
            let options = nested.options.as_ref();
            options.is_some_and(prost_types::MessageOptions::map_entry)
        };
        let name = format!("{scope}.{}", message.name());
        // 3 is a message of a message, 4 an enumeration of one, 2 a field.
        for (nested, path) in indexed(&message.nested_type, below(path, 3)) {
            if !is_entry(nested) {
                self.message(&name, nested, &path, to);
            }
        }
        for (choices, path) in indexed(&message.enum_type, below(path, 4)) {
            self.choices(&name, choices, &path, to);
        }
        let fields = indexed(&message.field, below(path, 2)).map(|(field, path)| {
            let kind = kind(message, field);
            let is_map = matches!(kind, Kind::Map(_));
            Field {
                name: field.name().to_owned(),
                comment: self.comment(&path),
                is_list: field.label() == Label::Repeated && !is_map,
                kind,
            }
        });
        let fields = fields.collect();
        let comment = self.comment(path);
        to.messages.insert(name, Message { comment, fields });
    }

    fn choices(
        &self,
        scope: &str,
        choices: &EnumDescriptorProto,
        path: &[i32],
        to: &mut Reference,
    ) {
        let values = indexed(&choices.value, below(path, 2));
        let values = values.map(|(value, path)| (value.name().to_owned(), self.comment(&path)));
        let choices_of = Choices {
            comment: self.comment(path),
            values: values.collect(),
        };
        let name = format!("{scope}.{}", choices.name());
        to.choices.insert(name, choices_of);
    }

    fn comment(&self, path: &[i32]) -> String {
        self.comments.get(path).cloned().unwrap_or_default()
    }
}

/// Returns where the parts of this kind stand.
fn below(path: &[i32], kind: i32) -> Vec<i32> {
    path.iter().copied().chain([kind]).collect()
}

/// Returns each of some parts with where it stands.
fn indexed<T>(parts: &[T], path: Vec<i32>) -> impl Iterator<Item = (&T, Vec<i32>)> {
    parts
        .iter()
        .zip(0..)
        .map(move |(part, index)| (part, below(&path, index)))
}

/// Returns the type of a field of a message, in which the entries of its maps are declared.
fn kind(message: &DescriptorProto, field: &FieldDescriptorProto) -> Kind {
    let name = field.type_name().trim_start_matches('.');
    match field.r#type() {
        Type::Enum => Kind::Choice(name.to_owned()),
        Type::Message | Type::Group => {
            let mut nested = message.nested_type.iter();
            let entry = nested.find(|nested| {
                let options = nested.options.as_ref();
                options.is_some_and(prost_types::MessageOptions::map_entry)
                    && nested.name() == short_name(name)
            });
            match entry.map(|entry| entry.field.as_slice()) {
                Some([key, value]) => {
                    Kind::Map(Box::new([kind(message, key), kind(message, value)]))
                }
                Some(_) | None => Kind::Message(name.to_owned()),
            }
        }
        Type::Bool => Kind::Plain("bool"),
        Type::String => Kind::Plain("string"),
        Type::Bytes => Kind::Plain("bytes"),
        Type::Double => Kind::Plain("double"),
        Type::Float => Kind::Plain("float"),
        Type::Int32 => Kind::Plain("int32"),
        Type::Int64 => Kind::Plain("int64"),
        Type::Uint32 => Kind::Plain("uint32"),
        Type::Uint64 => Kind::Plain("uint64"),
        Type::Sint32 => Kind::Plain("sint32"),
        Type::Sint64 => Kind::Plain("sint64"),
        Type::Fixed32 => Kind::Plain("fixed32"),
        Type::Fixed64 => Kind::Plain("fixed64"),
        Type::Sfixed32 => Kind::Plain("sfixed32"),
        Type::Sfixed64 => Kind::Plain("sfixed64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever a client reads is explained. Method: every message, field, enumeration and value
    /// of the API has a comment, and every type that is named is there.
    #[test]
    fn everything_is_explained() {
        let reference = Reference::new();
        let mut without = Vec::new();
        for (name, message) in &reference.messages {
            if message.comment.is_empty() {
                without.push(name.clone());
            }
            for field in &message.fields {
                if field.comment.is_empty() {
                    without.push(format!("{name}.{}", field.name));
                }
                check(&reference, &field.kind);
            }
        }
        for (name, choices) in &reference.choices {
            let values = choices.values.iter();
            let values = values.filter(|(_, comment)| comment.is_empty());
            without.extend(values.map(|(value, _)| format!("{name}.{value}")));
            if choices.comment.is_empty() {
                without.push(name.clone());
            }
        }
        assert!(reference.messages.len() > 200 && reference.choices.len() > 20);
        assert_eq!(without, Vec::<String>::new());
    }

    fn check(reference: &Reference, kind: &Kind) {
        match kind {
            Kind::Plain(_) => {}
            Kind::Message(name) => {
                let is_foreign = !name.starts_with("berth.");
                assert!(
                    is_foreign || reference.messages.contains_key(name),
                    "{name}"
                );
            }
            Kind::Choice(name) => assert!(reference.choices.contains_key(name), "{name}"),
            Kind::Map(kinds) => kinds.iter().for_each(|kind| check(reference, kind)),
        }
    }

    #[test]
    fn a_field_has_its_type_and_comment() {
        let reference = Reference::new();
        let vm = &reference.messages["berth.scheduler.v1.Vm"];
        let of = |name| {
            vm.fields
                .iter()
                .find(|field| field.name == name)
                .expect("a field")
        };
        assert_eq!(of("name").comment, "Required. Its name, `vms/{vm}`.");
        assert_eq!(
            of("state").kind,
            Kind::Choice("berth.scheduler.v1.Vm.State".to_owned())
        );
        let text = Kind::Plain("string");
        assert_eq!(of("labels").kind, Kind::Map(Box::new([text.clone(), text])));
        assert_eq!(
            reference.with_short_name("VmSpec").collect::<Vec<_>>(),
            ["berth.type.v1.VmSpec"]
        );
    }
}
