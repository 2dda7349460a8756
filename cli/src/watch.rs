//! `berth watch`: what happens to VMs, migrations, hosts, claims and operations, as it happens.
//!
//! Invariant: what is printed is complete up to the revision that a line has: events of a revision
//! wait until all of it has come, so that a watch that breaks off in between prints nothing twice.

pub(crate) mod incoming;

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::event::{Change, Event, Name, Record};
use berth_domain::refusal::{Code, Refusal};
use berth_proto::event::v1::event_service_client::EventServiceClient;
use berth_proto::event::v1::watch_response::Phase;
use berth_proto::event::v1::{Kind as WireKind, WatchRequest, WatchResponse};
use serde_json::json;
use tonic::Streaming;

use self::incoming::{Incoming, Step};
use crate::arguments::{Watch, WatchKind};
use crate::session::{Session, ended};
use crate::{audit, migration, operation, output, progress, read, records};

/// The wait before a watch that ended is restarted.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How a watch goes on when its stream ends.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    has_begun: bool,
    /// Whether it was reported that the stream ended, and none was opened since.
    is_reported: bool,
}

impl Continuation {
    /// A scheduler accepted the watch.
    pub(crate) fn opened(&mut self) {
        self.has_begun = true;
        self.is_reported = false;
    }

    /// Returns whether a scheduler ever accepted it.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Reports once that the stream ended, and selects another scheduler.
    pub(crate) async fn elsewhere(&mut self, session: &Session, ended: &Refusal) {
        if !self.is_reported {
            let message = &ended.message;
            output::message(format!("{message}; continuing at another scheduler"));
            self.is_reported = true;
        }
        session.move_on();
        self.pause().await;
    }

    /// Waits before the watch is restarted.
    pub(crate) async fn pause(&self) {
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

/// Shows what happens, for ever.
///
/// # Errors
///
/// The scheduler's refusal, or that no scheduler could be reached.
pub async fn run(session: &Session, args: Watch) -> anyhow::Result<()> {
    let mut state = WatchState::new(args.since.unwrap_or(0));
    let mut has_begun = false;
    let mut continuation = Continuation::default();
    loop {
        let request = WatchRequest {
            kinds: args.kinds.iter().map(|kind| wire(*kind)).collect(),
            names: args.names.clone(),
            after_revision: state.incoming.revision(),
            progress_interval: None,
        };
        let ended = match read!(session, EventServiceClient, watch, request) {
            Ok(stream) => {
                continuation.opened();
                if !has_begun {
                    session.learn_schedulers().await;
                }
                follow(session, stream, &mut state, &mut has_begun).await?
            }
            Err(refusal) => refusal,
        };
        state.incoming.interrupt();
        if !has_begun {
            return Err(ended.into());
        }
        if ended.code == Code::Unavailable {
            continuation.elsewhere(session, &ended).await;
        } else if [Code::OutOfRange, Code::DeadlineExceeded].contains(&ended.code) {
            // Too much has changed while no stream was open, or this program was too slow.
            continuation.pause().await;
        } else {
            return Err(ended.into());
        }
        let is_outdated = state.incoming.revision() == 0 && !state.known.is_empty();
        if ended.code == Code::OutOfRange || is_outdated {
            state.start_over(session)?;
        }
    }
}

fn wire(kind: WatchKind) -> i32 {
    let kind = match kind {
        WatchKind::Vms => WireKind::Vm,
        WatchKind::Migrations => WireKind::Migration,
        WatchKind::Hosts => WireKind::Host,
        WatchKind::Claims => WireKind::Claim,
        WatchKind::Operations => WireKind::Operation,
        WatchKind::Audit => WireKind::Audit,
    };
    kind.into()
}

/// Shows the messages of a stream; returns why it ended.
async fn follow(
    session: &Session,
    mut stream: Streaming<WatchResponse>,
    state: &mut WatchState,
    has_begun: &mut bool,
) -> anyhow::Result<Refusal> {
    loop {
        match stream.message().await {
            Ok(Some(message)) => {
                *has_begun = true;
                state.take(session, message)?;
            }
            Ok(None) => {
                let message = "the scheduler ended the watch";
                return Ok(Refusal::new(Code::Unavailable, "STREAM_ENDED", message));
            }
            Err(status) => return Ok(ended(&status)),
        }
    }
}

/// What was printed, to continue from.
struct WatchState {
    incoming: Incoming,
    /// The records that are known, with the line that was last shown of each.
    known: BTreeMap<Name, String>,
    /// Whether what is not known does not exist.
    is_complete: bool,
    /// Whether it was reported that the watch is in step.
    is_in_step: bool,
}

impl WatchState {
    fn new(revision: u64) -> Self {
        Self {
            incoming: Incoming::new(revision),
            known: BTreeMap::new(),
            is_complete: false,
            is_in_step: false,
        }
    }

    fn start_over(&mut self, session: &Session) -> anyhow::Result<()> {
        *self = Self::new(0);
        if session.for_programs() {
            return output::item(&json!({"event": "restart", "revision": 0}));
        }
        output::message("restarting from the beginning: discard the lines above");
        Ok(())
    }

    fn take(&mut self, session: &Session, message: WatchResponse) -> anyhow::Result<()> {
        let phase = message.phase();
        let was_at = self.incoming.revision();
        let Step {
            snapshot, changes, ..
        } = self.incoming.take(message)?;
        for event in &snapshot {
            self.show(session, "is", event)?;
        }
        for event in &changes {
            self.show(session, "put", event)?;
        }
        match phase {
            Phase::InStep if !self.is_in_step => {
                self.is_complete |= was_at == 0;
                self.is_in_step = true;
                self.print_phase(session, "in_step")
            }
            Phase::Progress => self.print_phase(session, "progress"),
            Phase::InStep | Phase::Unspecified | Phase::Snapshot | Phase::Changes => Ok(()),
        }
    }

    /// Prints the phase for programs; people need it only once.
    fn print_phase(&self, session: &Session, what: &str) -> anyhow::Result<()> {
        if session.for_programs() {
            return output::item(&json!({"event": what, "revision": self.incoming.revision()}));
        }
        if what == "in_step" {
            output::message(format!("in step at revision {}", self.incoming.revision()));
        }
        Ok(())
    }

    fn show(&mut self, session: &Session, what: &str, event: &Event) -> anyhow::Result<()> {
        let name = event.change.name();
        if session.for_programs() {
            self.known.insert(name.clone(), String::new());
            return json_line(what, event, &name);
        }
        let (what, shown) = match &event.change {
            Change::Deleted(_) => {
                self.known.remove(&name);
                ("gone", String::new())
            }
            Change::Put(record) => {
                let shown = line(record);
                let before = self.known.insert(name.clone(), shown.clone());
                if before.as_ref() == Some(&shown) {
                    // Something has changed that a line does not show, as a lease.
                    return Ok(());
                }
                let is_new = before.is_none() && self.is_complete;
                match what {
                    "is" => ("is", shown),
                    _ if is_new => ("new", shown),
                    _ => ("changed", shown),
                }
            }
        };
        let text = format!(
            "{:>8}  {:<9}  {:<7}  {name}  {shown}",
            event.revision,
            name.kind(),
            what
        );
        output::print(text.trim_end());
        Ok(())
    }
}

fn json_line(what: &str, event: &Event, name: &Name) -> anyhow::Result<()> {
    let mut value = json!({
        "event": what,
        "revision": event.revision,
        "kind": name.kind().word(),
        "name": name.to_string(),
    });
    match &event.change {
        Change::Deleted(_) => value["event"] = "deleted".into(),
        Change::Put(record) => value["record"] = records::json(record)?,
    }
    output::item(&value)
}

/// Returns a record as one line.
fn line(record: &Record) -> String {
    match record {
        Record::Vm(vm) => {
            let host = vm.host.as_ref();
            let host = host.map_or(String::new(), |host| format!(" on {host}"));
            let error = vm.error.as_ref();
            let error = error.map_or(String::new(), |why| format!(": {}", why.reason));
            format!("{}{host}{error}", vm.state.as_str())
        }
        Record::Migration(migration) => {
            let error = migration.error.as_ref();
            let error = error.map_or(String::new(), |why| format!(": {}", why.reason));
            format!(
                "{} {}: {}{error}",
                migration.vm,
                migration::way(migration),
                migration.state.as_str()
            )
        }
        Record::Host(host) => {
            let report = &host.report;
            format!(
                "{} generation {} driver {}",
                records::host_state(host),
                host.generation,
                report.driver
            )
        }
        Record::Claim(claim) => {
            let owner = match &claim.owner {
                berth_domain::claim::Owner::Vm => String::new(),
                berth_domain::claim::Owner::Migration(id) => format!(" for migration {id}"),
            };
            let state = claim.state.as_str();
            format!("{} on {}: {state}{owner}", claim.vm, claim.host)
        }
        Record::Audit(entry) => audit::line(entry),
        Record::Operation(operation) => {
            let step = operation.log.last();
            let step = step.map_or(String::new(), |entry| {
                format!(
                    ", {}",
                    progress::line(entry)
                        .split_whitespace()
                        .collect::<Vec<_>>()
                        .join(" ")
                )
            });
            format!(
                "{} {}: {}{step}",
                operation.kind.plan().title,
                operation.subject_name(),
                operation::state(operation)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::event::Kind;

    use super::*;

    /// Goal: each kind on the command line requests the kind that it names.
    #[test]
    fn every_kind_can_be_typed() {
        use clap::ValueEnum as _;
        let typed = WatchKind::value_variants().iter();
        let mut kinds: Vec<String> = typed
            .map(|kind| {
                let wire = WireKind::try_from(wire(*kind)).expect("a kind");
                let kind = Kind::try_from(wire).expect("a kind");
                let plural = if kind == Kind::Audit { "" } else { "s" };
                format!("{kind}{plural}")
            })
            .collect();
        let words: Vec<String> = WatchKind::value_variants()
            .iter()
            .filter_map(|kind| Some(kind.to_possible_value()?.get_name().to_owned()))
            .collect();
        assert_eq!(kinds, words);
        kinds.dedup();
        assert_eq!(kinds.len(), Kind::ALL.len());
    }
}
