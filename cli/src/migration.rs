//! `berth migration`: looks at migrations.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_domain::cpu_set::CpuId;
use berth_domain::id::TimeMs;
use berth_domain::instance::VcpuId;
use berth_domain::migration::{Migration, State};
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{GetMigrationRequest, ListMigrationsRequest};
use prost_types::Timestamp;

use crate::arguments::Migration as Verb;
use crate::session::{Session, read_all, resource};
use crate::{all_pages, ask, output, progress};

/// Does what was typed.
///
/// # Errors
///
/// What the scheduler refused.
pub async fn run(session: &Session, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::List { vm } => list(session, vm.as_deref()).await,
        Verb::Show { migration } => show(session, &migration).await,
    }
}

async fn list(session: &Session, vm: Option<&str>) -> anyhow::Result<()> {
    let request = ListMigrationsRequest {
        vm: vm.map(|v| resource("vms", v)).unwrap_or_default(),
        ..Default::default()
    };
    let all = all_pages!(
        session,
        SchedulerServiceClient,
        list_migrations,
        request,
        migrations
    );
    let mut all: Vec<Migration> = read_all(all)?;
    all.sort_by_key(|m| (m.created_at, m.id));
    if session.json() {
        return output::json(&all);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let rows = all
        .iter()
        .map(|m| {
            [
                m.id.to_string(),
                m.vm.to_string(),
                state(m.state).to_owned(),
                way(m),
                time(m.created_at),
                took(m, now),
                m.error
                    .as_ref()
                    .map_or("-".to_owned(), |e| e.reason.clone()),
            ]
        })
        .collect();
    let head = [
        "migration",
        "vm",
        "state",
        "source -> destination",
        "started",
        "took",
        "why",
    ];
    output::table(head, rows, "nothing has been migrated");
    Ok(())
}

async fn show(session: &Session, migration: &str) -> anyhow::Result<()> {
    let request = GetMigrationRequest {
        name: resource("migrations", migration),
        ..Default::default()
    };
    let answer = ask!(session, SchedulerServiceClient, get_migration, request)?;
    let migration: Migration = answer.migration.unwrap_or_default().try_into()?;
    if session.json() {
        return output::json(&migration);
    }
    let after = migration
        .assignment_after
        .as_ref()
        .map(|a| a.pins())
        .unwrap_or_default();
    output::fields(&[
        ("migration", migration.id.to_string()),
        ("vm", migration.vm.to_string()),
        ("state", state(migration.state).to_owned()),
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
    ]);
    if let Some(error) = &migration.error {
        output::tell(&output::refusal(error));
    }
    Ok(())
}

/// Returns from where to where, as far as a destination is chosen.
pub(crate) fn way(migration: &Migration) -> String {
    let destination = migration.destination.as_ref();
    let destination = destination.map_or("-".to_owned(), ToString::to_string);
    format!("{} -> {destination}", migration.source)
}

/// Returns a moment as people and programs write it, in UTC.
fn time(at: TimeMs) -> String {
    let seconds = i64::try_from(at.0 / 1000).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: 0 }.to_string()
}

/// Returns how long a migration took, or how old it is if it has not ended.
fn took(migration: &Migration, now: Duration) -> String {
    let until = migration
        .ended_at
        .map_or(now, |at| Duration::from_millis(at.0));
    let took = until.saturating_sub(Duration::from_millis(migration.created_at.0));
    let text = progress::seconds(took);
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

/// Returns the word for a migration's state.
#[must_use]
pub fn state(state: State) -> &'static str {
    match state {
        State::Preparing => "PREPARING",
        State::Running => "RUNNING",
        State::Unsettled => "UNSETTLED",
        State::Completed => "COMPLETED",
        State::Failed => "FAILED",
        State::Verifying => "VERIFYING",
        State::Reverted => "REVERTED",
    }
}
