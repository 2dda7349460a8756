//! A plan, and what became of it: a table for people, one value for programs.
//!
//! Not here: what is done (`plan`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::document::describe;
use super::execute::Outcome;
use super::plan::{Action, Entry};
use crate::failure;
use crate::output::{self, Lines};

/// The most characters of a value in a table.
const VALUE_MAX: usize = 60;

/// Prints a plan for people. What is unchanged is counted below it.
pub(super) fn table(entries: &[Entry]) {
    let due = entries.iter().filter(|entry| is_shown(entry));
    let rows: Vec<[String; 5]> = due.flat_map(rows).collect();
    if !rows.is_empty() {
        let head = ["action", "resource", "field", "old", "new"];
        output::table(head, rows, "");
    }
    let mut lines = Lines::new();
    for entry in entries {
        let what = describe(entry.key.0, &entry.key.1);
        if let Some(note) = &entry.note {
            lines.push(&format!("warning: {what}: {note}"));
        }
    }
    lines.push(&summary(entries));
    output::message(lines);
}

fn is_shown(entry: &Entry) -> bool {
    entry.action != Action::Unchanged || entry.obstacle.is_some()
}

/// Returns the rows of an entry: one for each field that differs, but one alone of what is created.
fn rows(entry: &Entry) -> Vec<[String; 5]> {
    let action = entry.action.as_str().to_owned();
    let what = describe(entry.key.0, &entry.key.1);
    let dash = || "-".to_owned();
    if entry.action == Action::Create || entry.differences.is_empty() {
        return vec![[action, what, dash(), dash(), dash()]];
    }
    let differences = entry.differences.iter();
    let rows = differences.map(|difference| {
        let (old, new) = (cell(&difference.old), cell(&difference.new));
        [
            action.clone(),
            what.clone(),
            difference.field.clone(),
            old,
            new,
        ]
    });
    rows.collect()
}

fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    match text.chars().count() > VALUE_MAX {
        true => text.chars().take(VALUE_MAX - 1).chain(['…']).collect(),
        false => text,
    }
}

/// Returns how many resources there are of each action.
fn summary(entries: &[Entry]) -> String {
    let counts = counts(entries);
    let parts = counts
        .iter()
        .map(|(action, count)| format!("{count} {action}"));
    match entries.is_empty() {
        true => "nothing is declared".to_owned(),
        false => parts.collect::<Vec<_>>().join(", "),
    }
}

fn counts(entries: &[Entry]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for entry in entries {
        *counts.entry(entry.action.as_str()).or_default() += 1;
    }
    counts
}

/// Prints a plan for programs, with what became of each entry; without outcomes nothing was carried out.
///
/// # Errors
///
/// The output has none of the requested fields.
pub(super) fn value(
    entries: &[Entry],
    outcomes: Option<&BTreeMap<usize, Outcome>>,
) -> anyhow::Result<()> {
    let each = entries.iter().enumerate();
    let each = each.map(|(at, entry)| {
        let outcome = outcomes.map(|outcomes| outcomes.get(&at));
        one(entry, outcome)
    });
    output::value(&json!({
        "dry_run": outcomes.is_none(),
        "summary": counts(entries),
        "resources": each.collect::<Vec<_>>(),
    }))
}

/// Returns an entry as a value; `outcome` is that of a plan that was carried out.
fn one(entry: &Entry, outcome: Option<Option<&Outcome>>) -> Value {
    let differences = entry.differences.iter();
    let differences: Vec<Value> = differences
        .map(|d| json!({"field": d.field, "old": d.old, "new": d.new}))
        .collect();
    let obstacle = entry.obstacle.as_ref();
    let (result, error) = match outcome {
        None => (None, None),
        Some(_) if entry.action == Action::Unchanged => (Some("unchanged"), None),
        Some(None) => (Some("not_tried"), None),
        Some(Some(Ok(()))) => (Some("done"), None),
        Some(Some(Err(error))) => (
            Some("failed"),
            Some(output::refusal_value(&failure::refusal(error))),
        ),
    };
    json!({
        "kind": entry.key.0.as_str(),
        "name": entry.key.1,
        "action": entry.action.as_str(),
        "file": entry.origin.as_ref().map(|origin| &origin.file),
        "document": entry.origin.as_ref().map(|origin| origin.document),
        "differences": differences,
        "obstacle": obstacle.map(|o| json!({"message": o.message, "hint": o.hint})),
        "note": entry.note,
        "result": result,
        "error": error.map(|error| error["error"].clone()),
    })
}
