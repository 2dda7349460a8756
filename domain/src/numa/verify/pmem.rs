//! Whether given namespaces of persistent memory answer what a guest requests.

use std::collections::BTreeSet;

use super::mismatch;
use crate::name::PmemName;
use crate::numa::fit::{ExactDemand, Ground};
use crate::numa::{Assignment, FitRefusal};
use crate::pmem::{PmemDevice, PmemNamespace, PmemNumaPolicy, PmemRequest};

/// Checks the persistent memory of an assignment whose cells are good.
pub(super) fn verify(
    ground: Ground<'_>,
    demand: ExactDemand<'_>,
    assignment: &Assignment,
) -> Result<(), FitRefusal> {
    let (requests, given) = (&demand.pmem.requests, &assignment.pmem);
    if given.len() != requests.len() {
        let what = format!(
            "gives {} pmem namespaces, the guest has {} devices",
            given.len(),
            requests.len()
        );
        return Err(mismatch(None, what));
    }
    let mut names: BTreeSet<PmemName> = BTreeSet::new();
    for (request, device) in requests.iter().zip(given) {
        let namespace = answer(ground, request, device)?;
        if demand.pmem.policy == PmemNumaPolicy::Required && !is_beside(namespace, assignment) {
            let what = format!(
                "gives pmem namespace {}, which is not on the NUMA node of guest NUMA node 0",
                device.name
            );
            return Err(mismatch(None, what));
        }
        if !names.insert(device.name.clone()) {
            let what = format!("gives pmem namespace {} twice", device.name);
            return Err(mismatch(None, what));
        }
    }
    let taken: BTreeSet<_> = names.intersection(&ground.usage.pmem).cloned().collect();
    if taken.is_empty() {
        Ok(())
    } else {
        Err(FitRefusal::PmemTaken { names: taken })
    }
}

/// Returns the namespace that a device is, if it answers the request.
fn answer<'a>(
    ground: Ground<'a>,
    request: &PmemRequest,
    device: &PmemDevice,
) -> Result<&'a PmemNamespace, FitRefusal> {
    let wrong = |why: &str| {
        let what = format!("gives pmem namespace {}, {why}", device.name);
        Err(mismatch(None, what))
    };
    let namespace = ground.topology.namespace(&device.name);
    let Some(namespace) = namespace.filter(|namespace| device.is(namespace)) else {
        return wrong("which the host does not have like that");
    };
    if !namespace.trouble.is_empty() {
        return wrong(&format!("which is of no use: {}", namespace.trouble));
    }
    if !request.accepts(namespace) {
        return wrong("which is not what it asks for");
    }
    Ok(namespace)
}

fn is_beside(namespace: &PmemNamespace, assignment: &Assignment) -> bool {
    let home = assignment.cells.first().map(|cell| cell.host_cell);
    home.is_some() && namespace.cell == home
}
