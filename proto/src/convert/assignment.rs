//! The exact CPUs, pages and PCI functions that a guest was given.

use std::collections::BTreeSet;

use berth_domain::cpu_set::{CPU_MAX, CpuId};
use berth_domain::instance::VcpuId;
use berth_domain::numa::{Assignment, CellAssignment};
use berth_domain::pci::{PCI_REQUESTS_MAX, PciAddress};
use berth_domain::pmem::DEVICES_MAX;
use berth_domain::topology::{CellId, PCI_DEVICES_MAX};

use super::field::{self, Invalid};

use crate::types::v1;

/// The most cells of a guest.
const CELLS_MAX: usize = 1024;
/// The most pins of a cell.
const PINS_MAX: usize = 8192;

impl From<&Assignment> for v1::Assignment {
    fn from(assignment: &Assignment) -> Self {
        Self {
            cells: assignment.cells.iter().map(Into::into).collect(),
            emulator_cpus: assignment.emulator.to_string(),
            pci: assignment.pci.iter().map(write_grant).collect(),
            pmem: assignment.pmem.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Assignment> for Assignment {
    type Error = Invalid;

    fn try_from(wire: v1::Assignment) -> Result<Self, Invalid> {
        let cells: Vec<CellAssignment> = field::each(wire.cells, "cells", CELLS_MAX)?;
        if !cells.is_sorted_by(|a, b| a.guest_cell < b.guest_cell) {
            let rule = "must be in ascending order of guest_cell";
            return Err(Invalid::new("cells", rule));
        }
        Ok(Self {
            cells,
            emulator: field::cpus(&wire.emulator_cpus, "emulator_cpus")?,
            pci: field::each_by(wire.pci, "pci", PCI_REQUESTS_MAX, read_grant)?,
            pmem: field::each(wire.pmem, "pmem", DEVICES_MAX)?,
        })
    }
}

pub(super) fn write_grant(addresses: &BTreeSet<PciAddress>) -> v1::PciGrant {
    v1::PciGrant {
        addresses: addresses.iter().map(ToString::to_string).collect(),
    }
}

pub(super) fn read_grant(wire: v1::PciGrant) -> Result<BTreeSet<PciAddress>, Invalid> {
    let addresses: Vec<PciAddress> =
        field::each_by(wire.addresses, "addresses", PCI_DEVICES_MAX, |address| {
            address.parse().map_err(Invalid::here)
        })?;
    if !addresses.is_sorted_by(|a, b| a < b) {
        let rule = "must be in ascending order, each once";
        return Err(Invalid::new("addresses", rule));
    }
    Ok(addresses.into_iter().collect())
}

impl From<&CellAssignment> for v1::CellAssignment {
    fn from(cell: &CellAssignment) -> Self {
        Self {
            guest_cell: cell.guest_cell,
            host_cell: cell.host_cell.0,
            pins: cell.pins.iter().map(|(v, p)| (v.0, p.0)).collect(),
            shared_vcpus: cell.shared_vcpus,
            floating_cpus: cell.floating.to_string(),
            memory_mib: cell.memory_mib,
            page_size_kib: cell.page_size_kib,
            idle_cpus: cell.idle.to_string(),
        }
    }
}

impl TryFrom<v1::CellAssignment> for CellAssignment {
    type Error = Invalid;

    fn try_from(wire: v1::CellAssignment) -> Result<Self, Invalid> {
        field::bounded(wire.pins.len(), "pins", PINS_MAX)?;
        if wire.pins.values().any(|cpu| *cpu > CPU_MAX) {
            let rule = format!("must name CPUs up to {CPU_MAX}");
            return Err(Invalid::new("pins", rule));
        }
        Ok(Self {
            guest_cell: wire.guest_cell,
            host_cell: CellId(wire.host_cell),
            pins: wire
                .pins
                .into_iter()
                .map(|(vcpu, cpu)| (VcpuId(vcpu), CpuId(cpu)))
                .collect(),
            shared_vcpus: wire.shared_vcpus,
            floating: field::cpus(&wire.floating_cpus, "floating_cpus")?,
            memory_mib: field::memory_mib(wire.memory_mib, "memory_mib")?,
            page_size_kib: wire.page_size_kib,
            idle: field::cpus(&wire.idle_cpus, "idle_cpus")?,
        })
    }
}
