//! What another member says that cannot be true unless a member lost what it had acknowledged.
//!
//! Raft relies on disks that keep what they acknowledged. A disk that came back older, as a whole,
//! shows nothing by itself; but the members' words then contradict each other, and raft-rs either
//! believes them or panics:
//!
//! | what arrives | raft-rs | here |
//! |---|---|---|
//! | a follower acknowledges, or has committed, an entry beyond the leader's last | counts it as replicated | the leader stops |
//! | a leader has another entry where this member has a committed one | answers as if it had it, or panics | this member stops |
//! | a leader counts on an entry beyond this member's last | panics | this member stops |
//! | two members lead in one term, since one voted twice | follows both in turn | this member stops |
//! | a leader has another entry of the same index and term, since a member led twice in that term | takes it for the same | this member stops |
//! | the same, and the message with the other entry was lost | goes on behind its own | this member stops |
//!
//! So the checks come before raft-rs is stepped. They cost a comparison for each entry that is
//! not new, and entries are sent twice only when messages were lost; and a hash of each entry, once.
//!
//! What is *not* noticed: a loss that no running member's log contradicts any more, because the
//! members that knew better are down, or because a snapshot or a checkpoint has taken the place of
//! the entries before they were compared.

use raft::eraftpb::{Entry, Message, MessageType};
use raft::{GetEntriesContext, StateRole};

use super::Replica;
use crate::error::Fatal;
use crate::log_hash::{HashedRange, LogHash, LogHashes};
use crate::machine::Machine;

impl<M: Machine> Replica<M> {
    /// Returns why this replica must not go on, if this message shows it.
    pub(super) fn contradiction(&self, message: &Message) -> Option<Fatal> {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        let leads = raft.state == StateRole::Leader && message.term == raft.term;
        // What is said in an earlier term is dropped by Raft.
        let follows = message.term >= raft.term && !leads;
        if let Some(fatal) = self.two_leaders(message) {
            return Some(fatal);
        }
        match message.get_msg_type() {
            MessageType::MsgAppend if follows => self
                .other_entry(message)
                .or_else(|| self.other_content(message))
                .or_else(|| self.other_hash(message)),
            MessageType::MsgHeartbeat if follows && message.commit > last => Some(Fatal::LogLost {
                leader: message.from,
                index: message.commit,
                last,
            }),
            MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse if leads => {
                // A rejection repeats the index that the leader sent.
                let acknowledged = match message.reject {
                    true => 0,
                    false => message.index,
                };
                let index = acknowledged.max(message.commit);
                (index > last).then_some(Fatal::LeaderBehind {
                    member: message.from,
                    index,
                    last,
                })
            }
            MessageType::MsgHup
            | MessageType::MsgBeat
            | MessageType::MsgPropose
            | MessageType::MsgAppend
            | MessageType::MsgAppendResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgSnapshot
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgUnreachable
            | MessageType::MsgSnapStatus
            | MessageType::MsgCheckQuorum
            | MessageType::MsgTransferLeader
            | MessageType::MsgTimeoutNow
            | MessageType::MsgReadIndex
            | MessageType::MsgReadIndexResp
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse => None,
        }
    }

    /// Says whether a second member speaks as the leader of this term.
    fn two_leaders(&self, message: &Message) -> Option<Fatal> {
        let raft = &self.node.raft;
        let from_leader = matches!(
            message.get_msg_type(),
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot
        );
        let (term, leader) = self.last_leader;
        let second = from_leader
            && message.term == raft.term
            && message.term == term
            && leader != message.from;
        second.then_some(Fatal::TwoLeaders {
            term,
            one: leader,
            other: message.from,
        })
    }

    /// Compares a leader's entries with those that are committed here. A leader has every
    /// committed entry, so that each must be the same.
    fn other_entry(&self, message: &Message) -> Option<Fatal> {
        let log = &self.node.raft.raft_log;
        let before = (message.index, message.log_term);
        let sent = message.get_entries().iter().map(|e| (e.index, e.term));
        let (index, theirs) = std::iter::once(before)
            .chain(sent)
            .take_while(|(index, _)| *index <= log.committed)
            // The log does not know the terms of what it has forgotten; raft-rs says 0 then.
            .find(|(index, term)| log.term(*index).is_ok_and(|own| own != 0 && own != *term))?;
        Some(Fatal::OtherHistory {
            leader: message.from,
            index,
            theirs,
            ours: log.term(index).unwrap_or_default(),
            committed: log.committed,
        })
    }

    /// Compares the content of a leader's entries with those of the same index and term here: Raft takes
    /// them for the same, and goes on with its own. A leader makes an entry once in a term; so they differ
    /// only if a member has led in that term twice, the second time with an older directory.
    fn other_content(&self, message: &Message) -> Option<Fatal> {
        let log = &self.node.raft.raft_log;
        let sent = message.get_entries();
        let first = sent.first()?.index.max(log.first_index());
        let end = sent.last()?.index.min(log.last_index()) + 1;
        if first >= end {
            return None;
        }
        // What cannot be read is not compared; raft-rs meets the same error.
        let own = log
            .slice(first, end, None, GetEntriesContext::empty(false))
            .ok()?;
        let theirs = sent.iter().skip_while(|entry| entry.index < first);
        let is_other = |(own, theirs): &(&Entry, &Entry)| {
            (own.index, own.term) == (theirs.index, theirs.term)
                && (own.get_entry_type() != theirs.get_entry_type()
                    || own.data != theirs.data
                    || own.context != theirs.context)
        };
        let (own, _) = own.iter().zip(theirs).find(is_other)?;
        Some(Fatal::LedTwice {
            leader: message.from,
            term: own.term,
            index: own.index,
        })
    }

    /// Compares the hashes of a leader's log with this member's, for the ranges that both have. They end
    /// with the entry on which the leader builds: where the member has one of that index and term,
    /// Raft takes all before it for the same.
    fn other_hash(&self, message: &Message) -> Option<Fatal> {
        let index = message.index;
        if message.context.is_empty() || !self.has_entry(index, message.log_term) {
            return None;
        }
        let own = self.hash_up_to(index)?;
        let is_other = |range: &HashedRange| {
            let before = self.hash_up_to(range.after);
            range.after <= index && before.is_some_and(|before| own.since(before) != range.hash)
        };
        let ranges = LogHashes::read(message).ranges;
        let other = ranges.into_iter().filter(is_other);
        // The shortest says most.
        let range = other.max_by_key(|range| range.after)?;
        Some(Fatal::OtherContent {
            leader: message.from,
            term: message.log_term,
            after: range.after,
            index,
        })
    }

    /// Adds to an append the hashes of the entries before it. One begins where this member's log
    /// does; one begins at the newest checkpoint, where that of a member begins that was sent it.
    pub(super) fn attach_hashes(&self, message: &mut Message) {
        let raft = &self.node.raft;
        let (index, term) = (message.index, message.log_term);
        let is_own = message.get_msg_type() == MessageType::MsgAppend
            && self.leads()
            && message.term == raft.term
            && self.has_entry(index, term);
        let Some(hash) = self.hash_up_to(index).filter(|_| is_own) else {
            return;
        };
        let store = self.node.store();
        let newest = store.checkpoint().map(|mark| mark.index);
        let starts = std::iter::once(store.start()).chain(newest.filter(|at| *at != store.start()));
        let ranges = starts.filter(|after| *after < index).filter_map(|after| {
            let hash = hash.since(self.hash_up_to(after)?);
            Some(HashedRange { after, hash })
        });
        let ranges: Vec<HashedRange> = ranges.collect();
        if !ranges.is_empty() {
            LogHashes { ranges }.attach(message);
        }
    }

    /// Returns whether the log has an entry of this index and term, or began behind it.
    fn has_entry(&self, index: u64, term: u64) -> bool {
        term != 0 && self.node.raft.raft_log.term(index) == Ok(term)
    }

    /// Returns the hash of the log up to this entry, also of what Raft has not handed over yet. `None`
    /// where the log does not have it, or a snapshot is about to replace the log.
    fn hash_up_to(&self, index: u64) -> Option<LogHash> {
        let unstable = &self.node.raft.raft_log.unstable;
        if unstable.snapshot.is_some() {
            return None;
        }
        let store = self.node.store();
        if index < unstable.offset {
            return store.hash_up_to(index);
        }
        let before = store.hash_up_to(unstable.offset.checked_sub(1)?)?;
        let count = usize::try_from(index - unstable.offset).ok()? + 1;
        let entries = unstable.entries.get(..count)?;
        Some(entries.iter().fold(before, |hash, entry| hash.with(entry)))
    }
}
