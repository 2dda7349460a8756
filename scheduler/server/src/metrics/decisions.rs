//! Decisions of this member: how many, how they ended, and how long their requests waited for the answer.
//!
//! Not here: why they were refused (`refusals`).
//!
//! Invariant: one atomic addition for the count and two for the duration; the label is an index that
//! follows from the type of the request.

use std::time::Instant;

use berth_decide::Action;
use berth_process::metrics::{Bounds, Definition, DurationsBy, Exposition, Pairs};
use berth_replication::runtime::ProposeError;
use berth_state::command::Command;

static DECISIONS: Definition = Definition::counter(
    "berth_decisions_total",
    &["kind", "result"],
    "Requests that change the state and reached this member, by kind and by how they ended.",
);
static DURATION: Definition = Definition::histogram(
    "berth_decision_duration_seconds",
    &["kind"],
    "Time from a request that changes the state to its outcome, which is on the disks of a majority.",
);

berth_process::label! {
    /// The kind of a request that changes the state.
    pub(crate) enum Kind {
        Boot = "boot",
        Migration = "migration",
        Move = "move",
        Unshelve = "unshelve",
        DrainedMove = "drained_move",
        NextHost = "next_host",
        Power = "power",
        OtherOperation = "other_operation",
        Step = "step",
        Lease = "lease",
        Host = "host",
        Volume = "volume",
        Placement = "placement",
        Catalog = "catalog",
        Policy = "policy",
        Cluster = "cluster",
    }
}

berth_process::label! {
    /// How a decision ended.
    pub(crate) enum End {
        /// With an outcome other than a refusal.
        Done = "done",
        Refused = "refused",
        NotLeader = "not_leader",
        /// Leadership was lost while the command was on its way.
        Lost = "lost",
        Stopped = "stopped",
        TimedOut = "timed_out",
        /// Its caller went away.
        Dropped = "dropped",
    }
}

impl From<&ProposeError> for End {
    fn from(error: &ProposeError) -> Self {
        match error {
            ProposeError::NotLeader { .. } => Self::NotLeader,
            ProposeError::Lost { .. } => Self::Lost,
            ProposeError::Stopped => Self::Stopped,
        }
    }
}

/// The decisions of a member.
#[derive(Debug)]
pub(crate) struct Decisions {
    ended: Pairs<Kind, End>,
    took: DurationsBy<Kind>,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            ended: Pairs::default(),
            took: DurationsBy::new(Bounds::SHORT),
        }
    }
}

impl Decisions {
    /// Begins to measure a decision.
    pub(crate) fn begin(&self, action: &Action) -> Timer<'_> {
        Timer {
            decisions: self,
            kind: kind_of(action),
            begun: Instant::now(),
            end: End::Dropped,
        }
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        self.ended.expose_nonzero(&DECISIONS, out);
        self.took.expose(&DURATION, out);
    }
}

/// Counts a decision when it is dropped.
pub(crate) struct Timer<'a> {
    decisions: &'a Decisions,
    kind: Kind,
    begun: Instant,
    end: End,
}

impl Timer<'_> {
    /// Ends it.
    pub(crate) fn end(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.decisions.ended.of(self.kind, self.end).increment();
        self.decisions
            .took
            .of(self.kind)
            .observe(self.begun.elapsed());
    }
}

/// Returns the kind of a request.
pub(crate) fn kind_of(action: &Action) -> Kind {
    match action {
        Action::ScheduleVm(_) => Kind::Boot,
        Action::ScheduleMigration(_) => Kind::Migration,
        Action::ScheduleMove(_) => Kind::Move,
        Action::ScheduleUnshelve(_) => Kind::Unshelve,
        Action::MoveDrained(_) => Kind::DrainedMove,
        Action::ScheduleNext { .. } => Kind::NextHost,
        Action::SetPolicy { .. } => Kind::Policy,
        Action::CreateVolume(_) => Kind::Volume,
        Action::Plain(command) => kind_of_command(command),
    }
}

fn kind_of_command(command: &Command) -> Kind {
    match command {
        Command::RegisterHost { .. }
        | Command::SetLiveness { .. }
        | Command::SetCordon { .. }
        | Command::RemoveHost { .. }
        | Command::FenceHost { .. }
        | Command::NoteReality { .. }
        | Command::ReportGuests { .. }
        | Command::NoteErasures { .. }
        | Command::WriteOffPmem { .. } => Kind::Host,
        Command::CreateFlavor(_)
        | Command::DeleteFlavor { .. }
        | Command::CreateAggregate(_)
        | Command::UpdateAggregate { .. }
        | Command::DeleteAggregate { .. }
        | Command::CreateServerGroup(_)
        | Command::DeleteServerGroup { .. }
        | Command::CreatePciAlias(_)
        | Command::DeletePciAlias { .. }
        | Command::CreateImage(_)
        | Command::CompleteImage { .. }
        | Command::SetImageCopy { .. }
        | Command::DeleteImage { .. }
        | Command::CreateNetwork(_)
        | Command::DeleteNetwork { .. } => Kind::Catalog,
        Command::SetPolicy(_) | Command::SetRestartPolicy { .. } | Command::UpdateVm { .. } => {
            Kind::Policy
        }
        Command::CreateProvider { .. }
        | Command::UpdateProvider { .. }
        | Command::DeleteProvider { .. }
        | Command::SetInventories { .. }
        | Command::PutInventory { .. }
        | Command::DeleteInventory { .. }
        | Command::DeleteInventories { .. }
        | Command::SetTraits { .. }
        | Command::DeleteTraits { .. }
        | Command::SetAggregates { .. }
        | Command::SetAllocations { .. }
        | Command::DeleteAllocations { .. }
        | Command::Reshape { .. }
        | Command::Batch { .. }
        | Command::CreateClass { .. }
        | Command::RenameClass { .. }
        | Command::DeleteClass { .. }
        | Command::CreateTrait { .. }
        | Command::DeleteTrait { .. }
        | Command::ImportProviders { .. }
        | Command::ImportConsumers { .. } => Kind::Placement,
        Command::BeginBoot { .. } => Kind::Boot,
        Command::BeginMigration { .. } => Kind::Migration,
        Command::BeginMove { .. } => Kind::Move,
        Command::BeginUnshelve { .. } => Kind::Unshelve,
        Command::MoveDrained { .. } => Kind::DrainedMove,
        Command::BeginPower { .. } | Command::OpenConsole { .. } => Kind::Power,
        Command::BeginDrain { .. }
        | Command::BeginDelete { .. }
        | Command::ConfirmResize { .. }
        | Command::BeginRevertResize { .. }
        | Command::BeginShelve { .. }
        | Command::CancelOperation { .. }
        | Command::ForceComplete { .. } => Kind::OtherOperation,
        Command::Advance { .. } | Command::RecordDrained { .. } => Kind::Step,
        Command::TakeLease { .. } | Command::RenewLeases { .. } => Kind::Lease,
        Command::CreateVolume { .. }
        | Command::DeleteVolume { .. }
        | Command::NoteVolumes { .. } => Kind::Volume,
        Command::Bootstrap { .. }
        | Command::RegisterService(_)
        | Command::UnregisterService { .. }
        | Command::FinalizeUpgrade { .. }
        | Command::ReplaceGrantKey { .. }
        | Command::RevokeCertificate(_)
        | Command::ReinstateCertificate { .. }
        | Command::EndRecovery { .. } => Kind::Cluster,
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::name::FlavorName;

    use super::*;

    /// Goal: a decision is counted once, however it ends.
    #[test]
    fn a_decision_is_counted_when_it_ends_or_is_dropped() {
        let decisions = Decisions::default();
        let action = Action::Plain(Command::DeleteFlavor {
            flavor: FlavorName::new("small").unwrap(),
        });
        decisions.begin(&action).end(End::Refused);
        drop(decisions.begin(&action));
        let mut out = Exposition::default();
        decisions.expose(&mut out);
        let text = out.to_open_metrics();
        for line in [
            "berth_decisions_total{kind=\"catalog\",result=\"refused\"} 1\n",
            "berth_decisions_total{kind=\"catalog\",result=\"dropped\"} 1\n",
            "berth_decision_duration_seconds_count{kind=\"catalog\"} 2\n",
            "berth_decision_duration_seconds_count{kind=\"boot\"} 0\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("_total{").count(), 2);
    }
}
