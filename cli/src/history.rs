//! `berth vm history` and `berth host history`: what changed, by which command, who requested it, and
//! which hosts were next best.
//!
//! | module | contents |
//! |---|---|
//! | `difference` | which fields of a record differ |
//! | `record` | a record in a few words |
//!
//! Not here: what belongs to a history, which is in the scheduler.
//!
//! Invariant: an entry is shown unless all that it changed is a conductor's lease, or a record that was
//! dropped because of its age; JSON has every entry with whole records.

mod difference;
mod record;

use berth_domain::audit::{Chosen, Outcome};
use berth_domain::event::Record;
use berth_domain::history::{Changed, Entry, Subject};
use berth_domain::operation::Operation;
use berth_proto::convert::field;
use berth_proto::convert::history::read_subject;
use berth_proto::event::v1::event_service_client::EventServiceClient;
use berth_proto::event::v1::{GetHistoryRequest, GetHistoryResponse};
use serde_json::{Value, json};
use tonic::Streaming;

use crate::arguments::{Command, HistoryPart, Host, Vm};
use crate::offline::SubjectHistory;
use crate::output::Lines;
use crate::session::{Session, ended, read_all, resource};
use crate::{audit, migration, operation, output, progress, read, records};

/// Shows the history of a VM or of a host.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn show(
    session: &Session,
    collection: &str,
    name: &str,
    part: &HistoryPart,
) -> anyhow::Result<()> {
    let since = part.since.as_deref().map(audit::since).transpose()?;
    let since = field::optional_time(since, "since")?;
    let after = part.after.unwrap_or(0);
    let of_files = session.offline();
    let mut history = match of_files.and_then(|offline| offline.history(session.output)) {
        Some(history) => part_of(history, after),
        None => of_scheduler(session, resource(collection, name), after).await?,
    };
    history
        .entries
        .retain(|entry| since.is_none_or(|since| entry.at >= since));
    if session.for_programs() {
        return output::value(&json(&history)?);
    }
    print(&history, name);
    log_begins_later(&history, after).then(|| output::message(earlier(collection, name)));
    Ok(())
}

/// Returns whether what was done before is not in the log any more, or in none of the files.
fn log_begins_later(history: &SubjectHistory, after: u64) -> bool {
    history.first > after
}

/// Returns where to look for what was done before the log begins.
fn earlier(collection: &str, name: &str) -> String {
    let command = collection.trim_end_matches('s');
    format!(
        "hint: what was done before is in earlier backups: berth --backup FILE... {command} history {name}"
    )
}

/// Returns the subject of a command that shows a history.
///
/// # Errors
///
/// Its name is none.
pub(crate) fn subject(command: &Command) -> anyhow::Result<Option<Subject>> {
    let name = if let Command::Vm(Vm::History { vm, .. }) = command {
        resource("vms", vm)
    } else if let Command::Host(Host::History { host, .. }) = command {
        resource("hosts", host)
    } else {
        return Ok(None);
    };
    Ok(Some(read_subject(&name, "name")?))
}

/// Returns the part of a history after a revision.
fn part_of(history: &SubjectHistory, after: u64) -> SubjectHistory {
    let entries = history.entries.iter();
    let entries = entries.filter(|entry| entry.revision > after);
    SubjectHistory {
        first: history.first.max(after),
        last: history.last,
        entries: entries.cloned().collect(),
    }
}

async fn of_scheduler(
    session: &Session,
    name: String,
    after: u64,
) -> anyhow::Result<SubjectHistory> {
    let request = GetHistoryRequest {
        name,
        after_revision: after,
        ..GetHistoryRequest::default()
    };
    let stream = read!(session, EventServiceClient, get_history, request)?;
    collect(stream).await
}

async fn collect(mut stream: Streaming<GetHistoryResponse>) -> anyhow::Result<SubjectHistory> {
    let mut history = SubjectHistory {
        first: 0,
        last: 0,
        entries: Vec::new(),
    };
    loop {
        let message = stream.message().await.map_err(|status| ended(&status))?;
        let Some(message) = message else {
            return Ok(history);
        };
        history.first = message.first_revision;
        history.last = message.revision;
        history
            .entries
            .extend(read_all::<_, Entry>(message.entries)?);
    }
}

fn json(history: &SubjectHistory) -> anyhow::Result<Value> {
    let entries: anyhow::Result<Vec<Value>> = history.entries.iter().map(entry_json).collect();
    Ok(json!({
        "first_revision": history.first,
        "revision": history.last,
        "entries": entries?,
    }))
}

fn entry_json(entry: &Entry) -> anyhow::Result<Value> {
    let changes: anyhow::Result<Vec<Value>> = entry.changes.iter().map(change_json).collect();
    Ok(json!({
        "revision": entry.revision,
        "at": entry.at,
        "principal": entry.principal,
        "command": entry.command,
        "request": entry.request,
        "changes": changes?,
    }))
}

fn change_json(changed: &Changed) -> anyhow::Result<Value> {
    let record = |record: &Option<Record>| match record {
        Some(record) => records::json(record),
        None => Ok(Value::Null),
    };
    let name = changed.record().map(Record::name);
    Ok(json!({
        "kind": name.as_ref().map(|name| name.kind().word()),
        "name": name.as_ref().map(ToString::to_string),
        "before": record(&changed.before)?,
        "after": record(&changed.after)?,
    }))
}

fn print(history: &SubjectHistory, name: &str) {
    let mut shown = 0;
    for entry in &history.entries {
        let lines = entry_lines(entry);
        if lines.is_empty() {
            continue;
        }
        shown += 1;
        output::print(head(entry));
        lines.iter().for_each(|line| output::print(line.as_str()));
    }
    let SubjectHistory { first, last, .. } = history;
    let what = match shown {
        0 => format!("nothing is known of {name}"),
        1 => "1 entry".to_owned(),
        many => format!("{many} entries"),
    };
    let from = match first {
        0 => "from the beginning".to_owned(),
        first => format!("after revision {first}"),
    };
    output::message(format!("{what} {from} to revision {last}"));
}

/// Returns the first line of an entry.
fn head(entry: &Entry) -> Lines {
    let mut lines = Lines::new();
    let Entry {
        revision,
        at,
        principal,
        command,
        ..
    } = entry;
    let time = migration::time(*at);
    lines.push(&format!(
        "{time}  revision {revision}  {command}  by {principal}"
    ));
    lines
}

/// Returns the lines of an entry; none if there is nothing that a person looks for.
fn entry_lines(entry: &Entry) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(request) = &entry.request {
        let about = audit::about(&request.request);
        let method = &request.request.method;
        lines.push(line("request", &format!("{method} {about}")));
        lines.extend(request.request.choice.as_deref().map(chosen));
        if let Outcome::Refused(refusal) = &request.outcome {
            let why = format!("{}: {}", refusal.reason, refusal.message);
            lines.push(line("refused", &why));
        }
    }
    for changed in &entry.changes {
        lines.extend(changed_lines(changed));
    }
    lines
}

fn line(what: &str, text: &str) -> String {
    format!("  {what:<10} {}", text.trim_end())
}

/// Returns which host was chosen, and the next best.
fn chosen(choice: &Chosen) -> String {
    let ranking = choice.ranking.iter();
    let ranking = ranking.map(|ranked| format!("{} {}", ranked.host, ranked.sum()));
    let ranking: Vec<String> = ranking.collect();
    let text = match ranking.is_empty() {
        true => format!("{}, which the request named", choice.host),
        false => format!(
            "{}, of {} hosts, {} with enough free: {}",
            choice.host,
            choice.hosts,
            choice.passed,
            ranking.join(", ")
        ),
    };
    line("chosen", &text)
}

fn changed_lines(changed: &Changed) -> Vec<String> {
    let Some(record) = changed.record() else {
        return Vec::new();
    };
    let (name, place) = (record.name(), record::place(record));
    let kind = name.kind().word();
    let about = |text: &str| match place.is_empty() {
        true => line(kind, text),
        false => line(kind, &format!("{place}: {text}")),
    };
    match (&changed.before, &changed.after) {
        (None, Some(after)) => {
            let mut lines = vec![about(&format!("new, {}", record::state(after)))];
            let details = record::details(after).into_iter();
            lines.extend(details.map(|text| line("", &text)));
            lines
        }
        // The oldest that are done are dropped.
        (Some(Record::Operation(_) | Record::Migration(_) | Record::Audit(_)), None)
        | (None, None) => Vec::new(),
        (Some(before), None) => vec![about(&format!("gone, was {}", record::state(before)))],
        (Some(Record::Operation(before)), Some(Record::Operation(after))) => {
            let steps = steps(before, after).into_iter();
            steps.map(|text| about(&text)).collect()
        }
        (Some(before), Some(after)) => {
            let states = (record::state(before), record::state(after));
            let changed = (states.0 != states.1).then(|| format!("{} -> {}", states.0, states.1));
            let other = difference::of(before, after);
            let lines = changed.into_iter().chain(other);
            lines.map(|text| about(&text)).collect()
        }
    }
}

/// Returns what happened to an operation: the steps that were recorded, and how it ended.
fn steps(before: &Operation, after: &Operation) -> Vec<String> {
    let recorded = after.log.iter().skip(before.log.len());
    let recorded = recorded.map(|entry| {
        let words = progress::line(entry);
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    let mut lines: Vec<String> = recorded.collect();
    let holder = |operation: &Operation| {
        let lease = operation.lease.as_ref();
        lease.map(|lease| lease.conductor.to_string())
    };
    if let (Some(conductor), true) = (holder(after), holder(before) != holder(after)) {
        lines.push(format!("carried out by {conductor}"));
    }
    if after.cancelled && !before.cancelled {
        lines.push("its cancellation was requested".to_owned());
    }
    if after.is_done() && !before.is_done() {
        lines.push(operation::state(after));
    }
    lines
}
