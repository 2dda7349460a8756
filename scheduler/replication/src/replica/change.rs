//! Changes of the membership: one at a time, learners before voters, joint when several.
//!
//! raft-rs turns a change that it does not like into an empty entry and says nothing. So a change
//! is checked here first, and what was appended is looked at afterwards.

use std::collections::BTreeMap;

use berth_store::{Member, Membership};
use prost::Message as _;
use protobuf::Message as _;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry, EntryType,
    Message, MessageType,
};

use super::Replica;
use crate::effects::Ticket;
use crate::envelope::ChangeNote;
use crate::error::Refused;
use crate::machine::Machine;

/// One part of a change of the membership. Several parts are made joint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds a member that only receives the log at first.
    AddLearner(Member),
    /// Makes a learner a voter.
    Promote(u64),
    /// Makes a voter a learner.
    Demote(u64),
    /// Takes a member out.
    Remove(u64),
    /// Records where a member is reached from now on. Its role stays.
    Address {
        /// The member.
        id: u64,
        /// Where the other members reach it, as `host:port`.
        address: String,
    },
}

impl Change {
    fn id(&self) -> u64 {
        match self {
            Self::AddLearner(member) => member.id,
            Self::Promote(id) | Self::Demote(id) | Self::Remove(id) | Self::Address { id, .. } => {
                *id
            }
        }
    }

    fn kind(&self, membership: &Membership) -> ConfChangeType {
        match self {
            Self::AddLearner(_) | Self::Demote(_) => ConfChangeType::AddLearnerNode,
            Self::Promote(_) => ConfChangeType::AddNode,
            Self::Remove(_) => ConfChangeType::RemoveNode,
            // Raft adds a member in the role that it has, which changes nothing there.
            Self::Address { id, .. } => match membership.is_voter(*id) {
                true => ConfChangeType::AddNode,
                false => ConfChangeType::AddLearnerNode,
            },
        }
    }
}

/// What becomes of a member that is to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addition {
    /// It is one already, under this id.
    Known(u64),
    /// It gets this id when the ticket comes back as changed.
    Proposed(u64),
}

/// How far another member is, as the leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The member.
    pub id: u64,
    /// The last index it is known to have.
    pub matched: u64,
    /// Whether it was heard of within the last election timeout.
    pub active: bool,
}

impl<M: Machine> Replica<M> {
    /// Proposes a change of the membership. The ticket comes back as changed when it is in
    /// force, or as lost.
    pub fn change_membership(&mut self, ticket: Ticket, changes: &[Change]) -> Result<(), Refused> {
        self.flush_proposals();
        self.may_propose()?;
        if self.change.is_some() || self.node.raft.has_pending_conf() || self.is_joint() {
            return Err(Refused::ChangePending);
        }
        self.check_change(changes)?;
        self.append_change(changes)?;
        self.change = Some((self.last_index(), ticket));
        Ok(())
    }

    /// As [`Self::change_membership`], on behalf of a request that was checked against this
    /// membership. Another one may not bear the change: of two removals each of which leaves a
    /// quorum, both may not.
    pub fn change_checked(
        &mut self,
        ticket: Ticket,
        changes: &[Change],
        checked: &Membership,
    ) -> Result<(), Refused> {
        match *self.membership == *checked {
            true => self.change_or_hand_over(ticket, changes),
            false => Err(Refused::ChangePending),
        }
    }

    /// As [`Self::change_membership`]; a leader that is to take itself out hands leadership over
    /// and refuses, and the next leader can.
    pub fn change_or_hand_over(
        &mut self,
        ticket: Ticket,
        changes: &[Change],
    ) -> Result<(), Refused> {
        let own = self.config.id;
        let leaves =
            |c: &Change| matches!(c, Change::Remove(id) | Change::Demote(id) if *id == own);
        if changes.iter().any(leaves)
            && let Some(to) = self.furthest_voter()
            && self.transfer_leader(to).is_ok()
        {
            return Err(Refused::Transferring { to });
        }
        self.change_membership(ticket, changes)
    }

    /// Adds a member under the next id. Repeated for the same disk, it returns the same id.
    pub fn add_member(&mut self, ticket: Ticket, mut member: Member) -> Result<Addition, Refused> {
        self.may_propose()?;
        let membership = self.membership.clone();
        let same_disk = |m: &&Member| !m.disk.is_empty() && m.disk == member.disk;
        if let Some(known) = membership.members.iter().find(same_disk) {
            return Ok(Addition::Known(known.id));
        }
        if membership.is_at_other(member.id, &member.address) {
            return Err(Refused::Change("the address belongs to another member"));
        }
        member.id = membership.next_id;
        let id = member.id;
        self.change_membership(ticket, &[Change::AddLearner(member)])?;
        Ok(Addition::Proposed(id))
    }

    /// Returns how far each member is; empty unless this replica leads.
    pub fn progress(&self) -> Vec<MemberStatus> {
        if !self.leads() {
            return Vec::new();
        }
        let mut status: Vec<MemberStatus> = self
            .node
            .raft
            .prs()
            .iter()
            .map(|(id, progress)| MemberStatus {
                id: *id,
                matched: progress.matched,
                active: progress.recent_active || *id == self.config.id,
            })
            .collect();
        status.sort_by_key(|s| s.id);
        status
    }

    fn is_joint(&self) -> bool {
        !self.membership.voters_outgoing.is_empty()
    }

    fn check_change(&self, changes: &[Change]) -> Result<(), Refused> {
        let membership = &self.membership;
        let mut voters: Vec<u64> = membership.voters.clone();
        let mut ids: Vec<u64> = changes.iter().map(Change::id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != changes.len() || changes.is_empty() {
            return Err(Refused::Change("each member appears once"));
        }
        for change in changes {
            let known = membership.get(change.id()).is_some();
            match change {
                Change::AddLearner(member) if known || member.id < membership.next_id => {
                    return Err(Refused::Change("a member id is never given twice"));
                }
                Change::AddLearner(_) => {}
                Change::Promote(id) if !membership.is_learner(*id) => {
                    return Err(Refused::Change("only a learner can become a voter"));
                }
                Change::Promote(id) if !self.has_caught_up(*id) => {
                    return Err(Refused::Change(
                        "the learner does not answer or has not caught up with the log; start it, \
                         and try again in a moment",
                    ));
                }
                Change::Promote(id) => voters.push(*id),
                Change::Demote(_) | Change::Remove(_) | Change::Address { .. } if !known => {
                    return Err(Refused::Change("there is no such member"));
                }
                Change::Address { .. } => {}
                Change::Demote(id) | Change::Remove(id) if *id == self.config.id => {
                    return Err(Refused::Change(
                        "the leader does not take itself out; transfer leadership first",
                    ));
                }
                Change::Demote(id) | Change::Remove(id) => voters.retain(|voter| voter != id),
            }
        }
        if !addresses_differ(membership, changes) {
            return Err(Refused::Change("the address belongs to another member"));
        }
        match voters.is_empty() {
            true => Err(Refused::Change("a cluster needs a voter")),
            false => Ok(()),
        }
    }

    fn append_change(&mut self, changes: &[Change]) -> Result<(), Refused> {
        let mut change = ConfChangeV2::default();
        // Leaves the joint configuration by itself as soon as it is reached.
        change.set_transition(ConfChangeTransition::Auto);
        change.set_changes(
            changes
                .iter()
                .map(|part| ConfChangeSingle {
                    node_id: part.id(),
                    change_type: part.kind(&self.membership),
                    ..ConfChangeSingle::default()
                })
                .collect(),
        );
        let note = ChangeNote {
            members: changes.iter().filter_map(|c| self.described(c)).collect(),
        };
        let mut entry = Entry::default();
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        entry.data = change.write_to_bytes().map_err(unwritable)?.into();
        entry.context = note.encode_to_vec().into();
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.config.id;
        message.set_entries(vec![entry].into());
        let before = self.node.raft.raft_log.last_index();
        let taken = self.node.step(message).is_ok();
        self.observe();
        let appended = self
            .node
            .raft
            .raft_log
            .unstable_entries()
            .iter()
            .any(|e| e.index > before && e.get_entry_type() == EntryType::EntryConfChangeV2);
        match taken && appended {
            true => Ok(()),
            false => Err(Refused::ChangePending),
        }
    }

    /// Returns the description that goes with a part of a change.
    fn described(&self, change: &Change) -> Option<Member> {
        match change {
            Change::AddLearner(member) => Some(member.clone()),
            // An operator who demotes a member does not want it promoted at the next tick.
            Change::Demote(id) => self.membership.get(*id).map(|member| Member {
                promote: false,
                ..member.clone()
            }),
            Change::Address { id, address } => self.membership.get(*id).map(|member| Member {
                address: address.clone(),
                ..member.clone()
            }),
            Change::Promote(_) | Change::Remove(_) => None,
        }
    }

    /// Makes voters of learners that have caught up and are meant to vote.
    pub(super) fn promote_learners(&mut self) {
        if self.change.is_some() || self.node.raft.has_pending_conf() || self.is_joint() {
            return;
        }
        let ready = self.membership.members.iter().find(|member| {
            let is_learner = self.membership.is_learner(member.id);
            member.promote && is_learner && self.has_caught_up(member.id)
        });
        if let Some(id) = ready.map(|member| member.id) {
            tracing::info!(member = id, "promoting learner");
            if let Err(error) = self.append_change(&[Change::Promote(id)]) {
                tracing::debug!(member = id, %error, "promotion deferred");
            }
        }
    }

    /// Returns whether a learner answers and has nearly all of the log. As a voter, one that does not
    /// would cost the quorum where the others only just are one.
    fn has_caught_up(&self, id: u64) -> bool {
        let last = self.node.raft.raft_log.last_index();
        self.node.raft.prs().get(id).is_some_and(|progress| {
            progress.recent_active
                && progress.matched + self.config.promote_gap >= last
                // Not before it has a state: a vote it gives must be worth something.
                && progress.matched > 0
        })
    }

    /// A leader does not take itself out, but the leader before it may have requested that.
    /// raft-rs would let it lead on and then miss it among its own members.
    fn step_down_without_a_vote(&mut self) {
        if self.leads() && !self.membership.is_voter(self.config.id) {
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, 0);
            self.observe();
        }
    }

    pub(super) fn apply_change(&mut self, index: u64, change: &ConfChangeV2, note: &ChangeNote) {
        match self.node.apply_conf_change(change) {
            Ok(conf) => {
                let mut membership = self.membership.as_ref().clone();
                membership.follow(&conf, &note.members);
                self.out.removed |= membership.get(self.config.id).is_none();
                self.membership = std::sync::Arc::new(membership);
                self.out.membership = Some(self.membership.clone());
                self.step_down_without_a_vote();
            }
            // Every member finds the same, so all pass over it alike.
            Err(error) => tracing::warn!(index, %error, "membership change has no effect"),
        }
        if let Some((_, ticket)) = self.change.take_if(|(at, _)| *at <= index) {
            self.out.changed.push(ticket);
        }
    }
}

/// Returns whether changes of addresses leave each to one member. Two members may swap theirs.
fn addresses_differ(membership: &Membership, changes: &[Change]) -> bool {
    let moves = changes.iter().filter_map(|change| match change {
        Change::Address { id, address } => Some((*id, address)),
        Change::AddLearner(_) | Change::Promote(_) | Change::Demote(_) | Change::Remove(_) => None,
    });
    let moves: BTreeMap<u64, &String> = moves.collect();
    let mut after = membership.clone();
    for member in &mut after.members {
        if let Some(address) = moves.get(&member.id) {
            member.address.clone_from(address);
        }
    }
    let mut moves = moves.into_iter();
    moves.all(|(id, address)| !after.is_at_other(id, address))
}

fn unwritable(_: protobuf::ProtobufError) -> Refused {
    Refused::Change("it cannot be written down")
}
