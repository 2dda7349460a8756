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

use anyhow::bail;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::LabelSelector;

use self::document::{Declared, describe};
use self::execute::Outcome;
use self::plan::{Action, Entry};
use self::resource::Resource;
use crate::arguments::Apply;
use crate::confirmation;
use crate::failure::Reported;
use crate::output;
use crate::session::Session;
use crate::usage::Usage;

/// The reason of a plan that cannot be carried out.
pub const NOT_APPLICABLE: &str = "PLAN_NOT_APPLICABLE";

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
            .any(|entry| entry.action != Action::Unchanged);
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
    conclude(session, &entries, outcomes)
}

/// Refuses to prune with files that declare no VM with the label: they may be the wrong ones, or empty.
fn check_prune(args: &Apply, declared: &[Declared]) -> Result<(), Usage> {
    if args.prune.is_empty() || args.prune_all {
        return Ok(());
    }
    let has_label = |label: &LabelSelector, one: &Declared| match &one.resource {
        Resource::Vm(template) => label.matches(&template.labels),
        Resource::PciAlias(_)
        | Resource::Flavor(_)
        | Resource::Aggregate(_)
        | Resource::ServerGroup(_)
        | Resource::SchedulingPolicy(_) => false,
    };
    let is_labelled = |one: &Declared| args.prune.iter().all(|label| has_label(label, one));
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
            let (message, hint) = (&obstacle.message, &obstacle.hint);
            output::message(format!("{what}: {message}; hint: {hint}"));
        }
    }
}

/// Requests a confirmation of what is deleted, unless `--yes` was given.
fn confirm(args: &Apply, entries: &[Entry]) -> anyhow::Result<()> {
    let deleted = entries
        .iter()
        .filter(|entry| entry.action == Action::Delete);
    match deleted.count() {
        0 => Ok(()),
        _ if args.yes => Ok(()),
        1 => confirmation::request("1 VM is deleted.", "nothing was changed"),
        count => confirmation::request(&format!("{count} VMs are deleted."), "nothing was changed"),
    }
}

/// Returns the first failure, after all of them were reported.
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
    let mut failed: Vec<anyhow::Error> = outcomes.into_values().filter_map(Result::err).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let last = failed.pop();
    for error in &failed {
        output::refused(session.output, &show::refusal(error));
    }
    if not_tried > 0 && !session.for_programs() {
        output::message(format!("{not_tried} resources were not tried: apply again"));
    }
    match last {
        Some(error) if failed.is_empty() => Err(error),
        Some(error) => {
            output::refused(session.output, &show::refusal(&error));
            bail!(error.context(Reported))
        }
        None => Ok(()),
    }
}
