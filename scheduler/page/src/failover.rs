//! What the failure of each host would mean, and why one would not be survived.

use berth_proto::planner::v1::{DomainVerdict, Verdict, VerifyClusterResponse};
use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::table::{Column, table};
use crate::text::{Shown, Wrapped, count, host_path, short};
use crate::words::{Tone, badge};

/// How many hosts are listed.
const LISTED_MAX: usize = 500;

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, verdicts: &VerifyClusterResponse) -> String {
    let mut listed: Vec<&DomainVerdict> = verdicts.domains.iter().collect();
    // What is wrong first; in each group the order stays.
    listed.sort_by_key(|domain| match domain.verdict() {
        Verdict::Refuted => 0,
        Verdict::Unknown | Verdict::Unspecified => 1,
        Verdict::Proven => 2,
    });
    let rows: Vec<Markup> = listed
        .iter()
        .take(LISTED_MAX)
        .map(|domain| row(domain))
        .collect();
    let columns = [
        Column::Text("Host that fails"),
        Column::Text("Verdict"),
        Column::Text("Why, or what would be done"),
    ];
    let view = View {
        section: Section::Cluster,
        title: "Failure of each host (N+1)".to_owned(),
        fixed: html! {},
        live: html! {
            p { "Each verdict is a placement of the guests of that host on the others, pins, pages and devices \
                 included. Verified at revision " (verdicts.revision) "; load the page again to verify again." }
            @if listed.len() > LISTED_MAX {
                p { (count(listed.len() as u64, "host")) ", of which " (LISTED_MAX) " are listed." }
            }
            @if listed.is_empty() { p { "There is no host." } } @else {
                (table("Verdicts by host", &columns, &rows))
            }
        },
    };
    frame.document(&view)
}

fn row(domain: &DomainVerdict) -> Markup {
    let verdict = match domain.verdict() {
        Verdict::Proven => ("SURVIVED", Tone::Good),
        Verdict::Refuted => ("NOT SURVIVED", Tone::Bad),
        Verdict::Unknown | Verdict::Unspecified => ("UNKNOWN", Tone::Note),
    };
    html! {
        tr {
            th scope="row" { a href=(host_path(&domain.name)) { (Shown(short(&domain.name))) } }
            td { (badge(verdict)) }
            td class="wide" {
                @match &domain.reason {
                    Some(reason) => {
                        (Wrapped(&reason.message))
                        @if let Some(hint) = &reason.hint { " Hint: " (Wrapped(hint)) }
                    }
                    None => { (count(domain.plan.len() as u64, "guest")) " would be started elsewhere." }
                }
            }
        }
    }
}
