//! Raft, as the owner of the replica reports it.
//!
//! Invariant: a member whose owner does not answer has no values here, rather than old ones.

use berth_process::metrics::{Definition, Exposition};
use berth_replication::Retained;
use berth_replication::runtime::Status;

static TERM: Definition =
    Definition::gauge("berth_raft_term", &[], "The Raft term of this member.");
static IS_LEADER: Definition = Definition::gauge(
    "berth_raft_is_leader",
    &[],
    "Whether this member leads and decides.",
);
static LEADER: Definition = Definition::gauge(
    "berth_raft_leader_id",
    &[],
    "The member that leads as far as this one knows; 0 if none is known.",
);
static MEMBER: Definition =
    Definition::gauge("berth_raft_member_id", &[], "The number of this member.");
static COMMITTED: Definition = Definition::gauge(
    "berth_raft_commit_index",
    &[],
    "The last entry of the log that this member knows to be committed.",
);
static APPLIED: Definition = Definition::gauge(
    "berth_raft_applied_index",
    &[],
    "The last entry of the log that is in the state of this member.",
);
static FIRST: Definition = Definition::gauge(
    "berth_raft_first_index",
    &[],
    "The first entry that the log of this member still has.",
);
static LAST: Definition = Definition::gauge(
    "berth_raft_last_index",
    &[],
    "The last entry of the log of this member.",
);
static MEMBERS: Definition = Definition::gauge("berth_raft_members", &[], "Members of the group.");
static VOTERS: Definition = Definition::gauge(
    "berth_raft_voters",
    &[],
    "Members of the group with a vote.",
);
static PEER_BEHIND: Definition = Definition::gauge(
    "berth_raft_peer_behind_entries",
    &["member"],
    "Entries that a member is behind the leader; known to the leader alone.",
);
static PEER_ACTIVE: Definition = Definition::gauge(
    "berth_raft_peer_active",
    &["member"],
    "Whether the leader heard of a member within an election timeout; known to the leader alone.",
);
static PENDING: Definition = Definition::gauge(
    "berth_raft_proposals_pending",
    &[],
    "Proposals that wait for their commit.",
);
static QUEUED: Definition = Definition::gauge(
    "berth_decisions_queued",
    &[],
    "Requests that wait for their decision.",
);
static DISK_SILENT: Definition = Definition::gauge(
    "berth_raft_disk_silent_seconds",
    &[],
    "For how long the disk of the log has owed an answer.",
);
static ROWS: Definition =
    Definition::gauge("berth_state_rows", &[], "Rows of the state of this member.");
static RETAINED: Definition = Definition::gauge(
    "berth_retained_items",
    &["structure"],
    "Items that a structure in memory retains besides the objects of the cluster.",
);
static RETAINED_MAX: Definition = Definition::gauge(
    "berth_retained_items_max",
    &["structure"],
    "Items that a structure in memory retains at most.",
);
static RETAINED_BYTES: Definition = Definition::gauge(
    "berth_retained_bytes",
    &["structure"],
    "Size of what a structure in memory retains; structures without a size are left out.",
);

/// How many members there are series of.
const MEMBERS_MAX: usize = 32;

/// Adds the status to the exposition, if there is one.
pub(super) fn expose(status: Option<&Status>, out: &mut Exposition) {
    for definition in [
        &MEMBER,
        &TERM,
        &IS_LEADER,
        &LEADER,
        &COMMITTED,
        &APPLIED,
        &FIRST,
        &LAST,
        &MEMBERS,
        &VOTERS,
        &PEER_BEHIND,
        &PEER_ACTIVE,
        &PENDING,
        &QUEUED,
        &DISK_SILENT,
        &ROWS,
    ] {
        out.declare(definition);
    }
    let Some(status) = status else {
        return;
    };
    out.set(&MEMBER, status.id);
    out.set(&TERM, status.role.term);
    out.set(&IS_LEADER, status.role.deciding);
    out.set(&LEADER, status.role.leader.unwrap_or(0));
    out.set(&COMMITTED, status.committed);
    out.set(&APPLIED, status.position.index);
    out.set(&FIRST, status.first_index);
    out.set(&LAST, status.last_index);
    out.set(&MEMBERS, status.membership.members.len());
    out.set(&VOTERS, status.membership.voters.len());
    for peer in status.progress.iter().take(MEMBERS_MAX) {
        if peer.id != status.id {
            let label = || [peer.id.to_string().into()];
            let behind = status.last_index.saturating_sub(peer.matched);
            out.add_named(&PEER_BEHIND, label(), behind);
            out.add_named(&PEER_ACTIVE, label(), peer.active);
        }
    }
    out.set(&PENDING, status.pending);
    out.set(&QUEUED, status.queued);
    out.set(&DISK_SILENT, status.disk_silent);
    out.set(&ROWS, status.position.rows);
}

/// Adds what is retained in memory.
pub(super) fn expose_retained<'r>(
    retained: impl Iterator<Item = &'r Retained> + Clone,
    out: &mut Exposition,
) {
    for of in retained.clone() {
        out.add(&RETAINED, [of.name], of.count);
    }
    for of in retained.clone() {
        out.add(&RETAINED_MAX, [of.name], of.count_max);
    }
    for of in retained.filter(|of| of.bytes_max > 0) {
        out.add(&RETAINED_BYTES, [of.name], of.bytes);
    }
}
