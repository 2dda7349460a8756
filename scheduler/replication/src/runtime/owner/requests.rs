//! Requests that reach the owner through handles.

use berth_store::Member;
use berth_store::disk::Disk;
use tokio::sync::oneshot;

use super::{Owner, Waiter};
use crate::effects::Ticket;
use crate::error::Refused;
use crate::machine::Machine;
use crate::replica::Change;
use crate::retained::Retained;
use crate::runtime::handle::{Job, MembershipError, ProposeError, ReadError, Request, Status};

impl<M: Machine, D: Disk> Owner<M, D> {
    pub(super) fn take_request(&mut self, request: Request<M>) {
        match request {
            Request::Read(read) => {
                let ticket = self.wait(Waiter::Read(read));
                self.replica.read_index(ticket);
            }
            Request::ReadStale(read) => {
                read.finish(self.replica.machine().ok_or(ReadError::NoState));
            }
            Request::Status(reply) => {
                // The caller may have gone.
                let _ = reply.send(self.status());
            }
            Request::AddMember { member, reply } => self.add_member(member, reply),
            Request::Change { changes, reply } => {
                // The leader cannot take itself out: it hands over, and the next can.
                let own = self.replica.id();
                let leaves =
                    |c: &Change| matches!(c, Change::Remove(id) | Change::Demote(id) if *id == own);
                if changes.iter().any(leaves)
                    && let Some(to) = self.replica.furthest_voter()
                    && self.replica.transfer_leader(to).is_ok()
                {
                    let refused = Refused::Transferring { to };
                    let leader = self.replica.membership().get(to).cloned();
                    let _ = reply.send(Err(MembershipError::Refused { refused, leader }));
                    return;
                }
                self.change(changes, None, reply);
            }
            Request::Transfer { to, reply } => {
                let result = match to.or_else(|| self.replica.furthest_voter()) {
                    Some(to) => self.replica.transfer_leader(to),
                    None => Err(Refused::Change("there is no other voter")),
                };
                let leader = self.leader_member();
                let _ = reply
                    .send(result.map_err(|refused| MembershipError::Refused { refused, leader }));
            }
            Request::Checkpoint => self.replica.request_checkpoint(),
        }
    }

    pub(super) fn decide(&mut self, mut job: Box<dyn Job<M>>) {
        match self.replica.may_propose() {
            Ok(()) => {}
            // It will be decided in a moment, here or elsewhere.
            Err(Refused::NotReady) => return self.parked.push(job),
            Err(
                Refused::NotLeader { .. }
                | Refused::Transferring { .. }
                | Refused::ChangePending
                | Refused::Change(_),
            ) => {
                let leader = self.leader_member();
                return job.finish(Err(ProposeError::NotLeader { leader }));
            }
        }
        let state = self
            .replica
            .speculative()
            .expect("a replica that takes proposals has a speculative state");
        let command = job.decide(state);
        let ticket = self.wait(Waiter::Job(job));
        match command {
            None => self.replica.confirm_decision(ticket),
            Some(command) => {
                let taken = self.replica.propose(ticket, command).is_ok();
                assert!(
                    taken,
                    "nothing happened since the replica said that it would"
                );
            }
        }
    }

    /// Adds a member under the next id. Repeated for the same disk, it returns the same id.
    pub(super) fn add_member(
        &mut self,
        mut member: Member,
        reply: oneshot::Sender<Result<u64, MembershipError>>,
    ) {
        let membership = self.replica.membership().clone();
        let same_disk = |m: &&Member| !m.disk.is_empty() && m.disk == member.disk;
        if self.replica.may_propose().is_ok() {
            if let Some(known) = membership.members.iter().find(same_disk) {
                // The caller may have gone.
                let _ = reply.send(Ok(known.id));
                return;
            }
            if membership
                .members
                .iter()
                .any(|m| m.address == member.address)
            {
                let refused = Refused::Change("the address belongs to another member");
                let leader = self.leader_member();
                let _ = reply.send(Err(MembershipError::Refused { refused, leader }));
                return;
            }
        }
        member.id = membership.next_id;
        let id = member.id;
        self.change(vec![Change::AddLearner(member)], Some(id), reply);
    }

    pub(super) fn change(
        &mut self,
        changes: Vec<Change>,
        answer: Option<u64>,
        reply: oneshot::Sender<Result<u64, MembershipError>>,
    ) {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        match self.replica.change_membership(ticket, &changes) {
            Ok(()) => {
                self.waiters.insert(ticket.0, Waiter::Change(answer, reply));
            }
            Err(refused) => {
                let leader = self.leader_member();
                // The caller may have gone.
                let _ = reply.send(Err(MembershipError::Refused { refused, leader }));
            }
        }
    }

    pub(super) fn wait(&mut self, waiter: Waiter<M>) -> Ticket {
        self.last_ticket += 1;
        self.waiters.insert(self.last_ticket, waiter);
        Ticket(self.last_ticket)
    }

    fn status(&self) -> Status {
        let ticks = u32::try_from(self.replica.disk_silent_ticks()).unwrap_or(u32::MAX);
        Status {
            id: self.replica.id(),
            role: self.replica.role(),
            position: self.replica.position(),
            committed: self.replica.committed(),
            first_index: self.replica.first_index(),
            last_index: self.replica.last_index(),
            membership: self.replica.membership().clone(),
            progress: self.replica.progress(),
            pending: self.replica.pending(),
            retained: vec![
                self.replica.retained_log(),
                Retained::counted(
                    "uncommitted_commands",
                    self.replica.pending(),
                    self.settings.pending_max,
                ),
                self.table.retained(),
            ],
            disk_silent: self.settings.tick * ticks,
        }
    }
}
