//! What must hold of drains: one at a time on a cordoned host, with VMs that wait or move.

use std::collections::BTreeSet;

use berth_domain::operation::drain::{ATTEMPTS_MAX, DRAINED_MAX, Drain, Progress};
use berth_domain::operation::{Kind, Operation};
use berth_domain::version::ServiceVersion;

use super::{Violation, rule};
use crate::state::State;

fn drains(state: &State) -> impl Iterator<Item = (&Operation, &Drain)> {
    let operations = state.operations.values();
    operations.filter_map(|operation| Some((&**operation, operation.drain()?)))
}

/// A drain drains a host, and every other operation works on a VM; before there were drains there
/// is none.
pub(super) fn kinds_and_subjects_agree(state: &State) -> Result<(), Violation> {
    for operation in state.operations.values() {
        let is_drain = matches!(operation.kind, Kind::DrainHost(_));
        let may_be = !is_drain || state.header.cluster_version >= ServiceVersion::DRAINS;
        let what = format_args!("operation {}", operation.id);
        let agree = is_drain == operation.drain().is_some();
        rule(agree && may_be, "kinds_and_subjects_agree", what)?;
    }
    Ok(())
}

/// A running drain has its host for itself, which is cordoned; it has something to do, and no more
/// moves in progress than it may have.
pub(super) fn running_have_work_on_a_cordoned_host(state: &State) -> Result<(), Violation> {
    const RULE: &str = "running_have_work_on_a_cordoned_host";
    let mut hosts = BTreeSet::new();
    for (operation, drain) in drains(state).filter(|(operation, _)| !operation.is_done()) {
        let host = state.hosts.get(&drain.host);
        let cordoned = host.is_some_and(|view| view.host.cordoned);
        let what = format_args!("host {} of drain {}", drain.host, operation.id);
        rule(cordoned && hosts.insert(&drain.host), RULE, what)?;
        let Kind::DrainHost(spec) = &operation.kind else {
            continue;
        };
        let tally = drain.tally();
        let works = tally.waiting + tally.moving > 0;
        let in_bounds = tally.moving <= spec.parallel as usize;
        let what = format_args!("drain {} has {tally:?}", operation.id);
        rule(works && in_bounds, RULE, what)?;
        for (vm, mover) in drain.moving() {
            // One that has ended may be forgotten before it is recorded.
            let mover = state.operations.get(&mover);
            let moves = mover.is_none_or(|mover| mover.vm() == Some(vm));
            let what = format_args!("vm {vm} of drain {}", operation.id);
            rule(moves, RULE, what)?;
        }
    }
    Ok(())
}

/// A host that names the drain that cordoned it is cordoned.
pub(super) fn cordons_have_their_drain(state: &State) -> Result<(), Violation> {
    for (name, view) in &state.hosts {
        let good = view.host.cordoned || view.host.cordoned_by.is_none();
        rule(
            good,
            "cordons_have_their_drain",
            format_args!("host {name}"),
        )?;
    }
    Ok(())
}

/// What a drain records is bounded, each VM is in it once, and nothing is left to do when it is done.
pub(super) fn done_move_nothing(state: &State) -> Result<(), Violation> {
    const RULE: &str = "done_move_nothing";
    for (operation, drain) in drains(state) {
        let names: BTreeSet<_> = drain.vms.iter().map(|drained| &drained.vm).collect();
        let what = format_args!("the vms of drain {}", operation.id);
        let is_list = names.len() == drain.vms.len() && names.len() <= DRAINED_MAX;
        rule(is_list, RULE, what)?;
        for drained in &drain.vms {
            let ended = match drained.progress {
                Progress::Waiting | Progress::Moving { .. } => false,
                Progress::Moved { .. } | Progress::Gone | Progress::Stays { .. } => true,
            };
            let good = !operation.is_done() || (ended && drained.planned.is_none());
            let bounded = drained.attempts <= ATTEMPTS_MAX;
            let stayed =
                matches!(&drained.progress, Progress::Moved { host } if *host == drain.host);
            let what = format_args!("vm {} of drain {}", drained.vm, operation.id);
            rule(good && bounded && !stayed, RULE, what)?;
        }
    }
    Ok(())
}
