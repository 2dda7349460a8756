//! Which changes of the membership a leader makes, from how the members are.
//!
//! ```text
//!   join     an unknown address and disk ─▶ a learner     the same once more ─▶ the same id
//!   promote  a learner that has caught up (the replica decides that) ─▶ a voter
//!   remove   a member that the quorum can spare ─▶ no member      the leader itself ─▶ hands over
//! ```
//!
//! Not here: that changes go one by one, and that a removal is made in the membership that it was
//! checked against; that is the replica's, which alone sees both at once.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_decide::joining::CHANGE_PENDING;
use berth_decide::quorum;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::{ServiceVersion, TOO_OLD};
use berth_replication::{MemberStatus, Refused};
use berth_store::{Member, Membership};

/// The members as the leader sees them.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// The leader.
    pub own: u64,
    /// The membership at the applied index.
    pub membership: &'a Membership,
    /// How far each of them is.
    pub progress: &'a [MemberStatus],
}

impl Members<'_> {
    /// Refuses the number of no member.
    ///
    /// # Errors
    ///
    /// When there is no such member.
    pub fn known(&self, id: u64) -> Result<(), Refusal> {
        match self.membership.get(id) {
            Some(_) => Ok(()),
            None => Err(Refusal::not_found("member", id)),
        }
    }

    /// Refuses the removal of a voter without which the others are no quorum.
    ///
    /// # Errors
    ///
    /// When that is so now. A member that has not answered just now may answer the next heartbeat,
    /// so that it is worth looking again.
    pub fn keep_quorum_without(&self, id: u64) -> Result<(), Refusal> {
        let voters: BTreeSet<u64> = self.membership.voters.iter().copied().collect();
        let active = self.progress.iter().filter(|member| member.active);
        let active = active.map(|member| member.id).chain([self.own]).collect();
        quorum::may_remove(&voters, &active, id)
    }

    /// Refuses an address at which there is a member.
    ///
    /// # Errors
    ///
    /// When there is one.
    pub fn expect_free(&self, address: &str) -> Result<(), Refusal> {
        match self.at(address) {
            None => Ok(()),
            Some(member) => Err(address_in_use(Code::AlreadyExists, member)),
        }
    }

    /// Returns the number of the learner that this address and disk already are: a join that was
    /// interrupted goes on. A voter has promised something, and does not begin again.
    ///
    /// # Errors
    ///
    /// When the address is that of a member with another disk.
    pub fn known_learner(&self, address: &str, disk: &str) -> Result<Option<u64>, Refusal> {
        // One that an operator added has no disk, as it is not known then.
        let is_same = |member: &Member| {
            let votes = self.membership.voters.contains(&member.id);
            !votes && (member.disk == disk || member.disk.is_empty())
        };
        match self.at(address) {
            None => Ok(None),
            Some(member) if is_same(member) => Ok(Some(member.id)),
            Some(member) => Err(address_in_use(Code::FailedPrecondition, member)),
        }
    }

    /// Refuses an address that another member than this one has.
    ///
    /// # Errors
    ///
    /// When one has.
    pub fn expect_free_for(&self, id: u64, address: &str) -> Result<(), Refusal> {
        let Some(member) = self.at(address).filter(|member| member.id != id) else {
            return Ok(());
        };
        let other = member.id;
        let message = format!("{address} belongs to member {other} already");
        let refusal = Refusal::new(Code::AlreadyExists, "MEMBER_EXISTS", message);
        Err(refusal
            .with_hint(format!(
                "if member {other} has moved too, start both: they are recorded where they are"
            ))
            .with("member", other)
            .with("address", address))
    }

    fn at(&self, address: &str) -> Option<&Member> {
        let mut members = self.membership.members.iter();
        members.find(|member| member.address == address)
    }
}

/// Refuses a new member whose program does not support what the cluster uses.
///
/// # Errors
///
/// When its version is below the cluster's.
pub fn expect_version(version: ServiceVersion, cluster: ServiceVersion) -> Result<(), Refusal> {
    if version >= cluster {
        return Ok(());
    }
    Err(Refusal::new(
        Code::FailedPrecondition,
        TOO_OLD,
        format!(
            "the cluster version is {cluster}, and the new member is at service version {version}"
        ),
    )
    .with_hint(format!(
        "start it with a program of version {cluster} or newer"
    ))
    .with("service_version", version)
    .with("needed_version", cluster))
}

/// Returns what the replica's refusal of a change means for who requested it; `None` where the
/// request is to be repeated at the leader.
#[must_use]
pub fn refusal_of(refused: &Refused) -> Option<Refusal> {
    match refused {
        Refused::NotLeader { .. } | Refused::NotReady | Refused::Transferring { .. } => None,
        Refused::ChangePending => Some(
            Refusal::new(
                Code::FailedPrecondition,
                CHANGE_PENDING,
                "another change of the membership is under way",
            )
            .with_hint("try again in a moment"),
        ),
        Refused::Change(_) => Some(Refusal::new(
            Code::FailedPrecondition,
            "MEMBERSHIP_CHANGE_REFUSED",
            refused.to_string(),
        )),
    }
}

/// Returns whether leadership went where it was to go; without a target, to any other member.
#[must_use]
pub fn has_taken_over(leader: Option<u64>, own: u64, target: Option<u64>) -> bool {
    match (leader, target) {
        (Some(leader), Some(target)) => leader == target,
        (Some(leader), None) => leader != own,
        (None, _) => false,
    }
}

/// Who answers at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// Nothing that is a scheduler and trusted.
    Silent,
    /// This member of the same cluster.
    Member(u64),
    /// A member of another cluster.
    OtherCluster(String),
}

impl At {
    /// Refuses an address at which something else than this member answers, or nothing.
    ///
    /// # Errors
    ///
    /// When that is so.
    pub fn expect_member(&self, id: u64, address: &str) -> Result<(), Refusal> {
        match self {
            Self::Silent => Err(Refusal::new(
                Code::FailedPrecondition,
                "MEMBER_NOT_AT_ADDRESS",
                format!("no scheduler answers at {address}"),
            )
            .with_hint("start the member there, or name the address at which it listens")),
            Self::Member(_) | Self::OtherCluster(_) => self.expect_no_other(id, address),
        }
    }

    /// Refuses an address at which something else than this member answers.
    ///
    /// # Errors
    ///
    /// When that is so.
    pub fn expect_no_other(&self, id: u64, address: &str) -> Result<(), Refusal> {
        let who = match self {
            Self::Silent => return Ok(()),
            Self::Member(there) if *there == id => return Ok(()),
            Self::Member(there) => format!("member {there}"),
            Self::OtherCluster(cluster) => format!("a member of cluster {cluster}"),
        };
        Err(Refusal::new(
            Code::FailedPrecondition,
            "MEMBER_NOT_AT_ADDRESS",
            format!("{who} answers at {address}, not member {id}"),
        )
        .with_hint("name the address at which the member listens")
        .with("member", id)
        .with("address", address))
    }
}

/// What a member knows of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// The member.
    pub id: u64,
    /// How far its state is.
    pub applied: u64,
    /// The members there.
    pub members: BTreeSet<u64>,
}

impl Knowledge {
    /// Returns whether another member of the same cluster shows that this one was removed: it knows
    /// more of the history, and this one is no member there.
    #[must_use]
    pub fn is_removed_by(&self, theirs: &Self) -> bool {
        theirs.applied > self.applied && !theirs.members.contains(&self.id)
    }
}

/// Returns the refusal of another address for a member that is not there, and from which the leader heard
/// within this time: it would be recorded where it is again.
#[must_use]
pub fn at_other_address(id: u64, address: &str, heard_within: Duration) -> Refusal {
    let seconds = heard_within.as_secs() + 1;
    Refusal::new(
        Code::FailedPrecondition,
        "MEMBER_AT_OTHER_ADDRESS",
        format!("the leader heard from member {id} just now, and it does not answer at {address}"),
    )
    .with_hint(format!(
        "if it is off, try again in {seconds} s; if it runs, start it again with the address where the \
         others reach it as --listen or --advertise: the record follows by itself"
    ))
    .with("member", id)
    .with("address", address)
}

fn address_in_use(code: Code, member: &Member) -> Refusal {
    Refusal::new(
        code,
        "MEMBER_EXISTS",
        format!("{} belongs to member {} already", member.address, member.id),
    )
    .with_hint(format!(
        "if that member's disk is lost, remove member {} first",
        member.id
    ))
    .with("member", member.id)
    .with("address", &member.address)
}
