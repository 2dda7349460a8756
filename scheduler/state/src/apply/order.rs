//! The order of steps that operations keep to. The conductor knows it too; this is what holds when
//! a conductor is wrong or late.
//!
//! ```text
//! boot      Claim ▶ Spawn                                  ┐ a step with effects in the world is
//! delete    [DropSource] ▶ Destroy                            │ Started before it Succeeded, and a
//! migrate   Claim ▶ CheckDestination ▶ CheckSource         │ claim is given back only when none
//!           ▶ FitDestination ▶ PreLiveMigration            │ of them may have had effects, or all
//!           ▶ LiveMigration (no return) ▶ Settle           ┘ were Undone
//! cold      Claim ▶ StopSource ▶ [FetchDisks] ▶ StartDestination ▶ [DropSource (no return)]
//! revert    StopDestination ▶ StartSource ▶ [DropDestination]
//! confirm   DropSource
//!           Where the hosts share the disks, and where there are none, the steps in brackets are left
//!           out. So is DropSource where the move waits to be verified: what is left on the source goes
//!           when it is confirmed, or when the VM is deleted.
//! evacuate  Claim ▶ StartDestination
//! shelve    StopSource
//! unshelve  Claim ▶ StartDestination
//! stop      Stop                   ┐
//! start     Start                  │ on the VM's own host and claim: an end says how the guest is,
//! reboot    Stop ▶ Start           │ and is logged with the last success, with an undo, or with a
//! rebuild   Stop ▶ MakeDisks ▶ Start │ failure while nothing was started
//! snapshot  CopyDisk ▶ PublishImage ┘
//! ```

use berth_domain::operation::{Entry, Kind, Mark, Step};
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
    /// Whether the hypervisors were told to move the guest.
    pub(super) transferring: bool,
    /// Whether somebody asked to cancel it.
    pub(super) cancelled: bool,
    /// Whether disks are fetched, or were and are on both hosts still.
    pub(super) fetches_disks: bool,
    /// Whether the move waits to be verified.
    pub(super) verify: bool,
}

impl Position<'_> {
    /// Returns the steps of the operation, in order.
    fn steps(&self) -> Vec<Step> {
        let steps = steps_of(self.kind).iter().copied();
        steps.filter(|step| self.is_due(*step)).collect()
    }

    fn is_due(&self, step: Step) -> bool {
        match step {
            Step::FetchDisks | Step::DropDestination => self.fetches_disks,
            Step::DropSource => {
                let is_kept = self.verify && matches!(self.kind, Kind::ColdMigrate { .. });
                self.fetches_disks && !is_kept
            }
            Step::Claim
            | Step::Spawn
            | Step::CheckDestination
            | Step::CheckSource
            | Step::FitDestination
            | Step::PreLiveMigration
            | Step::LiveMigration
            | Step::Settle
            | Step::Destroy
            | Step::StopSource
            | Step::StartDestination
            | Step::StopDestination
            | Step::StartSource
            | Step::Stop
            | Step::MakeDisks
            | Step::Start
            | Step::CopyDisk
            | Step::PublishImage => true,
        }
    }

    fn is_last(&self, step: Step) -> bool {
        self.steps().last() == Some(&step)
    }
}

/// Says whether this may be logged next.
pub(super) fn examine(
    position: &Position<'_>,
    step: Step,
    mark: &Mark,
    effect: &Effect,
) -> Result<(), Refusal> {
    examine_effect(position, step, mark, effect)?;
    if position.transferring && !matches!(step, Step::LiveMigration | Step::Settle) {
        return Err(out_of_order(step, "the guest is being moved"));
    }
    match mark {
        Mark::Started => examine_start(position, step),
        Mark::Succeeded => examine_success(position, step),
        Mark::Failed(_) => Ok(()),
        Mark::UndoStarted | Mark::Undone => match step {
            Step::LiveMigration
            | Step::Settle
            | Step::Destroy
            | Step::StopDestination
            | Step::StartSource
            | Step::DropSource
            | Step::DropDestination => Err(out_of_order(step, "this step has no undo")),
            Step::StopSource if *position.kind == Kind::Shelve => {
                Err(out_of_order(step, "this step has no undo"))
            }
            Step::StopSource
            | Step::StartDestination
            | Step::Claim
            | Step::Spawn
            | Step::CheckDestination
            | Step::CheckSource
            | Step::FitDestination
            | Step::PreLiveMigration
            | Step::Stop
            | Step::MakeDisks
            | Step::Start
            | Step::CopyDisk
            | Step::PublishImage
            | Step::FetchDisks => Ok(()),
        },
    }
}

/// Says whether the effect belongs to this step of this kind, and comes in its time.
fn examine_effect(
    position: &Position<'_>,
    step: Step,
    mark: &Mark,
    effect: &Effect,
) -> Result<(), Refusal> {
    let kind = position.kind;
    let claims = steps_of(kind).contains(&Step::Claim);
    if !position.steps().contains(&step) {
        return Err(out_of_order(
            step,
            "operations of this kind have no such step",
        ));
    }
    let succeeded = *mark == Mark::Succeeded;
    let gave_up = matches!(mark, Mark::Failed(_) | Mark::Undone);
    let allowed = match effect {
        Effect::None => !needs_effect(position, step, mark),
        Effect::HoldClaim(_) => step == Step::Claim && succeeded,
        Effect::ConfirmClaim { .. } => step == Step::FitDestination && succeeded,
        Effect::SwapClaim { .. } => step == Step::FitDestination && succeeded,
        Effect::ReleaseClaim { .. } => gave_up && claims,
        Effect::CompleteBoot => step == Step::Spawn && succeeded,
        Effect::FailBoot(_) => gave_up && *kind == Kind::Boot,
        Effect::BeginTransfer => step == Step::LiveMigration && *mark == Mark::Started,
        Effect::RefuseMigration(_) => gave_up && kind.claiming().is_some(),
        Effect::Settle { .. } => step == Step::Settle,
        Effect::CompleteDelete => step == Step::Destroy && succeeded,
        Effect::CompleteMove => {
            let cold = matches!(kind, Kind::ColdMigrate { .. } | Kind::Evacuate { .. });
            cold && position.is_last(step) && succeeded
        }
        Effect::CompleteRevert => {
            let reverts = matches!(kind, Kind::RevertResize { .. });
            reverts && position.is_last(step) && succeeded
        }
        Effect::CompleteConfirm => matches!(kind, Kind::ConfirmResize { .. }) && succeeded,
        Effect::CompleteShelve => *kind == Kind::Shelve && succeeded,
        Effect::CompleteUnshelve => {
            step == Step::StartDestination && succeeded && *kind == Kind::Unshelve
        }
        Effect::FailUnshelve(_) => gave_up && *kind == Kind::Unshelve,
        Effect::EndPower { refusal, .. } => {
            kind.is_power() && ends_power(position, step, mark, refusal.is_some())
        }
        Effect::BeginRebuild => step == Step::MakeDisks && *mark == Mark::Started,
    };
    if !allowed {
        return Err(precondition(
            "EFFECT_NOT_ALLOWED",
            format!("{step:?} {} does not mean this", name(mark)),
        ));
    }
    let gives_back = match effect {
        Effect::ReleaseClaim { .. }
        | Effect::FailBoot(_)
        | Effect::RefuseMigration(_)
        | Effect::FailUnshelve(_)
        | Effect::SwapClaim { .. } => true,
        Effect::None
        | Effect::HoldClaim(_)
        | Effect::ConfirmClaim { .. }
        | Effect::CompleteBoot
        | Effect::BeginTransfer
        | Effect::Settle { .. }
        | Effect::CompleteDelete
        | Effect::CompleteMove
        | Effect::CompleteRevert
        | Effect::CompleteShelve
        | Effect::CompleteUnshelve
        | Effect::EndPower { .. }
        | Effect::BeginRebuild
        | Effect::CompleteConfirm => false,
    };
    if gives_back {
        examine_clean(position, step, mark)?;
    }
    Ok(())
}

/// Returns the steps of a kind of operation, in order.
fn steps_of(kind: &Kind) -> &'static [Step] {
    match kind {
        Kind::Boot => &[Step::Claim, Step::Spawn],
        Kind::Delete => &[Step::DropSource, Step::Destroy],
        Kind::LiveMigrate { .. } => &[
            Step::Claim,
            Step::CheckDestination,
            Step::CheckSource,
            Step::FitDestination,
            Step::PreLiveMigration,
            Step::LiveMigration,
            Step::Settle,
        ],
        Kind::ColdMigrate { .. } => &[
            Step::Claim,
            Step::StopSource,
            Step::FetchDisks,
            Step::StartDestination,
            Step::DropSource,
        ],
        Kind::RevertResize { .. } => &[
            Step::StopDestination,
            Step::StartSource,
            Step::DropDestination,
        ],
        Kind::ConfirmResize { .. } => &[Step::DropSource],
        Kind::Evacuate { .. } | Kind::Unshelve => &[Step::Claim, Step::StartDestination],
        Kind::Shelve => &[Step::StopSource],
        Kind::Stop { .. } => &[Step::Stop],
        Kind::Start => &[Step::Start],
        Kind::Reboot { .. } => &[Step::Stop, Step::Start],
        Kind::Rebuild { .. } => &[Step::Stop, Step::MakeDisks, Step::Start],
        Kind::Snapshot { .. } => &[Step::CopyDisk, Step::PublishImage],
    }
}

/// Whether the operation on the VM's own host may end with this entry.
fn ends_power(position: &Position<'_>, step: Step, mark: &Mark, refused: bool) -> bool {
    let steps = steps_of(position.kind);
    match mark {
        Mark::Succeeded => !refused && steps.last() == Some(&step),
        // A draft that turns out to have got its name is no failure.
        Mark::Undone => refused || step == Step::PublishImage,
        Mark::Failed(_) => refused && steps.iter().all(|s| !is_dirty(position.attempt, *s)),
        Mark::Started | Mark::UndoStarted => false,
    }
}

/// Some marks are never logged without what they mean.
fn needs_effect(position: &Position<'_>, step: Step, mark: &Mark) -> bool {
    let kind = position.kind;
    match (step, mark) {
        (Step::MakeDisks, Mark::Started) => true,
        (
            Step::Stop | Step::MakeDisks | Step::Start | Step::CopyDisk | Step::PublishImage,
            Mark::Succeeded,
        ) => steps_of(kind).last() == Some(&step),
        // Where disks are deleted afterwards, what it comes to is said then.
        (
            Step::StartDestination | Step::StartSource | Step::DropSource | Step::DropDestination,
            Mark::Succeeded,
        ) => position.is_last(step),
        (Step::StopSource, Mark::Succeeded) => *kind == Kind::Shelve,
        (Step::Claim | Step::Spawn | Step::FitDestination | Step::Destroy, Mark::Succeeded)
        | (Step::LiveMigration, Mark::Started)
        | (Step::Settle, Mark::Succeeded) => true,
        (
            Step::Claim
            | Step::Spawn
            | Step::CheckDestination
            | Step::CheckSource
            | Step::FitDestination
            | Step::PreLiveMigration
            | Step::LiveMigration
            | Step::Settle
            | Step::Destroy
            | Step::StopSource
            | Step::StartDestination
            | Step::StopDestination
            | Step::StartSource
            | Step::Stop
            | Step::MakeDisks
            | Step::Start
            | Step::CopyDisk
            | Step::PublishImage
            | Step::FetchDisks
            | Step::DropSource
            | Step::DropDestination,
            Mark::Started | Mark::Succeeded | Mark::Failed(_) | Mark::UndoStarted | Mark::Undone,
        ) => false,
    }
}

/// Nothing may be left in the world that uses the claim: this entry counts already.
fn examine_clean(position: &Position<'_>, step: Step, mark: &Mark) -> Result<(), Refusal> {
    let with_undo = [
        Step::Spawn,
        Step::PreLiveMigration,
        Step::StopSource,
        Step::StartDestination,
        Step::FetchDisks,
    ];
    // The source's disks may be gone: the VM cannot go back to it.
    if is_dirty(position.attempt, Step::DropSource) {
        let why = "the source's disks may be deleted already";
        return Err(out_of_order(Step::DropSource, why));
    }
    for used in with_undo {
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
    if step == Step::LiveMigration && position.cancelled {
        return Err(precondition(
            "OPERATION_CANCELLED",
            "the operation was cancelled before the guest was moved",
        ));
    }
    examine_before(position, step)?;
    match latest(position.attempt, step) {
        Some(Mark::UndoStarted | Mark::Undone) => Err(out_of_order(step, "it was undone")),
        Some(Mark::Succeeded) if has_effects(step) => Err(out_of_order(step, "it was done")),
        Some(Mark::Succeeded | Mark::Started | Mark::Failed(_)) | None => Ok(()),
    }
}

fn examine_success(position: &Position<'_>, step: Step) -> Result<(), Refusal> {
    examine_before(position, step)?;
    if !has_effects(step) {
        return Ok(());
    }
    match latest(position.attempt, step) {
        Some(Mark::Started | Mark::Failed(_)) => Ok(()),
        Some(Mark::Succeeded | Mark::UndoStarted | Mark::Undone) | None => {
            Err(out_of_order(step, "it was not started"))
        }
    }
}

/// Whether the step does something in the world that stays.
fn has_effects(step: Step) -> bool {
    match step {
        Step::Spawn
        | Step::PreLiveMigration
        | Step::LiveMigration
        | Step::Destroy
        | Step::StopSource
        | Step::StartDestination
        | Step::StopDestination
        | Step::StartSource
        | Step::Stop
        | Step::MakeDisks
        | Step::Start
        | Step::CopyDisk
        | Step::PublishImage
        | Step::FetchDisks
        | Step::DropSource
        | Step::DropDestination => true,
        Step::Claim
        | Step::CheckDestination
        | Step::CheckSource
        | Step::FitDestination
        | Step::Settle => false,
    }
}

/// Says whether what the step builds on was done.
fn examine_before(position: &Position<'_>, step: Step) -> Result<(), Refusal> {
    let done = |step| latest(position.attempt, step) == Some(&Mark::Succeeded);
    let ready = match step {
        Step::Claim => return claim_is_due(position),
        Step::StopDestination => true,
        // Each of these follows on all that come before it.
        Step::Destroy | Step::FetchDisks | Step::DropSource | Step::DropDestination => {
            let steps = position.steps().into_iter();
            let mut before = steps
                .take_while(|s| *s != step)
                .filter(|s| *s != Step::Claim);
            let claimed = position.claimed || !steps_of(position.kind).contains(&Step::Claim);
            claimed && before.all(done)
        }
        Step::StopSource => position.claimed || *position.kind == Kind::Shelve,
        Step::StartDestination => {
            let steps = position.steps().into_iter();
            let mut before = steps
                .take_while(|s| *s != step)
                .filter(|s| *s != Step::Claim);
            position.claimed && before.all(done)
        }
        Step::StartSource => done(Step::StopDestination),
        Step::Stop | Step::MakeDisks | Step::Start | Step::CopyDisk | Step::PublishImage => {
            let steps = steps_of(position.kind).iter();
            steps.take_while(|s| **s != step).all(|s| done(*s))
        }
        Step::Spawn | Step::CheckDestination => position.claimed,
        Step::CheckSource => position.claimed && done(Step::CheckDestination),
        Step::FitDestination => position.claimed && done(Step::CheckSource),
        Step::PreLiveMigration => {
            let fitted = done(Step::FitDestination)
                || (!position.has_topology
                    && latest(position.attempt, Step::FitDestination).is_none());
            position.claimed && done(Step::CheckSource) && fitted
        }
        Step::LiveMigration => position.transferring || done(Step::PreLiveMigration),
        Step::Settle => position.transferring,
    };
    if ready {
        Ok(())
    } else {
        Err(out_of_order(step, "what comes before it was not done"))
    }
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
