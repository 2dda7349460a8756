//! What must hold of the refusals in records: they are what every member has, also after a restart.

use berth_domain::audit::Outcome as Decision;
use berth_domain::operation::drain::Progress;
use berth_domain::operation::{Mark, Operation, Outcome};
use berth_domain::refusal::Refusal;

use super::{Violation, rule};
use crate::state::State;

/// The change that helps travels with an answer alone: the store does not hold it, so that a member
/// that restarted would differ from one that did not.
pub(super) fn records_have_no_change(state: &State) -> Result<(), Violation> {
    let vms = state.vms.values().filter_map(|vm| vm.error.as_ref());
    let migrations = state.migrations.values().filter_map(|m| m.error.as_ref());
    let operations = state.operations.values().flat_map(|o| of_operation(o));
    let audit = state
        .audit
        .values()
        .filter_map(|entry| match &entry.outcome {
            Decision::Accepted { .. } => None,
            Decision::Refused(refusal) => Some(refusal),
        });
    for refusal in vms.chain(migrations).chain(operations).chain(audit) {
        let what = format_args!("a record of {} has {:?}", refusal.reason, refusal.change);
        rule(refusal.change.is_none(), "records_have_no_change", what)?;
    }
    Ok(())
}

fn of_operation(operation: &Operation) -> impl Iterator<Item = &Refusal> {
    let outcome = operation
        .outcome
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Succeeded => None,
            Outcome::Failed(refusal) => Some(refusal),
        });
    let marks = operation.log.iter().filter_map(|entry| match &entry.mark {
        Mark::Failed(refusal) => Some(refusal),
        Mark::Started | Mark::Succeeded | Mark::UndoStarted | Mark::Undone => None,
    });
    let drained = operation.drain().into_iter().flat_map(|drain| &drain.vms);
    let stay = drained.filter_map(|drained| match &drained.progress {
        Progress::Stays { refusal } => Some(refusal),
        Progress::Waiting | Progress::Moving { .. } | Progress::Moved { .. } | Progress::Gone => {
            None
        }
    });
    outcome.chain(marks).chain(stay)
}
