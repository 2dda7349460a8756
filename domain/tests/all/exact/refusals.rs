//! Whether what a refusal says is so, by the solver's own rules.

use berth_domain::numa::{CellShortfall, FitRefusal, PciRegion, PciShortfall, Resource};
use berth_domain::pci::PciRequest;
use berth_testkit::fit::draw::Case;
use berth_testkit::fit::solver;

/// Checks a refusal of a case that does not fit.
pub(crate) fn judge(case: &Case, refusal: &FitRefusal) -> Result<(), String> {
    let (guests, hosts) = (case.demand.cells.len(), case.topology.cells().len());
    match refusal {
        FitRefusal::TooFewCells {
            requested,
            available,
        } => hold(
            (*requested, *available) == (guests, hosts) && guests > hosts,
            "the cells are miscounted",
        ),
        FitRefusal::Cell { shortfall } => {
            let guest = guest_of(case, shortfall.guest_cell)?;
            let nowhere = (0..hosts).all(|host| !solver::cell_fits(case, guest, host));
            hold(nowhere, "the guest cell fits somewhere")?;
            numbers(case, shortfall)
        }
        FitRefusal::Compete {
            guest_cells,
            host_cells,
            nearest,
        } => {
            hold(host_cells.len() < guest_cells.len(), "there are enough")?;
            for id in guest_cells {
                let guest = guest_of(case, *id)?;
                for (host, cell) in case.topology.cells().iter().enumerate() {
                    let is_named = host_cells.contains(&cell.id);
                    let fits = solver::cell_fits(case, guest, host);
                    hold(!fits || is_named, "a cell on which it fits is left out")?;
                }
            }
            nearest.as_ref().map_or(Ok(()), |n| numbers(case, n))
        }
        FitRefusal::Pci(shortfall) => functions(case, shortfall),
        FitRefusal::GaveUp
        | FitRefusal::PciTaken { .. }
        | FitRefusal::Pmem(_)
        | FitRefusal::PmemTaken { .. }
        | FitRefusal::Taken { .. }
        | FitRefusal::Mismatch { .. } => Err("no reason at all".to_owned()),
    }
}

fn hold(is_so: bool, otherwise: &str) -> Result<(), String> {
    if is_so {
        Ok(())
    } else {
        Err(otherwise.to_owned())
    }
}

fn guest_of(case: &Case, id: u32) -> Result<usize, String> {
    let found = case.demand.cells.iter().position(|cell| cell.id == id);
    found.ok_or_else(|| format!("there is no guest cell {id}"))
}

/// Checks the numbers of a shortfall that can be counted without the fit's own outline.
fn numbers(case: &Case, shortfall: &CellShortfall) -> Result<(), String> {
    let guest = guest_of(case, shortfall.guest_cell)?;
    let demand = &case.demand.cells[guest];
    let host = case.topology.position(shortfall.host_cell);
    let host = host.ok_or("there is no such host cell")?;
    let (cell, used) = (&case.topology.cells()[host], &case.usage.cells[host]);
    hold(
        !solver::cell_fits(case, guest, host),
        "the guest cell fits there",
    )?;
    hold(!shortfall.shortages.is_empty(), "nothing is missing")?;
    for shortage in &shortfall.shortages {
        let (requested, available) = (shortage.requested, shortage.available);
        hold(
            requested > available || matches!(shortage.resource, Resource::PageMultiple(_)),
            "nothing is short",
        )?;
        let expected = match shortage.resource {
            Resource::DedicatedCpus => {
                let needed = demand.dedicated.len() + solver::emulator_cpus(case, guest);
                Some((needed, cell.dedicated.difference(&used.pinned).len()))
            }
            Resource::SharedCpus => Some((demand.shared.len(), cell.shared.len())),
            Resource::Siblings
            | Resource::SiblingCpus
            | Resource::Isolation
            | Resource::FreeCores
            | Resource::SharedVcpus
            | Resource::Memory
            | Resource::Pages(_)
            | Resource::PageSize(_)
            | Resource::PageMultiple(_) => None,
        };
        if let Some((needed, free)) = expected {
            let is_so = (requested, available) == (needed as u64, free as u64);
            hold(is_so, "it is miscounted")?;
        }
    }
    Ok(())
}

fn functions(case: &Case, shortfall: &PciShortfall) -> Result<(), String> {
    let without = Case {
        pci: Vec::new(),
        ..case.clone()
    };
    hold(solver::fits(&without), "it is not for want of functions")?;
    hold(
        shortfall.requested > shortfall.available,
        "no function is short",
    )?;
    if shortfall.region != PciRegion::Host {
        return Ok(());
    }
    // Some of the requests ask for more in sum than there is for any of them.
    let some = (1_u32..1 << case.pci.len()).any(|bits| {
        let chosen = |(at, _): &(usize, &PciRequest)| bits & (1 << at) != 0;
        let asked = || case.pci.iter().enumerate().filter(chosen).map(|(_, r)| r);
        let requested: u64 = asked().map(|request| u64::from(request.count)).sum();
        let devices = case.topology.pci().iter();
        let free = devices.filter(|device| {
            let mut asked = asked();
            solver::is_free(case, device) && asked.any(|r| solver::accepts(r, device))
        });
        (requested, free.count() as u64) == (shortfall.requested, shortfall.available)
    });
    hold(some, "the host has more of them, or fewer")
}
