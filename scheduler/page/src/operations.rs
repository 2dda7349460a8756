//! Operations and migrations as rows: what is done to what, how far it is, and why it failed.

use berth_domain::operation::table::KINDS;
use berth_domain::operation::{Plan, Step};
use berth_proto::operation::v1::drained_vm::Progress;
use berth_proto::operation::v1::mark;
use berth_proto::operation::v1::operation::{Kind, Outcome};
use berth_proto::operation::v1::{self as wire, Drain, Entry, Operation};
use berth_proto::scheduler::v1::Migration;
use maud::{Markup, html};

use crate::action::Action;
use crate::table::{Column, table};
use crate::text::{Shown, Wrapped, count, host_path, plain, short, vm_path};
use crate::words::{self, Tone, badge};

/// Returns the plan of an operation's kind.
fn plan(kind: &Kind) -> Option<&'static Plan> {
    let label = match kind {
        Kind::Boot(_) => "boot",
        Kind::Delete(_) => "delete",
        Kind::LiveMigrate(_) => "live_migrate",
        Kind::ColdMigrate(_) => "cold_migrate",
        Kind::RevertResize(_) => "revert_resize",
        Kind::Evacuate(_) => "evacuate",
        Kind::Shelve(_) => "shelve",
        Kind::Unshelve(_) => "unshelve",
        Kind::Stop(_) => "stop",
        Kind::Start(_) => "start",
        Kind::Reboot(_) => "reboot",
        Kind::Rebuild(_) => "rebuild",
        Kind::Snapshot(_) => "snapshot",
        Kind::ConfirmResize(_) => "confirm_resize",
        Kind::DrainHost(_) => "drain_host",
    };
    KINDS.into_iter().find(|plan| plan.label == label)
}

fn step_of(entry: &Entry) -> Option<Step> {
    Step::try_from(entry.step()).ok()
}

fn state(operation: &Operation) -> (&'static str, Tone) {
    match (&operation.outcome, operation.cancelled) {
        (Some(Outcome::Succeeded(_)), _) => ("SUCCEEDED", Tone::Good),
        (Some(Outcome::Failed(_)), _) => ("FAILED", Tone::Bad),
        (None, true) => ("CANCELLING", Tone::Note),
        (None, false) => ("RUNNING", Tone::Note),
    }
}

fn mark_word(kind: mark::Kind, step: Option<Step>) -> &'static str {
    match kind {
        mark::Kind::Unspecified => "",
        mark::Kind::Started => "started",
        mark::Kind::Succeeded => step.map_or("done", Step::succeeded),
        mark::Kind::Failed => "failed",
        mark::Kind::UndoStarted => "being undone",
        mark::Kind::Undone => "undone",
    }
}

/// Returns a step with what happened to it.
fn entry_text(entry: &Entry) -> Markup {
    let mark = entry.mark.as_ref();
    html! {
        (step_of(entry).map_or("unknown step", Step::title))
        @if let Some(mark) = mark { " " (mark_word(mark.kind(), step_of(entry))) }
        @if !entry.host.is_empty() {
            " on " a href=(host_path(&entry.host)) { (Shown(short(&entry.host))) }
        }
        @if let Some(refusal) = mark.and_then(|mark| mark.refusal.as_ref()) {
            ": " (Wrapped(&refusal.message))
        }
    }
}

/// Returns how far an operation is: the number of its step and how many there are.
fn position(operation: &Operation) -> Option<(usize, usize)> {
    let plan = plan(operation.kind.as_ref()?)?;
    let step = operation.log.last().and_then(step_of)?;
    let at = plan.steps.iter().position(|planned| planned.step == step)?;
    Some((at + 1, plan.steps.len()))
}

fn bar(at: usize, of: usize, label: &str) -> Markup {
    html! {
        progress value=(at) max=(of.max(1)) aria-label=(label) { (at) " of " (of) } " "
    }
}

fn drain_progress(drain: &Drain) -> Markup {
    let mut ended = 0;
    let mut stay = 0;
    for vm in &drain.vms {
        match &vm.progress {
            Some(Progress::Moved(_) | Progress::Gone(_)) => ended += 1,
            Some(Progress::Stays(_)) => stay += 1,
            Some(Progress::Waiting(_) | Progress::Moving(_)) | None => {}
        }
    }
    let all = drain.vms.len();
    html! {
        (bar(ended, all, "VMs that have left the host"))
        (ended) " of " (count(all as u64, "VM")) " moved"
        @if stay > 0 { ", " (count(stay, "VM")) " cannot" }
    }
}

/// Returns how far an operation is, or why it failed.
fn progress(operation: &Operation) -> Markup {
    if let Some(Outcome::Failed(refusal)) = &operation.outcome {
        return html! { code { (Shown(&refusal.reason)) } ": " (Wrapped(&refusal.message)) };
    }
    if let Some(drain) = &operation.drain {
        return drain_progress(drain);
    }
    if operation.done {
        return html! { "" };
    }
    html! {
        @if let Some((at, of)) = position(operation) {
            (bar(at, of, "steps")) "step " (at) " of " (of) ": "
        }
        @match operation.log.last() {
            Some(entry) => (entry_text(entry)),
            None => "not begun",
        }
    }
}

fn subject(operation: &Operation) -> Markup {
    match &operation.drain {
        Some(drain) => html! { a href=(host_path(&drain.host)) { (Shown(short(&drain.host))) } },
        None => html! { a href=(vm_path(&operation.vm)) { (Shown(short(&operation.vm))) } },
    }
}

fn row(operation: &Operation, may_change: bool) -> Markup {
    let title = operation
        .kind
        .as_ref()
        .and_then(plan)
        .map_or("unknown", |plan| plan.title);
    html! {
        tr {
            td { (badge(state(operation))) }
            td { (title) }
            th scope="row" { (subject(operation)) }
            td class="wide" { (progress(operation)) }
            td { (time(operation.create_time.as_ref())) }
            td {
                @if let Some(lease) = &operation.lease { (Shown(short(&lease.conductor))) }
            }
            @if may_change {
                td {
                    @if is_cancellable(operation) {
                        (row_action(&Action::CancelOperation(short(&operation.name).to_owned())))
                    }
                }
            }
        }
    }
}

fn is_cancellable(operation: &Operation) -> bool {
    !operation.done && !operation.cancelled
}

/// Returns the link to an action on what a row shows.
fn row_action(action: &Action) -> Markup {
    let label = format!("{} {}", action.title(), plain(&action.resource()));
    html! { a href=(action.path()) aria-label=(label) { (action.title()) } }
}

/// Returns a moment as text, in UTC.
pub(crate) fn time(time: Option<&impl std::fmt::Display>) -> Markup {
    match time {
        Some(time) => html! { span class="time" { (moment(time)) } },
        None => html! { "-" },
    }
}

/// Returns a moment to the second.
fn moment(time: &impl std::fmt::Display) -> String {
    let text = time.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// Returns a table of operations, with what can be done to each where the caller may.
pub(crate) fn operations(caption: &str, operations: &[Operation], may_change: bool) -> Markup {
    let mut columns = vec![
        Column::Text("State"),
        Column::Text("Kind"),
        Column::Text("VM or host"),
        Column::Text("Progress"),
        Column::Text("Since"),
        Column::Text("Conductor"),
    ];
    let may_change = may_change && operations.iter().any(is_cancellable);
    if may_change {
        columns.push(Column::Text("Action"));
    }
    let rows = operations
        .iter()
        .map(|operation| row(operation, may_change));
    let rows: Vec<Markup> = rows.collect();
    table(caption, &columns, &rows)
}

/// Returns what happened to an operation, step by step.
pub(crate) fn log(operation: &wire::Operation) -> Markup {
    html! {
        ol class="log" {
            @for entry in &operation.log {
                li { (time(entry.time.as_ref())) " " (entry_text(entry)) }
            }
        }
    }
}

fn place(host: &str) -> Markup {
    match host {
        "" => html! { "-" },
        host => html! { a href=(host_path(host)) { (Shown(short(host))) } },
    }
}

fn migration_row(migration: &Migration, may_change: bool) -> Markup {
    let tried = migration
        .tried
        .iter()
        .map(|tried| plain(short(&tried.host)).into_owned());
    let tried: Vec<String> = tried.collect();
    html! {
        tr {
            td { (badge(words::migration(migration.state()))) }
            td { (words::migration_kind(migration.kind())) }
            th scope="row" { a href=(vm_path(&migration.vm)) { (Shown(short(&migration.vm))) } }
            td { (place(&migration.source)) }
            td { (place(&migration.destination)) }
            td { (time(migration.create_time.as_ref())) }
            td { (time(migration.end_time.as_ref())) }
            td class="wide" {
                @if let Some(error) = &migration.error {
                    code { (Shown(&error.reason)) } ": " (Wrapped(&error.message))
                }
                @if !tried.is_empty() {
                    " Hosts that refused: " (Wrapped(&crate::text::joined(&tried))) "."
                }
            }
            @if may_change {
                td {
                    @if words::is_open(migration.state()) {
                        (row_action(&Action::AbortMigration(short(&migration.name).to_owned())))
                    }
                }
            }
        }
    }
}

/// Returns a table of migrations, with what can be done to each where the caller may.
pub(crate) fn migrations(caption: &str, migrations: &[&Migration], may_change: bool) -> Markup {
    let mut columns = vec![
        Column::Text("State"),
        Column::Text("Kind"),
        Column::Text("VM"),
        Column::Text("Source"),
        Column::Text("Destination"),
        Column::Text("Since"),
        Column::Text("Ended"),
        Column::Text("Reason"),
    ];
    let may_change = may_change && migrations.iter().any(|m| words::is_open(m.state()));
    if may_change {
        columns.push(Column::Text("Action"));
    }
    let rows = migrations.iter().map(|m| migration_row(m, may_change));
    let rows: Vec<Markup> = rows.collect();
    table(caption, &columns, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every kind has its plan; a label that changes is noticed.
    #[test]
    fn each_kind_has_a_plan() {
        use berth_proto::operation::v1 as o;
        let kinds = [
            Kind::Boot(o::BootOperation {}),
            Kind::Delete(o::DeleteOperation {}),
            Kind::LiveMigrate(o::LiveMigrateOperation::default()),
            Kind::ColdMigrate(o::ColdMigrateOperation::default()),
            Kind::RevertResize(o::RevertResizeOperation::default()),
            Kind::Evacuate(o::EvacuateOperation::default()),
            Kind::Shelve(o::ShelveOperation {}),
            Kind::Unshelve(o::UnshelveOperation {}),
            Kind::Stop(o::StopOperation::default()),
            Kind::Start(o::StartOperation {}),
            Kind::Reboot(o::RebootOperation::default()),
            Kind::Rebuild(o::RebuildOperation::default()),
            Kind::Snapshot(o::SnapshotOperation::default()),
            Kind::ConfirmResize(o::ConfirmResizeOperation::default()),
            Kind::DrainHost(o::DrainHostOperation::default()),
        ];
        let mut labels = std::collections::BTreeSet::new();
        for kind in &kinds {
            let plan = plan(kind).unwrap_or_else(|| panic!("{kind:?} has no plan"));
            assert!(labels.insert(plan.label), "{kind:?}");
        }
        assert_eq!(labels.len(), KINDS.len());
    }
}
