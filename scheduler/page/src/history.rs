//! What became of a VM, as far back as the log of this member reaches.

use berth_proto::event::v1::record::Record as Kind;
use berth_proto::event::v1::{HistoryEntry, Record, RecordChange};
use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::operations::time;
use crate::table::{Column, number, table};
use crate::text::{Shown, count, short, vm_path};
use crate::words;

/// Returns the view; `entries` are the last ones, and `first_revision` is where all of them begin.
#[must_use]
pub fn render(
    frame: &Frame,
    vm: &str,
    entries: &[HistoryEntry],
    left_out: u64,
    first_revision: u64,
) -> String {
    let rows: Vec<Markup> = entries.iter().rev().map(row).collect();
    let columns = [
        Column::Number("Revision"),
        Column::Text("Time"),
        Column::Text("Principal"),
        Column::Text("Command"),
        Column::Text("Changes"),
    ];
    let view = View {
        section: Section::Vms,
        title: format!("History of VM {}", short(vm)),
        fixed: html! {},
        live: html! {
            p { a href=(vm_path(vm)) { "The VM" } ". The log of this member reaches back to revision "
                (first_revision) ". Load the page again for what came later." }
            @if left_out > 0 { p { (count(left_out, "earlier change")) " are left out." } }
            @if rows.is_empty() { p { "Nothing has changed since." } } @else {
                (table("Changes, the latest first", &columns, &rows))
            }
        },
    };
    frame.document(&view)
}

fn row(entry: &HistoryEntry) -> Markup {
    html! {
        tr {
            (number(entry.revision))
            td { (time(entry.time.as_ref())) }
            td { (Shown(&entry.principal)) }
            td { code { (Shown(&entry.command)) } }
            td class="wide" {
                ul class="changes" { @for change in &entry.changes { li { (changed(change)) } } }
            }
        }
    }
}

fn changed(change: &RecordChange) -> Markup {
    let of = |record: &Option<Record>| {
        record
            .as_ref()
            .and_then(|record| record.record.as_ref())
            .map(describe)
    };
    let (before, after) = (of(&change.before), of(&change.after));
    html! {
        @match (before, after) {
            (None, Some((noun, name, state))) => { (noun) " " (name) " made: " (state) }
            (Some((noun, name, _)), None) => { (noun) " " (name) " removed" }
            (Some((noun, name, before)), Some((_, _, after))) => {
                (noun) " " (name) ": "
                @if before.0 == after.0 { (after) } @else { (before) " → " (after) }
            }
            (None, None) => "nothing",
        }
    }
}

/// Returns what a record is: its noun, its name and its state.
fn describe(record: &Kind) -> (&'static str, Markup, Markup) {
    let name = |name: &str| html! { (Shown(short(name))) };
    let at = |state: &str, host: &str| {
        html! { (state) @if !host.is_empty() { " on " (Shown(short(host))) } }
    };
    match record {
        Kind::Vm(vm) => ("VM", name(&vm.name), at(words::vm(vm.state()).0, &vm.host)),
        Kind::Claim(claim) => (
            "claim",
            name(&claim.name),
            at(words::claim(claim.state()).0, &claim.host),
        ),
        Kind::Migration(m) => (
            "migration",
            name(&m.name),
            at(words::migration(m.state()).0, &m.destination),
        ),
        Kind::Host(host) => ("host", name(&host.name), at(words::host(host).0, "")),
        Kind::Operation(operation) => {
            let state = if operation.done { "ended" } else { "running" };
            ("operation", name(&operation.name), at(state, ""))
        }
        Kind::Audit(entry) => ("audit entry", name(&entry.name), html! {}),
    }
}
