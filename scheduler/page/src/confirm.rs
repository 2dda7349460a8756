//! The view that confirms an action: what it is done to, what it means, and the form that has it done.
//!
//! Invariant: the form carries the token by which the server knows its own forms, and the id of the request,
//! so that sending it twice does nothing twice.

use berth_proto::host::v1::GetHostResponse;
use berth_proto::operation::v1::Operation;
use berth_proto::scheduler::v1::{GetVmResponse, Migration, PlanDrainResponse};
use maud::{Markup, html};

use crate::action::Action;
use crate::frame::{Frame, Section, View};
use crate::operations::{migrations, operations};
use crate::table::{Column, facts, table};
use crate::text::{Shown, Wrapped, count, host_path, short, vm_path};
use crate::words::{self, badge};

/// What an action is done to.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A host that is cordoned or uncordoned.
    Host(Box<GetHostResponse>),
    /// A host that is drained, and where its VMs would go.
    Drained(Box<GetHostResponse>, PlanDrainResponse),
    /// A VM.
    Vm(Box<GetVmResponse>),
    /// An operation.
    Operation(Box<Operation>),
    /// A migration.
    Migration(Box<Migration>),
}

/// What the form carries besides what the person enters.
#[derive(Clone, Debug)]
pub struct Seal {
    /// The proof that the form is of this member, for the caller.
    pub token: String,
    /// Identifies the request.
    pub request_id: String,
}

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, action: &Action, subject: &Subject, seal: &Seal) -> String {
    let section = match action {
        Action::Cordon(_) | Action::Uncordon(_) | Action::Drain(_) => Section::Hosts,
        Action::Migrate(_) => Section::Vms,
        Action::CancelOperation(_) | Action::AbortMigration(_) => Section::Cluster,
    };
    let resource = action.resource();
    let view = View {
        section,
        title: format!("{} {}", action.title(), kind_and_name(&resource)),
        fixed: html! {
            p { (action.meaning()) }
            (described(subject))
            (form(action, seal))
        },
        live: html! {},
    };
    frame.document(&view)
}

/// Returns `host h1` of `hosts/h1`.
fn kind_and_name(resource: &str) -> String {
    let (collection, name) = resource.split_once('/').unwrap_or(("", resource));
    let kind = match collection {
        "vms" => "VM",
        collection => collection.trim_end_matches('s'),
    };
    format!("{kind} {name}")
}

fn form(action: &Action, seal: &Seal) -> Markup {
    html! {
        form class="action" method="post" action=(action.path()) autocomplete="off" {
            input type="hidden" name="token" value=(seal.token);
            input type="hidden" name="request_id" value=(seal.request_id);
            @match action {
                Action::Migrate(_) => {
                    p {
                        label for="host" { "To host (one is chosen, if empty)" }
                        input id="host" name="host" maxlength="255";
                    }
                }
                Action::Drain(_) => {
                    p {
                        input type="checkbox" id="cold" name="cold";
                        label for="cold" { "Stop VMs that cannot be moved while they run, and start them elsewhere" }
                    }
                }
                Action::Cordon(_) | Action::Uncordon(_) | Action::CancelOperation(_)
                | Action::AbortMigration(_) => {}
            }
            p {
                button type="submit" { (action.title()) }
                " " a href=(back(action)) { "Back" }
            }
        }
    }
}

/// Returns the path of the view that shows what the action is done to.
fn back(action: &Action) -> String {
    match action {
        Action::Cordon(host) | Action::Uncordon(host) | Action::Drain(host) => host_path(host),
        Action::Migrate(vm) => vm_path(vm),
        Action::CancelOperation(_) | Action::AbortMigration(_) => "/".to_owned(),
    }
}

/// Returns the path of the view that shows what has become of an action.
#[must_use]
pub fn after(action: &Action) -> String {
    match action {
        // Running operations, with their progress.
        Action::Drain(_) => "/".to_owned(),
        Action::Cordon(_)
        | Action::Uncordon(_)
        | Action::Migrate(_)
        | Action::CancelOperation(_)
        | Action::AbortMigration(_) => back(action),
    }
}

fn described(subject: &Subject) -> Markup {
    match subject {
        Subject::Host(host) => host_facts(host),
        Subject::Drained(host, plan) => html! { (host_facts(host)) (planned(plan)) },
        Subject::Vm(vm) => vm_facts(vm),
        Subject::Operation(operation) => operations(
            "What is cancelled",
            std::slice::from_ref(&**operation),
            false,
        ),
        Subject::Migration(migration) => migrations("What is aborted", &[migration], false),
    }
}

fn host_facts(response: &GetHostResponse) -> Markup {
    let host = response.host.clone().unwrap_or_default();
    let claims = count(response.claims.len() as u64, "claim");
    facts(&[
        (
            "Host",
            html! { a href=(host_path(&host.name)) { (Shown(short(&host.name))) } },
        ),
        ("State", badge(words::host(&host))),
        ("It holds", html! { (claims) }),
    ])
}

fn vm_facts(response: &GetVmResponse) -> Markup {
    let vm = response.vm.clone().unwrap_or_default();
    facts(&[
        (
            "VM",
            html! { a href=(vm_path(&vm.name)) { (Shown(short(&vm.name))) } },
        ),
        ("State", crate::vms::state(&vm)),
        (
            "Host",
            html! {
                @if vm.host.is_empty() { "none" } @else {
                    a href=(host_path(&vm.host)) { (Shown(short(&vm.host))) }
                }
            },
        ),
    ])
}

fn planned(plan: &PlanDrainResponse) -> Markup {
    let moves: Vec<Markup> = plan.moves.iter().map(move_row).collect();
    let stuck: Vec<Markup> = plan.stuck.iter().map(stuck_row).collect();
    html! {
        h2 { "Where its VMs would go now" }
        @if moves.is_empty() && stuck.is_empty() { p { "There is no VM on the host." } }
        @if !stuck.is_empty() {
            p class="notice bad" { (count(stuck.len() as u64, "VM")) " would stay on the host." }
            (table("VMs that cannot be moved", &[Column::Text("VM"), Column::Text("Why")], &stuck))
        }
        @if !moves.is_empty() {
            (table(
                "Moves, in their order",
                &[Column::Text("VM"), Column::Text("How"), Column::Text("To host")],
                &moves,
            ))
        }
    }
}

fn move_row(planned: &berth_proto::scheduler::v1::PlannedMove) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(vm_path(&planned.vm)) { (Shown(short(&planned.vm))) } }
            td { (words::migration_kind(planned.kind())) }
            td { a href=(host_path(&planned.destination)) { (Shown(short(&planned.destination))) } }
        }
    }
}

fn stuck_row(stuck: &berth_proto::scheduler::v1::StuckVm) -> Markup {
    let refusal = stuck.refusal.clone().unwrap_or_default();
    html! {
        tr {
            th scope="row" { a href=(vm_path(&stuck.vm)) { (Shown(short(&stuck.vm))) } }
            td class="wide" { code { (Shown(&refusal.reason)) } ": " (Wrapped(&refusal.message)) }
        }
    }
}
