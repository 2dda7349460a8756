//! Where a VM of a flavor would go, or why nowhere: refusals by cause, near misses, and what to change.
//!
//! Not here: the decision, which is the one that a boot gets, made on trial.

use berth_proto::scheduler::v1::Explanation;
use berth_proto::types::v1::{Flavor, HostRefusal, Refusal};
use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::route::WhyNotQuery;
use crate::table::{Column, facts, number, table};
use crate::text::{Shown, Wrapped, count, grouped, host_path, mib, plain, short};
use crate::words::{Tone, badge};

/// What became of the trial.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// No flavor was chosen yet.
    None,
    /// It has a place.
    Fits(Box<Explanation>),
    /// It has none.
    Refused(Box<Refusal>),
}

/// Returns the view; `flavors` are those that are suggested.
#[must_use]
pub fn render(frame: &Frame, query: &WhyNotQuery, flavors: &[Flavor], outcome: &Outcome) -> String {
    let view = View {
        section: Section::WhyNot,
        title: "Why not".to_owned(),
        fixed: form(query, flavors),
        live: match outcome {
            Outcome::None => html! {
                p { "Choose a flavor. A VM of it is placed on trial: the decision is made as for a boot, and \
                     nothing is claimed." }
            },
            Outcome::Fits(explanation) => fits(query, explanation),
            Outcome::Refused(refusal) => refused(refusal),
        },
    };
    frame.document(&view)
}

fn form(query: &WhyNotQuery, flavors: &[Flavor]) -> Markup {
    html! {
        form class="query" method="get" action="/why-not" {
            p {
                label for="flavor" { "Flavor" }
                input id="flavor" name="flavor" list="flavors" required autocomplete="off" maxlength="255"
                    value=(plain(&query.flavor));
                datalist id="flavors" {
                    @for flavor in flavors {
                        option value=(plain(short(&flavor.name))) {
                            (count(flavor.vcpus.into(), "vCPU")) ", " (mib(flavor.memory_mib))
                        }
                    }
                }
            }
            p {
                label for="host" { "On host (any, if empty)" }
                input id="host" name="host" autocomplete="off" maxlength="255" value=(plain(&query.host));
            }
            p { button type="submit" { "Place on trial" } }
        }
    }
}

fn fits(query: &WhyNotQuery, explanation: &Explanation) -> Markup {
    html! {
        section aria-labelledby="outcome" {
            h2 id="outcome" { "It fits" }
            p { (badge(("FITS", Tone::Good))) " A VM of flavor " strong { (Shown(&query.flavor)) }
                " would go to host "
                a href=(host_path(&explanation.host)) { (Shown(short(&explanation.host))) } "." }
            (facts(&[
                ("Hosts examined", html! { (grouped(explanation.hosts_considered.into())) }),
                ("Hosts that fit", html! { (grouped(explanation.hosts_fitting.into())) }),
            ]))
            @for warning in &explanation.warnings { p class="notice note" { (Wrapped(warning)) } }
            @if let Some(assignment) = &explanation.assignment {
                (crate::vm::assignment("What it would get", assignment))
            }
        }
    }
}

fn refused(refusal: &Refusal) -> Markup {
    html! {
        section aria-labelledby="outcome" {
            h2 id="outcome" { "It does not fit" }
            p { (badge(("REFUSED", Tone::Bad))) " " code { (Shown(&refusal.reason)) } ": "
                (Wrapped(&refusal.message)) }
            @if let Some(hint) = &refusal.hint {
                p class="notice note" { strong { "Hint: " } (Wrapped(hint)) }
            }
            @if !refusal.causes.is_empty() { (causes(refusal)) }
            @if !refusal.hosts.is_empty() { (near_misses(&refusal.hosts)) }
        }
    }
}

fn causes(refusal: &Refusal) -> Markup {
    let mut causes: Vec<(&String, &u32)> = refusal.causes.iter().collect();
    causes.sort_by_key(|(_, hosts)| std::cmp::Reverse(**hosts));
    let row = |(cause, hosts): (&String, &u32)| {
        html! { tr { th scope="row" { code { (Shown(cause)) } } (number(grouped(u64::from(*hosts)))) } }
    };
    let rows: Vec<Markup> = causes.into_iter().map(row).collect();
    let columns = [Column::Text("Cause"), Column::Number("Hosts")];
    table("Refusals by cause", &columns, &rows)
}

fn near_misses(hosts: &[HostRefusal]) -> Markup {
    let node = |node: Option<u32>| html! { @if let Some(node) = node { (node) } @else { "-" } };
    let row = |refused: &HostRefusal| {
        let missing = refused.missing.as_ref();
        html! {
            tr {
                th scope="row" { a href=(host_path(&refused.host)) { (Shown(short(&refused.host))) } }
                td { code { (Shown(&refused.cause)) } }
                td class="number" { (node(refused.guest_cell)) }
                td class="number" { (node(refused.host_cell)) }
                td {
                    @if let Some(missing) = missing {
                        (Shown(&missing.resource)) ": " (grouped(missing.requested)) " requested, "
                        (grouped(missing.available)) " available"
                    } @else { "-" }
                }
                td class="wide" { (Wrapped(&refused.message)) }
            }
        }
    };
    let rows: Vec<Markup> = hosts.iter().map(row).collect();
    let columns = [
        Column::Text("Host"),
        Column::Text("Cause"),
        Column::Number("Guest node"),
        Column::Number("Host node"),
        Column::Text("Missing"),
        Column::Text("Why"),
    ];
    table("Near misses: the hosts that came nearest", &columns, &rows)
}
