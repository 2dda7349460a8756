//! A cluster that is older than its hosts: all members are lost, and a new group begins with a state of
//! before.
//!
//! The hypervisors, the agents and the conductors go on, with what they have from the lost time. Here the
//! new group has three members at once; the real one begins with one, and the others join.

use berth_domain::id::ClusterId;
use berth_domain::recovery::Cause;
use berth_replication::{Machine as _, Position};
use berth_scheduler::machine::Machine;
use berth_state::State;
use berth_state::recovery::Begin;
use berth_store::{Disk as _, Header, Membership, StateHash, checkpoints};

use super::{Event, MEMBERS, Run, index};
use crate::chance::Chance;
use crate::packet::Node;

/// Before this there is no VM.
const FIRST_MS: u64 = 6_000;

/// A state that a new group can begin with.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    state: State,
    position: Position,
    cause: Cause,
}

impl Run {
    /// Plans one restore or two.
    pub(super) fn plan_restores(&mut self) {
        if !self.options.has_restore {
            return;
        }
        let mut chance = Chance::new(self.options.seed ^ 0x52_45_53_54_4f_52_45);
        let end = self.options.faults_ms;
        let mut from = FIRST_MS;
        for _ in 0..chance.between(1, 2) {
            let kept = chance.between(from, end.max(from + 2) - 1);
            let lost_ms = match chance.percent(20) {
                true => 0,
                false => chance.between(1, 20_000),
            };
            self.schedule(kept, Event::KeepState);
            self.schedule(kept + lost_ms, Event::LoseGroup);
            from = kept + lost_ms + 1;
        }
        self.restore_chance = chance;
    }

    /// Keeps the state: a backup, or what a member that survives has applied.
    pub(super) fn keep_state(&mut self) {
        let survivor = 1 + self.restore_chance.between(0, MEMBERS - 1);
        let member = &self.members[index(survivor)];
        let is_survivor = self.restore_chance.percent(30);
        let survived = member.state().zip(member.position());
        let kept = match survived.filter(|_| is_survivor) {
            Some((state, position)) => Some((state.clone(), position, Cause::QuorumLost)),
            None => self
                .verdict
                .latest_at()
                .map(|(position, state)| (state.clone(), position, Cause::Restored)),
        };
        self.kept_state = kept.map(|(state, position, cause)| Kept {
            state,
            position,
            cause,
        });
    }

    /// Ends all members for good, and begins a new group with the state that was kept.
    pub(super) fn lose_group(&mut self) {
        let Some(kept) = self.kept_state.take() else {
            return;
        };
        let cluster = ClusterId(self.restore_chance.uuid());
        let state = kept.state.recovered(&Begin {
            cluster,
            cause: kept.cause,
            at: self.now_ms(),
            index: kept.position.index,
            level: berth_domain::version::ServiceVersion::CURRENT,
        });
        let membership = Membership {
            voters: (1..=MEMBERS).collect(),
            members: self.latest_membership.1.members.clone(),
            next_id: MEMBERS + 1,
            ..Membership::default()
        };
        let machine = Machine::new(state.clone());
        let rows: Vec<_> = machine.rows().collect();
        let header = Header {
            cluster_id: cluster.to_string(),
            index: state.revision(),
            term: kept.position.term + 1,
            membership,
            state_hash: StateHash::of_rows(rows.iter().cloned()).to_bytes().into(),
            rows: rows.len() as u64,
        };
        for site in 1..=MEMBERS {
            self.crash(Node::Member(site));
            let disk_id = self.restore_chance.uuid().to_string();
            let member = &mut self.members[index(site)];
            member.join_other_cluster(&cluster.to_string(), disk_id);
            if let Some(disk) = member.disk() {
                let checkpoints = disk.split().checkpoints;
                checkpoints::save(&checkpoints, header.clone(), rows.iter().cloned())
                    .expect("memory takes all");
            }
            let later = self.restore_chance.between(0, 5_000);
            self.schedule(later, Event::Restart(Node::Member(site)));
        }
        self.verdict.restored(state);
        self.recoveries += 1;
    }
}
