//! Whether a given assignment answers a guest's wish and is free on a host.
//!
//! The predicate behind every claim: what a scheduler chose, what another leader chose, what an
//! agent swapped. It trusts nothing about who made the assignment, and does not care whether it
//! is the one that [`super::fit()`] would have chosen.

mod pci;
mod pmem;
mod threads;

use std::collections::BTreeSet;

use super::fit::{Ground, Need, Spot, Wish, emulator_cell};
use super::refusal::{CellShortfall, FitRefusal};
use super::{Assignment, CellAssignment, HostUsage};
use crate::cpu_set::CpuSet;
use crate::instance::{InstanceCell, InstanceTopology, PageSize};
use crate::pci::PciRequest;
use crate::topology::{HostCell, HostTopology};

/// Checks that `assignment` answers `wish` on this ground, and that everything in it is free: its
/// usage is that of the others.
///
/// # Errors
///
/// The first thing that is wrong, taken or missing.
pub fn verify(
    ground: Ground<'_>,
    wish: Wish<'_>,
    assignment: &Assignment,
) -> Result<(), FitRefusal> {
    match wish.topology {
        Some(topology) => cells(ground, topology, wish.pci, assignment)?,
        None if assignment.cells.is_empty() && assignment.emulator.is_empty() => {}
        None => {
            let what = "gives exact CPUs to a guest without a topology";
            return Err(mismatch(None, what));
        }
    }
    pci::verify(ground, wish, assignment)?;
    pmem::verify(ground, wish, assignment)
}

fn cells(
    ground: Ground<'_>,
    wish: &InstanceTopology,
    pci: &[PciRequest],
    assignment: &Assignment,
) -> Result<(), FitRefusal> {
    let Ground {
        topology,
        usage,
        outline,
    } = ground;
    if assignment.cells.len() != wish.cells.len() {
        let what = format!(
            "has {} cells, the guest {}",
            assignment.cells.len(),
            wish.cells.len()
        );
        return Err(mismatch(None, what));
    }
    distinct(assignment)?;
    emulator(topology, wish, assignment)?;
    for (index, (given, wished)) in assignment.cells.iter().zip(&wish.cells).enumerate() {
        let Some(position) = topology.position(given.host_cell) else {
            let what = format!(
                "is on cell {}, which the host does not have",
                given.host_cell
            );
            return Err(mismatch(Some(wished.id), what));
        };
        let cell = &topology.cells()[position];
        answers(cell, given, wished)?;
        let need = resolved(Need::of(wish, index).beside(pci), given);
        let shortages = Spot::new(outline, position).shortages(&need);
        if !shortages.is_empty() {
            return Err(FitRefusal::Cell {
                shortfall: CellShortfall {
                    guest_cell: wished.id,
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
            wished,
            emulator: if index == 0 {
                &assignment.emulator
            } else {
                &own
            },
        })?;
    }
    untaken(usage, assignment)
}

/// Returns the need with the page size that was given: whether that one has room is what matters,
/// not whether the wish could be answered with another.
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
            let what = format!("is on cell {}, as is another of its cells", cell.host_cell);
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
    wish: &InstanceTopology,
    assignment: &Assignment,
) -> Result<(), FitRefusal> {
    let wanted = usize::from(wish.isolates_emulator());
    if assignment.emulator.len() != wanted {
        let what = format!(
            "gives {} dedicated CPUs to the emulator, wanted are {wanted}",
            assignment.emulator.len()
        );
        return Err(mismatch(None, what));
    }
    let home = emulator_cell(assignment).and_then(|id| topology.cell(id));
    let good = home.is_some_and(|cell| assignment.emulator.is_subset(&cell.dedicated));
    if wanted > 0 && !good {
        let what = format!(
            "puts the emulator on CPU {}, which is not a dedicated CPU beside guest cell 0",
            assignment.emulator
        );
        return Err(mismatch(None, what));
    }
    Ok(())
}

fn answers(
    host: &HostCell,
    given: &CellAssignment,
    wished: &InstanceCell,
) -> Result<(), FitRefusal> {
    let wrong = |what: String| Err(mismatch(Some(wished.id), what));
    if given.guest_cell != wished.id {
        return wrong(format!(
            "stands where cell {} is expected",
            given.guest_cell
        ));
    }
    if !given.pins.keys().eq(wished.dedicated.iter()) {
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
            "pins to CPUs {foreign}, which are not dedicated CPUs of cell {}",
            given.host_cell
        ));
    }
    if given.shared_vcpus as usize != wished.shared.len() {
        return wrong("does not count exactly the shared vCPUs".to_owned());
    }
    let floats_well = if wished.shared.is_empty() {
        given.floating.is_empty()
    } else {
        given.floating == host.shared
    };
    if !floats_well {
        return wrong(format!(
            "floats over CPUs {}, the shared ones of cell {} are {}",
            given.floating, given.host_cell, host.shared
        ));
    }
    if given.memory_mib != wished.memory_mib {
        return wrong(format!(
            "has {} MiB of memory instead of {}",
            given.memory_mib, wished.memory_mib
        ));
    }
    let smallest = host.pages.first().map(|p| p.size_kib);
    let pages_well = match (wished.page_size, given.page_size_kib) {
        (PageSize::Unspecified, size) => size.is_none(),
        (PageSize::Any, size) => size.is_some(),
        (PageSize::Small, size) => size.is_some() && size == smallest,
        (PageSize::Large, size) => size.is_some() && size != smallest,
        (PageSize::Kib(wanted), size) => size == Some(wanted),
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
