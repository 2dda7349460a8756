//! What this member states of itself for support: its configuration and its latest log lines.
//!
//! Not here: its status, which any client reads (`cluster`).
//!
//! Invariant: it needs neither a leader nor a state. No value is a secret; log lines name users, hosts and
//! addresses, so that only operators get them.

use berth_process::recent;
use berth_proto::cluster::v1;
use prost_types::Timestamp;
use tonic::Status;

use super::context::Context;
use super::refusal;

/// Returns it, with the log lines from this time on.
pub(super) fn to_wire(
    context: &Context,
    since: Option<Timestamp>,
) -> Result<v1::GetDiagnosticsResponse, Status> {
    let since_ms = since.map_or(Ok(0), |since| {
        let ms = millis(&since);
        ms.ok_or_else(|| refusal::invalid("log_since", "must not be before 1970"))
    })?;
    let settings = context.settings().iter();
    let settings = settings.map(|(key, value)| v1::Setting {
        key: (*key).to_owned(),
        value: value.clone(),
    });
    let lines = recent::lines_since(since_ms).into_iter();
    Ok(v1::GetDiagnosticsResponse {
        member_id: context.handle().leader().id,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        service_version: context.level().0,
        running_ms: context.monotonic_ms(),
        settings: settings.collect(),
        log_lines: lines
            .map(|line| v1::LogLine {
                time: Some(timestamp(line.at_ms)),
                text: line.text,
            })
            .collect(),
    })
}

fn millis(time: &Timestamp) -> Option<u64> {
    let seconds = u64::try_from(time.seconds).ok()?;
    let millis = u64::try_from(time.nanos).ok()? / 1_000_000;
    seconds.checked_mul(1_000)?.checked_add(millis)
}

fn timestamp(ms: u64) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(ms / 1_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(ms % 1_000 * 1_000_000).unwrap_or(0),
    }
}
