//! What is done after the point of no return when one of the two hosts, or both, are proven dead.
//!
//! Not what follows from it for the guest: that is a [`Verdict`](crate::settle::Verdict) like any
//! other.
//!
//! Invariant: a dead host is never called. What its agent finds when it is back, it removes
//! itself, before the host takes anything new.

use berth_domain::agent::Call;
use berth_domain::migration;
use berth_domain::name::HostName;
use berth_domain::operation::{self, Mark, Step};
use berth_domain::refusal::{Code, Refusal};

use crate::backoff::Backoff;
use crate::effect::Effect;
use crate::engine::{Goal, Saga};
use crate::live_migration;
use crate::reconcile::Poll;
use crate::settle::{Seen, verdict};

/// Which half of a guest is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// What the source had not sent yet.
    Source,
    /// What the destination ran with.
    Destination,
}

impl Saga {
    /// Goes on without the answer of a host that is dead.
    pub(crate) fn settle_dead(
        &mut self,
        poll: &Poll,
        source: &HostName,
        destination: &HostName,
    ) -> Option<Effect> {
        let (source, destination) = (self.is_dead(source), self.is_dead(destination));
        match poll {
            Poll::Source if source => Some(self.go(Goal::Settle(Poll::Destination(Seen::Dead)))),
            Poll::Destination(seen) if destination => {
                let verdict = verdict(*seen, Seen::Dead);
                Some(self.act_on(verdict))
            }
            Poll::CleanSource if source => Some(self.commit_end(migration::Event::Arrived, None)),
            Poll::CleanDestination(event) if destination => {
                let refusal = self.why_not(*event);
                Some(self.commit_end(*event, Some(refusal)))
            }
            // It is dead too by now: what became of the guest is another question then.
            Poll::Order(_) if source => Some(self.go(Goal::Settle(Poll::Source))),
            Poll::DropHalf(_) if source && destination => Some(self.go(Goal::Settle(Poll::Source))),
            Poll::Source
            | Poll::Destination(_)
            | Poll::CleanSource
            | Poll::CleanDestination(_)
            | Poll::Order(_)
            | Poll::DropHalf(_) => None,
        }
    }

    /// Returns the call that pulls the plug of half a guest. Its disks stay.
    pub(crate) fn drop_half(&self, half: Half) -> Option<Call> {
        let migration = live_migration::migration(&self.context).ok()?;
        let claim = match half {
            Half::Source => migration.source_claim,
            Half::Destination => migration.destination_claim?,
        };
        Some(Call::StopVm {
            claim,
            timeout_ms: 0,
            last: half == Half::Source,
        })
    }

    /// Returns whether the two hosts do not see the same disks, so that the destination's are
    /// copies, which may not be whole.
    pub(crate) fn copies_disks(&self) -> bool {
        let facts = &self.context.facts;
        let storage = |host: &HostName| facts.hosts.get(host).map(|h| &h.storage_id);
        let Ok((source, destination)) = self.sides() else {
            return true;
        };
        !facts.vm.spec.disks.is_empty() && storage(&source) != storage(&destination)
    }

    /// Returns whether all that the guest wrote is on the source too, wherever it ran last: disks that
    /// both hosts share, and no persistent memory, whose contents are sent.
    pub(crate) fn leaves_all_at_source(&self) -> bool {
        let demand = self.context.facts.vm.spec.pmem_demand();
        !self.copies_disks() && demand.requests.is_empty()
    }

    /// Logs that the guest itself is lost, then has what is left of it dropped. It ran on
    /// the destination last, with the disks that are there.
    pub(crate) fn halved(&mut self, half: Half) -> Effect {
        let vm = &self.context.facts.vm.name;
        let Ok((source, destination)) = self.sides() else {
            return self.wait(Goal::Plan, Backoff::SCHEDULER);
        };
        let (dead, next) = match half {
            Half::Source => (&destination, format!("berth vm evacuate {vm}")),
            Half::Destination => (&source, format!("berth vm start {vm}")),
        };
        let message = format!(
            "guest {vm} ended with host {dead} in the middle of its post-copy: its memory was partly \
             on {source} and partly on {destination}"
        );
        let refusal = Refusal::new(Code::Internal, "POST_COPY_ENDED", message)
            .with("vm", vm)
            .with_hint(next);
        let logged = self.journal().last_failure(Step::Settle);
        if logged.is_some_and(|r| r.reason == refusal.reason) {
            return self.go(Goal::Settle(Poll::DropHalf(half)));
        }
        let record = self.record(Step::Settle, Mark::Failed(refusal), operation::Effect::None);
        self.commit_log_entry(record, Goal::Settle(Poll::DropHalf(half)))
    }

    /// Returns why a guest did not arrive, where that is the death of a host.
    pub(crate) fn why_dead(&self, event: migration::Event) -> Option<Refusal> {
        let vm = &self.context.facts.vm.name;
        let (source, destination) = self.sides().ok()?;
        let refusal = |code, reason, message| Refusal::new(code, reason, message).with("vm", vm);
        match event {
            migration::Event::Stayed if self.is_dead(&source) => {
                let message = format!("vm {vm} was not migrated, and its host {source} is dead");
                let next = format!("start it elsewhere: berth vm evacuate {vm}");
                Some(refusal(Code::Aborted, "SOURCE_DEAD", message).with_hint(next))
            }
            migration::Event::Stayed if self.is_dead(&destination) => {
                let message = format!("vm {vm} stays where it was: host {destination} is dead");
                Some(refusal(Code::Aborted, "DESTINATION_DEAD", message))
            }
            migration::Event::Lost if self.is_dead(&destination) => {
                let message = format!(
                    "vm {vm} left {source} for {destination}, which is dead; its disks were being \
                     copied, and are kept on both"
                );
                Some(refusal(Code::Internal, "GUEST_LOST", message))
            }
            migration::Event::Stayed
            | migration::Event::Lost
            | migration::Event::Refuse
            | migration::Event::Begin
            | migration::Event::Arrived
            | migration::Event::Unknown
            | migration::Event::Moved
            | migration::Event::Resized
            | migration::Event::Confirmed
            | migration::Event::Reverted => None,
        }
    }
}

/// Returns what to do about a host that does not answer.
pub(crate) fn comes_back_or_is_dead(host: &HostName) -> String {
    format!(
        "bring the compute agent of host {host} back; where the host is dead: berth host fence {host}"
    )
}
