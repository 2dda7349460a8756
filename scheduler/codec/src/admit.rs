//! Commands as a cluster version allows them.
//!
//! A command that would write something newer, be it into the log or, as its effect, into the state,
//! is refused, or loses its newer fields where these are optional. When the version can be raised is
//! decided elsewhere.

use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};
use berth_proto::format::{self, Fitted, Newest, Stored};
use berth_state::State;
use berth_state::command::{Command, Envelope};

use crate::{decode_command, encode_change, encode_command};

/// Returns a command as the cluster version of this state allows it, without newer optional fields.
///
/// # Errors
///
/// `CLUSTER_VERSION_TOO_OLD`.
pub fn admit(state: &State, envelope: Envelope) -> Result<Envelope, Refusal> {
    let cluster = read_by(state, &envelope.command);
    if cluster >= ServiceVersion::CURRENT {
        return Ok(envelope);
    }
    let format = format::replicated();
    let bytes = encode_command(&envelope);
    let fitted = format.fit(Stored::Command, &bytes, cluster);
    let envelope = match fitted.expect("a command that was just written can be read") {
        Fitted::AsTheyAre => envelope,
        Fitted::Shortened(bytes) => decode_command(&bytes).map_err(|error| {
            let message = format!("a command without its newer fields cannot be read: {error}");
            Refusal::new(Code::Internal, "COMMAND_SHORTENED", message)
        })?,
        Fitted::TooNew(newest) => return Err(too_old(cluster, &newest)),
    };
    let applied = state.clone().apply(state.revision() + 1, &envelope);
    for row in applied.changes.iter().map(encode_change) {
        let Some(row) = row.new else { continue };
        let newest = format.newest(Stored::Row, &row);
        let newest = newest.expect("a row that was just written can be read");
        if newest.version > cluster {
            return Err(too_old(cluster, &newest));
        }
    }
    Ok(envelope)
}

/// Returns the oldest version at which a member may be that reads a command: the cluster version.
/// Only a command that raises it is read by no older member than that it raises it to, as
/// `berth_decide::upgrade::plan_finalize` holds; it is written in that version's format, no newer one.
fn read_by(state: &State, command: &Command) -> ServiceVersion {
    let cluster = state.header().cluster_version;
    if let Command::FinalizeUpgrade { version, .. } = command {
        return cluster.max(*version);
    }
    cluster
}

fn too_old(cluster: ServiceVersion, newest: &Newest) -> Refusal {
    let needed = newest.version;
    Refusal::new(
        Code::FailedPrecondition,
        CLUSTER_TOO_OLD,
        format!("this requires cluster version {needed}, and the cluster is at {cluster}"),
    )
    .with("cluster_version", cluster)
    .with("needed_version", needed)
    .with("needed_for", &newest.what)
    .with_hint("upgrade every scheduler and conductor, then `berth cluster upgrade finalize`")
}
