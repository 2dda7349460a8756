//! Whether a member takes messages from another: the hello that begins each stream.
//!
//! Raft believes what arrives under an id. A member whose disk was lost must not speak under the id
//! of what it promised, and one that was removed must not call elections in a group that it is not
//! in any more.
//!
//! Not here: streams. A stream that was begun before a member was removed goes on until it breaks.

use berth_store::{Identity, Membership};

/// Who begins a stream to whom, as the sender states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender<'a> {
    /// The cluster of both.
    pub cluster_id: &'a str,
    /// The sender.
    pub from: u64,
    /// The identity of its disk.
    pub from_disk: &'a str,
    /// The receiver.
    pub to: u64,
}

/// Why a sender is turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// It belongs to another cluster.
    #[error("this member belongs to cluster {own}, not to cluster {theirs}")]
    OtherCluster {
        /// This member's cluster.
        own: String,
        /// The sender's.
        theirs: String,
    },
    /// It is for another member, which had this address before or will have it.
    #[error("this is member {own}, not member {meant}")]
    OtherMember {
        /// This member.
        own: u64,
        /// The member that was meant.
        meant: u64,
    },
    /// It has another disk than the one with which it was added.
    #[error(
        "member {from} was added with disk {known} and returns with disk {disk}; it must join as a \
         new member"
    )]
    OtherDisk {
        /// The sender.
        from: u64,
        /// The disk that it was added with.
        known: String,
        /// The disk that it has.
        disk: String,
    },
    /// It was removed.
    #[error("member {from} was removed from the cluster")]
    Removed {
        /// The sender.
        from: u64,
    },
}

/// Checks a sender against the membership that this member has applied; that is empty before its
/// first snapshot.
pub fn check(
    own: &Identity,
    membership: &Membership,
    sender: &Sender<'_>,
) -> Result<(), Rejection> {
    if sender.cluster_id != own.cluster_id {
        return Err(Rejection::OtherCluster {
            own: own.cluster_id.clone(),
            theirs: sender.cluster_id.to_owned(),
        });
    }
    if sender.to != own.member_id {
        return Err(Rejection::OtherMember {
            own: own.member_id,
            meant: sender.to,
        });
    }
    match membership.get(sender.from) {
        Some(member) if !member.disk.is_empty() && member.disk != sender.from_disk => {
            Err(Rejection::OtherDisk {
                from: sender.from,
                known: member.disk.clone(),
                disk: sender.from_disk.to_owned(),
            })
        }
        Some(_) => Ok(()),
        None if sender.from < membership.next_id => Err(Rejection::Removed { from: sender.from }),
        None => Ok(()),
    }
}
