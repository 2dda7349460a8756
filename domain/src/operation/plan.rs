//! How an operation of one kind proceeds: what a row of the [table](super::table) can say.
//!
//! Not here: the calls themselves, which the conductor's saga builds, and what an effect does, which
//! is the state's.
//!
//! Invariant: the saga takes its next step and its undo from here, and the state takes from here what
//! it accepts. Neither has an order of its own.

use super::effect::EffectName;
use super::kind::Kind;
use super::step::Step;
use crate::migration::{Migration, State};
use crate::vm;

/// How operations of one kind proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What users read.
    pub title: &'static str,
    /// The kind as the value of a label of metrics, which does not change.
    pub label: &'static str,
    /// What is being done to the VM, where its state does not show it: the wire's `Vm.task`.
    pub task: Option<&'static str>,
    /// The states of a VM on which it may be at work.
    pub works_in: &'static [vm::State],
    /// What the claim is for that it takes, if it takes one.
    pub claims: Option<ClaimPurpose>,
    /// Whether it is done to the guest on the VM's own host, on the claim that it has.
    pub on_own_host: bool,
    /// The steps, in order.
    pub steps: &'static [StepPlan],
    /// What follows from a failure, and where the point of no return is.
    pub on_failure: OnFailure,
    /// Whether a conductor that takes over goes on after the last step that succeeded. The others
    /// start again, because the agents' answers were lost.
    pub resumes: bool,
    /// What the success of the last step means. It ends the operation.
    pub completes: EffectName,
    /// What giving up means, once everything is undone. It ends the operation.
    pub gives_up: Option<EffectName>,
}

/// One step of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// Which.
    pub step: Step,
    /// How it is taken back.
    pub undo: Undo,
    /// When there is such a step at all.
    pub due: Due,
    /// What its start means, if it means anything.
    pub on_start: Option<EffectName>,
    /// What its success means, one of these, where it is not the last. Empty: nothing.
    pub on_success: &'static [EffectName],
    /// Whether another host may do better after it has failed.
    pub tries_another_host: bool,
    /// Whether the state lets it be left out for a guest without a topology.
    pub is_optional_without_topology: bool,
}

/// How a step is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undo {
    /// Nothing is left behind that would have to be taken back.
    Nothing,
    /// The claim is given back, in the state alone.
    ReleaseClaim,
    /// The step's agent is called to undo it, until it has.
    CallAgent,
    /// It cannot be undone.
    NoReturn,
}

/// When an operation has a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Due {
    /// Always.
    Always,
    /// Where the destination fetches the disks, or fetched them and the source has them still.
    DisksFetched,
    /// Where the destination fetches the disks and no user is to verify the move.
    DisksFetchedForGood,
}

/// What a migration decides about the steps that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Whether its disks are fetched, or are on both hosts still.
    pub fetches_disks: bool,
    /// Whether the move waits to be verified.
    pub verify: bool,
}

/// What follows from a failure, or from a user's cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// All that was done is undone.
    Undo,
    /// All that was done is undone, until this step is started. From then on it is retried until it is
    /// done.
    UndoBefore(Step),
    /// All that was done is undone, until this step is started. From then on the two hypervisors
    /// decide how it ends: the operation is settled, not undone.
    SettleFrom(Step),
    /// It is retried until it is done: there is no giving up, and no cancelling either.
    Retry,
}

/// What a claim is for that an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimPurpose {
    /// The first start of the VM.
    Boot,
    /// The VM moves there while it runs.
    LiveMigration,
    /// The VM moves there, or to another size, while it does not run.
    ColdMigration,
    /// The VM is started there because its host is dead.
    Evacuation,
    /// The VM is started there after it was shelved.
    Unshelving,
}

impl Plan {
    /// Returns the row of a step; nothing where operations of this kind have no such step.
    #[must_use]
    pub fn step(&self, step: Step) -> Option<&'static StepPlan> {
        self.steps.iter().find(|plan| plan.step == step)
    }

    /// Returns the steps that an operation has under these conditions, in order.
    pub fn due(&self, conditions: Conditions) -> impl Iterator<Item = &'static StepPlan> + use<> {
        let steps = self.steps.iter();
        steps.filter(move |plan| plan.due.holds(conditions))
    }

    /// Returns whether a step is the last that there is.
    #[must_use]
    pub fn is_last(&self, step: Step, conditions: Conditions) -> bool {
        self.due(conditions).last().is_some_and(|p| p.step == step)
    }
}

impl StepPlan {
    /// Returns a step that is always due, with marks that mean nothing beyond the log.
    #[must_use]
    pub(super) const fn new(step: Step, undo: Undo) -> Self {
        Self {
            step,
            undo,
            due: Due::Always,
            on_start: None,
            on_success: &[],
            tries_another_host: false,
            is_optional_without_topology: false,
        }
    }
}

impl Due {
    fn holds(self, conditions: Conditions) -> bool {
        match self {
            Self::Always => true,
            Self::DisksFetched => conditions.fetches_disks,
            Self::DisksFetchedForGood => conditions.fetches_disks && !conditions.verify,
        }
    }
}

impl Conditions {
    /// Returns the conditions of an operation. `migration` is the one that it is about; for a
    /// deletion, the one for which the VM has a claim on another host.
    #[must_use]
    pub fn of(kind: &Kind, migration: Option<&Migration>) -> Self {
        let is_left = |m: &&Migration| *kind != Kind::Delete || m.state == State::Verifying;
        migration.filter(is_left).map_or(Self::default(), |m| Self {
            fetches_disks: m.fetches_disks,
            verify: m.verify,
        })
    }
}

impl OnFailure {
    /// Returns whether failures lead to the undo, at least at first.
    #[must_use]
    pub fn undoes(self) -> bool {
        match self {
            Self::Undo | Self::UndoBefore(_) | Self::SettleFrom(_) => true,
            Self::Retry => false,
        }
    }

    /// Returns the step after the start of which the operation is retried until it is done.
    #[must_use]
    pub fn retries_from(self) -> Option<Step> {
        match self {
            Self::UndoBefore(step) => Some(step),
            Self::Undo | Self::SettleFrom(_) | Self::Retry => None,
        }
    }

    /// Returns the step after the start of which the two hypervisors decide.
    #[must_use]
    pub fn settles_from(self) -> Option<Step> {
        match self {
            Self::SettleFrom(step) => Some(step),
            Self::Undo | Self::UndoBefore(_) | Self::Retry => None,
        }
    }
}
