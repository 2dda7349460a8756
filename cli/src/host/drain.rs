//! `berth host drain` and `berth host evacuate`: the plan, then each move as it ends.

use berth_domain::refusal::{Code, Refusal};
use berth_proto::conductor::v1::DrainHostRequest;
use berth_proto::conductor::v1::drain_host_response::{Cordoned, Ended, Event, Plan};
use berth_proto::scheduler::v1::migration::Kind;
use berth_proto::scheduler::v1::{PlannedMove, StuckVm};
use berth_proto::status::from_status;
use serde_json::json;

use crate::arguments::{DrainOptions, HostMoves};
use crate::output;
use crate::session::{Session, resource, short};

/// Runs the command.
pub(super) async fn run(session: &Session, verb: HostMoves) -> anyhow::Result<()> {
    match verb {
        HostMoves::Drain {
            host,
            cold,
            options,
        } => {
            let how = MoveOptions {
                evacuate: false,
                cold,
            };
            drain(session, &host, how, &options).await
        }
        HostMoves::Evacuate { host, options } => {
            let how = MoveOptions {
                evacuate: true,
                cold: false,
            };
            drain(session, &host, how, &options).await
        }
    }
}

/// How the VMs of a host are moved.
#[derive(Clone, Copy)]
struct MoveOptions {
    evacuate: bool,
    cold: bool,
}

/// The reason of a VM with functions that forbid to move it while it runs.
const NOT_LIVE_MIGRATABLE: &str = "PCI_NOT_LIVE_MIGRATABLE";

/// The outcome of a drain.
#[derive(Default)]
struct Outcome {
    plan: Plan,
    /// Whether the host was cordoned.
    cordoned: bool,
    moved: Vec<(String, String)>,
    stayed: Vec<(String, Refusal)>,
}

async fn drain(
    session: &Session,
    host: &str,
    how: MoveOptions,
    options: &DrainOptions,
) -> anyhow::Result<()> {
    let request = DrainHostRequest {
        host: resource("hosts", host),
        evacuate: how.evacuate,
        cold: how.cold,
        parallel_max: options.parallel,
        validate_only: options.validate_only,
    };
    let response = session.conductor().await?.drain_host(request).await;
    let mut stream = response.map_err(|s| from_status(&s))?.into_inner();
    let mut outcome = Outcome::default();
    while let Some(message) = stream.message().await.map_err(|s| from_status(&s))? {
        match message.event {
            Some(Event::Plan(plan)) => {
                for stuck in &plan.stuck {
                    let refusal = stuck.refusal.clone().unwrap_or_default().try_into()?;
                    outcome.stayed.push((short(&stuck.vm).to_owned(), refusal));
                }
                if !session.json() {
                    show(host, &plan);
                }
                outcome.plan = plan;
            }
            Some(Event::Cordoned(Cordoned { already })) => {
                outcome.cordoned = true;
                let note = match already {
                    true => "was cordoned already",
                    false => "is cordoned",
                };
                output::message(format!("host {host} {note}: no new VMs are placed there"));
            }
            Some(Event::Begun(begun)) => {
                output::message(format!("{} is being moved", short(&begun.vm)));
            }
            Some(Event::Ended(ended)) => record(&mut outcome, ended)?,
            None => {}
        }
    }
    finish(session, host, how, options, &outcome)
}

/// Shows the plan as a table.
fn show(host: &str, plan: &Plan) {
    let moves = plan.moves.iter().map(|planned| {
        [
            short(&planned.vm).to_owned(),
            word(planned).to_owned(),
            short(&planned.destination).to_owned(),
            String::new(),
        ]
    });
    let stuck = plan.stuck.iter().map(|stuck| {
        let StuckVm { vm, refusal } = stuck;
        let why = refusal.clone().unwrap_or_default();
        [
            short(vm).to_owned(),
            "stays".to_owned(),
            "-".to_owned(),
            why.message,
        ]
    });
    let none = format!("{host} holds no VM");
    output::table(
        ["VM", "HOW", "TO", "WHY NOT"],
        moves.chain(stuck).collect(),
        &none,
    );
}

fn word(planned: &PlannedMove) -> &'static str {
    match planned.kind() {
        Kind::Live | Kind::Unspecified => "while it runs",
        Kind::Cold => "stopped",
        Kind::Evacuation => "restarted",
    }
}

fn record(outcome: &mut Outcome, ended: Ended) -> anyhow::Result<()> {
    let vm = short(&ended.vm).to_owned();
    match ended.refusal {
        None => {
            let host = short(&ended.host).to_owned();
            output::message(format!("{vm} moved to {host}"));
            outcome.moved.push((vm, host));
        }
        Some(refusal) => {
            let refusal: Refusal = refusal.try_into()?;
            output::message(format!("{vm} was not moved: {refusal}"));
            outcome.stayed.push((vm, refusal));
        }
    }
    Ok(())
}

/// Reports the outcome; a VM that stays is a failure.
fn finish(
    session: &Session,
    host: &str,
    how: MoveOptions,
    options: &DrainOptions,
    outcome: &Outcome,
) -> anyhow::Result<()> {
    if session.json() {
        let moves = outcome.plan.moves.iter();
        let planned: Vec<_> = moves
            .map(|m| json!({"vm": short(&m.vm), "how": word(m), "to": short(&m.destination)}))
            .collect();
        let moved: Vec<_> = outcome
            .moved
            .iter()
            .map(|(vm, host)| json!({"vm": vm, "host": host}))
            .collect();
        let stayed: Vec<_> = outcome
            .stayed
            .iter()
            .map(|(vm, why)| json!({"vm": vm, "error": why}))
            .collect();
        output::json(&json!({
            "plan": planned,
            "cordoned": outcome.cordoned,
            "moved": moved,
            "stayed": stayed,
        }))?;
    }
    let lift = format!("`berth host uncordon {host}` lifts it");
    if outcome.stayed.is_empty() {
        if outcome.cordoned {
            let note = format!("host {host} holds no VM and stays cordoned; {lift}");
            output::message(note);
        }
        return Ok(());
    }
    let what = match options.validate_only {
        true => "cannot be moved",
        false => "were not moved",
    };
    let message = format!(
        "{} of the VMs of {host} {what}; the reasons are listed above",
        outcome.stayed.len()
    );
    let refusal = Refusal::new(Code::FailedPrecondition, "VMS_STAY", message).with("host", host);
    let mut hints = Vec::new();
    let cannot_move_live = |(_, why): &(String, Refusal)| why.reason == NOT_LIVE_MIGRATABLE;
    if outcome.stayed.iter().any(cannot_move_live) && !how.cold {
        hints.push(format!(
            "`berth host drain {host} --cold` stops VMs that cannot move while they run"
        ));
    }
    if outcome.cordoned {
        hints.push(format!("host {host} stays cordoned; {lift}"));
    }
    match hints.is_empty() {
        true => Err(refusal.into()),
        false => Err(refusal.with_hint(hints.join("; ")).into()),
    }
}
