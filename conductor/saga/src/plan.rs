//! What each kind of operation adds to its plan: the calls, and what their answers mean.
//!
//! Not here: which steps there are, their order, undo and effects. Those are rows of the
//! [table](berth_domain::operation::table), which the state goes by too.

use berth_domain::agent::{Call, DestinationCheck, Reply};
use berth_domain::migration::MigrateData;
use berth_domain::name::HostName;
use berth_domain::operation::{
    self, Conditions, EffectName, Kind, Operation, Plan, Step, StepPlan,
};
use berth_domain::refusal::Refusal;

pub use berth_domain::operation::Undo;

use crate::facts::Facts;
use crate::refusals;
use crate::start_elsewhere::StartElsewhere;
use crate::{
    boot, cold_migration, confirm_resize, delete, live_migration, power, revert_resize, shelve,
};

/// Returns the steps of an operation in order.
#[must_use]
pub fn steps(kind: &Kind) -> &'static [StepPlan] {
    kind.plan().steps
}

/// What one kind of operation adds to its plan. The engine does everything that they have in common.
pub(crate) trait Script: Sync {
    /// Returns what a step does.
    fn action(&self, step: Step, context: &Context) -> Result<Action, Refusal>;

    /// Takes a step's answer in, and returns its meaning.
    fn answered(
        &self,
        step: Step,
        _reply: Reply,
        context: &mut Context,
    ) -> Result<operation::Effect, Refusal> {
        context.success(step)
    }

    /// Returns the call that takes a step back.
    fn undo(&self, step: Step, context: &Context) -> Result<(HostName, Call), Refusal> {
        let title = context.plan().title;
        Err(refusals::inconsistent(format!(
            "step `{}` of a {title} has no undo",
            step.title()
        )))
    }

    /// Returns the meaning of an undo that was answered; `cause` is what made the operation fail.
    fn undone(
        &self,
        _reply: &Reply,
        _context: &Context,
        _cause: Refusal,
    ) -> Result<operation::Effect, Refusal> {
        Ok(operation::Effect::None)
    }
}

/// Returns what a kind of operation adds to its plan.
pub(crate) fn script(kind: &Kind) -> &'static dyn Script {
    match kind {
        Kind::Boot => &boot::Boot,
        Kind::Delete => &delete::Delete,
        Kind::LiveMigrate { .. } => &live_migration::LiveMigration,
        Kind::ColdMigrate { .. } => &cold_migration::ColdMigration,
        Kind::RevertResize { .. } => &revert_resize::RevertResize,
        Kind::ConfirmResize { .. } => &confirm_resize::ConfirmResize,
        Kind::Evacuate { .. } => &StartElsewhere::Evacuation,
        Kind::Shelve => &shelve::Shelve,
        Kind::Unshelve => &StartElsewhere::Unshelving,
        Kind::Stop { .. } => &power::Power,
        Kind::Start => &power::Power,
        Kind::Reboot { .. } => &power::Power,
        Kind::Rebuild { .. } => &power::Power,
        Kind::Snapshot { .. } => &power::Power,
        Kind::DrainHost(_) => unreachable!("a drain has no steps: see crate::drain"),
    }
}

/// What a step does.
pub(crate) enum Action {
    /// Calls an agent.
    CallAgent {
        /// The agent's host.
        host: HostName,
        /// The call.
        call: Box<Call>,
    },
    /// Calls no agent: it has succeeded already, with this meaning.
    Complete(operation::Effect),
}

impl From<(HostName, Call)> for Action {
    fn from((host, call): (HostName, Call)) -> Self {
        let call = Box::new(call);
        Self::CallAgent { host, call }
    }
}

/// What a saga knows.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// As last committed or read.
    pub operation: Operation,
    /// As last read.
    pub facts: Facts,
    /// What agents answered during this attempt. It is not replicated: a conductor that takes
    /// over calls again, as all of these calls may be repeated.
    pub memory: Memory,
}

/// What agents answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// The destination's report about itself.
    pub destination: Option<DestinationCheck>,
    /// From the source, later as rewritten by the destination.
    pub migrate_data: Option<MigrateData>,
}

impl Context {
    /// Returns how the operation proceeds.
    pub(crate) fn plan(&self) -> &'static Plan {
        self.operation.kind.plan()
    }

    /// Returns how many hosts were given up before the one that is being tried.
    pub(crate) fn attempt(&self) -> u32 {
        let migration = self.facts.migration.as_ref();
        let tried = migration.map_or(0, |migration| migration.tried.len());
        u32::try_from(tried).unwrap_or(u32::MAX)
    }

    /// Returns what decides which steps there are.
    pub(crate) fn conditions(&self) -> Conditions {
        Conditions::of(&self.operation.kind, self.facts.migration.as_ref())
    }

    /// Returns the steps that there are, in order.
    pub(crate) fn due(&self) -> impl Iterator<Item = &'static StepPlan> + use<> {
        self.plan().due(self.conditions())
    }

    /// Returns the meaning of a step's success, where it follows from the plan alone.
    pub(crate) fn success(&self, step: Step) -> Result<operation::Effect, Refusal> {
        if !self.plan().is_last(step, self.conditions()) {
            return Ok(operation::Effect::None);
        }
        let completes = self.plan().completes;
        completes.plain().ok_or_else(|| {
            refusals::inconsistent(format!(
                "the end of the operation does not follow from step `{}` alone",
                step.title()
            ))
        })
    }

    /// Returns the meaning of a step's start.
    pub(crate) fn start(&self, step: Step) -> operation::Effect {
        let on_start = self.plan().step(step).and_then(|plan| plan.on_start);
        let effect = on_start.and_then(EffectName::plain);
        effect.unwrap_or(operation::Effect::None)
    }

    /// Returns the meaning of giving up.
    pub(crate) fn give_up(&self, refusal: Refusal) -> operation::Effect {
        let effect = self.plan().gives_up;
        let effect = effect.and_then(|name| name.giving_up(refusal));
        effect.unwrap_or(operation::Effect::None)
    }
}
