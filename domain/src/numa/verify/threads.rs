//! Whether given CPUs lie on cores as a guest cell requires.

use super::mismatch;
use crate::cpu_set::CpuSet;
use crate::instance::{InstanceCell, ThreadPolicy};
use crate::numa::outline::CoreHeadroom;
use crate::numa::{CellAssignment, FitRefusal};
use crate::topology::HostCell;

/// What a guest cell was given of a host cell's cores.
pub(super) struct Core<'a> {
    pub(super) cell: &'a HostCell,
    /// Dedicated CPUs that no other guest has.
    pub(super) free: &'a CpuSet,
    pub(super) threads: CoreHeadroom,
    pub(super) given: &'a CellAssignment,
    pub(super) requested: &'a InstanceCell,
    /// The emulator's CPUs on this cell.
    pub(super) emulator: &'a CpuSet,
}

/// Checks the thread policy, once it is known that the cell has enough.
pub(super) fn verify(core: &Core<'_>) -> Result<(), FitRefusal> {
    // Without dedicated CPUs there is nothing to lie on cores.
    let policy = if core.requested.cpu_policy.is_exclusive() {
        core.requested.thread_policy
    } else {
        ThreadPolicy::Prefer
    };
    match policy {
        ThreadPolicy::Prefer => busy(core),
        ThreadPolicy::Require => busy(core).and_then(|()| together(core)),
        ThreadPolicy::Isolate => apart(core),
    }
}

/// Checks that nothing is left idle.
fn busy(core: &Core<'_>) -> Result<(), FitRefusal> {
    let idle = &core.given.idle;
    if idle.is_empty() {
        return Ok(());
    }
    let what = format!("leaves CPUs {idle} idle for no reason");
    Err(mismatch(Some(core.requested.id), what))
}

/// Checks that at most one vCPU sits alone, and that one where it need not.
fn together(core: &Core<'_>) -> Result<(), FitRefusal> {
    let pins: CpuSet = core.given.pins.values().copied().collect();
    let alone: Vec<&CpuSet> = core
        .cell
        .cores
        .iter()
        .filter(|c| c.intersection_len(&pins) == 1)
        .collect();
    if alone.len() > 1 {
        let what = format!("has {} vCPUs alone on their cores", alone.len());
        return Err(mismatch(Some(core.requested.id), what));
    }
    if let Some(alone) = alone.first().filter(|c| c.intersection_len(core.free) < 2) {
        let what = format!("has a vCPU on core {alone}, which has no other free thread");
        return Err(mismatch(Some(core.requested.id), what));
    }
    Ok(())
}

/// Checks that no other guest is on the cores of the vCPUs and of the emulator, and that all their
/// other threads stay idle.
fn apart(core: &Core<'_>) -> Result<(), FitRefusal> {
    let wrong = |what: String| Err(mismatch(Some(core.requested.id), what));
    let pins: CpuSet = core.given.pins.values().copied().collect();
    let used = pins.union(core.emulator);
    let largest = core.cell.cores.iter().map(CpuSet::len).max().unwrap_or(0);
    let mut siblings = CpuSet::new();
    for threads in core.cell.cores.iter().filter(|c| !c.is_disjoint(&used)) {
        if threads.intersection_len(&used) > 1 {
            return wrong(format!("has two isolated CPUs on core {threads}"));
        }
        if !threads.is_subset(core.free) {
            return wrong(format!(
                "isolates a CPU on core {threads}, which is not wholly free"
            ));
        }
        let is_small = threads.len() < largest && core.threads.lone_needs_core;
        if is_small && !threads.is_disjoint(&pins) {
            return wrong(format!(
                "isolates a vCPU on core {threads}, which is a small one"
            ));
        }
        siblings = siblings.union(&threads.difference(&used));
    }
    if siblings != core.given.idle {
        return wrong(format!(
            "leaves CPUs {} idle instead of {siblings}",
            core.given.idle
        ));
    }
    Ok(())
}
