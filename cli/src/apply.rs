//! `berth apply`: makes the cluster have what files declare.
//!
//! ```text
//!   files ─▶ documents ─┐
//!   cluster ─▶ existing ┴▶ plan ─▶ table or value ─▶ execution, in the order of the plan
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `source` | files, directories and standard input |
//! | `document` | documents of YAML and JSON, and what is wrong with them |
//! | `kind`, `shown`, `fields`, `settings`, `resource` | resources as messages of the API, read and compared |
//! | `existing` | what is there |
//! | `plan` | what becomes of each resource, without any I/O |
//! | `execute` | carrying that out |
//! | `show` | plans as tables and values |
//!
//! Invariant: nothing is changed unless the whole plan can be carried out, as far as that is known beforehand.

mod document;
mod execute;
mod existing;
mod fields;
mod kind;
mod plan;
mod resource;
mod settings;
mod show;
mod shown;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use berth_domain::refusal::{Code, Refusal};

use self::document::{Declared, describe};
use self::execute::Outcome;
use self::plan::{Action, Entry};
use crate::arguments::Apply;
use crate::confirmation;
use crate::failure;
use crate::output;
use crate::session::Session;
use crate::usage::Usage;

/// The reason of a plan that cannot be carried out.
pub const NOT_APPLICABLE: &str = "PLAN_NOT_APPLICABLE";

/// The reason of declared VMs that are in ERROR.
pub const VM_IN_ERROR: &str = "VM_IN_ERROR";

/// The cluster does not have what is declared.
#[derive(Debug, thiserror::Error)]
#[error("the cluster does not have what is declared")]
pub struct Drift;

/// Runs the command.
///
/// # Errors
///
/// A file that cannot be read, a refusal of the scheduler or the conductor, or that the cluster differs.
pub async fn run(session: &Session, args: Apply) -> anyhow::Result<()> {
    let declared = document::read(&source::read(&args.files)?)?;
    check_prune(&args, &declared)?;
    if !args.dry_run {
        session.check_may_change()?;
    }
    let world = existing::read_world(session, &declared, &args.prune).await?;
    let entries = plan::plan(declared, &world);
    if !session.for_programs() {
        show::table(&entries);
    }
    let blocked = obstacle(&entries);
    if args.dry_run || blocked.is_some() {
        if session.for_programs() {
            show::value(&entries, None)?;
        }
        let has_drift = entries
            .iter()
            .any(|entry| entry.action != Action::Unchanged || entry.is_failed());
        return match blocked {
            Some(refusal) if !args.dry_run => Err(refusal.into()),
            Some(_) => {
                report_obstacles(session, &entries);
                Err(Drift.into())
            }
            None if has_drift => Err(Drift.into()),
            None => Ok(()),
        };
    }
    confirm(&args, &entries)?;
    let outcomes = execute::run(session, &entries, &args.prune).await;
    if session.for_programs() {
        show::value(&entries, Some(&outcomes))?;
    }
    conclude(session, &entries, outcomes)?;
    match in_error(&entries) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(()),
    }
}

/// Returns why the cluster does not have what is declared after a plan that was carried out: VMs that an earlier
/// run, or anything else, left in ERROR.
fn in_error(entries: &[Entry]) -> Option<Refusal> {
    let failed = entries.iter().filter(|entry| entry.is_failed());
    let failed: Vec<String> = failed.map(|entry| entry.key.1.clone()).collect();
    let first = failed.first()?;
    let message = format!("in ERROR: {}", output::some(&failed));
    let hint = format!(
        "`berth vm show {first}` explains it; `berth vm delete {first}` and apply again creates it again"
    );
    let refusal = Refusal::new(Code::FailedPrecondition, VM_IN_ERROR, message);
    Some(refusal.with_hint(hint))
}

/// Refuses to prune with files that declare no VM with the label: they may be the wrong ones, or empty.
fn check_prune(args: &Apply, declared: &[Declared]) -> Result<(), Usage> {
    if args.prune.is_empty() || args.prune_all {
        return Ok(());
    }
    let is_labelled = |one: &Declared| one.resource.has_labels(&args.prune);
    match declared.iter().any(is_labelled) {
        true => Ok(()),
        false => Err(Usage(
            "--prune: no VM of the files has this label, so that all VMs which have it would be deleted: \
             give --prune-all too if that is meant"
                .to_owned(),
        )),
    }
}

/// Returns the refusal of a plan that cannot be carried out.
fn obstacle(entries: &[Entry]) -> Option<Refusal> {
    let blocked = entries
        .iter()
        .filter_map(|entry| Some((entry, entry.obstacle.as_ref()?)));
    let blocked: Vec<_> = blocked.collect();
    let (entry, first) = blocked.first()?;
    let what = describe(entry.key.0, &entry.key.1);
    let more = match blocked.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more resources"),
    };
    let message = format!("nothing was changed: {what}: {}{more}", first.message);
    let refusal = Refusal::new(Code::FailedPrecondition, NOT_APPLICABLE, message);
    let refusal = refusal.with_hint(first.hint.clone());
    Some(refusal.with("resource", what))
}

/// Reports what a plan that is only shown could not carry out. For programs it is in the plan.
fn report_obstacles(session: &Session, entries: &[Entry]) {
    if session.for_programs() {
        return;
    }
    for entry in entries {
        if let Some(obstacle) = &entry.obstacle {
            let what = describe(entry.key.0, &entry.key.1);
            output::message(format!("{what}: {}", obstacle.message));
            output::message(format!("hint: {}", obstacle.hint));
        }
    }
}

/// Requests a confirmation of what is deleted, unless `--yes` was given. It names what is deleted: for programs
/// the plan is printed at the end.
fn confirm(args: &Apply, entries: &[Entry]) -> anyhow::Result<()> {
    let deleted = entries
        .iter()
        .filter(|entry| entry.action == Action::Delete);
    let deleted: Vec<String> = deleted.map(|entry| entry.key.1.clone()).collect();
    let names = output::some(&deleted);
    match deleted.len() {
        0 => Ok(()),
        _ if args.yes => Ok(()),
        1 => confirmation::request(&format!("VM {names} is deleted."), "nothing was changed"),
        count => confirmation::request(
            &format!("{count} VMs are deleted: {names}."),
            "nothing was changed",
        ),
    }
}

/// Returns the worst failure, after all of them were reported.
fn conclude(
    session: &Session,
    entries: &[Entry],
    outcomes: BTreeMap<usize, Outcome>,
) -> anyhow::Result<()> {
    let not_tried = entries
        .iter()
        .enumerate()
        .filter(|(at, entry)| entry.action != Action::Unchanged && !outcomes.contains_key(at))
        .count();
    let mut failures = Vec::new();
    for (at, outcome) in outcomes {
        if let Err(error) = outcome {
            output::refused(session.output, &named(&entries[at], &error));
            failures.push(error);
        }
    }
    if not_tried > 0 && !session.for_programs() {
        output::message(format!("{not_tried} resources were not tried: apply again"));
    }
    match failure::worst(failures) {
        None => Ok(()),
        Some(worst) => Err(worst),
    }
}

/// Returns a failure as a refusal that names the resource.
fn named(entry: &Entry, error: &anyhow::Error) -> Refusal {
    let refusal = failure::refusal(error);
    let what = describe(entry.key.0, &entry.key.1);
    Refusal {
        message: format!("{what}: {}", refusal.message),
        ..refusal
    }
    .with("resource", what)
}
