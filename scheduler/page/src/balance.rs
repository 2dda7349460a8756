//! A plan of live migrations that would balance the hosts: the score before and after, and each move.
//!
//! Not here: carrying it out, which `berth balance --execute` does.

use berth_proto::planner::v1::{BalanceMove, PlanBalanceResponse, Score};
use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::table::{Column, facts, number, table};
use crate::text::{Shown, Wrapped, count, grouped, host_path, joined, mib, plain, short, vm_path};

/// How many moves are listed.
const LISTED_MAX: usize = 500;

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, plan: &PlanBalanceResponse) -> String {
    let moves = plan.moves.iter().take(LISTED_MAX).map(move_row);
    let moves: Vec<Markup> = moves.collect();
    let columns = [
        Column::Number("Set"),
        Column::Text("VM"),
        Column::Text("From"),
        Column::Text("To"),
        Column::Number("Memory"),
        Column::Number("Score after"),
        Column::Text("Why"),
    ];
    let view = View {
        section: Section::Balance,
        title: "Balance".to_owned(),
        fixed: html! {},
        live: html! {
            p { "Live migrations that would improve the distribution of VMs, planned at revision " (plan.revision)
                ". Nothing is moved; load the page again to plan again, and carry it out with "
                code { "berth balance --execute" } "." }
            (facts(&[
                ("Score before", html! { (score(total(plan.before.as_ref()))) }),
                ("Score after", html! { (score(total(plan.after.as_ref()))) }),
                ("Moves", html! { (grouped(plan.moves.len() as u64)) }),
                ("No more, since", html! { (Wrapped(&plan.ended)) }),
            ]))
            (unreported(&plan.unreported_hosts))
            @if moves.is_empty() { p { "No move is planned." } } @else {
                @if plan.moves.len() > LISTED_MAX { p { (LISTED_MAX) " of them are listed." } }
                (table("Moves: those of one set may run at the same time", &columns, &moves))
            }
            (components(plan.before.as_ref(), plan.after.as_ref()))
        },
    };
    frame.document(&view)
}

fn total(score: Option<&Score>) -> f64 {
    score.map_or(0.0, |score| score.total)
}

/// Returns a score as people read it; 0 is the best.
fn score(score: f64) -> String {
    format!("{score:.4}")
}

fn unreported(hosts: &[String]) -> Markup {
    let names = joined(hosts.iter().map(|host| plain(short(host))));
    html! {
        @if !hosts.is_empty() {
            p class="notice note" { "What guests really hold is not known of "
                (count(hosts.len() as u64, "host")) ": " (Wrapped(&names)) "." }
        }
    }
}

fn move_row(planned: &BalanceMove) -> Markup {
    html! {
        tr {
            (number(planned.set))
            th scope="row" { a href=(vm_path(&planned.vm)) { (Shown(short(&planned.vm))) } }
            td { a href=(host_path(&planned.source)) { (Shown(short(&planned.source))) } }
            td { a href=(host_path(&planned.destination)) { (Shown(short(&planned.destination))) } }
            (number(mib(planned.memory_mib)))
            (number(score(planned.score_after)))
            td class="wide" { (Wrapped(&planned.reason)) }
        }
    }
}

/// Returns the parts of the score, before and after.
fn components(before: Option<&Score>, after: Option<&Score>) -> Markup {
    let before = before.map(|score| score.components.as_slice());
    let after = after.map(|score| score.components.as_slice());
    let after = after.unwrap_or_default();
    let row = |component: &berth_proto::planner::v1::ScoreComponent| {
        let then = after.iter().find(|other| other.name == component.name);
        html! {
            tr {
                th scope="row" { code { (Shown(&component.name)) } }
                (number(score(component.value)))
                (number(then.map_or_else(|| "-".to_owned(), |then| score(then.value))))
                (number(score(component.weight)))
            }
        }
    };
    let rows: Vec<Markup> = before.unwrap_or_default().iter().map(row).collect();
    let columns = [
        Column::Text("Part"),
        Column::Number("Before"),
        Column::Number("After"),
        Column::Number("Weight"),
    ];
    html! {
        @if !rows.is_empty() {
            h2 { "Parts of the score" }
            (table("Values before and after", &columns, &rows))
        }
    }
}
