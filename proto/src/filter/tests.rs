//! What this module states of fields, compared with the messages that are listed.
//!
//! Goal: no field of a list is forgotten or read otherwise than its comment says. Method: the descriptors
//! carry the comments; every message that a list can hold is visited.

use std::collections::{BTreeMap, BTreeSet};

use prost::{Message as _, Name as _};
use prost_types::FileDescriptorSet;

use super::names::{collection, default_stands_for, is_left_out};
use super::schema::{Kind, schema};
use crate::DESCRIPTOR_SET;
use crate::{host, operation, policy, scheduler, types, volume};

/// Returns the names of the messages that can be filtered.
fn listed() -> [String; 8] {
    [
        scheduler::v1::Vm::full_name(),
        scheduler::v1::Migration::full_name(),
        operation::v1::Operation::full_name(),
        host::v1::HostSummary::full_name(),
        types::v1::Flavor::full_name(),
        policy::v1::ServerGroup::full_name(),
        policy::v1::Aggregate::full_name(),
        volume::v1::Volume::full_name(),
    ]
    .map(|name| format!(".{name}"))
}

/// Returns the comments of all fields, by the message and the name of the field.
fn comments() -> BTreeMap<(String, String), String> {
    let set = FileDescriptorSet::decode(DESCRIPTOR_SET).expect("descriptors");
    let mut comments = BTreeMap::new();
    for file in &set.file {
        let info = file.source_code_info.iter();
        for location in info.flat_map(|info| &info.location) {
            // 4 is a message of a file, 3 one of a message, 2 a field.
            let (message, scope) = match location.path[..] {
                [4, outer, 2, _] => (&file.message_type[outer as usize], String::new()),
                [4, outer, 3, inner, 2, _] => {
                    let outer = &file.message_type[outer as usize];
                    (
                        &outer.nested_type[inner as usize],
                        format!(".{}", outer.name()),
                    )
                }
                _ => continue,
            };
            let field = &message.field[*location.path.last().expect("a path") as usize];
            let owner = format!(".{}{scope}.{}", file.package(), message.name());
            let comment = location.leading_comments().replace('\n', " ");
            comments.insert((owner, field.name().to_owned()), comment);
        }
    }
    comments
}

/// Returns every message that a list can hold.
fn reachable() -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = listed().to_vec();
    while let Some(name) = open.pop() {
        for field in &schema().message(&name).fields {
            let kinds = if let Kind::Map(types) = &field.kind {
                types.to_vec()
            } else {
                vec![field.kind.clone()]
            };
            let inner = kinds.into_iter().filter_map(|kind| {
                let Kind::Message(name) = kind else {
                    return None;
                };
                Some(name)
            });
            open.extend(inner.filter(|inner| !reached.contains(inner)));
        }
        reached.insert(name);
    }
    reached
}

/// Returns the collection of a comment's first pattern, as `hosts` of `hosts/{host}`.
fn pattern(comment: &str) -> Option<&str> {
    let (before, _) = comment.split_once("/{")?;
    before.rsplit_once('`').map(|(_, collection)| collection)
}

#[test]
fn fields_are_what_their_comments_say() {
    let comments = comments();
    let messages = reachable();
    assert!(messages.len() > 60, "the messages were visited");
    let mut wrong = Vec::new();
    for name in &messages {
        for field in &schema().message(name).fields {
            let comment = &comments[&(name.clone(), field.name.clone())];
            let at = format!("{name}.{}: {comment}", field.name);
            if field.kind == Kind::Text && field.collection != pattern(comment) {
                wrong.push(format!("names {:?}: {at}", field.collection));
            }
            let lists_lack_it = ["Only in the response of", "absent in lists"];
            let lists_lack_it = lists_lack_it.iter().any(|part| comment.contains(part));
            if field.is_left_out != lists_lack_it {
                wrong.push(format!("left out {}: {at}", field.is_left_out));
            }
            let is_default = comment.contains("Empty: `default`");
            if field.kind == Kind::Text && field.stands_for.is_some() != is_default {
                wrong.push(format!("stands for {:?}: {at}", field.stands_for));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Goal: what stands for a default is a value, and each row of the tables is a field.
#[test]
fn the_tables_name_fields() {
    for (message, field, value) in [
        (".berth.scheduler.v1.Migration", "kind", "LIVE"),
        (".berth.volume.v1.Volume", "kind", "PERSISTENT"),
    ] {
        let fields = &schema().message(message).fields;
        let field = fields.iter().find(|f| f.name == field).expect("a field");
        let Kind::Choice(choices) = &field.kind else {
            panic!("{message} is no enumeration");
        };
        let full = default_stands_for(message, &field.name).expect("a row");
        let choices = schema().choices(choices);
        let short = full.strip_prefix(&choices.prefix).expect("the prefix");
        assert_eq!(short, value);
        assert!(choices.values.iter().any(|(name, _)| name == short));
    }
    assert!(is_left_out(".berth.scheduler.v1.Vm", "restart_obstacle"));
    assert_eq!(collection(".berth.type.v1.VmTemplate", "name"), None);
}
