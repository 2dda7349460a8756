//! Upgrades: which commands a cluster version allows, and when it can be raised.
//!
//! A leader proposes only what the cluster version supports, whatever it supports itself: an older
//! member would have to stop. So any command is refused that would write something newer, be it into
//! the log or, as its effect, into the state; [`Admit`] compares it with the format.

use std::collections::BTreeSet;

use berth_domain::name::ServiceName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::ServiceVersion;
use berth_state::command::{Command, Envelope};
use berth_state::{State, upgrade_incomplete};

/// The service version of a member, as the leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberVersion {
    /// The member, voter or learner.
    pub id: u64,
    /// Its service version; absent if it has not responded recently.
    pub version: Option<ServiceVersion>,
}

/// Returns a command as the cluster version of a state allows it to be written, without newer
/// optional fields, or refuses it with `CLUSTER_VERSION_TOO_OLD`. How commands are written is not
/// known here: members use `berth_codec::admit`.
pub type Admit = fn(&State, Envelope) -> Result<Envelope, Refusal>;

/// Adds to a refusal of [`Admit`] which members and conductors are behind, if any.
#[must_use]
pub fn with_behind(mut refusal: Refusal, state: &State, members: &[MemberVersion]) -> Refusal {
    let needed = refusal.metadata.get("needed_version");
    let Some(needed) = needed.and_then(|text| text.parse().ok().map(ServiceVersion)) else {
        return refusal;
    };
    let behind = behind(state, members, needed, &BTreeSet::new());
    if behind.is_empty() {
        refusal.message += "; all members support it, but the upgrade is not finalized";
        return refusal.with_hint("`berth cluster upgrade finalize`");
    }
    let behind = behind.join(", ");
    refusal.message += &format!("; behind: {behind}");
    refusal.with("behind", behind)
}

/// Plans to raise the cluster version: returns the command, or nothing where the cluster is there
/// already.
///
/// It is refused while a required service is behind: a member, voter or learner, would have to stop
/// at the first newer command; a conductor may take over any operation, and must know how to
/// continue it. Agents are not checked: none of them reads what is replicated, and each host and
/// each pair of hosts is gated by itself.
///
/// # Errors
///
/// `INVALID_FIELD`: no member of that version could read the command. `UPGRADE_INCOMPLETE`, naming
/// those that are behind.
pub fn plan_finalize(
    state: &State,
    members: &[MemberVersion],
    version: ServiceVersion,
    gone: BTreeSet<ServiceName>,
) -> Result<Option<Command>, Refusal> {
    let cluster = state.header().cluster_version;
    if !(ServiceVersion::OLDEST..=ServiceVersion::CURRENT).contains(&version) {
        return Err(invalid(format!(
            "unknown version {version}: this member supports {} to {}",
            ServiceVersion::OLDEST,
            ServiceVersion::CURRENT
        )));
    }
    if version == cluster && gone.is_empty() {
        return Ok(None);
    }
    let oldest = ServiceVersion::FINALIZE_UPGRADE;
    if version > cluster && version < oldest {
        let message = format!(
            "the cluster version cannot be raised to {version}: programs before version {oldest} \
             cannot read the command that raises it"
        );
        return Err(invalid(message).with_hint(format!(
            "upgrade every scheduler and conductor to version {oldest} or newer, then `berth \
             cluster upgrade finalize --to {oldest}`"
        )));
    }
    let behind = behind(state, members, version, &gone);
    if behind.is_empty() {
        return Ok(Some(Command::FinalizeUpgrade { version, gone }));
    }
    Err(upgrade_incomplete(version, &behind))
}

fn invalid(message: String) -> Refusal {
    Refusal::new(Code::InvalidArgument, "INVALID_FIELD", message)
}

fn behind(
    state: &State,
    members: &[MemberVersion],
    version: ServiceVersion,
    gone: &BTreeSet<ServiceName>,
) -> Vec<String> {
    let members = members.iter().filter_map(|member| match member.version {
        None => Some(format!("member {} (not responding)", member.id)),
        Some(own) if own < version => Some(format!("member {} ({own})", member.id)),
        Some(_) => None,
    });
    let conductors = state.services().values();
    let conductors = conductors
        .filter(|service| service.version < version && !gone.contains(&service.name))
        .map(|service| format!("conductor {} ({})", service.name, service.version));
    members.chain(conductors).collect()
}
