//! `berth migration`: looks at migrations.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_domain::cpu_set::CpuId;
use berth_domain::id::TimeMs;
use berth_domain::instance::VcpuId;
use berth_domain::migration::{Migration, State};
use berth_domain::operation::{Operation, Outcome};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::transfer::{TransferPolicy, TransferProgress};
use berth_proto::conductor::v1::{
    AbortMigrationRequest, ForceCompleteMigrationRequest, WatchMigrationRequest,
    WatchMigrationResponse,
};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{GetMigrationRequest, ListMigrationsRequest, Migration as Wire};
use prost_types::Timestamp;
use serde_json::json;
use tonic::Streaming;

use crate::arguments::{Migration as Verb, Selection};
use crate::bar::Bar;
use crate::failure::failed;
use crate::output::Columns;
use crate::selection::{Selector, keep_latest};
use crate::session::{
    STREAM_BROKEN, Session, ended, not_begun, read_all, request_id, resource, short,
};
use crate::{all_pages, beginning, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<7, 2> = Columns {
    usual: [
        "migration",
        "vm",
        "state",
        "source -> destination",
        "started",
        "took",
        "why",
    ],
    wide: ["ended", "operation"],
};

/// Runs the command.
///
/// # Errors
///
/// The scheduler's refusal.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { vm, selection } => list(session, vm.as_deref(), &selection).await,
        Verb::Show { migration } => show(session, &migration).await,
        Verb::Watch { migration } => follow(session, &migration).await,
        Verb::Abort { migration } => {
            let request = AbortMigrationRequest {
                name: named(session, &migration).await?,
                request_id: request_id(None),
            };
            let response = session.conductor().await?.abort_migration(request).await;
            let response = response.map_err(|s| not_begun(&s, None))?.into_inner();
            report_request(session, response.operation, "is being aborted")
        }
        Verb::ForceComplete { migration } => {
            let request = ForceCompleteMigrationRequest {
                name: named(session, &migration).await?,
                request_id: request_id(None),
            };
            let mut conductor = session.conductor().await?;
            let response = conductor.force_complete_migration(request).await;
            let response = response.map_err(|s| not_begun(&s, None))?.into_inner();
            report_request(session, response.operation, "is being completed")
        }
    }
}

/// Returns the stream of a migration's status updates.
///
/// # Errors
///
/// There is no conductor, or it does not know the migration.
pub async fn watch(
    session: &Session,
    migration: impl ToString,
) -> anyhow::Result<Streaming<WatchMigrationResponse>> {
    let request = WatchMigrationRequest {
        name: resource("migrations", &migration.to_string()),
    };
    let response = session.conductor().await?.watch_migration(request).await;
    Ok(response.map_err(|s| ended(&s))?.into_inner())
}

/// Shows a migration's status updates until it has ended.
async fn follow(session: &Session, name: &str) -> anyhow::Result<()> {
    let name = &named(session, name).await?;
    let mut stream = watch(session, name).await?;
    let mut bar = Bar::new();
    let mut last = None;
    while let Some(message) = stream.message().await.map_err(|s| ended(&s))? {
        let migration: Migration = message.migration.unwrap_or_default().try_into()?;
        let progress = message
            .progress
            .map(TransferProgress::try_from)
            .transpose()?;
        if session.for_programs() {
            output::item(&json!({
                "state": migration.state,
                "progress": progress,
                "remaining_ms": message.remaining_ms,
            }))?;
        } else if let Some(progress) = progress {
            bar.show(&progress, message.remaining_ms);
        }
        last = Some(migration);
    }
    bar.clear();
    let last = last.filter(|migration| migration.state.is_ended());
    let migration = last.ok_or_else(|| cut_short(name))?;
    if !session.for_programs() {
        describe(&migration);
    }
    outcome(migration)
}

/// Returns why a watch ended before its migration: the conductor has stopped.
fn cut_short(name: &str) -> Refusal {
    let message = format!(
        "the conductor ended the watch; migration {} goes on",
        short(name)
    );
    Refusal::new(Code::Unavailable, STREAM_BROKEN, message).with_hint(format!(
        "`berth migration watch {}` begins again, at another conductor",
        short(name)
    ))
}

/// Returns why a migration failed, if it has.
fn outcome(migration: Migration) -> anyhow::Result<()> {
    if migration.state != State::Failed {
        return Ok(());
    }
    let id = migration.id;
    let without_reason = || {
        let message = format!("migration {id} of vm {} failed", migration.vm);
        Refusal::new(Code::Aborted, "MIGRATION_FAILED", message)
    };
    let refusal = migration.error.clone().unwrap_or_else(without_reason);
    Err(failed(refusal))
}

/// Reports what follows from a request to end a migration.
fn report_request(
    session: &Session,
    operation: Option<berth_proto::operation::v1::Operation>,
    what: &str,
) -> anyhow::Result<()> {
    let operation: Operation = operation.unwrap_or_default().try_into()?;
    if session.for_programs() {
        return output::value(&operation);
    }
    let id = operation.id;
    output::print(match &operation.outcome {
        Some(Outcome::Succeeded) => "the migration has ended already: the guest moved".to_owned(),
        Some(Outcome::Failed(refusal)) => {
            format!("the migration has ended already: {}", refusal.reason)
        }
        None => format!("the migration {what}; to wait for it: berth operation wait {id}"),
    });
    Ok(())
}

/// Prints which hosts were tried and not chosen.
pub fn print_tried(migration: &Migration) {
    for tried in &migration.tried {
        let refusal = &tried.refusal;
        output::message(format!(
            "tried {}: {} ({})",
            tried.host, refusal.message, refusal.reason
        ));
    }
}

/// Returns the migrations of a VM, or all, that are selected, the latest last.
async fn list_of(
    session: &Session,
    vm: Option<&str>,
    selection: &Selection,
) -> anyhow::Result<Vec<Migration>> {
    let selector = Selector::of_latest::<Wire>(selection)?;
    let request = ListMigrationsRequest {
        vm: vm.map(|v| resource("vms", v)).unwrap_or_default(),
        ..Default::default()
    };
    let all = all_pages!(
        session,
        SchedulerServiceClient,
        list_migrations,
        request,
        migrations,
        &selector
    );
    let mut all: Vec<Migration> = read_all(all)?;
    all.sort_by_key(|m| (m.created_at, m.id));
    keep_latest(&mut all, selection);
    Ok(all)
}

async fn list(session: &Session, vm: Option<&str>, selection: &Selection) -> anyhow::Result<()> {
    let all = list_of(session, vm, selection).await?;
    if session.for_programs() {
        return output::value(&all);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let rows = all
        .iter()
        .map(|m| {
            let usual = [
                m.id.to_string(),
                m.vm.to_string(),
                m.state.as_str().to_owned(),
                way(m),
                time(m.created_at),
                took(m, now),
                output::or_dash(m.error.as_ref().map(|error| &error.reason)),
            ];
            let ended = output::or_dash(m.ended_at.map(time));
            (usual, [ended, m.operation.to_string()])
        })
        .collect();
    output::list(&COLUMNS, rows, selection.none("nothing has been migrated"))
}

/// Returns one migration.
///
/// # Errors
///
/// It is not known.
pub async fn get(session: &Session, migration: &str) -> anyhow::Result<Migration> {
    if !is_id(migration) {
        return last_of(session, migration).await;
    }
    let request = GetMigrationRequest {
        name: resource("migrations", migration),
        ..Default::default()
    };
    let response = read!(session, SchedulerServiceClient, get_migration, request)?;
    Ok(response.migration.unwrap_or_default().try_into()?)
}

/// Returns whether a text names a migration by its id. Another one is the name of a VM.
fn is_id(text: &str) -> bool {
    let id = text.strip_prefix("migrations/").unwrap_or(text);
    id.len() != text.len() || id.parse::<uuid::Uuid>().is_ok()
}

/// Returns the latest migration of a VM; or that of which the text is the beginning of the id, where no VM
/// of this name has one.
async fn last_of(session: &Session, vm: &str) -> anyhow::Result<Migration> {
    let migrations = list_of(session, Some(vm), &Selection::default()).await?;
    let mut last = migrations.into_iter().last();
    if last.is_none() && beginning::is_beginning(vm) {
        let mut all = list_of(session, None, &Selection::default()).await?;
        match beginning::only("migration", vm, all.iter().map(|m| m.id.0)) {
            Ok(id) => {
                all.retain(|migration| migration.id.0 == id);
                last = all.pop();
            }
            // It may be the name of a VM.
            Err(refusal) if refusal.code == Code::NotFound => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    last.ok_or_else(|| {
        let message = format!("vm {} has no migration", short(vm));
        Refusal::new(Code::NotFound, "MIGRATION_NOT_FOUND", message)
            .with_hint("`berth migration list` shows which there are")
            .into()
    })
}

/// Returns the name of the migration that is meant: by its id, or as the latest one of a VM.
async fn named(session: &Session, text: &str) -> anyhow::Result<String> {
    match is_id(text) {
        true => Ok(resource("migrations", text)),
        false => Ok(resource(
            "migrations",
            &last_of(session, text).await?.id.to_string(),
        )),
    }
}

async fn show(session: &Session, migration: &str) -> anyhow::Result<()> {
    let migration = get(session, migration).await?;
    if session.for_programs() {
        return output::value(&migration);
    }
    describe(&migration);
    if let Some(error) = &migration.error {
        output::message(output::refusal(error));
    }
    Ok(())
}

/// Prints a migration for people, without the error with which it ended.
fn describe(migration: &Migration) {
    let after = migration
        .assignment_after
        .as_ref()
        .map(|a| a.pins())
        .unwrap_or_default();
    output::fields(&[
        ("migration", migration.id.to_string()),
        ("vm", migration.vm.to_string()),
        ("state", migration.state.as_str().to_owned()),
        ("started", time(migration.created_at)),
        ("ended", migration.ended_at.map_or("-".to_owned(), time)),
        ("source", migration.source.to_string()),
        (
            "destination",
            migration
                .destination
                .as_ref()
                .map_or("-".to_owned(), ToString::to_string),
        ),
        ("pins before", pins(&migration.assignment_before.pins())),
        ("pins after", pins(&after)),
        ("transfer", transfer(&migration.transfer)),
        ("operation", migration.operation.to_string()),
    ]);
    print_tried(migration);
}

/// Returns how the guest may be sent, as one line.
fn transfer(policy: &TransferPolicy) -> String {
    let mut parts = Vec::new();
    if let Some(most) = policy.bandwidth_mib_per_s_max {
        parts.push(format!("at most {most} MiB/s"));
    }
    if let Some(ms) = policy.downtime_ms_max {
        parts.push(format!("stand-still at most {ms} ms"));
    }
    parts.extend(policy.auto_converge.then(|| "auto-converge".to_owned()));
    parts.extend(policy.post_copy.then(|| "post-copy allowed".to_owned()));
    if let Some(ms) = policy.timeout_ms {
        let action = policy.timeout_action.as_str();
        parts.push(format!("after {ms} ms {action}"));
    }
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(", ")
    }
}

/// Returns the source and the destination, if one is chosen.
pub(crate) fn way(migration: &Migration) -> String {
    let destination = migration.destination.as_ref();
    let destination = destination.map_or("-".to_owned(), ToString::to_string);
    format!("{} -> {destination}", migration.source)
}

/// Returns a moment as people and programs write it, in UTC.
pub(crate) fn time(at: TimeMs) -> String {
    let seconds = i64::try_from(at.0 / 1000).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: 0 }.to_string()
}

/// Returns how long a migration took, or how old it is if it has not ended.
fn took(migration: &Migration, now: Duration) -> String {
    let until = migration
        .ended_at
        .map_or(now, |at| Duration::from_millis(at.0));
    let took = until.saturating_sub(Duration::from_millis(migration.created_at.0));
    let text = output::seconds(took);
    if migration.ended_at.is_some() {
        text
    } else {
        format!("{text} so far")
    }
}

fn pins(pins: &BTreeMap<VcpuId, CpuId>) -> String {
    let pins: Vec<String> = pins
        .iter()
        .map(|(vcpu, cpu)| format!("{vcpu}->{cpu}"))
        .collect();
    if pins.is_empty() {
        "-".to_owned()
    } else {
        pins.join(" ")
    }
}
