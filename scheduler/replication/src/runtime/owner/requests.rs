//! Requests that reach the owner through handles.

use berth_store::Member;
use berth_store::disk::Disk;
use tokio::sync::oneshot;

use super::{Owner, Waiter};
use crate::effects::Ticket;
use crate::error::Refused;
use crate::machine::Machine;
use crate::replica::Addition;
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
            Request::Snapshot(reply) => {
                // As above.
                let _ = reply.send(self.snapshot().ok_or(ReadError::NoState));
            }
            Request::Log {
                after,
                bytes_max,
                reply,
            } => {
                // As above.
                let _ = reply.send(self.replica.applied_after(&after, bytes_max));
            }
            Request::AddMember { member, reply } => self.add_member(member, reply),
            Request::Change {
                changes,
                checked,
                reply,
            } => {
                let ticket = self.next_ticket();
                let proposed = match checked {
                    None => self.replica.change_or_hand_over(ticket, &changes),
                    Some(checked) => self.replica.change_checked(ticket, &changes, &checked),
                };
                self.answer_change(ticket, None, proposed, reply);
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

    fn add_member(&mut self, member: Member, reply: oneshot::Sender<Result<u64, MembershipError>>) {
        let ticket = self.next_ticket();
        match self.replica.add_member(ticket, member) {
            Ok(Addition::Known(id)) => {
                // The caller may have gone.
                let _ = reply.send(Ok(id));
            }
            Ok(Addition::Proposed(id)) => self.answer_change(ticket, Some(id), Ok(()), reply),
            Err(refused) => self.answer_change(ticket, None, Err(refused), reply),
        }
    }

    /// Answers a change that was refused, or when it is in force, with this number if not the index.
    fn answer_change(
        &mut self,
        ticket: Ticket,
        answer: Option<u64>,
        proposed: Result<(), Refused>,
        reply: oneshot::Sender<Result<u64, MembershipError>>,
    ) {
        match proposed {
            Ok(()) => {
                self.waiters.insert(ticket.0, Waiter::Change(answer, reply));
            }
            Err(refused) => {
                // Where to repeat it: the member that leadership is being handed to.
                let leader = match refused {
                    Refused::Transferring { to } => self.replica.membership().get(to).cloned(),
                    Refused::NotLeader { .. }
                    | Refused::NotReady
                    | Refused::ChangePending
                    | Refused::Change(_) => self.leader_member(),
                };
                // The caller may have gone.
                let _ = reply.send(Err(MembershipError::Refused { refused, leader }));
            }
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    pub(super) fn wait(&mut self, waiter: Waiter<M>) -> Ticket {
        let ticket = self.next_ticket();
        self.waiters.insert(ticket.0, waiter);
        ticket
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
            queued: self.decisions.len(),
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
