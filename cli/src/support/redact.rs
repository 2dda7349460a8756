//! What of a message leaves the cluster in a bundle.
//!
//! Every text that a message can hold has a class in `fields.txt`. Secrets are removed always; names are
//! replaced by keyed hashes where that is requested, equal ones for equal names within one bundle.
//!
//! Not here: which messages are in a bundle.
//!
//! Invariant: a text without a class is removed, so that a field that was forgotten shows too little,
//! never too much. A test holds the file complete.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost_reflect::bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, MapKey, ReflectMessage as _, Value};
use sha2::{Digest as _, Sha256};

use super::messages;

/// The classes of all fields.
const FIELDS: &str = include_str!("fields.txt");
/// What stands for a text that was removed.
pub(super) const REMOVED: &str = "(removed)";
/// How many bytes of a hash make a name.
const NAME_BYTES: usize = 6;

/// The class of a text.
/// What stands before the name of an aggregate in `hw:cpu_model`.
const BASELINE: &str = "baseline:";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Keep,
    Secret,
    Name,
    Principal,
    Address,
    Text,
    Keys,
    Values,
    Pairs,
    /// A name that is hashed as a whole, with what stands before a slash in it.
    Whole,
    /// Those of flavors and images: `hw:cpu_model` may name an aggregate.
    Specs,
    /// It holds an outcome of a command.
    Embedded,
}

impl Class {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "keep" => Self::Keep,
            "secret" => Self::Secret,
            "name" => Self::Name,
            "principal" => Self::Principal,
            "address" => Self::Address,
            "text" => Self::Text,
            "keys" => Self::Keys,
            "values" => Self::Values,
            "pairs" => Self::Pairs,
            "specs" => Self::Specs,
            "embedded" => Self::Embedded,
            _ => return None,
        })
    }
}

static CLASSES: LazyLock<HashMap<&'static str, Class>> = LazyLock::new(|| {
    let lines = FIELDS.lines().filter(|line| !line.starts_with('#'));
    let read = lines.filter_map(|line| {
        let (field, class) = line.split_once(' ')?;
        Some((field, Class::parse(class)?))
    });
    read.collect()
});

fn class(field: &FieldDescriptor) -> Class {
    let known = CLASSES.get(field.full_name()).copied();
    known.unwrap_or(Class::Secret)
}

/// Removes what may not leave the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Redactor {
    /// The key of the hashes that stand for names; absent where names stay.
    key: Option<[u8; 32]>,
}

impl Redactor {
    /// Returns one that hashes names with this key, or leaves them.
    pub(super) fn new(key: Option<[u8; 32]>) -> Self {
        Self { key }
    }

    /// Returns whether names are hashed.
    pub(super) fn hashes_names(&self) -> bool {
        self.key.is_some()
    }

    /// Returns what of an address leaves the cluster.
    pub(super) fn address(&self, text: &str) -> String {
        self.text(Class::Address, text)
    }

    /// Removes it from a message and from those that it holds.
    pub(super) fn redact(&self, message: &mut DynamicMessage) {
        let fields: Vec<FieldDescriptor> = message.descriptor().fields().collect();
        for field in &fields {
            if !message.has_field(field) {
                continue;
            }
            let mut value = message.get_field(field).into_owned();
            self.redact_value(class(field), &mut value);
            message.set_field(field, value);
        }
    }

    fn redact_value(&self, class: Class, value: &mut Value) {
        match value {
            Value::Message(message) => self.redact(message),
            Value::String(text) => *text = self.text(class, text),
            Value::Bytes(bytes) => *bytes = self.bytes(class, bytes),
            Value::List(values) => {
                for value in values {
                    self.redact_value(class, value);
                }
            }
            Value::Map(entries) => self.redact_map(class, entries),
            Value::Bool(_)
            | Value::I32(_)
            | Value::I64(_)
            | Value::U32(_)
            | Value::U64(_)
            | Value::F32(_)
            | Value::F64(_)
            | Value::EnumNumber(_) => {}
        }
    }

    fn redact_map(&self, class: Class, entries: &mut HashMap<MapKey, Value>) {
        let (of_keys, of_values) = match class {
            Class::Keys => (Class::Name, Class::Secret),
            Class::Values => (Class::Keep, Class::Name),
            Class::Pairs => (Class::Whole, Class::Whole),
            Class::Specs => (Class::Keep, Class::Specs),
            Class::Keep => (Class::Keep, Class::Keep),
            Class::Secret
            | Class::Name
            | Class::Principal
            | Class::Address
            | Class::Text
            | Class::Whole
            | Class::Embedded => (Class::Secret, Class::Secret),
        };
        let redacted = entries.drain().map(|(key, mut value)| {
            let key = match key {
                MapKey::String(key) => MapKey::String(self.text(of_keys, &key)),
                MapKey::Bool(_)
                | MapKey::I32(_)
                | MapKey::I64(_)
                | MapKey::U32(_)
                | MapKey::U64(_) => key,
            };
            self.redact_value(of_values, &mut value);
            (key, value)
        });
        *entries = redacted.collect::<Vec<_>>().into_iter().collect();
    }

    fn bytes(&self, class: Class, bytes: &Bytes) -> Bytes {
        match class {
            Class::Keep => bytes.clone(),
            Class::Embedded => self.outcome(bytes),
            // Its length is checked where it is read.
            Class::Secret
            | Class::Name
            | Class::Principal
            | Class::Address
            | Class::Text
            | Class::Keys
            | Class::Values
            | Class::Pairs
            | Class::Whole
            | Class::Specs => vec![0; bytes.len()].into(),
        }
    }

    fn outcome(&self, bytes: &Bytes) -> Bytes {
        let kind = messages::message("berth.state.v1.Outcome");
        match messages::decode(&kind, bytes) {
            Ok(mut outcome) => {
                self.redact(&mut outcome);
                messages::encode(&outcome).into()
            }
            Err(_) => Bytes::new(),
        }
    }

    /// Returns what of a text leaves the cluster. What is empty stays so.
    fn text(&self, class: Class, text: &str) -> String {
        if text.is_empty() || class == Class::Keep {
            return text.to_owned();
        }
        if class == Class::Secret {
            return REMOVED.to_owned();
        }
        let Some(key) = &self.key else {
            return text.to_owned();
        };
        match class {
            Class::Name => last_part(text, |name| hashed(key, name)),
            Class::Whole => hashed(key, text),
            Class::Principal => principal(text, |name| hashed(key, name)),
            Class::Address => address(text, |name| hashed(key, name)),
            Class::Specs => match text.strip_prefix(BASELINE) {
                Some(name) => format!("{BASELINE}{}", hashed(key, name)),
                None => text.to_owned(),
            },
            Class::Keep
            | Class::Secret
            | Class::Text
            | Class::Keys
            | Class::Values
            | Class::Pairs
            | Class::Embedded => REMOVED.to_owned(),
        }
    }
}

/// Returns what stands for a name: 13 characters that every kind of name may have.
fn hashed(key: &[u8; 32], name: &str) -> String {
    // The key has the size that the hash takes, and names have no separator in common with it.
    let hash = Sha256::new()
        .chain_update(key)
        .chain_update(name)
        .finalize();
    let bytes = hash.iter().take(NAME_BYTES);
    let digits: String = bytes.map(|byte| format!("{byte:02x}")).collect();
    format!("n{digits}")
}

/// Changes the last part of a resource name, or a name as a whole.
fn last_part(text: &str, change: impl Fn(&str) -> String) -> String {
    match text.rsplit_once('/') {
        Some((collection, name)) => format!("{collection}/{}", change(name)),
        None => change(text),
    }
}

/// Changes a principal behind its role.
fn principal(text: &str, change: impl Fn(&str) -> String) -> String {
    match text.split_once(':') {
        Some((role, name)) => format!("{role}:{}", change(name)),
        None => text.to_owned(),
    }
}

/// Changes the host of an address, or of a URL.
fn address(text: &str, change: impl Fn(&str) -> String) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once(':') {
        Some((host, port)) => format!("{scheme}{}:{port}{path}", change(host)),
        None => format!("{scheme}{}{path}", change(authority)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost_reflect::{Kind, MessageDescriptor};

    use super::super::calls;
    use super::*;

    fn texts_of(
        message: &MessageDescriptor,
        seen: &mut BTreeSet<String>,
        texts: &mut BTreeSet<String>,
    ) {
        if !message.full_name().starts_with("berth.")
            || !seen.insert(message.full_name().to_owned())
        {
            return;
        }
        for field in message.fields() {
            let (kinds, name) = (kinds(&field), field.full_name().to_owned());
            for kind in kinds {
                if matches!(kind, Kind::String | Kind::Bytes) {
                    texts.insert(name.clone());
                } else if let Kind::Message(inner) = kind {
                    texts_of(&inner, seen, texts);
                }
            }
        }
    }

    fn kinds(field: &FieldDescriptor) -> Vec<Kind> {
        let kind = field.kind();
        let entry = kind.as_message().filter(|_| field.is_map());
        entry.map_or_else(
            || vec![kind.clone()],
            |entry| {
                let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
                vec![key.kind(), value.kind()]
            },
        )
    }

    /// Goal: a new text in any message of a bundle needs a decision. Method: all that the recorded
    /// responses and the rows of a state can hold, from the descriptors.
    #[test]
    fn every_text_has_a_class() {
        let (mut seen, mut texts) = (BTreeSet::new(), BTreeSet::new());
        let mut roots: Vec<MessageDescriptor> = calls::methods().map(|m| m.output).collect();
        for name in [
            "berth.state.v1.Row",
            "berth.state.v1.Outcome",
            "berth.cluster.v1.GetDiagnosticsResponse",
        ] {
            roots.push(messages::message(name));
        }
        for root in &roots {
            texts_of(root, &mut seen, &mut texts);
        }
        let missing: Vec<_> = texts
            .iter()
            .filter(|text| !CLASSES.contains_key(&***text))
            .collect();
        assert!(missing.is_empty(), "without a class: {missing:#?}");
        let unknown = CLASSES.keys().filter(|field| !texts.contains(**field));
        let unknown: BTreeSet<_> = unknown.collect();
        assert!(unknown.is_empty(), "no such field: {unknown:#?}");
        let lines = FIELDS.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(
            lines.count(),
            CLASSES.len(),
            "each field once, with a class"
        );
    }

    #[test]
    fn names_are_hashed_within_what_they_stand_in() {
        let redactor = Redactor::new(Some([7; 32]));
        let name = redactor.text(Class::Name, "h1");
        assert_eq!(
            redactor.text(Class::Name, "hosts/h1"),
            format!("hosts/{name}")
        );
        assert_eq!(
            redactor.text(Class::Principal, "agent:h1"),
            format!("agent:{name}")
        );
        assert_eq!(redactor.text(Class::Principal, "unverified"), "unverified");
        assert_eq!(
            redactor.text(Class::Address, "http://h1:7100"),
            format!("http://{name}:7100")
        );
        let uri = redactor.text(Class::Address, "qemu+tcp://h1/system");
        assert_eq!(uri, format!("qemu+tcp://{name}/system"));
        assert_eq!(redactor.text(Class::Text, "host h1 is full"), REMOVED);
        assert_ne!(redactor.text(Class::Name, "h2"), name);
        assert_ne!(Redactor::new(Some([8; 32])).text(Class::Name, "h1"), name);
        assert_eq!(redactor.text(Class::Name, ""), "");
        // Of a key of a label the domain goes, too.
        let key = redactor.text(Class::Whole, "example.com/team");
        assert!(!key.contains("example") && !key.contains('/'), "{key}");
        assert_eq!(redactor.text(Class::Whole, "h1"), name);
    }

    #[test]
    fn secrets_go_whether_names_are_hashed_or_not() {
        for redactor in [Redactor::default(), Redactor::new(Some([7; 32]))] {
            assert_eq!(redactor.text(Class::Secret, "password=x"), REMOVED);
            let seed = redactor.bytes(Class::Secret, &vec![9; 32].into());
            assert_eq!(seed, vec![0; 32]);
        }
    }
}
