//! What the replica requests: messages, writes, answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use berth_store::Member;
use berth_store::checkpoints;
use berth_store::disk::Disk;
use raft::eraftpb::Message;

use super::{Internal, Owner, Waiter, leader_of};
use crate::effects::{CheckpointRequest, Effects, Persist, SendSnapshot, Ticket};
use crate::error::Refused;
use crate::machine::Machine;
use crate::runtime::handle::{
    Committed, Event, Job, MembershipError, ProposeError, ReadError, Settled,
};
use crate::runtime::inbox::SnapshotReport;
use crate::runtime::log_thread::LogJob;
use crate::runtime::table_thread::TableJob;
use crate::runtime::{Network, OutgoingSnapshot, StopError, in_background, panic_message};

impl<M: Machine, D: Disk> Owner<M, D> {
    pub(super) fn carry_out_all(&mut self, network: &mut impl Network) -> Result<(), StopError> {
        while let Some(effects) = self.replica.ready()? {
            self.carry_out(effects, network)?;
        }
        Ok(())
    }

    pub(super) fn carry_out(
        &mut self,
        effects: Effects<M>,
        network: &mut impl Network,
    ) -> Result<(), StopError> {
        // Followers may begin to synchronise while this member does.
        self.send(effects.messages, network);
        if let Some(persist) = effects.persist {
            self.persist(persist)?;
        }
        if let Some(membership) = effects.membership {
            network.members(&membership);
            self.membership.send_replace(membership);
            self.leader.send_replace(leader_of(&self.replica));
        }
        if effects.role.is_some() {
            self.leader.send_replace(leader_of(&self.replica));
        }
        if let Some(replaced) = effects.replaced {
            let replaced = Arc::new(replaced);
            self.send_to_table(TableJob::Rebuild(replaced.clone()))?;
            // There may be no watcher.
            let _ = self.events.send(Event::Replaced(replaced));
        }
        if let Some(applied) = effects.applied {
            let applied = Arc::new(applied);
            self.send_to_table(TableJob::Applied(applied.clone()))?;
            if !applied.commands.is_empty() && self.events.receiver_count() > 0 {
                let _ = self.events.send(Event::Applied(applied));
            }
        }
        for answer in effects.answers {
            if let Some(Waiter::Job(job)) = self.waiters.remove(&answer.ticket.0) {
                self.settle(
                    job,
                    Some(Committed {
                        index: answer.index,
                        outcome: answer.outcome,
                    }),
                );
            }
        }
        self.serve(effects.reads);
        self.fail(effects.lost, &effects.failed_reads);
        self.changed(effects.changed);
        if let Some(request) = effects.checkpoint {
            self.take_checkpoint(request);
        }
        if let Some(first_kept) = effects.compact_log {
            self.log
                .send(LogJob::Compact(first_kept))
                .map_err(|_| StopError::Thread("log"))?;
        }
        for snapshot in effects.snapshots {
            self.send_snapshot(snapshot, network);
        }
        self.removed |= effects.removed;
        if effects.role.is_some() {
            self.unpark();
        }
        Ok(())
    }

    pub(super) fn persist(&mut self, persist: Persist) -> Result<(), StopError> {
        let install = persist.install.map(|index| {
            let at = self.received.iter().position(|(i, _)| *i == index);
            let at = at.expect("the replica installs what it was given");
            let received = self.received.swap_remove(at);
            // Others were overtaken by this one.
            self.received.clear();
            received
        });
        self.batches_in_flight.push_back(persist.number);
        self.log
            .send(LogJob::Persist {
                number: persist.number,
                batch: persist.batch,
                install,
            })
            .map_err(|_| StopError::Thread("log"))
    }

    pub(super) fn send_to_table(&mut self, job: TableJob<M>) -> Result<(), StopError> {
        self.table.send(job).map_err(|_| StopError::Thread("table"))
    }

    pub(super) fn send(&self, messages: Vec<Message>, network: &mut impl Network) {
        let mut by_member: Vec<(u64, Vec<Message>)> = Vec::new();
        for message in messages {
            match by_member.iter_mut().find(|(to, _)| *to == message.to) {
                Some((_, batch)) => batch.push(message),
                None => by_member.push((message.to, vec![message])),
            }
        }
        for (to, batch) in by_member {
            match self.replica.membership().get(to) {
                Some(member) => network.send(member, batch),
                // A member that has no state yet answers the leader, whose address came with the
                // stream; the network knows it.
                None => network.send(
                    &Member {
                        id: to,
                        ..Member::default()
                    },
                    batch,
                ),
            }
        }
    }

    pub(super) fn send_snapshot(&mut self, snapshot: SendSnapshot, network: &mut impl Network) {
        let internal = self.internal_in.clone();
        let to = snapshot.to;
        let report = SnapshotReport {
            report: Some(Box::new(move |arrived| {
                // The owner may have ended first; then no caller waits.
                let _ = internal.send(Internal::SnapshotSent { to, arrived });
            })),
        };
        let Some(member) = self.replica.membership().get(to).cloned() else {
            return report.finished(false);
        };
        match self.checkpoints.open(snapshot.index) {
            Ok(content) => {
                let message = snapshot.message;
                network.send_snapshot(&member, OutgoingSnapshot { message, content }, report);
            }
            Err(error) => {
                // A newer checkpoint took its place meanwhile; Raft requests it again.
                tracing::info!(to, index = snapshot.index, %error, "sending snapshot failed: no checkpoint");
                report.finished(false);
            }
        }
    }

    pub(super) fn take_checkpoint(&self, request: CheckpointRequest<M>) {
        let checkpoints = self.checkpoints.clone();
        let internal = self.internal_in.clone();
        tokio::task::spawn_blocking(move || {
            let header = request.header.clone();
            let save = || {
                in_background(move || {
                    let rows = request.machine.rows();
                    checkpoints::save(checkpoints.as_ref(), request.header, rows)
                })
            };
            // It panics when rows and hash have come apart, which must end the member.
            let report = match catch_unwind(AssertUnwindSafe(save)) {
                Ok(done) => Internal::Checkpoint(done.map(|bytes| (header, bytes))),
                Err(payload) => Internal::Panicked("checkpoint", panic_message(&*payload)),
            };
            // The owner may have ended first; then no caller waits.
            let _ = internal.send(report);
        });
    }

    pub(super) fn serve(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            match self.waiters.remove(&ticket.0) {
                Some(Waiter::Read(read)) => {
                    read.finish(self.replica.machine().ok_or(ReadError::NoState));
                }
                Some(Waiter::Job(job)) => self.settle(job, None),
                Some(Waiter::Change(..)) | None => {}
            }
        }
    }

    fn settle(&self, job: Box<dyn Job<M>>, committed: Option<Committed<M::Outcome>>) {
        let machine = self.replica.machine();
        let machine = machine.expect("what was decided here was decided on a state");
        job.finish(Ok(Settled { machine, committed }));
    }

    pub(super) fn fail(&mut self, lost: Vec<Ticket>, failed_reads: &[Ticket]) {
        if lost.is_empty() && failed_reads.is_empty() {
            return;
        }
        let leader = self.leader_member();
        for ticket in lost.iter().chain(failed_reads) {
            match self.waiters.remove(&ticket.0) {
                Some(Waiter::Job(job)) => job.finish(Err(ProposeError::Lost {
                    leader: leader.clone(),
                })),
                Some(Waiter::Read(read)) => read.finish(Err(ReadError::Unconfirmed {
                    leader: leader.clone(),
                })),
                Some(Waiter::Change(_, reply)) => {
                    let leader = leader.clone();
                    // The caller may have gone.
                    let _ = reply.send(Err(MembershipError::Lost { leader }));
                }
                None => {}
            }
        }
    }

    pub(super) fn changed(&mut self, tickets: Vec<Ticket>) {
        let index = self.replica.position().index;
        for ticket in tickets {
            if let Some(Waiter::Change(answer, reply)) = self.waiters.remove(&ticket.0) {
                // The caller may have gone.
                let _ = reply.send(Ok(answer.unwrap_or(index)));
            }
        }
    }

    pub(super) fn unpark(&mut self) {
        if matches!(self.replica.may_propose(), Err(Refused::NotReady)) {
            return;
        }
        for job in std::mem::take(&mut self.parked) {
            self.decide(job);
        }
    }
}
