//! What a command that makes a new group prints, for people and for programs.
//!
//! Programs get one JSON object: the result on standard output, a refusal on standard error, with the fields
//! that `berth --output json` has.

use std::path::Path;
use std::process::ExitCode;

use berth_domain::id::TimeMs;
use berth_domain::recovery::{Cause, Recovery};
use berth_process::terminal::escape_json;
use berth_process::{Failed, print, print_rendered};
use prost_types::Timestamp;
use serde_json::{Value, json};

use super::member::{Created, FIRST_MEMBER};
use crate::flags::Format;

/// What a command has done, or what it has read.
pub(super) struct Report {
    /// Whole lines.
    pub(super) text: String,
    pub(super) value: Value,
}

/// Prints a report or a failure, and returns the exit status.
pub(super) fn show(done: Result<Report, Failed>, format: Format) -> ExitCode {
    match format {
        Format::Table => print(done.map(|report| report.text)),
        Format::Json => {
            let done =
                done.map(|report| format!("{}\n", escape_json(&format!("{:#}", report.value))));
            print_rendered(done, failure)
        }
    }
}

/// Returns a group that was made; the fields of `recovery` are those of `berth cluster recovery status`.
pub(super) fn created(created: &Created, directory: &Path, address: &str) -> Value {
    json!({
        "cluster_id": created.cluster.to_string(),
        "member_id": FIRST_MEMBER,
        "address": address,
        "data_dir": directory.display().to_string(),
        "recovery": recovery(&created.recovery),
    })
}

fn recovery(recovery: &Recovery) -> Value {
    json!({
        "number": recovery.number,
        "cause": match recovery.cause {
            Cause::Restored => "restored",
            Cause::QuorumLost => "quorum_lost",
        },
        "begin_time": time(recovery.began_at),
        "end_time": recovery.ended_at.map(time),
        "last_revision": recovery.last_revision,
        "first_revision": recovery.first_revision,
    })
}

/// Returns a time as `berth` writes it.
fn time(at: TimeMs) -> String {
    let seconds = i64::try_from(at.0 / 1000).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: 0 }.to_string()
}

/// Returns a failure as one line.
fn failure(failed: &Failed) -> String {
    let code = match failed.is_wrong_use() {
        true => "INVALID_ARGUMENT",
        false => "FAILED_PRECONDITION",
    };
    let remedy = failed.remedy();
    let error = json!({
        "code": code,
        "reason": remedy.map(|remedy| remedy.code),
        "message": failed.why(),
        "metadata": remedy.map_or_else(|| json!({}), |remedy| json!({"document": remedy.document})),
        "hint": remedy.map(|remedy| remedy.text),
    });
    escape_json(&json!({ "error": error }).to_string()).into_owned()
}
