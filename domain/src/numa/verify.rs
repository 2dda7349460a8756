//! Whether a given assignment meets a guest's demand and is free on a host.
//!
//! The predicate behind every claim: what a scheduler chose, what another leader chose, what an
//! agent swapped. It trusts nothing about who made the assignment, and does not care whether it
//! is the one that [`super::fit()`] would have chosen.

mod pci;
mod pmem;
mod threads;

use std::collections::BTreeSet;

use super::fit::{ExactDemand, Ground, Need, Spot, emulator_cell};
use super::refusal::{CellShortfall, FitRefusal};
use super::{Assignment, CellAssignment, HostUsage};
use crate::cpu_set::CpuSet;
use crate::instance::{InstanceCell, InstanceTopology, PageSize};
use crate::pci::PciRequest;
use crate::topology::{HostCell, HostTopology};

/// Checks that `assignment` meets `demand` on this ground, and that everything in it is free: its
/// usage is that of the others.
///
/// # Errors
///
/// The first thing that is wrong, taken or missing.
pub fn verify(
    ground: Ground<'_>,
    demand: ExactDemand<'_>,
    assignment: &Assignment,
) -> Result<(), FitRefusal> {
    match demand.topology {
        Some(topology) => cells(ground, topology, demand.pci, assignment)?,
        None if assignment.cells.is_empty() && assignment.emulator.is_empty() => {}
        None => {
            let what = "gives exact CPUs to a guest without a topology";
            return Err(mismatch(None, what));
        }
    }
    pci::verify(ground, demand, assignment)?;
    pmem::verify(ground, demand, assignment)
}

fn cells(
    ground: Ground<'_>,
    demand: &InstanceTopology,
    pci: &[PciRequest],
    assignment: &Assignment,
) -> Result<(), FitRefusal> {
    let Ground {
        topology,
        usage,
        outline,
    } = ground;
    if assignment.cells.len() != demand.cells.len() {
        let what = format!(
            "has {} NUMA nodes, the guest {}",
            assignment.cells.len(),
            demand.cells.len()
        );
        return Err(mismatch(None, what));
    }
    distinct(assignment)?;
    emulator(topology, demand, assignment)?;
    for (index, (given, requested)) in assignment.cells.iter().zip(&demand.cells).enumerate() {
        let Some(position) = topology.position(given.host_cell) else {
            let what = format!(
                "is on NUMA node {}, which the host does not have",
                given.host_cell
            );
            return Err(mismatch(Some(requested.id), what));
        };
        let cell = &topology.cells()[position];
        answers(cell, given, requested)?;
        let need = resolved(Need::of(demand, index).beside(pci), given);
        let shortages = Spot::new(outline, position).shortages(&need);
        if !shortages.is_empty() {
            return Err(FitRefusal::Cell {
                shortfall: CellShortfall {
                    guest_cell: requested.id,
                    host_cell: given.host_cell,
                    shortages,
                },
            });
        }
        let own = CpuSet::new();
        threads::verify(&threads::Core {
            cell,
            free: &cell.dedicated.difference(&usage.cells[position].pinned),
            threads: outline.cells[position].cores,
            given,
            requested,
            emulator: if index == 0 {
                &assignment.emulator
            } else {
                &own
            },
        })?;
    }
    untaken(usage, assignment)
}

/// Returns the need with the page size that was given: whether that one has space is what matters,
/// not whether the demand could be met with another.
fn resolved(mut need: Need, given: &CellAssignment) -> Need {
    if let Some(size) = given.page_size_kib {
        need.page_size = PageSize::Kib(size);
    }
    need
}

fn distinct(assignment: &Assignment) -> Result<(), FitRefusal> {
    let mut cells = BTreeSet::new();
    let mut cpus = assignment.emulator.clone();
    for cell in &assignment.cells {
        if !cells.insert(cell.host_cell) {
            let what = format!(
                "is on NUMA node {}, as is another of its NUMA nodes",
                cell.host_cell
            );
            return Err(mismatch(Some(cell.guest_cell), what));
        }
        for cpu in cell.pins.values() {
            if !cpus.insert(*cpu) {
                return Err(mismatch(
                    Some(cell.guest_cell),
                    format!("uses CPU {cpu} twice"),
                ));
            }
        }
        for cpu in cell.idle.iter() {
            if !cpus.insert(cpu) {
                let what = format!("leaves CPU {cpu} idle, which it uses");
                return Err(mismatch(Some(cell.guest_cell), what));
            }
        }
    }
    Ok(())
}

fn emulator(
    topology: &HostTopology,
    demand: &InstanceTopology,
    assignment: &Assignment,
) -> Result<(), FitRefusal> {
    let requested = usize::from(demand.isolates_emulator());
    if assignment.emulator.len() != requested {
        let what = format!(
            "gives {} dedicated CPUs to the emulator, requested are {requested}",
            assignment.emulator.len()
        );
        return Err(mismatch(None, what));
    }
    let home = emulator_cell(assignment).and_then(|id| topology.cell(id));
    let good = home.is_some_and(|cell| assignment.emulator.is_subset(&cell.dedicated));
    if requested > 0 && !good {
        let what = format!(
            "puts the emulator on CPU {}, which is not a dedicated CPU beside guest NUMA node 0",
            assignment.emulator
        );
        return Err(mismatch(None, what));
    }
    Ok(())
}

fn answers(
    host: &HostCell,
    given: &CellAssignment,
    requested: &InstanceCell,
) -> Result<(), FitRefusal> {
    let wrong = |what: String| Err(mismatch(Some(requested.id), what));
    if given.guest_cell != requested.id {
        return wrong(format!(
            "stands where NUMA node {} is expected",
            given.guest_cell
        ));
    }
    if !given.pins.keys().eq(requested.dedicated.iter()) {
        return wrong("does not pin exactly the dedicated vCPUs".to_owned());
    }
    let foreign: CpuSet = given
        .pins
        .values()
        .copied()
        .filter(|cpu| !host.dedicated.contains(*cpu))
        .collect();
    if !foreign.is_empty() {
        return wrong(format!(
            "pins to CPUs {foreign}, which are not dedicated CPUs of NUMA node {}",
            given.host_cell
        ));
    }
    if given.shared_vcpus as usize != requested.shared.len() {
        return wrong("does not count exactly the shared vCPUs".to_owned());
    }
    let floats_well = if requested.shared.is_empty() {
        given.floating.is_empty()
    } else {
        given.floating == host.shared
    };
    if !floats_well {
        return wrong(format!(
            "floats over CPUs {}, the shared ones of NUMA node {} are {}",
            given.floating, given.host_cell, host.shared
        ));
    }
    if given.memory_mib != requested.memory_mib {
        return wrong(format!(
            "has {} MiB of memory instead of {}",
            given.memory_mib, requested.memory_mib
        ));
    }
    let smallest = host.pages.first().map(|p| p.size_kib);
    let pages_well = match (requested.page_size, given.page_size_kib) {
        (PageSize::Unspecified, size) => size.is_none(),
        (PageSize::Any, size) => size.is_some(),
        (PageSize::Small, size) => size.is_some() && size == smallest,
        (PageSize::Large, size) => size.is_some() && size != smallest,
        (PageSize::Kib(requested), size) => size == Some(requested),
    };
    if !pages_well {
        return wrong("has pages of another size than it wishes for".to_owned());
    }
    Ok(())
}

/// Checks that no CPU is another's, on whichever cell that one holds it.
fn untaken(usage: &HostUsage, assignment: &Assignment) -> Result<(), FitRefusal> {
    let cpus = assignment.taken();
    let taken = usage.cells.iter().fold(CpuSet::new(), |all, cell| {
        all.union(&cell.pinned.intersection(&cpus))
    });
    if taken.is_empty() {
        return Ok(());
    }
    let host_cell = assignment
        .cells
        .iter()
        .find(|c| c.pins.values().any(|cpu| taken.contains(*cpu)) || !c.idle.is_disjoint(&taken))
        .map(|c| c.host_cell)
        .or_else(|| emulator_cell(assignment))
        .expect("an assignment with CPUs has cells");
    Err(FitRefusal::Taken {
        host_cell,
        cpus: taken,
    })
}

fn mismatch(guest_cell: Option<u32>, what: impl Into<String>) -> FitRefusal {
    FitRefusal::Mismatch {
        guest_cell,
        what: what.into(),
    }
}
