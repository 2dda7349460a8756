//! Whether a step is taken under the lease that holds, and the planted bug that does not care.

use berth_decide::{Action, DecisionRequest};
use berth_domain::id::{Epoch, OperationId};
use berth_domain::refusal::Refusal;
use berth_state::command::Command;
use berth_state::{Reply, State};

/// Returns the lease under which a step is requested.
pub(super) fn epoch_of(ask: &DecisionRequest) -> Option<Epoch> {
    match &ask.action {
        Action::Plain(Command::Advance { epoch, .. } | Command::RecordDrained { epoch, .. })
        | Action::ScheduleNext { epoch, .. } => Some(*epoch),
        Action::Plain(_)
        | Action::SetPolicy { .. }
        | Action::ScheduleVm(_)
        | Action::ScheduleMigration(_)
        | Action::ScheduleMove(_)
        | Action::ScheduleUnshelve(_)
        // Answered with the move that it begins, under a lease of its own.
        | Action::MoveDrained(_)
        | Action::CreateVolume(_) => None,
    }
}

/// Checks that a step that was taken was requested under the lease that holds.
pub(super) fn current_lease(
    asked: Option<Epoch>,
    outcome: &Result<Reply, Refusal>,
) -> Result<(), String> {
    let (Some(asked), Ok(Reply::Operation(operation))) = (asked, outcome) else {
        return Ok(());
    };
    match &operation.lease {
        Some(lease) if lease.epoch != asked => Err(format!(
            "a step under epoch {asked} was taken while {} held epoch {}: {operation:?}",
            lease.conductor, lease.epoch
        )),
        Some(_) | None => Ok(()),
    }
}

/// Plants `Bug::StaleEpoch`: whatever lease a step was done under, it is taken for the present
/// one.
pub(super) fn under_any_epoch(state: &State, mut ask: DecisionRequest) -> DecisionRequest {
    let present = |id: &OperationId| {
        state
            .operation(*id)
            .and_then(|o| o.lease.as_ref())
            .map(|l| l.epoch)
    };
    match &mut ask.action {
        Action::Plain(Command::Advance {
            operation, epoch, ..
        })
        | Action::ScheduleNext {
            operation, epoch, ..
        } => {
            *epoch = present(operation).unwrap_or(*epoch);
        }
        Action::Plain(_)
        | Action::SetPolicy { .. }
        | Action::ScheduleVm(_)
        | Action::ScheduleMigration(_)
        | Action::ScheduleMove(_)
        | Action::ScheduleUnshelve(_)
        | Action::MoveDrained(_)
        | Action::CreateVolume(_) => {}
    }
    ask
}
