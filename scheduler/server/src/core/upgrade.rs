//! Upgrades: what may be proposed at which cluster version, and when that may be raised.
//!
//! A leader proposes only what the cluster version knows, whatever it knows itself: an older member
//! would have to stop. So everything is refused here that would write something newer, be it into
//! the log or, as its effect, into the state.

use std::collections::BTreeSet;

use berth_domain::name::ServiceName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{CLUSTER_TOO_OLD, ServiceVersion};
use berth_proto::format::{self, Fitted, Newest, Stored};
use berth_state::command::{Command, Envelope};
use berth_state::{State, upgrade_incomplete};
use berth_store::codec;

/// What the program of a member can do, as the leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberVersion {
    /// Which member, voter or learner.
    pub id: u64,
    /// What it can do; absent where it was not heard of lately.
    pub version: Option<ServiceVersion>,
}

/// Returns a command as the cluster version of this state allows it: what is newer and may be left
/// out is.
///
/// # Errors
///
/// `CLUSTER_VERSION_TOO_OLD`.
pub fn admit(state: &State, envelope: Envelope) -> Result<Envelope, Refusal> {
    let cluster = state.header().cluster_version;
    // It is known to all who must know it, or it would not have been asked for.
    let raises = matches!(envelope.command, Command::FinalizeUpgrade { .. });
    if raises || cluster >= ServiceVersion::CURRENT {
        return Ok(envelope);
    }
    let format = format::replicated();
    let bytes = codec::encode_command(&envelope);
    let fitted = format.fit(Stored::Command, &bytes, cluster);
    let envelope = match fitted.expect("a command that was just written can be read") {
        Fitted::AsTheyAre => envelope,
        Fitted::Shortened(bytes) => codec::decode_command(&bytes).map_err(|error| {
            let message = format!("a command without its newer fields cannot be read: {error}");
            Refusal::new(Code::Internal, "COMMAND_SHORTENED", message)
        })?,
        Fitted::TooNew(newest) => return Err(too_old(cluster, &newest)),
    };
    let applied = state.clone().apply(state.revision() + 1, &envelope);
    for row in applied.changes.iter().map(codec::encode_change) {
        let Some(row) = row.new else { continue };
        let newest = format.newest(Stored::Row, &row);
        let newest = newest.expect("a row that was just written can be read");
        if newest.version > cluster {
            return Err(too_old(cluster, &newest));
        }
    }
    Ok(envelope)
}

fn too_old(cluster: ServiceVersion, newest: &Newest) -> Refusal {
    let needed = newest.version;
    Refusal::new(
        Code::FailedPrecondition,
        CLUSTER_TOO_OLD,
        format!("this needs cluster version {needed}, and the cluster is at {cluster}"),
    )
    .with("cluster_version", cluster)
    .with("needed_version", needed)
    .with("needed_for", &newest.what)
    .with_hint("upgrade every scheduler and conductor, then `berth cluster upgrade finalize`")
}

/// Says in a refusal of [`admit`] who is behind, or that nobody is.
#[must_use]
pub fn name_who_is_behind(
    mut refusal: Refusal,
    state: &State,
    members: &[MemberVersion],
) -> Refusal {
    let needed = refusal.metadata.get("needed_version");
    let Some(needed) = needed.and_then(|text| text.parse().ok().map(ServiceVersion)) else {
        return refusal;
    };
    let behind = behind(state, members, needed, &BTreeSet::new());
    if behind.is_empty() {
        refusal.message += "; all run what it takes, but the upgrade is not finalized";
        return refusal.with_hint("`berth cluster upgrade finalize`");
    }
    let behind = behind.join(", ");
    refusal.message += &format!("; behind are {behind}");
    refusal.with("behind", behind)
}

/// Refuses to raise the cluster version while somebody is behind who must not be: a member, voter
/// or learner, would have to stop at the first newer command; a conductor may take over any
/// operation, and must know how to go on with it. Agents are not asked: none of them reads what is
/// replicated, and each host and each pair of hosts is gated by itself.
///
/// # Errors
///
/// `UPGRADE_INCOMPLETE`, naming them.
pub fn examine_finalize(
    state: &State,
    members: &[MemberVersion],
    version: ServiceVersion,
    gone: &BTreeSet<ServiceName>,
) -> Result<(), Refusal> {
    if !(ServiceVersion::OLDEST..=ServiceVersion::CURRENT).contains(&version) {
        let message = format!(
            "there is no version {version}: this member knows {} to {}",
            ServiceVersion::OLDEST,
            ServiceVersion::CURRENT
        );
        return Err(Refusal::new(
            Code::InvalidArgument,
            "INVALID_FIELD",
            message,
        ));
    }
    let behind = behind(state, members, version, gone);
    if behind.is_empty() {
        return Ok(());
    }
    Err(upgrade_incomplete(version, &behind))
}

fn behind(
    state: &State,
    members: &[MemberVersion],
    version: ServiceVersion,
    gone: &BTreeSet<ServiceName>,
) -> Vec<String> {
    let members = members.iter().filter_map(|member| match member.version {
        None => Some(format!("member {} (not heard of)", member.id)),
        Some(own) if own < version => Some(format!("member {} ({own})", member.id)),
        Some(_) => None,
    });
    let conductors = state.services().values();
    let conductors = conductors
        .filter(|service| service.version < version && !gone.contains(&service.name))
        .map(|service| format!("conductor {} ({})", service.name, service.version));
    members.chain(conductors).collect()
}
