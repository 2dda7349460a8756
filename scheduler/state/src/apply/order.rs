//! Whether an entry may be logged next. The order, the undo and the effects are those of the
//! [table](berth_domain::operation::table) that the saga goes by too; this is what holds when a
//! conductor is wrong or late.
//!
//! Invariant: a step with effects in the world is started before it succeeds, and a claim is given
//! back only when none of them may have had effects, or all were undone.

use berth_domain::operation::{
    Conditions, EffectName, Entry, Kind, Mark, Plan, Step, StepPlan, Undo,
};
use berth_domain::refusal::Refusal;

use super::log::{is_dirty, latest};
use crate::command::Effect;
use crate::refusals::precondition;

/// What the order depends on.
pub(super) struct Position<'a> {
    /// What the operation is about.
    pub(super) kind: &'a Kind,
    /// The log of the current attempt.
    pub(super) attempt: &'a [Entry],
    /// Whether a claim is held for it.
    pub(super) claimed: bool,
    /// Whether the guest has a topology to be fitted.
    pub(super) has_topology: bool,
    /// Whether the transfer of the guest was started.
    pub(super) transferring: bool,
    /// Whether its cancellation was requested.
    pub(super) cancelled: bool,
    /// Which steps there are.
    pub(super) conditions: Conditions,
}

impl Position<'_> {
    fn plan(&self) -> &'static Plan {
        self.kind.plan()
    }

    fn is_last(&self, step: Step) -> bool {
        self.plan().is_last(step, self.conditions)
    }

    /// Returns whether the two hypervisors decide, once this step is started.
    fn is_settled_from(&self, step: Step) -> bool {
        self.plan().on_failure.settles_from() == Some(step)
    }

    /// Returns whether the step stands at or behind the point from which hypervisors decide.
    fn is_settling(&self, step: Step) -> bool {
        let steps = self.plan().steps.iter();
        let mut settling = steps.skip_while(|plan| !self.is_settled_from(plan.step));
        settling.any(|plan| plan.step == step)
    }
}

/// Says whether this may be logged next.
pub(super) fn examine(
    position: &Position<'_>,
    step: Step,
    mark: &Mark,
    effect: &Effect,
) -> Result<(), Refusal> {
    let mut due = position.plan().due(position.conditions);
    let Some(plan) = due.find(|plan| plan.step == step) else {
        let why = "operations of this kind have no such step";
        return Err(out_of_order(step, why));
    };
    if !is_allowed(position, step, mark, effect) {
        return Err(precondition(
            "EFFECT_NOT_ALLOWED",
            format!("{step:?} {} does not mean this", name(mark)),
        ));
    }
    if gives_back(effect.name()) {
        examine_clean(position, step, mark)?;
    }
    if position.transferring && !position.is_settling(step) {
        return Err(out_of_order(step, "the guest is being moved"));
    }
    match mark {
        Mark::Started => examine_start(position, step),
        Mark::Succeeded => examine_success(position, step),
        Mark::Failed(_) => Ok(()),
        Mark::UndoStarted | Mark::Undone => match plan.undo {
            Undo::NoReturn => Err(out_of_order(step, "this step has no undo")),
            Undo::Nothing | Undo::ReleaseClaim | Undo::CallAgent => Ok(()),
        },
    }
}

/// Returns whether the effect belongs to this step of this kind, and comes in its time.
fn is_allowed(position: &Position<'_>, step: Step, mark: &Mark, effect: &Effect) -> bool {
    let plan = position.plan();
    let name = effect.name();
    // Where a guest is may be reported with any mark: the verdict is not the step's alone.
    if name == EffectName::Settle {
        return plan.completes == name && position.is_last(step);
    }
    match mark {
        Mark::Started => means(name, plan.step(step).and_then(|p| p.on_start).as_slice()),
        Mark::Succeeded if position.is_last(step) => name == plan.completes && !is_refused(effect),
        Mark::Succeeded => means(name, plan.step(step).map_or(&[], |p| p.on_success)),
        Mark::Failed(_) | Mark::Undone => match name {
            EffectName::None => true,
            EffectName::ReleaseClaim => plan.claims.is_some(),
            EffectName::EndPower => {
                plan.gives_up == Some(name) && ends(position, step, mark, effect)
            }
            EffectName::FailBoot | EffectName::RefuseMigration | EffectName::FailUnshelve => {
                plan.gives_up == Some(name)
            }
            EffectName::HoldClaim
            | EffectName::ConfirmClaim
            | EffectName::SwapClaim
            | EffectName::CompleteBoot
            | EffectName::BeginTransfer
            | EffectName::Settle
            | EffectName::CompleteDelete
            | EffectName::CompleteMove
            | EffectName::CompleteRevert
            | EffectName::CompleteShelve
            | EffectName::CompleteUnshelve
            | EffectName::BeginRebuild
            | EffectName::CompleteConfirm => false,
        },
        Mark::UndoStarted => name == EffectName::None,
    }
}

/// Returns whether the effect is one of those that the mark has, or is none where the mark has none.
fn means(name: EffectName, meanings: &[EffectName]) -> bool {
    match meanings.is_empty() {
        true => name == EffectName::None,
        false => meanings.contains(&name),
    }
}

/// Returns whether the operation on the VM's own host may be given up with this entry.
fn ends(position: &Position<'_>, step: Step, mark: &Mark, effect: &Effect) -> bool {
    let refused = is_refused(effect);
    match mark {
        // A draft that turns out to have got its name is no failure.
        Mark::Undone => refused || step == Step::PublishImage,
        Mark::Failed(_) => {
            let mut steps = position.plan().steps.iter();
            refused && steps.all(|plan| !is_dirty(position.attempt, plan.step))
        }
        Mark::Started | Mark::Succeeded | Mark::UndoStarted => false,
    }
}

fn is_refused(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::EndPower {
            refusal: Some(_),
            ..
        }
    )
}

/// Returns whether the effect gives a claim back, or what it holds.
fn gives_back(effect: EffectName) -> bool {
    match effect {
        EffectName::ReleaseClaim
        | EffectName::FailBoot
        | EffectName::RefuseMigration
        | EffectName::FailUnshelve
        | EffectName::SwapClaim => true,
        EffectName::None
        | EffectName::HoldClaim
        | EffectName::ConfirmClaim
        | EffectName::CompleteBoot
        | EffectName::BeginTransfer
        | EffectName::Settle
        | EffectName::CompleteDelete
        | EffectName::CompleteMove
        | EffectName::CompleteRevert
        | EffectName::CompleteShelve
        | EffectName::CompleteUnshelve
        | EffectName::EndPower
        | EffectName::BeginRebuild
        | EffectName::CompleteConfirm => false,
    }
}

/// Nothing may be left in the world that uses the claim: this entry counts already.
fn examine_clean(position: &Position<'_>, step: Step, mark: &Mark) -> Result<(), Refusal> {
    let plan = position.plan();
    // The source's disks may be gone: the VM cannot go back to it.
    if let Some(no_return) = plan.on_failure.retries_from()
        && is_dirty(position.attempt, no_return)
    {
        let why = "the source's disks may be deleted already";
        return Err(out_of_order(no_return, why));
    }
    let with_undo = plan.steps.iter().filter(|p| p.undo == Undo::CallAgent);
    for used in with_undo.map(|plan| plan.step) {
        let undone_now = used == step && *mark == Mark::Undone;
        if !undone_now && is_dirty(position.attempt, used) {
            return Err(out_of_order(
                used,
                "it may have had effects and was not undone",
            ));
        }
    }
    Ok(())
}

fn examine_start(position: &Position<'_>, step: Step) -> Result<(), Refusal> {
    if position.is_settled_from(step) && position.cancelled {
        return Err(precondition(
            "OPERATION_CANCELLED",
            "the operation was cancelled before the guest was moved",
        ));
    }
    examine_before(position, step)?;
    match latest(position.attempt, step) {
        Some(Mark::UndoStarted | Mark::Undone) => Err(out_of_order(step, "it was undone")),
        Some(Mark::Succeeded) if step.has_side_effects() => Err(out_of_order(step, "it was done")),
        Some(Mark::Succeeded | Mark::Started | Mark::Failed(_)) | None => Ok(()),
    }
}

fn examine_success(position: &Position<'_>, step: Step) -> Result<(), Refusal> {
    examine_before(position, step)?;
    if !step.has_side_effects() {
        return Ok(());
    }
    match latest(position.attempt, step) {
        Some(Mark::Started | Mark::Failed(_)) => Ok(()),
        Some(Mark::Succeeded | Mark::UndoStarted | Mark::Undone) | None => {
            Err(out_of_order(step, "it was not started"))
        }
    }
}

/// Says whether what the step builds on was done: the claim is held, and each step before it has
/// succeeded.
fn examine_before(position: &Position<'_>, step: Step) -> Result<(), Refusal> {
    if step == Step::Claim {
        return claim_is_due(position);
    }
    let ready = if position.is_settling(step) && position.transferring {
        true
    } else if position.is_settling(step) && !position.is_settled_from(step) {
        // Nothing moves that could be settled.
        false
    } else {
        is_before_done(position, step)
    };
    if ready {
        Ok(())
    } else {
        Err(out_of_order(step, "what comes before it was not done"))
    }
}

fn is_before_done(position: &Position<'_>, step: Step) -> bool {
    let plan = position.plan();
    let before = plan.due(position.conditions);
    let before = before.take_while(|plan| plan.step != step);
    let mut before = before.filter(|plan| plan.step != Step::Claim);
    let is_done = |plan: &StepPlan| {
        let mark = latest(position.attempt, plan.step);
        let may_lack = plan.is_optional_without_topology && !position.has_topology;
        mark == Some(&Mark::Succeeded) || may_lack && mark.is_none()
    };
    let is_claimed = position.claimed || plan.claims.is_none();
    is_claimed && before.all(is_done)
}

fn claim_is_due(position: &Position<'_>) -> Result<(), Refusal> {
    if position.claimed {
        return Err(out_of_order(Step::Claim, "a claim is held already"));
    }
    if position.cancelled {
        return Err(precondition(
            "OPERATION_CANCELLED",
            "the operation was cancelled",
        ));
    }
    Ok(())
}

fn out_of_order(step: Step, why: &str) -> Refusal {
    precondition(
        "STEP_OUT_OF_ORDER",
        format!("step {step:?} cannot be logged so: {why}"),
    )
    .with("step", format!("{step:?}"))
}

fn name(mark: &Mark) -> &'static str {
    match mark {
        Mark::Started => "started",
        Mark::Succeeded => "succeeded",
        Mark::Failed(_) => "failed",
        Mark::UndoStarted => "undo started",
        Mark::Undone => "undone",
    }
}
