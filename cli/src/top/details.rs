//! The details of a VM: its state, its claims, where its guest sits, and what was done to it last.
//!
//! Not here: its history. A scheduler replays its log for it, which costs as much as a restart.

use berth_domain::name::VmName;
use berth_domain::operation::Outcome;
use ratatui::text::Line;

use super::model::{Model, VmEntry};
use super::moment::Now;
use super::operations::{Transfers, step, took};
use super::paint::{Tone, line, span};
use crate::{draw, migration, operation, progress};

/// Draws a VM, from the first line on.
#[must_use]
pub fn draw(model: &Model, vm: &VmName, transfers: &Transfers, now: Now) -> Vec<Line<'static>> {
    let mut lines = vec![line(&format!("vm {vm}"), Tone::Heading)];
    match model.vm(vm) {
        Some(entry) => state(&mut lines, entry),
        None => lines.push(line("it does not exist (any more)", Tone::Warning)),
    }
    claims(&mut lines, model, vm);
    last_operation(&mut lines, model, vm, transfers, now);
    let history = format!("its history: berth vm history {vm}");
    lines.push(line(&history, Tone::Faint));
    lines
}

fn field(name: &str, value: &str) -> Line<'static> {
    Line::from(vec![
        span(&format!("{name:<10} "), Tone::Faint),
        span(value, Tone::Plain),
    ])
}

fn state(lines: &mut Vec<Line<'static>>, vm: &VmEntry) {
    let trouble = if vm.trouble {
        ", not as it should be"
    } else {
        ""
    };
    lines.push(field("state", &format!("{}{trouble}", vm.state.as_str())));
    let host = vm.host.as_ref().map_or("-", |host| host.as_str());
    lines.push(field("host", host));
    lines.push(field("flavor", &vm.flavor));
    lines.push(field("project", &vm.project));
    if let Some(error) = &vm.error {
        lines.push(line(&format!("error: {error}"), Tone::Bad));
    }
}

/// Draws each claim for the VM: one on its host, and while it is moved one on another host.
fn claims(lines: &mut Vec<Line<'static>>, model: &Model, vm: &VmName) {
    let mut hosts: Vec<_> = model
        .vm(vm)
        .and_then(|vm| vm.host.clone())
        .into_iter()
        .collect();
    for migration in model.open_migrations().filter(|m| m.vm == *vm) {
        hosts.push(migration.source.clone());
        hosts.extend(migration.destination.clone());
        let way = format!("{} {}", migration::way(migration), migration.state.as_str());
        lines.push(field("migration", &way));
    }
    hosts.sort();
    hosts.dedup();
    for host in &hosts {
        for claim in model.claims_on(host).filter(|claim| claim.vm == *vm) {
            let state = claim.state.as_str();
            lines.push(field("claim", &format!("{} on {host} ({state})", claim.id)));
            let amounts = claim.resources.iter();
            let amounts: Vec<String> = amounts.map(|(class, n)| format!("{class}={n}")).collect();
            lines.push(field("takes", &amounts.join(" ")));
            let Some(entry) = model.host(host) else {
                continue;
            };
            let topology = &entry.host.report.topology;
            let guest = draw::guest(vm, host, topology, &claim.assignment);
            lines.extend(guest.iter().map(|text| line(text, Tone::Plain)));
        }
    }
}

fn last_operation(
    lines: &mut Vec<Line<'static>>,
    model: &Model,
    vm: &VmName,
    transfers: &Transfers,
    now: Now,
) {
    let Some(last) = model.last_operation(vm) else {
        return;
    };
    let title = format!(
        "last operation: {} {}, {}",
        last.kind.plan().title,
        operation::state(last),
        took(last, now)
    );
    lines.push(line(&title, Tone::Heading));
    for entry in &last.log {
        lines.push(line(&progress::line(entry), Tone::Plain));
    }
    if !last.is_done() {
        let now = format!("  now: {}", step(last, transfers));
        lines.push(line(&now, Tone::Plain));
    }
    for ahead in progress::ahead(last) {
        lines.push(line(&ahead, Tone::Faint));
    }
    if let Some(Outcome::Failed(refusal)) = &last.outcome {
        for text in crate::output::refusal(refusal).iter() {
            lines.push(line(text, Tone::Bad));
        }
    }
}
