//! The topology that a guest wishes for.

use std::collections::BTreeSet;

use berth_domain::instance::{
    EmulatorThreads, InstanceCell, InstanceNumaTopology, InstanceTopology, PageSize, VcpuId,
};

use super::field::{self, Invalid};
use crate::types::v1;
use crate::types::v1::page_size::Size;

/// The most cells of a guest.
const CELLS_MAX: usize = 1024;
/// The most vCPUs of a cell.
const VCPUS_MAX: usize = 8192;

impl From<&InstanceTopology> for v1::InstanceTopology {
    fn from(topology: &InstanceTopology) -> Self {
        Self {
            cells: topology.cells.iter().map(Into::into).collect(),
            emulator_threads: v1::EmulatorThreads::from(topology.emulator_threads).into(),
        }
    }
}

impl TryFrom<v1::InstanceTopology> for InstanceTopology {
    type Error = Invalid;

    fn try_from(wire: v1::InstanceTopology) -> Result<Self, Invalid> {
        let cells: Vec<InstanceCell> = field::each(wire.cells, "cells", CELLS_MAX)?;
        if cells.is_empty() {
            return Err(Invalid::new("cells", "must have at least one cell"));
        }
        if !cells.is_sorted_by(|a, b| a.id < b.id) {
            return Err(Invalid::new("cells", "must be in ascending order of id"));
        }
        let emulator_threads = v1::EmulatorThreads::try_from(wire.emulator_threads)
            .map_err(|_| Invalid::new("emulator_threads", "is not known"))?;
        Ok(Self {
            cells,
            emulator_threads: emulator_threads.into(),
        })
    }
}

impl From<EmulatorThreads> for v1::EmulatorThreads {
    fn from(policy: EmulatorThreads) -> Self {
        match policy {
            EmulatorThreads::Unspecified => Self::Unspecified,
            EmulatorThreads::Isolate => Self::Isolate,
            EmulatorThreads::Share => Self::Share,
        }
    }
}

impl From<v1::EmulatorThreads> for EmulatorThreads {
    fn from(policy: v1::EmulatorThreads) -> Self {
        match policy {
            v1::EmulatorThreads::Unspecified => Self::Unspecified,
            v1::EmulatorThreads::Isolate => Self::Isolate,
            v1::EmulatorThreads::Share => Self::Share,
        }
    }
}

impl From<&InstanceCell> for v1::InstanceCell {
    fn from(cell: &InstanceCell) -> Self {
        Self {
            id: cell.id,
            shared_vcpus: cell.shared.iter().map(|v| v.0).collect(),
            dedicated_vcpus: cell.dedicated.iter().map(|v| v.0).collect(),
            memory_mib: cell.memory_mib,
            page_size: write_page_size(cell.page_size),
        }
    }
}

impl TryFrom<v1::InstanceCell> for InstanceCell {
    type Error = Invalid;

    fn try_from(wire: v1::InstanceCell) -> Result<Self, Invalid> {
        Ok(Self {
            id: wire.id,
            shared: vcpus(&wire.shared_vcpus, "shared_vcpus")?,
            dedicated: vcpus(&wire.dedicated_vcpus, "dedicated_vcpus")?,
            memory_mib: wire.memory_mib,
            page_size: read_page_size(wire.page_size).map_err(|e| e.within("page_size"))?,
        })
    }
}

fn vcpus(wire: &[u32], field: &str) -> Result<BTreeSet<VcpuId>, Invalid> {
    field::bounded(wire.len(), field, VCPUS_MAX)?;
    let vcpus: BTreeSet<_> = wire.iter().copied().map(VcpuId).collect();
    if vcpus.len() < wire.len() {
        return Err(Invalid::new(field, "must name each vCPU once"));
    }
    Ok(vcpus)
}

fn write_page_size(size: PageSize) -> Option<v1::PageSize> {
    let class = |class: v1::PageSizeClass| Some(Size::Class(class.into()));
    let size = match size {
        PageSize::Unspecified => None,
        PageSize::Small => class(v1::PageSizeClass::Small),
        PageSize::Large => class(v1::PageSizeClass::Large),
        PageSize::Any => class(v1::PageSizeClass::Any),
        PageSize::Kib(kib) => Some(Size::Kib(kib)),
    };
    size.map(|size| v1::PageSize { size: Some(size) })
}

fn read_page_size(wire: Option<v1::PageSize>) -> Result<PageSize, Invalid> {
    let Some(v1::PageSize { size }) = wire else {
        return Ok(PageSize::Unspecified);
    };
    let rule = "must be a class (SMALL, LARGE, ANY) or a number of KiB";
    match size.ok_or_else(|| Invalid::here(rule))? {
        Size::Kib(kib) => Ok(PageSize::Kib(kib)),
        Size::Class(class) => match v1::PageSizeClass::try_from(class).unwrap_or_default() {
            v1::PageSizeClass::Unspecified => Err(Invalid::new("class", rule)),
            v1::PageSizeClass::Small => Ok(PageSize::Small),
            v1::PageSizeClass::Large => Ok(PageSize::Large),
            v1::PageSizeClass::Any => Ok(PageSize::Any),
        },
    }
}

impl From<&InstanceNumaTopology> for v1::InstanceNumaTopology {
    fn from(topology: &InstanceNumaTopology) -> Self {
        Self {
            wish: Some((&topology.wish).into()),
            assignment: Some((&topology.assignment).into()),
        }
    }
}

impl TryFrom<v1::InstanceNumaTopology> for InstanceNumaTopology {
    type Error = Invalid;

    fn try_from(wire: v1::InstanceNumaTopology) -> Result<Self, Invalid> {
        Ok(Self {
            wish: field::required(wire.wish, "wish")?,
            assignment: field::optional(wire.assignment, "assignment")?.unwrap_or_default(),
        })
    }
}
