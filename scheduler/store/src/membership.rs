//! Who belongs to the cluster, as it is stored.
//!
//! The membership at an index travels with everything that stands for the state at that index:
//! a checkpoint, the table, a snapshot. It is changed only by committed configuration changes.
//!
//! Invariant: a member id is never given twice (`next_id` only grows), so a member whose disk was
//! lost cannot return under the id of the votes that it forgot.

use raft::eraftpb::ConfState;

/// One member, whatever its role.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Member {
    /// The Raft id.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Where the other members reach it, as `host:port`.
    #[prost(string, tag = "2")]
    pub address: String,
    /// The identity of its disk. Written when the member is added; a stream that names another
    /// disk under this id is refused. Empty when it was not known.
    #[prost(string, tag = "3")]
    pub disk: String,
    /// Whether the leader makes it a voter as soon as it has caught up.
    #[prost(bool, tag = "4")]
    pub promote: bool,
}

/// The whole configuration at one index.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Membership {
    /// Everybody, sorted by id.
    #[prost(message, repeated, tag = "1")]
    pub members: Vec<Member>,
    /// Members with a vote.
    #[prost(uint64, repeated, tag = "2")]
    pub voters: Vec<u64>,
    /// Members that only receive the log.
    #[prost(uint64, repeated, tag = "3")]
    pub learners: Vec<u64>,
    /// While a joint change is under way: the voters of the configuration that is being left.
    #[prost(uint64, repeated, tag = "4")]
    pub voters_outgoing: Vec<u64>,
    /// While a joint change is under way: voters that become learners when it ends.
    #[prost(uint64, repeated, tag = "5")]
    pub learners_next: Vec<u64>,
    /// Whether the joint change ends by itself.
    #[prost(bool, tag = "6")]
    pub auto_leave: bool,
    /// The id that the next member gets.
    #[prost(uint64, tag = "7")]
    pub next_id: u64,
}

impl Membership {
    /// Returns the configuration of a new cluster with one voter.
    pub fn single(member: Member) -> Self {
        Self {
            voters: vec![member.id],
            next_id: member.id + 1,
            members: vec![member],
            ..Self::default()
        }
    }

    /// Returns the member with this id.
    pub fn get(&self, id: u64) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Says whether this member's vote counts.
    pub fn is_voter(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.voters_outgoing.contains(&id)
    }

    /// Says whether this member only receives the log.
    pub fn is_learner(&self, id: u64) -> bool {
        self.learners.contains(&id) || self.learners_next.contains(&id)
    }

    /// Returns whether another member than this one has the address.
    pub fn is_at_other(&self, id: u64, address: &str) -> bool {
        let mut others = self.members.iter().filter(|member| member.id != id);
        others.any(|member| member.address == address)
    }

    /// Returns the form that Raft uses.
    pub fn conf_state(&self) -> ConfState {
        let mut conf = ConfState::default();
        conf.set_voters(self.voters.clone());
        conf.set_learners(self.learners.clone());
        conf.set_voters_outgoing(self.voters_outgoing.clone());
        conf.set_learners_next(self.learners_next.clone());
        conf.set_auto_leave(self.auto_leave);
        conf
    }

    /// Takes over what Raft made of a configuration change, and what the change said about the
    /// members it added. Members without any role are forgotten.
    pub fn follow(&mut self, conf: &ConfState, added: &[Member]) {
        for member in added {
            self.next_id = self.next_id.max(member.id + 1);
            match self.members.iter_mut().find(|m| m.id == member.id) {
                Some(known) => *known = member.clone(),
                None => self.members.push(member.clone()),
            }
        }
        self.voters = sorted(conf.get_voters());
        self.learners = sorted(conf.get_learners());
        self.voters_outgoing = sorted(conf.get_voters_outgoing());
        self.learners_next = sorted(conf.get_learners_next());
        self.auto_leave = conf.get_auto_leave();
        let mut members = std::mem::take(&mut self.members);
        members.retain(|member| self.is_voter(member.id) || self.is_learner(member.id));
        members.sort_by_key(|member| member.id);
        self.members = members;
    }
}

/// Raft keeps its sets hashed; stored bytes must not depend on that.
fn sorted(ids: &[u64]) -> Vec<u64> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64) -> Member {
        Member {
            id,
            address: format!("host{id}:1"),
            ..Member::default()
        }
    }

    #[test]
    fn members_without_a_role_are_forgotten_and_ids_never_return() {
        let mut membership = Membership::single(member(1));
        let mut conf = membership.conf_state();
        conf.set_learners(vec![2]);
        membership.follow(&conf, &[member(2)]);
        assert!(membership.is_learner(2));
        assert_eq!(membership.next_id, 3);

        conf.set_learners(vec![]);
        membership.follow(&conf, &[]);
        assert_eq!(membership.get(2), None);
        assert_eq!(membership.next_id, 3);
    }
}
