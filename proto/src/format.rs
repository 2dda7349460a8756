//! Which cluster version brought which part of the replicated format.
//!
//! Commands and rows are protobuf, and protobuf drops what it does not know without a word. In a
//! replicated log that would let members differ. So every field and every named value that a
//! command or a row can hold stands in a table (`replicated_format.txt`) with the cluster version
//! that brought it, and stored bytes are compared with that table: before they are proposed, and
//! when they are read.
//!
//! Not here: what a version is and when it is switched on. What a command *means* can change
//! without its fields; a change of that queries the state for its cluster version.
//!
//! Invariant: what stands in no table counts as the newest, so that a line that was forgotten
//! refuses too much, never too little. A test holds the table complete.

mod table;
mod walk;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use berth_domain::version::ServiceVersion;
use bytes::Bytes;
use prost::Message as _;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

use self::table::{Since, Table};
pub use self::walk::{Fault, Newest};
use crate::DESCRIPTOR_SET;

/// What stands in the table.
const TABLE: &str = include_str!("../replicated_format.txt");

/// Fields of type `bytes` that hold a message, which is encoded as a field of its type would be.
const EMBEDDED: &[(&str, &str, &str)] = &[(
    "berth.state.v1.Receipt",
    "outcome",
    ".berth.state.v1.Outcome",
)];

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A `berth.state.v1.Envelope`.
    Command,
    /// A `berth.state.v1.Row`.
    Row,
}

/// What of the replicated format came when.
#[derive(Debug)]
pub struct Format {
    messages: Vec<Message>,
    enumerations: Vec<Enumeration>,
    command: usize,
    row: usize,
    /// What the table and the messages do not agree about.
    problems: Vec<String>,
}

#[derive(Debug)]
struct Message {
    name: String,
    /// In order of their numbers.
    fields: Vec<(u32, Field)>,
}

#[derive(Debug)]
struct Field {
    name: String,
    since: Since,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Nothing in it is looked at.
    Plain,
    Message(usize),
    Enumeration(usize),
}

#[derive(Debug)]
struct Enumeration {
    name: String,
    values: BTreeMap<i32, (String, Since)>,
}

/// Bytes that hold nothing newer than a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fitted {
    /// They never did.
    AsTheyAre,
    /// Fields that may be left out are left out.
    Shortened(Bytes),
    /// They need a newer version.
    TooNew(Newest),
}

/// Returns the replicated format of this build.
pub fn replicated() -> &'static Format {
    static FORMAT: OnceLock<Format> = OnceLock::new();
    FORMAT.get_or_init(|| Format::new(TABLE))
}

impl Format {
    /// Returns the format with this table.
    #[must_use]
    pub fn new(table: &str) -> Self {
        let set = FileDescriptorSet::decode(DESCRIPTOR_SET).expect("the build wrote descriptors");
        let mut reader = Reader::new(&set, Table::read(table));
        let command = reader.message(".berth.state.v1.Envelope");
        let row = reader.message(".berth.state.v1.Row");
        let problems = reader.table.problems(ServiceVersion::CURRENT);
        let Reader {
            messages,
            enumerations,
            ..
        } = reader;
        Self {
            messages,
            enumerations,
            command,
            row,
            problems,
        }
    }

    /// Returns what is wrong with the table: lines to add, and lines for what is gone.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the version that these bytes need.
    ///
    /// # Errors
    ///
    /// They are no such message, or hold what this build does not know.
    pub fn newest(&self, stored: Stored, bytes: &[u8]) -> Result<Newest, Fault> {
        self.walk(self.root(stored), bytes)
    }

    /// Leaves out of these bytes what is newer than `version` and may be left out.
    ///
    /// # Errors
    ///
    /// They are no such message, or hold what this build does not know.
    pub fn fit(
        &self,
        stored: Stored,
        bytes: &[u8],
        version: ServiceVersion,
    ) -> Result<Fitted, Fault> {
        let root = self.root(stored);
        if self.walk(root, bytes)?.version <= version {
            return Ok(Fitted::AsTheyAre);
        }
        let shorter = self.shorten(root, bytes, version)?;
        let newest = self.walk(root, &shorter)?;
        Ok(if newest.version <= version {
            Fitted::Shortened(shorter.into())
        } else {
            Fitted::TooNew(newest)
        })
    }

    fn root(&self, stored: Stored) -> usize {
        match stored {
            Stored::Command => self.command,
            Stored::Row => self.row,
        }
    }
}

/// Returns the message that a field of type `bytes` holds, if it holds one.
fn embedded(message: &str, field: &str) -> Option<&'static str> {
    let mut all = EMBEDDED.iter();
    let known = all.find(|(owner, name, _)| (*owner, *name) == (message, field));
    known.map(|(_, _, inner)| *inner)
}

/// Gathers what can be reached from the two roots.
struct Reader<'a> {
    descriptors: BTreeMap<String, &'a DescriptorProto>,
    enumerated: BTreeMap<String, &'a EnumDescriptorProto>,
    table: Table,
    messages: Vec<Message>,
    enumerations: Vec<Enumeration>,
    known: BTreeMap<String, usize>,
}

impl<'a> Reader<'a> {
    fn new(set: &'a FileDescriptorSet, table: Table) -> Self {
        let mut reader = Self {
            descriptors: BTreeMap::new(),
            enumerated: BTreeMap::new(),
            table,
            messages: Vec::new(),
            enumerations: Vec::new(),
            known: BTreeMap::new(),
        };
        for file in &set.file {
            let scope = format!(".{}", file.package());
            for message in &file.message_type {
                reader.declare(&scope, message);
            }
            for enumeration in &file.enum_type {
                let name = format!("{scope}.{}", enumeration.name());
                reader.enumerated.insert(name, enumeration);
            }
        }
        reader
    }

    fn declare(&mut self, scope: &str, message: &'a DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for nested in &message.nested_type {
            self.declare(&name, nested);
        }
        for enumeration in &message.enum_type {
            let name = format!("{name}.{}", enumeration.name());
            self.enumerated.insert(name, enumeration);
        }
        self.descriptors.insert(name, message);
    }

    fn message(&mut self, name: &str) -> usize {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let descriptor = self.descriptors[name];
        let number = self.messages.len();
        self.known.insert(name.to_owned(), number);
        let plain = name.trim_start_matches('.').to_owned();
        self.messages.push(Message {
            name: plain.clone(),
            fields: Vec::new(),
        });
        // The entries of a map have two fields for ever.
        let is_entry = descriptor.options.as_ref().is_some_and(|o| o.map_entry());
        let mut fields = Vec::new();
        for field in &descriptor.field {
            let since = if is_entry {
                Since::EVER
            } else {
                self.table.take(&plain, field.name())
            };
            let field = (
                field.number().unsigned_abs(),
                Field {
                    name: field.name().to_owned(),
                    since,
                    kind: match embedded(&plain, field.name()) {
                        Some(inner) => Kind::Message(self.message(inner)),
                        None => self.kind(field.r#type(), field.type_name()),
                    },
                },
            );
            fields.push(field);
        }
        fields.sort_by_key(|(number, _)| *number);
        self.messages[number].fields = fields;
        number
    }

    fn kind(&mut self, kind: Type, name: &str) -> Kind {
        // What others define never changes.
        if name.starts_with(".google.") {
            return Kind::Plain;
        }
        if kind == Type::Message {
            Kind::Message(self.message(name))
        } else if kind == Type::Enum {
            Kind::Enumeration(self.enumeration(name))
        } else {
            Kind::Plain
        }
    }

    fn enumeration(&mut self, name: &str) -> usize {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let descriptor = self.enumerated[name];
        let number = self.enumerations.len();
        self.known.insert(name.to_owned(), number);
        let plain = name.trim_start_matches('.').to_owned();
        let values = descriptor.value.iter().map(|value| {
            let since = self.table.take(&plain, value.name());
            (value.number(), (value.name().to_owned(), since))
        });
        let values = values.collect();
        self.enumerations.push(Enumeration {
            name: plain,
            values,
        });
        number
    }
}
