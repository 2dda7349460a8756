//! Records as other modules show them: the words for their states, and their JSON.
//!
//! Not here: what is printed of them, which is in the module of each noun.

use berth_domain::event::Record;
use berth_domain::host::{Host, Liveness};

/// Returns the state of a host as a word.
#[must_use]
pub fn host_state(host: &Host) -> &'static str {
    if host.fenced.is_some() {
        return "FENCED";
    }
    match (host.liveness, host.cordoned, &host.shape_refused) {
        (Liveness::Down, _, _) => "DOWN",
        (Liveness::Up, _, _) if host.unreported => "UNREPORTED",
        (Liveness::Up, true, _) => "CORDONED",
        (Liveness::Up, false, Some(_)) => "SHAPE_REFUSED",
        (Liveness::Up, false, None) => "UP",
    }
}

/// Returns a record as JSON shows it.
///
/// # Errors
///
/// It has no such form: a fault of the program.
pub fn json(record: &Record) -> serde_json::Result<serde_json::Value> {
    match record {
        Record::Vm(vm) => serde_json::to_value(&**vm),
        Record::Migration(migration) => serde_json::to_value(&**migration),
        Record::Host(host) => serde_json::to_value(&**host),
        Record::Claim(claim) => serde_json::to_value(&**claim),
        Record::Operation(operation) => serde_json::to_value(&**operation),
        Record::Audit(entry) => serde_json::to_value(&**entry),
    }
}
