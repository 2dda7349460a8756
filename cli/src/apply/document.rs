//! Documents: YAML, or JSON, which is YAML too, with one resource each.
//!
//! Not here: where the text comes from (`source`), and what a resource holds (`resource`).
//!
//! Invariant: what cannot be read is refused with its file, the number of its document and its field, and a
//! resource is declared once.

use std::collections::BTreeMap;
use std::fmt;

use berth_proto::convert::Invalid;
use serde_json::{Map, Value};

use super::kind::Kind;
use super::resource::{self, Resource};
use super::shown;
use crate::usage::Usage;

/// The most documents of a run.
pub(super) const DOCUMENTS_MAX: usize = 1000;
/// What the library adds to a key that is there twice.
const REMEDY: &str = ", set DuplicateKeyPolicy in Options if acceptable";
/// How many faults are reported at once.
const FAULTS_MAX: usize = 8;

/// A text to read, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// Its path, or `standard input`.
    pub(super) name: String,
    /// What it holds.
    pub(super) text: String,
}

/// Where a resource is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The path of the file.
    pub(super) file: String,
    /// The number of the document in it, from 1; empty ones are not counted.
    pub(super) document: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)
    }
}

/// A resource of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declared {
    /// Where it is declared.
    pub(super) origin: Origin,
    /// Its name, without its collection; empty for the policy.
    pub(super) name: String,
    /// What it is.
    pub(super) resource: Resource,
}

/// Reads all documents of these texts.
///
/// # Errors
///
/// The first faults of all of them.
pub(super) fn read(sources: &[Source]) -> Result<Vec<Declared>, Usage> {
    let mut all: Vec<Declared> = Vec::new();
    let mut faults = Vec::new();
    let mut origins: BTreeMap<(Kind, String), Origin> = BTreeMap::new();
    for source in sources {
        let documents = values(source)?;
        if documents.len() > DOCUMENTS_MAX - all.len().min(DOCUMENTS_MAX) {
            let message = format!(
                "{}: there are more than {DOCUMENTS_MAX} documents",
                source.name
            );
            return Err(Usage(message));
        }
        for (at, document) in documents.into_iter().enumerate() {
            let origin = Origin {
                file: source.name.clone(),
                document: at + 1,
            };
            let declared = match read_one(document) {
                Ok((name, resource)) => Declared {
                    origin,
                    name,
                    resource,
                },
                Err(wrong) => {
                    faults.extend(wrong.iter().map(|fault| format!("{origin}: {fault}")));
                    continue;
                }
            };
            let key = (declared.resource.kind(), declared.name.clone());
            if let Some(first) = origins.get(&key) {
                let origin = &declared.origin;
                faults.push(format!(
                    "{origin}: {} is declared in {first} too",
                    describe(key.0, &key.1)
                ));
                continue;
            }
            origins.insert(key, declared.origin.clone());
            all.push(declared);
        }
    }
    match faults.is_empty() {
        true => Ok(all),
        false => Err(refused(&faults)),
    }
}

/// Returns a resource as it is called in sentences.
pub(super) fn describe(kind: Kind, name: &str) -> String {
    match name {
        "" => kind.as_str().to_owned(),
        name => format!("{} {name}", kind.as_str()),
    }
}

fn refused(faults: &[String]) -> Usage {
    let mut shown: Vec<&str> = faults.iter().map(String::as_str).take(FAULTS_MAX).collect();
    let more = format!(
        "and {} more faults",
        faults.len().saturating_sub(FAULTS_MAX)
    );
    if faults.len() > FAULTS_MAX {
        shown.push(&more);
    }
    Usage(shown.join("; "))
}

/// Returns the documents of a text as values.
fn values(source: &Source) -> Result<Vec<Value>, Usage> {
    let options = serde_saphyr::options! {
        // As in YAML 1.2: `on` and `no` are words.
        strict_booleans: true,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    };
    let read = serde_saphyr::from_multiple_with_options(&source.text, options);
    read.map_err(|error| {
        // Some have several lines.
        let why = error.to_string();
        let why: Vec<&str> = why.split_whitespace().collect();
        // What a program would do about it.
        let why = why.join(" ").replace(REMEDY, "");
        Usage(format!(
            "{}: it cannot be read as YAML or JSON: {why}",
            source.name
        ))
    })
}

/// Reads a document; its faults begin with what it declares, as far as that is known.
fn read_one(document: Value) -> Result<(String, Resource), Vec<String>> {
    let Value::Object(mut fields) = document else {
        return Err(vec!["it must have fields, as `kind: Flavor`".to_owned()]);
    };
    let kinds = Kind::ALL.map(Kind::as_str).join(", ");
    let kind = match fields.remove("kind") {
        Some(Value::String(kind)) => match Kind::parse(&kind) {
            Some(kind) => kind,
            None => return Err(vec![format!("kind: must be one of {kinds}, not {kind:?}")]),
        },
        Some(_) => return Err(vec![format!("kind: must be one of {kinds}")]),
        None => return Err(vec![format!("kind: is missing; it is one of {kinds}")]),
    };
    let name = named(&fields);
    read_fields(kind, fields).map_err(|faults| {
        let faults = faults.iter();
        let line = |invalid: &Invalid| format!("{}: {invalid}", describe(kind, &name));
        faults.map(line).collect()
    })
}

/// Returns the name of a document for messages, whatever is wrong with it.
fn named(fields: &Map<String, Value>) -> String {
    let record = fields.get("vm").and_then(|vm| vm.get("name"));
    let name = fields.get("name").or(record).and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn read_fields(
    kind: Kind,
    mut fields: Map<String, Value>,
) -> Result<(String, Resource), Vec<Invalid>> {
    shown::to_api(kind, &mut fields).map_err(|invalid| vec![invalid])?;
    resource::read(kind, fields)
}
