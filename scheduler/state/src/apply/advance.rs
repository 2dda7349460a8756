//! Logging a step of an operation and doing what it means, in one.
//!
//! A conductor that got no answer sends the same again, and a conductor that took the lease over
//! may repeat what the one before it logged: both are answered, and nothing happens twice.

use berth_domain::fence::may_evacuate;
use berth_domain::id::{Epoch, OperationId};
use berth_domain::migration;
use berth_domain::name::HostName;
use berth_domain::operation::{Conditions, Kind, Mark, Operation, Site, Step};
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;

use super::lease::{done, fence};
use super::log::{append, attempt, latest};
use super::order::{Position, examine};
use crate::command::Effect;
use crate::refusals::precondition;
use crate::reply::Reply;
use crate::transaction::{Journal, Transaction};

impl<J: Journal> Transaction<'_, J> {
    pub(super) fn advance(
        &mut self,
        id: OperationId,
        epoch: Epoch,
        step: Step,
        mark: &Mark,
        effect: &Effect,
    ) -> Result<Reply, Refusal> {
        if mark.refusal().is_none() && effect.refusal().is_none() {
            return self.log_step(id, epoch, step, mark, effect);
        }
        // Conductors pass on what agents and hypervisors report, of any length.
        let is_bounded = self.may_write(ServiceVersion::BOUNDED_RECORDS);
        let (mark, effect) = (mark.as_record(is_bounded), effect.as_record(is_bounded));
        self.log_step(id, epoch, step, &mark, &effect)
    }

    fn log_step(
        &mut self,
        id: OperationId,
        epoch: Epoch,
        step: Step,
        mark: &Mark,
        effect: &Effect,
    ) -> Result<Reply, Refusal> {
        let operation = self.state.operation(id).cloned();
        let operation = operation.ok_or_else(|| Refusal::not_found("operation", id))?;
        if operation.is_done() {
            let last = operation.log.last();
            let again = last.is_some_and(|e| e.step == step && e.mark == *mark);
            return if again && ends(effect) {
                Ok(Reply::Operation(operation))
            } else {
                Err(done(id))
            };
        }
        fence(&operation, epoch)?;
        if operation.drain().is_some() {
            let message = format!("operation {id} has no steps: it is a drain");
            return Err(precondition("STEP_NOT_ALLOWED", message).with("operation", id));
        }
        if self.is_repeated(&operation, step, mark, effect) {
            return Ok(Reply::Operation(operation));
        }
        examine(&self.position(&operation), step, mark, effect)?;
        self.examine_proof(&operation, step, mark)?;
        let mut next = (*operation).clone();
        append(
            &mut next,
            step,
            mark,
            self.host_of(&operation, step, effect),
            self.now(),
        );
        self.perform(&mut next, effect)?;
        self.renew_cpu_to_undo(&next, step, mark);
        Ok(Reply::Operation(self.put_operation(next)))
    }

    /// Before a guest is started again where it was stopped to be moved: its host may give it another CPU
    /// by now than its claim records. Where it gives none, the start is refused as the claim is.
    fn renew_cpu_to_undo(&mut self, operation: &Operation, step: Step, mark: &Mark) {
        if (step, mark) != (Step::StopSource, &Mark::UndoStarted) {
            return;
        }
        let vm = operation.vm().and_then(|vm| self.state.vm(vm)).cloned();
        if let Some(vm) = vm {
            drop(self.renew_cpu(&vm));
        }
    }

    /// Refuses to start a guest elsewhere whose host has turned out to be alive since its evacuation began.
    fn examine_proof(&self, operation: &Operation, step: Step, mark: &Mark) -> Result<(), Refusal> {
        let Kind::Evacuate { migration } = operation.kind else {
            return Ok(());
        };
        let starts = (step, mark) == (Step::StartDestination, &Mark::Started);
        if !starts || !self.may_write(ServiceVersion::EVACUATION_PROOF) {
            return Ok(());
        }
        let source = self.state.migration(migration).map(|m| &m.source);
        match source.and_then(|source| self.state.host(source)) {
            Some(view) => may_evacuate(&view.host, self.now()).map(drop),
            None => Ok(()),
        }
    }

    /// Does what the step means. Each of these looks first and writes last.
    fn perform(&mut self, operation: &mut Operation, effect: &Effect) -> Result<(), Refusal> {
        match effect {
            Effect::None => Ok(()),
            Effect::HoldClaim(claim) => self.hold_next(operation, claim),
            Effect::ConfirmClaim { claim } => self.confirm(operation, *claim),
            Effect::SwapClaim { claim, assignment } => self.swap(operation, *claim, assignment),
            Effect::ReleaseClaim { claim, exclude } => self.give_up(operation, *claim, *exclude),
            Effect::CompleteBoot => self.complete_boot(operation),
            Effect::FailBoot(refusal) => self.fail_boot(operation, refusal),
            Effect::BeginTransfer => self.begin_transfer(operation),
            Effect::RefuseMigration(refusal) => self.refuse_migration(operation, refusal),
            Effect::Settle { event, refusal } => self.settle(operation, *event, refusal.as_ref()),
            Effect::CompleteDelete => self.complete_delete(operation),
            Effect::CompleteMove => self.complete_move(operation),
            Effect::CompleteRevert => self.complete_revert(operation),
            Effect::CompleteShelve => self.complete_shelve(operation),
            Effect::CompleteUnshelve => self.complete_unshelve(operation),
            Effect::FailUnshelve(refusal) => self.fail_unshelve(operation, refusal),
            Effect::EndPower { power, refusal } => {
                self.end_power(operation, *power, refusal.as_ref())
            }
            Effect::BeginRebuild => self.begin_rebuild(operation),
            Effect::CompleteConfirm => self.complete_confirm(operation),
        }
    }

    /// Returns whether this was logged, and its effect done, already.
    fn is_repeated(&self, operation: &Operation, step: Step, mark: &Mark, effect: &Effect) -> bool {
        let logged = latest(attempt(&operation.log), step) == Some(mark);
        let held = operation.claim.and_then(|id| self.state.claim(id));
        match effect {
            Effect::None | Effect::BeginTransfer | Effect::BeginRebuild => logged,
            Effect::HoldClaim(claim) => held.is_some_and(|held| held.id == claim.id),
            Effect::ConfirmClaim { claim } => logged && operation.claim == Some(*claim),
            Effect::SwapClaim { claim, assignment } => {
                logged && held.is_some_and(|h| h.id == *claim && h.assignment == *assignment)
            }
            Effect::ReleaseClaim { claim, .. } => {
                logged && operation.claim.is_none() && self.state.claim(*claim).is_none()
            }
            // These end the operation, or say something new each time.
            Effect::CompleteBoot
            | Effect::FailBoot(_)
            | Effect::RefuseMigration(_)
            | Effect::Settle { .. }
            | Effect::CompleteDelete
            | Effect::CompleteMove
            | Effect::CompleteRevert
            | Effect::CompleteShelve
            | Effect::CompleteUnshelve
            | Effect::FailUnshelve(_)
            | Effect::CompleteConfirm
            | Effect::EndPower { .. } => false,
        }
    }

    fn position<'o>(&self, operation: &'o Operation) -> Position<'o> {
        let vm = operation.vm().and_then(|vm| self.state.vm(vm));
        let migration = match operation.kind.migration() {
            Some(id) => self.state.migration(id).cloned(),
            // A VM that is deleted while its move waits to be verified is on two hosts.
            None if operation.kind == Kind::Delete => vm.and_then(|vm| self.resize_of(vm)),
            None => None,
        };
        Position {
            kind: &operation.kind,
            attempt: attempt(&operation.log),
            claimed: operation.claim.is_some(),
            has_topology: vm.is_some_and(|vm| vm.spec.topology.is_some()),
            transferring: self.is_transferring(operation),
            cancelled: operation.cancelled,
            conditions: Conditions::of(&operation.kind, migration.as_deref()),
        }
    }

    fn is_transferring(&self, operation: &Operation) -> bool {
        let Kind::LiveMigrate { migration } = operation.kind else {
            return false;
        };
        let state = self.state.migration(migration).map(|m| m.state);
        matches!(
            state,
            Some(migration::State::Running | migration::State::Unsettled)
        )
    }

    /// Returns the host that an entry is about.
    fn host_of(&self, operation: &Operation, step: Step, effect: &Effect) -> Option<HostName> {
        if let Effect::HoldClaim(claim) = effect {
            return Some(claim.host.clone());
        }
        match step.site() {
            Site::VmHost => self.state.vm(operation.vm()?)?.host.clone(),
            Site::Source => {
                let migration = match operation.kind.migration() {
                    Some(id) => self.state.migration(id)?.clone(),
                    None => self.resize_of(self.state.vm(operation.vm()?)?)?,
                };
                Some(migration.source.clone())
            }
            Site::Claimed => Some(self.state.claim(operation.claim?)?.host.clone()),
            Site::Both => None,
        }
    }
}

/// Whether the effect can be the one that ended an operation.
fn ends(effect: &Effect) -> bool {
    match effect {
        Effect::CompleteBoot
        | Effect::FailBoot(_)
        | Effect::RefuseMigration(_)
        | Effect::Settle { .. }
        | Effect::CompleteDelete
        | Effect::CompleteMove
        | Effect::CompleteRevert
        | Effect::CompleteShelve
        | Effect::CompleteUnshelve
        | Effect::FailUnshelve(_)
        | Effect::CompleteConfirm
        | Effect::EndPower { .. } => true,
        Effect::None
        | Effect::HoldClaim(_)
        | Effect::ConfirmClaim { .. }
        | Effect::SwapClaim { .. }
        | Effect::ReleaseClaim { .. }
        | Effect::BeginTransfer
        | Effect::BeginRebuild => false,
    }
}
