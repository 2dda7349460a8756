//! The audit: who requested what, and what was decided.
//!
//! Not here: what was refused before it entered the log, which a leader has in its memory (`berth audit list`).

use berth_proto::audit::v1::audit_entry::Outcome;
use berth_proto::audit::v1::{AuditEntry, Chosen, ListAuditEntriesResponse};
use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::operations::time;
use crate::route::AuditQuery;
use crate::table::{Column, number, table};
use crate::text::{Shown, Wrapped, encoded, grouped, host_path, plain, short, vm_path};
use crate::words::{Tone, badge};

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, query: &AuditQuery, page: &ListAuditEntriesResponse) -> String {
    let rows: Vec<Markup> = page.audit_entries.iter().map(row).collect();
    let columns = [
        Column::Number("Revision"),
        Column::Text("Time"),
        Column::Text("Principal"),
        Column::Text("Method"),
        Column::Text("About"),
        Column::Text("Decision"),
    ];
    let view = View {
        section: Section::Audit,
        title: "Audit".to_owned(),
        fixed: form(query),
        live: html! {
            @if rows.is_empty() { p { "There is no entry." } } @else {
                (table("Requests, the latest first", &columns, &rows))
            }
            (pages(query, &page.next_page_token))
        },
    };
    frame.document(&view)
}

fn form(query: &AuditQuery) -> Markup {
    html! {
        form class="query" method="get" action="/audit" {
            @for (name, label, value) in [
                ("vm", "VM", &query.vm),
                ("host", "Host", &query.host),
                ("principal", "Principal", &query.principal),
            ] {
                p {
                    label for=(name) { (label) }
                    input id=(name) name=(name) autocomplete="off" maxlength="255" value=(plain(value));
                }
            }
            p { button type="submit" { "Show" } }
        }
    }
}

fn pages(query: &AuditQuery, next: &str) -> Markup {
    let link = |after: &str| {
        format!(
            "/audit?vm={}&host={}&principal={}&after={}",
            encoded(&query.vm),
            encoded(&query.host),
            encoded(&query.principal),
            encoded(after)
        )
    };
    html! {
        nav class="pages" aria-label="Pages" {
            @if !query.after.is_empty() { a href=(link("")) { "Latest" } " " }
            @if !next.is_empty() { a rel="next" href=(link(next)) { "Earlier" } }
        }
    }
}

fn row(entry: &AuditEntry) -> Markup {
    let request = entry.request.clone().unwrap_or_default();
    html! {
        tr {
            (number(Shown(short(&entry.name))))
            td { (time(entry.time.as_ref())) }
            td { (Shown(&entry.principal)) }
            td { code { (Shown(&request.method)) } }
            td class="wide" {
                @if !request.vm.is_empty() {
                    "VM " a href=(vm_path(&request.vm)) { (Shown(short(&request.vm))) } " "
                }
                @if !request.host.is_empty() {
                    "host " a href=(host_path(&request.host)) { (Shown(short(&request.host))) } " "
                }
                @if !request.summary.is_empty() { span class="aside" { (Wrapped(&request.summary)) } }
            }
            td class="wide" { (decision(entry, request.choice.as_ref())) }
        }
    }
}

fn decision(entry: &AuditEntry, choice: Option<&Chosen>) -> Markup {
    match &entry.outcome {
        Some(Outcome::Refused(refusal)) => html! {
            (badge(("REFUSED", Tone::Bad))) " " code { (Shown(&refusal.reason)) } ": "
            (Wrapped(&refusal.message))
        },
        Some(Outcome::Accepted(_)) => html! {
            (badge(("DONE", Tone::Good)))
            @if let Some(choice) = choice { (chosen(choice)) }
        },
        None => html! { "-" },
    }
}

/// Returns which host was chosen, and what the weighers gave it and the next best.
fn chosen(choice: &Chosen) -> Markup {
    html! {
        " on host " a href=(host_path(&choice.host)) { (Shown(short(&choice.host))) } ", of "
        (grouped(choice.hosts_fitting.into())) " of " (grouped(choice.hosts_considered.into())) " hosts that fit"
        @if !choice.ranking.is_empty() {
            details {
                summary { "Ranking" }
                ul class="changes" {
                    @for ranked in &choice.ranking {
                        li {
                            (Shown(short(&ranked.host))) ":"
                            @for points in &ranked.points {
                                " " (Shown(&points.weigher)) " " (grouped(points.points.into()))
                            }
                        }
                    }
                }
            }
        }
    }
}
