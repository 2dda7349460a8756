//! Log and event give the next effect: what all kinds of operations have in common.
//!
//! Not here: what a step does (the operation's own file), and what happens after the point
//! of no return (`reconcile`).
//!
//! ```text
//!   plan ──▶ Begin ──▶ Call ──▶ (answered) ──▶ Begin of the next step …
//!    ▲         │         │ refused, cancelled, or not answered too often
//!    │         └────┬────┘
//!    │              ▼
//!    │       log Failed ──▶ Undo, latest step first ──▶ Leave ──▶ next host, or give up
//!    └──────────────────────────── next host claimed ◀──┘
//! ```
//!
//! Invariant: one effect is in progress at a time, and what is done next follows from the log, so
//! that [`Saga::resume`] may be called with any log that a saga has written.

use berth_domain::agent::{Call, DomainStatus, Fence, Reply};
use berth_domain::id::{Epoch, Incarnation};
use berth_domain::name::HostName;
use berth_domain::operation::{self, Mark, Operation, Step};
use berth_domain::refusal::Refusal;

use crate::backoff::Backoff;
use crate::effect::{AgentCall, Effect, Ended, StepRecord};
use crate::event::Event;
use crate::facts::Facts;
use crate::journal::Journal;
use crate::plan::{Action, Context, Memory, Script, Undo, script};
use crate::reconcile::{Poll, Transfer};
use crate::refusals::{self, NoOutcome};

/// After how many failures in a row an undo or a deletion logs that it waits.
const LOG_AFTER_FAILURES: u32 = 3;
/// How many hosts are tried for one operation that is no migration.
const HOSTS_TRIED_MAX: usize = 3;

/// What is being attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// What follows from the log.
    Plan,
    /// A step, from its start.
    Begin(Step),
    /// A step that is logged as started, or needs no such entry.
    Call(Step),
    /// The undo of a step.
    Undo(Step),
    /// Everything is undone: give the claim back, then try the next host or give up.
    Leave,
    /// The next host.
    Next,
    /// Where the guest is.
    Settle(Poll),
}

/// What has to happen after a record is committed or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) record: StepRecord,
    pub(crate) then: Goal,
    pub(crate) on_refusal: OnRefusal,
}

/// What a refused commit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRefusal {
    /// The step failed.
    Fail(Step),
    /// The record was informative only; continue.
    Continue,
    /// The log is not as expected: read it and plan again.
    Replan,
}

/// The answer that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outstanding {
    Begin,
    Commit(Commit),
    Schedule,
    Call {
        goal: Goal,
        host: HostName,
        incarnation: Incarnation,
    },
    Refresh {
        goal: Goal,
        /// The agent that reported a restart, and the incarnation that was meant.
        restarted: Option<(HostName, Incarnation)>,
    },
    /// A wait; then facts are read again for the goal.
    Wait(Goal),
    /// A wait for the end of a transfer, or as [`Self::Wait`]; then it is looked where the guest is.
    Watch,
    /// A wait; then the same commit again.
    WaitToCommit(Commit),
    Nothing,
}

/// One operation in progress.
#[derive(Clone)]
pub struct Saga {
    pub(crate) context: Context,
    pub(crate) transfer: Transfer,
    pub(crate) script: &'static dyn Script,
    pub(crate) epoch: Epoch,
    /// Failures in a row of what is being attempted.
    pub(crate) failures: u32,
    pub(crate) outstanding: Outstanding,
}

impl std::fmt::Debug for Saga {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saga")
            .field("operation", &self.context.operation.id)
            .field("epoch", &self.epoch)
            .field("outstanding", &self.outstanding)
            .finish_non_exhaustive()
    }
}

impl Saga {
    /// Returns the saga of an operation, wherever its log has come to. The lease in `operation`
    /// has to be one's own. Then step it with [`Event::Begin`].
    #[must_use]
    pub fn resume(operation: Operation, facts: Facts) -> Self {
        let script = script(&operation.kind);
        let epoch = operation.lease.as_ref().map_or(Epoch(0), |l| l.epoch);
        Self {
            context: Context {
                operation,
                facts,
                memory: Memory::default(),
            },
            transfer: Transfer::default(),
            script,
            epoch,
            failures: 0,
            outstanding: Outstanding::Begin,
        }
    }

    /// Returns the operation as it was last committed or read.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.context.operation
    }

    /// Returns the step of the call in progress, and whether the call undoes it.
    #[must_use]
    pub fn called_step(&self) -> Option<(Step, bool)> {
        let Outstanding::Call { goal, .. } = &self.outstanding else {
            return None;
        };
        match goal {
            Goal::Call(step) => Some((*step, false)),
            Goal::Undo(step) => Some((*step, true)),
            Goal::Settle(Poll::Source | Poll::Destination(_) | Poll::Order(_)) => {
                Some((Step::Settle, false))
            }
            Goal::Settle(Poll::CleanSource | Poll::CleanDestination(_) | Poll::DropHalf(_)) => {
                Some((Step::Settle, true))
            }
            Goal::Plan | Goal::Begin(_) | Goal::Leave | Goal::Next => None,
        }
    }

    /// Returns what to do next. Every effect is answered with one event; only
    /// [`Event::CancelRequested`] answers none, and gives no effect.
    ///
    /// # Panics
    ///
    /// When the event does not answer the effect in progress: the driver is wrong.
    pub fn step(&mut self, event: Event) -> Option<Effect> {
        if event == Event::CancelRequested {
            self.context.operation.cancelled = true;
            return None;
        }
        let outstanding = std::mem::replace(&mut self.outstanding, Outstanding::Nothing);
        let effect = match (outstanding, event) {
            (Outstanding::Begin, Event::Begin) => self.go(Goal::Plan),
            (Outstanding::Commit(commit), Event::Committed(result)) => {
                self.committed(commit, result)
            }
            (Outstanding::Schedule, Event::Scheduled(result)) => self.scheduled(result),
            (
                Outstanding::Call {
                    goal,
                    host,
                    incarnation,
                },
                Event::Answered(result),
            ) => self.answered(goal, &host, incarnation, result),
            (Outstanding::Refresh { goal, restarted }, Event::Refreshed(result)) => {
                self.refreshed(goal, restarted, result)
            }
            (Outstanding::Wait(goal), Event::Elapsed) => self.refresh(goal, None),
            (Outstanding::WaitToCommit(commit), Event::Elapsed) => self.send(commit),
            (Outstanding::Watch, Event::Elapsed) => self.refresh(Goal::Settle(Poll::Source), None),
            (Outstanding::Watch, Event::TransferEnded) => self.transfer_ended(),
            (outstanding, event) => {
                panic!("event {event:?} does not answer what is in progress: {outstanding:?}")
            }
        };
        Some(effect)
    }

    /// Returns whether failures, or a request to cancel, lead to the undo: not once that cannot be
    /// undone.
    pub(crate) fn can_give_up(&self) -> bool {
        let on_failure = self.context.plan().on_failure;
        let no_return = on_failure.retries_from();
        on_failure.undoes() && !no_return.is_some_and(|step| self.journal().has_started(step))
    }

    /// Returns whether the two hypervisors decide, once this step is started.
    pub(crate) fn is_settled_from(&self, step: Step) -> bool {
        self.context.plan().on_failure.settles_from() == Some(step)
    }

    pub(crate) fn journal(&self) -> Journal<'_> {
        Journal::of(&self.context.operation.log)
    }

    pub(crate) fn go(&mut self, goal: Goal) -> Effect {
        if self.context.operation.is_done() {
            return Effect::Done(Ended::Finished);
        }
        if self.epoch == Epoch(0) {
            return Effect::Done(Ended::LeaseLost);
        }
        match goal {
            Goal::Plan => {
                let goal = self.plan();
                self.go(goal)
            }
            Goal::Begin(step) => self.begin(step),
            Goal::Call(step) => self.call_step(step),
            Goal::Undo(step) => self.undo(step),
            Goal::Leave => self.leave(),
            Goal::Next => {
                self.outstanding = Outstanding::Schedule;
                Effect::ScheduleNext {
                    operation: self.context.operation.id,
                    epoch: self.epoch,
                }
            }
            Goal::Settle(poll) => self.settle(poll),
        }
    }

    /// Reads from the log what is to be done.
    fn plan(&self) -> Goal {
        let (journal, plan) = (self.journal(), self.context.plan());
        let crossed = plan.on_failure.settles_from();
        if crossed.is_some_and(|step| journal.has_started(step)) {
            return Goal::Settle(Poll::Source);
        }
        let given_back = plan.claims.is_some()
            && (journal.is_undone(Step::Claim) || !journal.has_succeeded(Step::Claim));
        if self.can_give_up() && (journal.failure().is_some() || given_back) {
            let to_undo = plan.steps.iter().rev().find(|p| {
                p.undo == Undo::CallAgent
                    && journal.has_started(p.step)
                    && !journal.is_undone(p.step)
            });
            return to_undo.map_or(Goal::Leave, |p| Goal::Undo(p.step));
        }
        // The agents' answers to the steps that succeeded were lost with the conductor that had
        // called them, so the calls are repeated, from the first on.
        let is_done = |step| plan.resumes && journal.has_succeeded(step);
        let mut due = self.context.due();
        let first = due.find(|p| p.step != Step::Claim && !is_done(p.step));
        first.map_or(Goal::Leave, |p| Goal::Begin(p.step))
    }

    fn begin(&mut self, step: Step) -> Effect {
        if self.is_cancelled() {
            let refusal = refusals::cancelled(&self.context.operation);
            return self.fail(step, refusal);
        }
        if step.has_side_effects() && !self.journal().has_started(step) {
            let effect = self.context.start(step);
            let record = self.record(step, Mark::Started, effect);
            return self.commit(record, Goal::Call(step), OnRefusal::Fail(step));
        }
        self.go(Goal::Call(step))
    }

    fn call_step(&mut self, step: Step) -> Effect {
        if !self.is_settled_from(step) && self.is_cancelled() {
            let refusal = refusals::cancelled(&self.context.operation);
            return self.fail(step, refusal);
        }
        match self.script.action(step, &self.context) {
            Ok(Action::CallAgent { host, call }) if self.is_over(&host, &call) => {
                self.step_answered(step, Reply::Done)
            }
            Ok(Action::CallAgent { host, call }) => self.call(Goal::Call(step), host, *call),
            Ok(Action::Complete(effect)) => self.succeed(step, effect),
            Err(refusal) => self.fail(step, refusal),
        }
    }

    fn undo(&mut self, step: Step) -> Effect {
        if !self.journal().is_undo_started(step) {
            let record = self.record(step, Mark::UndoStarted, operation::Effect::None);
            return self.commit(record, Goal::Undo(step), OnRefusal::Replan);
        }
        match self.script.undo(step, &self.context) {
            // Nothing goes on there, and what its agent may find when it is back is its own to
            // take away.
            Ok((host, call)) if self.is_dead(&host) => {
                let reply = if matches!(call, Call::DropImage { .. }) {
                    Reply::Image { published: false }
                } else {
                    Reply::Domain(DomainStatus::absent())
                };
                self.undone(step, &host, &reply)
            }
            Ok((host, call)) => self.call(Goal::Undo(step), host, call),
            // Without a claim there is nothing that an agent could hold; the log is read again
            // because it shows otherwise.
            Err(_) => self.wait(Goal::Plan, Backoff::SCHEDULER),
        }
    }

    pub(crate) fn is_dead(&self, host: &HostName) -> bool {
        self.context.facts.hosts.get(host).is_some_and(|h| h.dead)
    }

    /// Returns whether a call's purpose is fulfilled, as nothing runs on a host that is proven to
    /// be dead. What must be started there, as it can be nowhere else, is left to be evacuated.
    fn is_over(&self, host: &HostName, call: &Call) -> bool {
        let ends = matches!(
            call,
            Call::DestroyVm | Call::StopVm { .. } | Call::DropDisks { .. }
        );
        let starts =
            matches!(call, Call::StartVm { .. }) && !self.context.plan().on_failure.undoes();
        (ends || starts) && self.is_dead(host)
    }

    fn leave(&mut self) -> Effect {
        let cause = self.cause();
        let operation = &self.context.operation;
        let held = operation.claim;
        let migration = self.context.facts.migration.as_ref();
        let hosts_tried_max = migration.map_or(HOSTS_TRIED_MAX, |m| m.hosts_tried_max as usize);
        let tried = operation.excluded.len() + usize::from(held.is_some());
        let another = operation.requested_host.is_none()
            && !operation.cancelled
            && tried < hosts_tried_max
            && cause
                .as_ref()
                .and_then(|(step, _)| self.context.plan().step(*step))
                .is_some_and(|plan| plan.tries_another_host);
        match (another, held) {
            (true, Some(claim)) => {
                let effect = operation::Effect::ReleaseClaim {
                    claim,
                    exclude: true,
                };
                let record = self.record(Step::Claim, Mark::Undone, effect);
                self.commit(record, Goal::Next, OnRefusal::Replan)
            }
            (true, None) => self.go(Goal::Next),
            (false, _) => self.give_up(None),
        }
    }

    /// Returns the step that made this attempt fail, and why.
    fn cause(&self) -> Option<(Step, Refusal)> {
        let (step, refusal) = self.journal().failure()?;
        Some((step, refusal.clone()))
    }

    /// Ends the operation with the refusal that made it fail; `next` is why no other host was
    /// taken.
    pub(crate) fn give_up(&mut self, next: Option<&Refusal>) -> Effect {
        let refusal = match (self.cause(), next) {
            (Some((_, cause)), Some(next)) => cause.with("alternatives", &next.message),
            (None, Some(next)) => next.clone(),
            (Some(_) | None, None) => self.why_given_up(),
        };
        let mark = if self.context.operation.claim.is_some() {
            Mark::Undone
        } else {
            Mark::Failed(refusal.clone())
        };
        let effect = self.context.give_up(refusal);
        // An operation that claims nothing logs it for its first step.
        let first = self
            .context
            .plan()
            .steps
            .first()
            .map_or(Step::Claim, |p| p.step);
        let record = self.record(first, mark, effect);
        self.commit(record, Goal::Plan, OnRefusal::Replan)
    }

    /// Returns the refusal that the operation ends with.
    pub(crate) fn why_given_up(&self) -> Refusal {
        match self.cause() {
            Some((_, cause)) => cause,
            None => refusals::cancelled(&self.context.operation),
        }
    }

    /// The step was done; its meaning is committed with its entry.
    pub(crate) fn succeed(&mut self, step: Step, effect: operation::Effect) -> Effect {
        let then = self.after(step);
        let means_nothing_new = matches!(
            effect,
            operation::Effect::None | operation::Effect::ConfirmClaim { .. }
        );
        // Repeated by a conductor that took over: logged already.
        if means_nothing_new && self.journal().has_succeeded(step) {
            return self.go(then);
        }
        // The transfer goes on all the same. For a step that is retried until it is done, a failure
        // means to plan again.
        let on_refusal = match self.is_settled_from(step) {
            true => OnRefusal::Continue,
            false => OnRefusal::Fail(step),
        };
        let record = self.record(step, Mark::Succeeded, effect);
        self.commit(record, then, on_refusal)
    }

    fn after(&self, step: Step) -> Goal {
        let mut later = self.context.due().skip_while(|p| p.step != step);
        let next = later.nth(1);
        match next.map(|p| p.step) {
            Some(Step::Settle) => Goal::Settle(Poll::Source),
            Some(next) => Goal::Begin(next),
            None => Goal::Plan,
        }
    }

    /// Logs the failure of a step, from which the undo follows.
    ///
    /// A conductor that took over repeats calls that had succeeded. If one is refused then, the
    /// failure is logged at the step that the log has come to, as the log only grows forward.
    pub(crate) fn fail(&mut self, step: Step, refusal: Refusal) -> Effect {
        if !self.can_give_up() {
            return self.wait(Goal::Plan, Backoff::SCHEDULER);
        }
        let journal = self.journal();
        let mut due = self.context.due().map(|p| p.step);
        let reached = due
            .find(|s| *s != Step::Claim && !journal.has_succeeded(*s))
            .unwrap_or(step);
        self.failures = 0;
        let record = self.record(reached, Mark::Failed(refusal), operation::Effect::None);
        self.commit(record, Goal::Plan, OnRefusal::Replan)
    }

    /// Logs once what is waited for, then waits and retries.
    pub(crate) fn log_and_wait(
        &mut self,
        goal: Goal,
        step: Step,
        host: &HostName,
        why: &Refusal,
    ) -> Effect {
        let what = match goal {
            Goal::Undo(_) => format!("the undo of `{}`", step.title()),
            Goal::Plan
            | Goal::Begin(_)
            | Goal::Call(_)
            | Goal::Leave
            | Goal::Next
            | Goal::Settle(_) => format!("`{}`", step.title()),
        };
        let refusal = refusals::stuck(host, &what, why);
        let waits = |r: &Refusal| r.reason == refusal.reason;
        let must_log = !self.can_give_up() || matches!(goal, Goal::Undo(_));
        if must_log
            && self.failures == LOG_AFTER_FAILURES
            && !self.journal().last_failure(step).is_some_and(waits)
        {
            let record = self.record(step, Mark::Failed(refusal), operation::Effect::None);
            return self.commit(record, goal, OnRefusal::Continue);
        }
        self.wait(goal, Backoff::CALL)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.context.operation.cancelled && self.can_give_up()
    }

    pub(crate) fn record(&self, step: Step, mark: Mark, effect: operation::Effect) -> StepRecord {
        StepRecord {
            operation: self.context.operation.id,
            epoch: self.epoch,
            step,
            mark,
            effect,
        }
    }

    /// Commits the verdict on a transfer, or that there is none yet.
    pub(crate) fn commit_settle(&mut self, record: StepRecord, then: Goal) -> Effect {
        self.commit(record, then, OnRefusal::Replan)
    }

    /// Commits a record that is informative only.
    pub(crate) fn commit_log_entry(&mut self, record: StepRecord, then: Goal) -> Effect {
        self.commit(record, then, OnRefusal::Continue)
    }

    pub(crate) fn commit(
        &mut self,
        record: StepRecord,
        then: Goal,
        on_refusal: OnRefusal,
    ) -> Effect {
        self.send(Commit {
            record,
            then,
            on_refusal,
        })
    }

    fn send(&mut self, commit: Commit) -> Effect {
        let effect = Effect::Commit(Box::new(commit.record.clone()));
        self.outstanding = Outstanding::Commit(commit);
        effect
    }

    pub(crate) fn call(&mut self, goal: Goal, host: HostName, call: Call) -> Effect {
        let Some(known) = self.context.facts.hosts.get(&host) else {
            let why = NoOutcome::silence(refusals::host_unknown(&host).message);
            return self.unanswered(goal, &host, why);
        };
        let effect = Effect::Call(Box::new(AgentCall {
            host: host.clone(),
            address: known.address.clone(),
            fence: Fence {
                vm: self.context.facts.vm.uid,
                operation: self.context.operation.id,
                epoch: self.epoch,
                incarnation: known.incarnation,
                attempt: self.context.attempt(),
            },
            call,
        }));
        self.outstanding = Outstanding::Call {
            goal,
            host,
            incarnation: known.incarnation,
        };
        effect
    }

    pub(crate) fn wait(&mut self, goal: Goal, backoff: Backoff) -> Effect {
        let ms = backoff.after(self.failures);
        self.wait_ms(goal, ms)
    }

    pub(crate) fn wait_ms(&mut self, goal: Goal, ms: u64) -> Effect {
        self.outstanding = Outstanding::Wait(goal);
        Effect::Wait { ms }
    }

    pub(crate) fn refresh(
        &mut self,
        goal: Goal,
        restarted: Option<(HostName, Incarnation)>,
    ) -> Effect {
        self.outstanding = Outstanding::Refresh { goal, restarted };
        Effect::Refresh
    }
}
