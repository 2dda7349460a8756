//! The steps of an operation, declared in order, each with its undo.
//!
//! The lists themselves are in the files of the operations, with a paragraph for each
//! step: why it stands where it stands, and why its undo is enough or absent.

use berth_domain::agent::{Call, DestinationCheck, Reply};
use berth_domain::migration::MigrateData;
use berth_domain::name::HostName;
use berth_domain::operation::{self, Kind, Operation, Step};
use berth_domain::refusal::Refusal;

use crate::facts::Facts;
use crate::start_elsewhere::StartElsewhere;
use crate::{
    boot, cold_migration, confirm_resize, delete, live_migration, power, revert_resize, shelve,
};

/// How a step is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undo {
    /// Nothing is left behind that would have to be taken back.
    Nothing,
    /// The claim is given back, in the state alone.
    ReleaseClaim,
    /// The step's agent is asked to take it back, until it has.
    AskAgent,
    /// It cannot be taken back: from here on the two hypervisors say how it ends.
    NoReturn,
}

/// One step of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// Which.
    pub step: Step,
    /// Whether its call has side effects, so that it is logged as started before it leaves.
    pub side_effects: bool,
    /// How it is taken back.
    pub undo: Undo,
}

/// Returns the steps of an operation in order.
#[must_use]
pub fn steps(kind: &Kind) -> &'static [StepPlan] {
    script(kind).steps()
}

/// What one kind of operation consists of. The engine does everything that they have in common.
pub(crate) trait Script: Sync {
    /// Returns the steps in order.
    fn steps(&self) -> &'static [StepPlan];

    /// Returns whether failures lead to the undo. A deletion has none: it goes on until it is done.
    fn can_give_up(&self) -> bool;

    /// Returns whether a conductor that takes over goes on after the last step that succeeded. The
    /// others begin anew, because what agents answered was lost.
    fn resumes(&self) -> bool {
        false
    }

    /// Returns whether this operation comes to a step of the list at all.
    fn is_needed(&self, _step: Step, _context: &Context) -> bool {
        true
    }

    /// Returns the step from whose start on nothing is given up any more, if there is one.
    fn no_return(&self) -> Option<Step> {
        None
    }

    /// Returns the meaning of a step's start.
    fn start_effect(&self, step: Step) -> operation::Effect;

    /// Returns what a step asks of whom.
    fn ask(&self, step: Step, context: &Context) -> Result<Ask, Refusal>;

    /// Takes a step's answer in, and returns its meaning.
    fn answered(
        &self,
        step: Step,
        reply: Reply,
        context: &mut Context,
    ) -> Result<operation::Effect, Refusal>;

    /// Returns the call that takes a step back.
    fn undo(&self, step: Step, context: &Context) -> Result<(HostName, Call), Refusal>;

    /// Returns the meaning of an undo that was answered; `cause` is what made the operation fail.
    fn undone(
        &self,
        _reply: &Reply,
        _context: &Context,
        _cause: Refusal,
    ) -> Result<operation::Effect, Refusal> {
        Ok(operation::Effect::None)
    }

    /// Returns whether another host may do better after this step failed.
    fn is_candidates_fault(&self, step: Step) -> bool;

    /// Returns the meaning of giving up.
    fn give_up(&self, refusal: Refusal) -> operation::Effect;
}

/// Returns what an operation consists of.
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
        Kind::Stop { .. } => &power::STOP,
        Kind::Start => &power::START,
        Kind::Reboot { .. } => &power::REBOOT,
        Kind::Rebuild { .. } => &power::REBUILD,
        Kind::Snapshot { .. } => &power::SNAPSHOT,
    }
}

/// What a step asks for.
pub(crate) enum Ask {
    /// An agent's answer.
    Agent {
        /// Whose.
        host: HostName,
        /// What.
        call: Box<Call>,
    },
    /// No answer: it has succeeded already, with this meaning.
    Nothing(operation::Effect),
}

/// What a saga knows.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// As last committed or read.
    pub operation: Operation,
    /// As last read.
    pub facts: Facts,
    /// What agents answered during this attempt. It is not replicated: a conductor that takes
    /// over asks again, as all of these questions may be asked twice.
    pub memory: Memory,
}

/// What agents answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// The destination's word about itself.
    pub destination: Option<DestinationCheck>,
    /// From the source, later as rewritten by the destination.
    pub migrate_data: Option<MigrateData>,
}
