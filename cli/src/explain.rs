//! `berth explain`: what the resources of the API and their fields mean. Calls no server.
//!
//! The words are the comments of the API's definition, so that they are stated once.

use berth_proto::reference::{Field, Kind, Reference, short_name};
use serde_json::{Map, Value, json};

use crate::arguments::Explain;
use crate::output::{self, Format};
use crate::usage::Usage;

/// The resources that have a name of their own, and their messages.
const RESOURCES: &[(&str, &str)] = &[
    ("vm", "berth.scheduler.v1.Vm"),
    ("flavor", "berth.type.v1.Flavor"),
    ("image", "berth.image.v1.Image"),
    ("server-group", "berth.policy.v1.ServerGroup"),
    ("network", "berth.type.v1.Network"),
    ("pci-alias", "berth.type.v1.PciAlias"),
    ("migration", "berth.scheduler.v1.Migration"),
    ("operation", "berth.operation.v1.Operation"),
    ("claim", "berth.type.v1.Claim"),
    ("host", "berth.host.v1.Host"),
    ("host-summary", "berth.host.v1.HostSummary"),
    ("aggregate", "berth.policy.v1.Aggregate"),
    ("policy", "berth.policy.v1.SchedulingPolicy"),
    ("memory-policy", "berth.policy.v1.MemoryPolicy"),
    ("cpu-policy", "berth.policy.v1.CpuPolicy"),
    ("volume", "berth.volume.v1.Volume"),
    ("provider", "berth.placement.v1.ResourceProvider"),
    ("event", "berth.event.v1.Event"),
    ("audit-entry", "berth.audit.v1.AuditEntry"),
    ("refusal", "berth.type.v1.Refusal"),
];

/// Runs the command.
///
/// # Errors
///
/// When there is no such resource, message or field, or the output is closed.
pub fn run(args: &Explain, format: Format) -> anyhow::Result<()> {
    let reference = Reference::new();
    let Some(path) = &args.path else {
        return resources(&reference, format);
    };
    let part = Part::find(&reference, path)?;
    match args.recursive {
        true => tree(&reference, &part, format),
        false => show(&reference, path, &part, format),
    }
}

fn resources(reference: &Reference, format: Format) -> anyhow::Result<()> {
    let comment = |message: &str| reference.messages[message].comment.clone();
    if format.is_of_value() {
        let all = RESOURCES.iter().map(|(name, message)| {
            json!({"name": name, "message": message, "comment": comment(message)})
        });
        return output::value(&all.collect::<Vec<_>>());
    }
    let rows = RESOURCES.iter();
    let rows = rows.map(|(name, message)| [(*name).to_owned(), comment(message)]);
    output::table(["resource", "meaning"], rows.collect(), "");
    Ok(())
}

/// What a path leads to: a message itself, or a field.
#[derive(Debug)]
struct Part<'a> {
    field: Option<&'a Field>,
    kind: Kind,
}

impl<'a> Part<'a> {
    fn find(reference: &'a Reference, path: &str) -> Result<Self, Usage> {
        let (kind, rest) = beginning(reference, path)?;
        let mut part = Self { field: None, kind };
        let mut before = path[..path.len() - rest.len()].trim_end_matches('.');
        for name in rest.split('.').filter(|name| !name.is_empty()) {
            if let Kind::Map(kinds) = part.kind {
                // A name in a map is a key.
                let [_, value] = *kinds;
                part.kind = value;
            } else {
                let field = field_of(reference, &part.kind, name, before)?;
                part = Self {
                    field: Some(field),
                    kind: field.kind.clone(),
                };
            }
            before = name;
        }
        Ok(part)
    }

    /// Returns the type as it is written, with what it is a list or a map of.
    fn type_name(&self) -> String {
        match self.field {
            // A key of a map leads on to the type of its values.
            Some(field) if field.kind == self.kind => type_of_field(field),
            Some(_) | None => type_of(&self.kind),
        }
    }
}

/// Returns a field of a type by its name; `of` is the name of what has the type.
fn field_of<'a>(
    reference: &'a Reference,
    kind: &Kind,
    name: &str,
    of: &str,
) -> Result<&'a Field, Usage> {
    let fields = fields_of(reference, kind);
    if fields.is_empty() {
        let kind = type_of(kind);
        let message = format!("{of:?} is of the type {kind}, and has no field {name:?}");
        return Err(Usage(message));
    }
    fields
        .iter()
        .find(|field| field.name == name)
        .ok_or_else(|| {
            let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
            let names = names.join(", ");
            Usage(format!("{of:?} has no field {name:?}; it has {names}"))
        })
}

/// Returns what the first names of a path stand for, and the names after them.
fn beginning<'a>(reference: &Reference, path: &'a str) -> Result<(Kind, &'a str), Usage> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let mut resources = RESOURCES.iter();
    if let Some((_, message)) = resources.find(|(name, _)| *name == first) {
        return Ok((Kind::Message((*message).to_owned()), rest));
    }
    // The longest one, since messages are within messages.
    let ends = path.match_indices('.').map(|(end, _)| end);
    let ends: Vec<_> = ends.chain([path.len()]).collect();
    for end in ends.into_iter().rev() {
        if let Some(kind) = kind_of(reference, &path[..end]) {
            return Ok((kind, path[end..].trim_start_matches('.')));
        }
    }
    let named: Vec<_> = reference.with_short_name(first).collect();
    match named[..] {
        [] => Err(Usage(format!(
            "there is no resource or message {first:?}; `berth explain` lists the resources"
        ))),
        [name] => {
            let (mut name, mut rest) = (name.to_owned(), rest);
            // Messages and enumerations are within messages, as `Vm.State`.
            while let Some(nested) = nested(reference, &name, rest) {
                (name, rest) = (nested, rest.split_once('.').map_or("", |(_, more)| more));
            }
            Ok((kind_of(reference, &name).expect("it is listed"), rest))
        }
        _ => {
            let names = named.join(", ");
            Err(Usage(format!(
                "{first:?} is one of {names}: give the whole name"
            )))
        }
    }
}

/// Returns the full name of the type within a message that a path begins with.
fn nested(reference: &Reference, of: &str, path: &str) -> Option<String> {
    let first = path.split('.').next()?;
    let name = format!("{of}.{first}");
    kind_of(reference, &name).map(|_| name)
}

/// Returns the type with this full name.
fn kind_of(reference: &Reference, name: &str) -> Option<Kind> {
    let is_message = reference.messages.contains_key(name);
    let is_choice = reference.choices.contains_key(name);
    match (is_message, is_choice) {
        (true, _) => Some(Kind::Message(name.to_owned())),
        (false, true) => Some(Kind::Choice(name.to_owned())),
        (false, false) => None,
    }
}

/// Returns a type as it is written in a definition.
fn type_of(kind: &Kind) -> String {
    match kind {
        Kind::Plain(name) => (*name).to_owned(),
        Kind::Message(name) | Kind::Choice(name) => short_name(name).to_owned(),
        Kind::Map(kinds) => {
            let [key, value] = &**kinds;
            format!("map<{}, {}>", type_of(key), type_of(value))
        }
    }
}

fn type_of_field(field: &Field) -> String {
    let kind = type_of(&field.kind);
    match field.is_list {
        true => format!("list<{kind}>"),
        false => kind,
    }
}

/// Returns the fields of a type, or none where it has none.
fn fields_of<'a>(reference: &'a Reference, kind: &Kind) -> &'a [Field] {
    match kind {
        Kind::Message(name) => match reference.messages.get(name) {
            Some(message) => &message.fields,
            None => &[],
        },
        Kind::Map(kinds) => fields_of(reference, &kinds[1]),
        Kind::Plain(_) | Kind::Choice(_) => &[],
    }
}

/// Returns the values of an enumeration with their comments, without the default one, which is refused.
fn values_of<'a>(reference: &'a Reference, kind: &Kind) -> &'a [(String, String)] {
    let Kind::Choice(name) = kind else {
        return &[];
    };
    match &*reference.choices[name].values {
        [(first, _), values @ ..] if first.ends_with("_UNSPECIFIED") => values,
        values => values,
    }
}

/// Returns the comment of a message or of an enumeration.
fn comment_of(reference: &Reference, kind: &Kind) -> String {
    let comment = match kind {
        Kind::Message(name) => reference.messages.get(name).map(|message| &message.comment),
        Kind::Choice(name) => reference.choices.get(name).map(|choices| &choices.comment),
        Kind::Plain(_) | Kind::Map(_) => None,
    };
    comment.cloned().unwrap_or_default()
}

fn show(reference: &Reference, path: &str, part: &Part<'_>, format: Format) -> anyhow::Result<()> {
    let (fields, values) = (
        fields_of(reference, &part.kind),
        values_of(reference, &part.kind),
    );
    let comment = part.field.map_or("", |field| &field.comment);
    let of_type = comment_of(reference, &part.kind);
    if format.is_of_value() {
        let named = |(name, comment): &(String, String)| json!({"name": name, "comment": comment});
        let fields = fields.iter().map(|field| {
            json!({"name": field.name, "type": type_of_field(field), "comment": field.comment})
        });
        let mut value = Map::new();
        value.insert("path".to_owned(), path.into());
        value.insert("type".to_owned(), part.type_name().into());
        value.insert("comment".to_owned(), comment.into());
        value.insert("type_comment".to_owned(), of_type.into());
        value.insert("fields".to_owned(), fields.collect());
        value.insert("values".to_owned(), values.iter().map(named).collect());
        return output::value(&Value::Object(value));
    }
    let head = [
        ("path", path.to_owned()),
        ("type", part.type_name()),
        ("meaning", comment.to_owned()),
        ("of the type", of_type),
    ];
    let head: Vec<_> = head
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .collect();
    output::fields(&head);
    if !(fields.is_empty() && values.is_empty()) {
        output::print("");
    }
    if !fields.is_empty() {
        let rows = fields.iter();
        let rows = rows.map(|field| {
            [
                field.name.clone(),
                type_of_field(field),
                field.comment.clone(),
            ]
        });
        output::table(["field", "type", "meaning"], rows.collect(), "");
    }
    if !values.is_empty() {
        let rows = values
            .iter()
            .map(|(name, comment)| [name.clone(), comment.clone()]);
        output::table(["value", "meaning"], rows.collect(), "");
    }
    Ok(())
}

/// Lists the paths of every field below a part.
fn tree(reference: &Reference, part: &Part<'_>, format: Format) -> anyhow::Result<()> {
    let mut tree = Tree {
        reference,
        within: Vec::new(),
        rows: Vec::new(),
    };
    match &part.kind {
        Kind::Map(kinds) => tree.descend(&kinds[1], "KEY."),
        kind @ (Kind::Plain(_) | Kind::Message(_) | Kind::Choice(_)) => tree.descend(kind, ""),
    }
    if format.is_of_value() {
        let rows = tree.rows.iter();
        let rows = rows.map(|[path, kind]| json!({"path": path, "type": kind}));
        return output::value(&rows.collect::<Vec<_>>());
    }
    output::table(["path", "type"], tree.rows, "It has no fields.");
    Ok(())
}

/// The fields below a part.
struct Tree<'a> {
    reference: &'a Reference,
    /// The messages that are open: one within itself is not entered again.
    within: Vec<String>,
    /// Paths and types.
    rows: Vec<[String; 2]>,
}

impl Tree<'_> {
    /// Adds the fields of a type, and those of their types, behind this part of their paths.
    fn descend(&mut self, kind: &Kind, before: &str) {
        let Kind::Message(name) = kind else {
            return;
        };
        if self.within.contains(name) {
            return;
        }
        self.within.push(name.clone());
        for field in fields_of(self.reference, kind) {
            let path = format!("{before}{}", field.name);
            self.rows.push([path.clone(), type_of_field(field)]);
            match &field.kind {
                Kind::Map(kinds) => self.descend(&kinds[1], &format!("{path}.KEY.")),
                kind @ (Kind::Plain(_) | Kind::Message(_) | Kind::Choice(_)) => {
                    self.descend(kind, &format!("{path}."));
                }
            }
        }
        self.within.pop();
    }
}

#[cfg(test)]
mod tests;
