//! What an answer means for what was being attempted.
//!
//! Not here: what is attempted next (`engine`), and what two hypervisors' answers mean together
//! (`reconcile`).
//!
//! Invariant: a missing answer is never taken for a refusal. The call may have
//! been carried out, so it is repeated, or undone.

use berth_domain::agent::{Failure, Reply};
use berth_domain::id::Incarnation;
use berth_domain::name::HostName;
use berth_domain::operation::{self, Mark, Operation, Step};
use berth_domain::refusal::{Code, Refusal};

use crate::backoff::Backoff;
use crate::effect::{Effect, Ended};
use crate::engine::{Commit, Goal, OnRefusal, Outstanding, Saga};
use crate::facts::Facts;
use crate::plan::Memory;
use crate::reconcile::{Miss, Poll};
use crate::refusals::{self, NoOutcome, Reading};

/// How often a call is made that is not answered, before the step counts as failed.
const CALLS_MAX: u32 = 4;

impl Saga {
    pub(crate) fn committed(
        &mut self,
        commit: Commit,
        result: Result<Box<Operation>, Refusal>,
    ) -> Effect {
        let refusal = match result {
            Ok(operation) => {
                self.failures = 0;
                self.context.operation = *operation;
                return self.go(commit.then);
            }
            Err(refusal) => refusal,
        };
        if refusals::is_lease_lost(&refusal) {
            return Effect::Done(Ended::LeaseLost);
        }
        self.failures += 1;
        if refusals::is_outcome_unknown(&refusal) {
            let ms = Backoff::SCHEDULER.after(self.failures);
            self.outstanding = Outstanding::WaitToCommit(commit);
            return Effect::Wait { ms };
        }
        match commit.on_refusal {
            OnRefusal::Fail(step) => self.fail(step, refusal),
            OnRefusal::Continue => self.go(commit.then),
            OnRefusal::Replan => self.wait(Goal::Plan, Backoff::SCHEDULER),
        }
    }

    pub(crate) fn scheduled(&mut self, result: Result<(), Refusal>) -> Effect {
        match result {
            Ok(()) => {
                self.failures = 0;
                self.context.memory = Memory::default();
                self.refresh(Goal::Plan, None)
            }
            Err(refusal) if refusals::is_lease_lost(&refusal) => Effect::Done(Ended::LeaseLost),
            // It may have been claimed all the same, and then the log shows it.
            Err(refusal) if refusals::is_outcome_unknown(&refusal) => {
                self.failures += 1;
                self.wait(Goal::Plan, Backoff::SCHEDULER)
            }
            Err(refusal) => self.give_up(Some(&refusal)),
        }
    }

    pub(crate) fn refreshed(
        &mut self,
        goal: Goal,
        restarted: Option<(HostName, Incarnation)>,
        result: Result<Box<(Operation, Facts)>, Refusal>,
    ) -> Effect {
        let (operation, facts) = match result {
            Ok(read) => *read,
            Err(refusal) if refusal.code == Code::NotFound => {
                return Effect::Done(Ended::LeaseLost);
            }
            Err(_) => {
                self.failures += 1;
                return self.wait(goal, Backoff::SCHEDULER);
            }
        };
        let epoch = operation.lease.as_ref().map(|l| l.epoch);
        if !operation.is_done() && epoch != Some(self.epoch) {
            return Effect::Done(Ended::LeaseLost);
        }
        self.context.operation = operation;
        self.context.facts = facts;
        if let Some((host, meant)) = restarted {
            let known = self.context.facts.hosts.get(&host).map(|h| h.incarnation);
            if known.is_none_or(|known| known == meant) {
                // It has not registered with the scheduler yet.
                let message =
                    format!("the agent of host {host} was restarted and is not registered yet");
                return self.unanswered(goal, &host, NoOutcome::silence(message));
            }
        }
        self.go(goal)
    }

    pub(crate) fn answered(
        &mut self,
        goal: Goal,
        host: &HostName,
        incarnation: Incarnation,
        result: Result<Box<Reply>, Failure>,
    ) -> Effect {
        let failure = match result {
            Ok(reply) => {
                self.failures = 0;
                return match goal {
                    Goal::Call(step) => self.step_answered(step, *reply),
                    Goal::Undo(step) => self.undone(step, host, &reply),
                    Goal::Settle(poll) => self.settle_answered(poll, Ok(*reply)),
                    Goal::Plan | Goal::Begin(_) | Goal::Leave | Goal::Next => self.go(Goal::Plan),
                };
            }
            Err(failure) => failure,
        };
        match refusals::read(failure) {
            Reading::LeaseLost => Effect::Done(Ended::LeaseLost),
            Reading::AgentRestarted(_) => self.refresh(goal, Some((host.clone(), incarnation))),
            Reading::OutcomeUnknown(why) => self.unanswered(goal, host, why),
            Reading::Refused(refusal) => self.refused(goal, host, refusal),
        }
    }

    pub(crate) fn undone(&mut self, step: Step, host: &HostName, reply: &Reply) -> Effect {
        let cause = self.why_given_up();
        match self.script.undone(reply, &self.context, cause) {
            Ok(effect) => {
                let record = self.record(step, Mark::Undone, effect);
                self.commit(record, Goal::Plan, OnRefusal::Replan)
            }
            Err(refusal) => {
                self.failures += 1;
                self.log_and_wait(Goal::Undo(step), step, host, &refusal)
            }
        }
    }

    pub(crate) fn step_answered(&mut self, step: Step, reply: Reply) -> Effect {
        if !self.is_settled_from(step) && self.is_cancelled() {
            let refusal = refusals::cancelled(&self.context.operation);
            return self.fail(step, refusal);
        }
        match self.script.answered(step, reply, &mut self.context) {
            Ok(effect) => self.succeed(step, effect),
            Err(refusal) => self.fail(step, refusal),
        }
    }

    /// No answer came: the call may have been carried out, or may still be.
    pub(crate) fn unanswered(&mut self, goal: Goal, host: &HostName, why: NoOutcome) -> Effect {
        self.failures += 1;
        match goal {
            Goal::Call(step) if self.is_settled_from(step) && self.failures >= CALLS_MAX => {
                self.transfer.record_error(&why.message);
                self.go(Goal::Settle(Poll::Source))
            }
            Goal::Call(step) if self.can_give_up() && self.failures >= CALLS_MAX => {
                self.fail(step, refusals::unreachable(host, &why))
            }
            Goal::Call(step) | Goal::Undo(step) => {
                let why = refusals::unreachable(host, &why);
                self.log_and_wait(goal, step, host, &why)
            }
            Goal::Settle(poll) => self.settle_answered(poll, Err(Miss::Silent(why.message))),
            Goal::Plan | Goal::Begin(_) | Goal::Leave | Goal::Next => {
                self.wait(Goal::Plan, Backoff::CALL)
            }
        }
    }

    /// The agent refused.
    fn refused(&mut self, goal: Goal, host: &HostName, refusal: Refusal) -> Effect {
        let refusal = match refusal.metadata.contains_key("host") {
            true => refusal,
            false => refusal.with("host", host),
        };
        match goal {
            Goal::Call(step) if self.is_settled_from(step) => {
                self.transfer.refused = Some(refusal.clone());
                let mark = Mark::Failed(refusal);
                let record = self.record(step, mark, operation::Effect::None);
                self.commit(record, Goal::Settle(Poll::Source), OnRefusal::Continue)
            }
            Goal::Call(step) if self.can_give_up() => self.fail(step, refusal),
            Goal::Call(step) | Goal::Undo(step) => {
                self.failures += 1;
                self.log_and_wait(goal, step, host, &refusal)
            }
            Goal::Settle(poll) => self.settle_answered(poll, Err(Miss::Refused(refusal.message))),
            Goal::Plan | Goal::Begin(_) | Goal::Leave | Goal::Next => {
                self.wait(Goal::Plan, Backoff::CALL)
            }
        }
    }
}
