//! The table of operations: each kind with its steps, their order, undo and effects.
//!
//! ```text
//! boot      Claim ▶ Spawn
//! delete    [DropSource] ▶ Destroy
//! live      Claim ▶ CheckDestination ▶ CheckSource ▶ FitDestination ▶ PreLiveMigration
//!           ▶ LiveMigration (no return) ▶ Settle
//! cold      Claim ▶ StopSource ▶ [FetchDisks] ▶ StartDestination ▶ [DropSource (no return)]
//! revert    StopDestination ▶ StartSource ▶ [DropDestination]
//! confirm   [DropSource]
//! evacuate  Claim ▶ StartDestination
//! shelve    StopSource
//! unshelve  Claim ▶ StartDestination
//! stop      Stop
//! start     Start
//! reboot    Stop ▶ Start
//! rebuild   Stop ▶ MakeDisks ▶ Start
//! snapshot  CopyDisk ▶ PublishImage
//! drain     (no step: its moves are operations of their own)
//! ```
//!
//! Where the hosts share the disks, and where there are none, the steps in brackets are left out. So
//! is `DropSource` where a cold migration waits to be verified: what is left on the source goes when
//! it is confirmed, or when the VM is deleted.
//!
//! Each row says why the step stands where it stands, and why its undo is enough or absent.

use super::effect::EffectName;
use super::kind::Kind;
use super::plan::{ClaimPurpose, Due, OnFailure, Plan, StepPlan, Undo};
use super::step::Step;
use crate::vm::State;

/// All plans of operations that have steps, for tests and documents.
pub const PLANS: [&Plan; 14] = [
    &BOOT,
    &DELETE,
    &LIVE_MIGRATION,
    &COLD_MIGRATION,
    &REVERT_RESIZE,
    &CONFIRM_RESIZE,
    &EVACUATION,
    &SHELVING,
    &UNSHELVING,
    &STOP,
    &START,
    &REBOOT,
    &REBUILD,
    &SNAPSHOT,
];

/// The plan of each kind, those without steps too.
pub const KINDS: [&Plan; PLANS.len() + 1] = {
    let mut kinds = [&DRAIN; PLANS.len() + 1];
    let mut at = 0;
    while at < PLANS.len() {
        kinds[at] = PLANS[at];
        at += 1;
    }
    kinds
};

impl Kind {
    /// Returns how operations of this kind proceed.
    #[must_use]
    pub fn plan(&self) -> &'static Plan {
        match self {
            Self::Boot => &BOOT,
            Self::Delete => &DELETE,
            Self::LiveMigrate { .. } => &LIVE_MIGRATION,
            Self::ColdMigrate { .. } => &COLD_MIGRATION,
            Self::RevertResize { .. } => &REVERT_RESIZE,
            Self::ConfirmResize { .. } => &CONFIRM_RESIZE,
            Self::Evacuate { .. } => &EVACUATION,
            Self::Shelve => &SHELVING,
            Self::Unshelve => &UNSHELVING,
            Self::Stop { .. } => &STOP,
            Self::Start => &START,
            Self::Reboot { .. } => &REBOOT,
            Self::Rebuild { .. } => &REBUILD,
            Self::Snapshot { .. } => &SNAPSHOT,
            Self::DrainHost(_) => &DRAIN,
        }
    }
}

/// First, and in the very command that begins the operation: no moment exists in which a guest is to
/// go somewhere and nothing is held for it there. A claim is state alone, and so is its release. It
/// is released last: only once its host has reported that nothing runs on it.
const CLAIM: StepPlan = StepPlan {
    on_success: &[EffectName::HoldClaim],
    ..StepPlan::new(Step::Claim, Undo::ReleaseClaim)
};

static BOOT: Plan = Plan {
    title: "boot",
    label: "boot",
    task: None,
    works_in: &[State::Building],
    claims: Some(ClaimPurpose::Boot),
    on_own_host: false,
    steps: &[
        StepPlan {
            tries_another_host: true,
            ..CLAIM
        },
        // The claim goes with the call, so the guest starts on exactly what was committed. An agent
        // that is called twice starts one guest. Its undo destroys the guest and is called even
        // after a plain refusal, since an earlier, unanswered try may have started one; an agent
        // that has destroyed it refuses a start that comes late.
        StepPlan {
            tries_another_host: true,
            ..StepPlan::new(Step::Spawn, Undo::CallAgent)
        },
    ],
    on_failure: OnFailure::Undo,
    resumes: false,
    completes: EffectName::CompleteBoot,
    gives_up: Some(EffectName::FailBoot),
};

static DELETE: Plan = Plan {
    title: "delete",
    label: "delete",
    task: None,
    works_in: &[State::Deleting],
    claims: None,
    on_own_host: false,
    steps: &[
        // Where its disks were fetched by a move that waits to be verified, they are on the source
        // too. First, as the claim there is released with the VM. No undo, as below.
        StepPlan {
            due: Due::DisksFetched,
            ..StepPlan::new(Step::DropSource, Undo::NoReturn)
        },
        // The claim goes with the VM in the command that ends it, after the host has reported that
        // the guest is gone: CPUs are never given to another while a guest may still run on them.
        // There is no undo: a guest that was destroyed cannot be brought back. So there is no giving
        // up and no cancelling either; while its host does not answer, the operation goes on and
        // logs it.
        StepPlan::new(Step::Destroy, Undo::NoReturn),
    ],
    on_failure: OnFailure::Retry,
    resumes: true,
    completes: EffectName::CompleteDelete,
    gives_up: None,
};

static LIVE_MIGRATION: Plan = Plan {
    title: "live migration",
    label: "live_migrate",
    task: None,
    works_in: &[State::Migrating],
    claims: Some(ClaimPurpose::LiveMigration),
    on_own_host: false,
    steps: &[
        StepPlan {
            tries_another_host: true,
            ..CLAIM
        },
        // A query. It comes before the call to the source because the source answers with regard to
        // what the destination reports of its storage and driver. Leaves nothing behind.
        StepPlan {
            tries_another_host: true,
            ..StepPlan::new(Step::CheckDestination, Undo::Nothing)
        },
        // A query, answered with `migrate_data` and the guest's topology as it is. Leaves nothing
        // behind. If it is refused no other destination helps, so none is tried.
        StepPlan::new(Step::CheckSource, Undo::Nothing),
        // The destination compares the claim with the host as it really is. The agent only answers;
        // what follows (confirm, swap) is a command, in which the old claim goes and the new one
        // comes together. The agent keeps nothing, so there is nothing to take back but the claim.
        // Conductors of service version 1 left it out for guests without a topology.
        StepPlan {
            on_success: &[EffectName::ConfirmClaim, EffectName::SwapClaim],
            tries_another_host: true,
            is_optional_without_topology: true,
            ..StepPlan::new(Step::FitDestination, Undo::Nothing)
        },
        // The destination makes disks, networks and a listening hypervisor ready. Its undo is called
        // for even after a plain refusal, since an earlier, unanswered try may have prepared
        // something; an agent that has rolled back refuses a preparation that comes late.
        StepPlan {
            tries_another_host: true,
            ..StepPlan::new(Step::PreLiveMigration, Undo::CallAgent)
        },
        // The start of this step is the point of no return, committed before the call leaves: a
        // conductor that finds it in the log must assume that the guest is moving. It has no undo,
        // because only the two hypervisors know from here on where the guest is.
        StepPlan {
            on_start: Some(EffectName::BeginTransfer),
            tries_another_host: true,
            ..StepPlan::new(Step::LiveMigration, Undo::NoReturn)
        },
        // Not a call but a reconciliation: both agents are polled until their answers make a
        // verdict. It settles the claims on both sides in one command. It never gives up: while it
        // cannot know, both claims stay and the migration reports what it waits for.
        StepPlan {
            tries_another_host: true,
            ..StepPlan::new(Step::Settle, Undo::NoReturn)
        },
    ],
    on_failure: OnFailure::SettleFrom(Step::LiveMigration),
    resumes: false,
    completes: EffectName::Settle,
    gives_up: Some(EffectName::RefuseMigration),
};

static COLD_MIGRATION: Plan = Plan {
    title: "cold migration",
    label: "cold_migrate",
    task: Some("MOVING"),
    works_in: &[State::Active, State::Stopped],
    claims: Some(ClaimPurpose::ColdMigration),
    on_own_host: false,
    steps: &[
        CLAIM,
        // The disks are one host's at a time: the guest is stopped here before it starts there. Its
        // claim stays, so its undo, which starts it where it was, always finds its CPUs.
        StepPlan::new(Step::StopSource, Undo::CallAgent),
        // Where the hosts do not share the disks. Nothing writes to them now, and the claim of the
        // source keeps all others off them. Once it has succeeded all of them are on the
        // destination's stable storage. Its undo stops what goes on and deletes what is there; only
        // then is the guest started where it was, so that nothing is read from disks below a guest.
        StepPlan {
            due: Due::DisksFetched,
            tries_another_host: true,
            ..StepPlan::new(Step::FetchDisks, Undo::CallAgent)
        },
        // Its undo stops the guest and is called even after a plain refusal, since an earlier,
        // unanswered try may have started one; it shuts out a start that comes late. It comes before
        // the undo of the stop: the guest never runs twice.
        StepPlan {
            tries_another_host: true,
            ..StepPlan::new(Step::StartDestination, Undo::CallAgent)
        },
        // Where no user is to verify it. From its start on the VM cannot go back, so that nothing is
        // given up any more: while the source does not answer, the operation goes on and logs it. A
        // source that is dead keeps what it has. The command that ends it gives the source's claim
        // back.
        StepPlan {
            due: Due::DisksFetchedForGood,
            ..StepPlan::new(Step::DropSource, Undo::NoReturn)
        },
    ],
    on_failure: OnFailure::UndoBefore(Step::DropSource),
    // Disks must not be fetched again below a guest that was started.
    resumes: true,
    completes: EffectName::CompleteMove,
    gives_up: Some(EffectName::RefuseMigration),
};

static REVERT_RESIZE: Plan = Plan {
    title: "revert of a resize",
    label: "revert_resize",
    task: Some("REVERTING"),
    works_in: &[State::Resized],
    claims: None,
    on_own_host: false,
    steps: &[
        // The guest is stopped here before it starts there. There is no undo, since this is one
        // already: what it goes back to is claimed, so nothing can be in its way for good.
        StepPlan::new(Step::StopDestination, Undo::NoReturn),
        // On the claim that was kept for it. The command that ends it gives the other claim back.
        StepPlan::new(Step::StartSource, Undo::NoReturn),
        // Where the disks were fetched: those on the source are the VM's again, as they were left
        // there, and these are in use by no VM. The other claim, with its disk space, is released
        // afterwards.
        StepPlan {
            due: Due::DisksFetched,
            ..StepPlan::new(Step::DropDestination, Undo::NoReturn)
        },
    ],
    on_failure: OnFailure::Retry,
    // A guest that was started on the source is not started again if it has stopped since.
    resumes: true,
    completes: EffectName::CompleteRevert,
    gives_up: None,
};

static CONFIRM_RESIZE: Plan = Plan {
    title: "confirmation of a resize",
    label: "confirm_resize",
    task: Some("CONFIRMING"),
    works_in: &[State::Resized],
    claims: None,
    on_own_host: false,
    steps: &[
        // The claim on the source goes in the command that ends it, so that its disk space is not
        // given to another VM before it is free. What is deleted cannot be brought back, so there is
        // no undo; while the source does not answer, the operation goes on and logs it. A source
        // that is dead keeps its disks, which are no longer in use.
        StepPlan {
            due: Due::DisksFetched,
            ..StepPlan::new(Step::DropSource, Undo::NoReturn)
        },
    ],
    on_failure: OnFailure::Retry,
    resumes: false,
    completes: EffectName::CompleteConfirm,
    gives_up: None,
};

/// Its undo stops the guest and shuts out a start that comes late. A dead host is not called for
/// anything: its agent, should it come back, takes away what its claims do not cover.
const START_ELSEWHERE: &[StepPlan] = &[
    StepPlan {
        tries_another_host: true,
        ..CLAIM
    },
    StepPlan {
        tries_another_host: true,
        ..StepPlan::new(Step::StartDestination, Undo::CallAgent)
    },
];

static EVACUATION: Plan = Plan {
    title: "evacuation",
    label: "evacuate",
    task: Some("EVACUATING"),
    works_in: &[State::Active, State::Stopped],
    claims: Some(ClaimPurpose::Evacuation),
    on_own_host: false,
    steps: START_ELSEWHERE,
    on_failure: OnFailure::Undo,
    resumes: false,
    completes: EffectName::CompleteMove,
    gives_up: Some(EffectName::RefuseMigration),
};

static SHELVING: Plan = Plan {
    title: "shelving",
    label: "shelve",
    task: Some("SHELVING"),
    works_in: &[State::Active, State::Stopped],
    claims: None,
    on_own_host: false,
    steps: &[
        // The claim goes in the command that ends it, after the host has reported that the guest is
        // gone. Like a deletion it has no undo and no giving up: while its host does not answer, the
        // operation goes on and logs it.
        StepPlan::new(Step::StopSource, Undo::NoReturn),
    ],
    on_failure: OnFailure::Retry,
    resumes: false,
    completes: EffectName::CompleteShelve,
    gives_up: None,
};

static UNSHELVING: Plan = Plan {
    title: "unshelving",
    label: "unshelve",
    task: Some("UNSHELVING"),
    works_in: &[State::Shelved],
    claims: Some(ClaimPurpose::Unshelving),
    on_own_host: false,
    steps: START_ELSEWHERE,
    on_failure: OnFailure::Undo,
    resumes: false,
    completes: EffectName::CompleteUnshelve,
    gives_up: Some(EffectName::FailUnshelve),
};

/// If repeated, it stops a guest once. It may have stopped it also where no answer came, so the undo
/// queries its state; afterwards the host refuses a stop that comes late.
const STOPPING: StepPlan = StepPlan::new(Step::Stop, Undo::CallAgent);

/// The claim goes with the call, as when the VM was booted. Last, since what it builds on is done. A
/// guest that cannot be started is off with its disks whole: the VM is STOPPED then.
const STARTING: StepPlan = StepPlan::new(Step::Start, Undo::CallAgent);

/// An operation on the VM's own host: what it has done when it ends is what the VM is then, so all
/// of them end alike, whether they succeed or are given up.
const fn on_own_host(
    title: &'static str,
    task: &'static str,
    works_in: &'static [State],
    steps: &'static [StepPlan],
) -> Plan {
    Plan {
        title,
        // These titles are words that a label may have.
        label: title,
        task: Some(task),
        works_in,
        claims: None,
        on_own_host: true,
        steps,
        on_failure: OnFailure::Undo,
        // A guest that has been started must not be stopped again.
        resumes: true,
        completes: EffectName::EndPower,
        gives_up: Some(EffectName::EndPower),
    }
}

static STOP: Plan = on_own_host("stop", "STOPPING", &[State::Active], &[STOPPING]);

static START: Plan = on_own_host(
    "start",
    "STARTING",
    // The guest of an ACTIVE one may have powered off by itself.
    &[State::Active, State::Stopped],
    &[STARTING],
);

static REBOOT: Plan = on_own_host(
    "reboot",
    "REBOOTING",
    &[State::Active],
    &[STOPPING, STARTING],
);

static REBUILD: Plan = on_own_host(
    "rebuild",
    "REBUILDING",
    // After a rebuild that failed half-way it is rebuilt.
    &[State::Active, State::Stopped, State::Error],
    &[
        STOPPING,
        // After the stop, since a disk is not recreated below a running guest. Its start is
        // committed together with the new images: from there on the old disks count as deleted, and
        // only its success makes the new ones whole. Where it fails the VM is in ERROR, and keeps
        // host and claim for another rebuild. It may be repeated, as nothing runs on the disks yet.
        StepPlan {
            on_start: Some(EffectName::BeginRebuild),
            ..StepPlan::new(Step::MakeDisks, Undo::CallAgent)
        },
        STARTING,
    ],
);

static SNAPSHOT: Plan = on_own_host(
    "snapshot",
    "SNAPSHOTTING",
    // The guest of an ACTIVE one may have powered off by itself.
    &[State::Active, State::Stopped],
    &[
        // To a draft under an unused name, so that half a copy is never taken for an image. The
        // guest is as it was. The undo removes the draft, and afterwards the host refuses what comes
        // late.
        StepPlan::new(Step::CopyDisk, Undo::CallAgent),
        // A step of its own, since a conductor that repeats the call must be able to distinguish a
        // name that the draft has got from one that was taken before. Its undo finds out which it
        // is: a draft that has got its name is an image, it may be in use already, and it stays;
        // then the operation has succeeded.
        StepPlan::new(Step::PublishImage, Undo::CallAgent),
    ],
);

/// What became of each VM is in its [record](super::drain). It calls no agent, and undoes nothing: a
/// cancelled one begins no more moves.
static DRAIN: Plan = Plan {
    title: "drain",
    label: "drain_host",
    task: None,
    works_in: &[],
    claims: None,
    on_own_host: false,
    steps: &[],
    on_failure: OnFailure::Retry,
    resumes: true,
    completes: EffectName::None,
    gives_up: None,
};

#[cfg(test)]
mod tests {
    //! Goal: each row of the table makes sense by itself and beside the others. Method: rules that
    //! hold of every plan, checked over all plans and all conditions.

    use std::collections::BTreeSet;

    use super::*;
    use crate::operation::Conditions;
    use crate::refusal::{Code, Refusal};

    const CONDITIONS: [Conditions; 3] = [
        Conditions {
            fetches_disks: true,
            verify: false,
        },
        Conditions {
            fetches_disks: true,
            verify: true,
        },
        Conditions {
            fetches_disks: false,
            verify: false,
        },
    ];

    #[test]
    fn every_step_is_in_a_plan_and_in_none_twice() {
        let mut seen = BTreeSet::new();
        for plan in PLANS {
            let steps: BTreeSet<Step> = plan.steps.iter().map(|p| p.step).collect();
            assert_eq!(steps.len(), plan.steps.len(), "{}", plan.title);
            seen.extend(steps);
        }
        assert_eq!(seen, Step::ALL.into());
    }

    /// Goal: nothing is shown as done before it is. Method: behind what only begins, the same plan has the
    /// step that waits for its end.
    #[test]
    fn what_only_begins_is_waited_for() {
        let mut count = 0;
        for plan in KINDS {
            let begins = plan.steps.iter().position(|row| row.step.only_begins());
            let Some(at) = begins else {
                continue;
            };
            count += 1;
            assert_eq!(plan.steps[at].step.succeeded(), "under way");
            let behind = &plan.steps[at + 1..];
            let waits = behind.iter().any(|row| row.step == Step::Settle);
            assert!(waits, "{}", plan.title);
        }
        assert_eq!(count, 1, "live migration");
    }

    #[test]
    fn titles_are_distinct() {
        let titles: BTreeSet<_> = KINDS.iter().map(|plan| plan.title).collect();
        assert_eq!(titles.len(), KINDS.len());
        let labels: BTreeSet<_> = KINDS.iter().map(|plan| plan.label).collect();
        assert_eq!(labels.len(), KINDS.len());
        let is_of_label = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(
            labels.iter().all(|label| label.chars().all(is_of_label)),
            "{labels:?}"
        );
        let titles: BTreeSet<_> = Step::ALL.iter().map(|step| step.title()).collect();
        assert_eq!(titles.len(), Step::ALL.len());
    }

    #[test]
    fn a_claim_is_taken_first_and_given_back_in_the_state() {
        for plan in PLANS {
            let at = plan.steps.iter().position(|p| p.step == Step::Claim);
            assert_eq!(at, plan.claims.map(|_| 0), "{}", plan.title);
            for row in plan.steps {
                let releases = row.undo == Undo::ReleaseClaim;
                assert_eq!(releases, row.step == Step::Claim, "{}", plan.title);
            }
        }
    }

    /// Where all is retried, and from the point of no return on, nothing has an undo; before it
    /// everything has one that had effects in the world.
    #[test]
    fn undo_ends_at_the_point_of_no_return() {
        for plan in PLANS {
            let failure = plan.on_failure;
            let no_return = failure.retries_from().or(failure.settles_from());
            let mut is_over = !failure.undoes();
            for row in plan.steps {
                is_over |= no_return == Some(row.step);
                let what = format!("{} {:?}", plan.title, row.step);
                assert_eq!(row.undo == Undo::NoReturn, is_over, "{what}");
                let is_called = row.undo == Undo::CallAgent;
                let had_effects = row.step.has_side_effects() && !is_over;
                assert_eq!(is_called, had_effects, "{what}");
            }
            assert!(no_return.is_none_or(|step| plan.step(step).is_some()));
        }
    }

    #[test]
    fn an_operation_that_can_give_up_says_what_that_means() {
        for plan in PLANS {
            let undoes = plan.on_failure.undoes();
            assert_eq!(plan.gives_up.is_some(), undoes, "{}", plan.title);
            let elsewhere = plan.steps.iter().any(|row| row.tries_another_host);
            assert!(!elsewhere || plan.claims.is_some(), "{}", plan.title);
        }
    }

    /// The saga makes these effects from their names alone.
    #[test]
    fn effects_have_the_content_that_their_place_gives_them() {
        let why = || Refusal::new(Code::Aborted, "DRAWN", "drawn");
        for plan in PLANS {
            let starts = plan.steps.iter().filter_map(|row| row.on_start);
            assert!(starts.clone().all(|name| name.plain().is_some()));
            let given_up = plan.gives_up.map(|name| name.giving_up(why()).is_some());
            assert_ne!(given_up, Some(false), "{}", plan.title);
            // The guest's state is the content of these, and the agents report it.
            let is_reported = plan.on_own_host || plan.on_failure.settles_from().is_some();
            let is_plain = plan.completes.plain().is_some();
            assert_eq!(is_plain, !is_reported, "{}", plan.title);
        }
    }

    /// Only a confirmation is not begun where there is nothing to do.
    #[test]
    fn an_operation_has_a_last_step_under_all_conditions() {
        for plan in PLANS {
            for conditions in CONDITIONS {
                let steps = plan.due(conditions).count();
                let is_begun = conditions.fetches_disks || *plan != CONFIRM_RESIZE;
                assert_eq!(steps > 0, is_begun, "{} {conditions:?}", plan.title);
                let last = plan
                    .steps
                    .iter()
                    .filter(|p| plan.is_last(p.step, conditions));
                assert_eq!(last.count(), usize::from(steps > 0));
            }
        }
    }
}
