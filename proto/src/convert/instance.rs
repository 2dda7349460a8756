//! The topology that a guest requires.

use std::collections::BTreeSet;

use berth_domain::cpu_shape::CpuShape;
use berth_domain::instance::{
    CpuPolicy, EmulatorThreads, InstanceCell, InstanceNumaTopology, InstanceTopology, PageSize,
    ThreadPolicy, VcpuId,
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
            realtime_vcpus: topology.realtime.iter().map(|v| v.0).collect(),
            locked_memory: topology.locked_memory,
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
            realtime: vcpus(&wire.realtime_vcpus, "realtime_vcpus")?,
            locked_memory: wire.locked_memory,
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
            cpu_policy: v1::CpuPolicy::from(cell.cpu_policy).into(),
            thread_policy: v1::ThreadPolicy::from(cell.thread_policy).into(),
        }
    }
}

impl TryFrom<v1::InstanceCell> for InstanceCell {
    type Error = Invalid;

    fn try_from(wire: v1::InstanceCell) -> Result<Self, Invalid> {
        let shared = vcpus(&wire.shared_vcpus, "shared_vcpus")?;
        let dedicated = vcpus(&wire.dedicated_vcpus, "dedicated_vcpus")?;
        let cpu_policy = v1::CpuPolicy::try_from(wire.cpu_policy)
            .map_err(|_| Invalid::new("cpu_policy", "is not known"))?;
        let thread_policy = v1::ThreadPolicy::try_from(wire.thread_policy)
            .map_err(|_| Invalid::new("thread_policy", "is not known"))?;
        Ok(Self {
            id: wire.id,
            cpu_policy: read_cpu_policy(cpu_policy, &shared, &dedicated)?,
            thread_policy: thread_policy.into(),
            shared,
            dedicated,
            memory_mib: field::memory_mib(wire.memory_mib, "memory_mib")?,
            page_size: read_page_size(wire.page_size).map_err(|e| e.within("page_size"))?,
        })
    }
}

/// Reads the policy of a cell with these vCPUs. Where none was written, as before there were
/// policies, it follows from the vCPUs.
fn read_cpu_policy(
    wire: v1::CpuPolicy,
    shared: &BTreeSet<VcpuId>,
    dedicated: &BTreeSet<VcpuId>,
) -> Result<CpuPolicy, Invalid> {
    let wrong = |rule| Err(Invalid::new("cpu_policy", rule));
    match wire {
        v1::CpuPolicy::Unspecified => Ok(CpuPolicy::of(shared, dedicated)),
        v1::CpuPolicy::Mixed => Ok(CpuPolicy::Mixed),
        v1::CpuPolicy::Shared if !dedicated.is_empty() => {
            wrong("may not be SHARED for a cell with dedicated vCPUs")
        }
        v1::CpuPolicy::Shared => Ok(CpuPolicy::Shared),
        v1::CpuPolicy::Dedicated if !shared.is_empty() => {
            wrong("may not be DEDICATED for a cell with shared vCPUs")
        }
        v1::CpuPolicy::Dedicated => Ok(CpuPolicy::Dedicated),
    }
}

impl From<CpuPolicy> for v1::CpuPolicy {
    fn from(policy: CpuPolicy) -> Self {
        match policy {
            CpuPolicy::Shared => Self::Shared,
            CpuPolicy::Dedicated => Self::Dedicated,
            CpuPolicy::Mixed => Self::Mixed,
        }
    }
}

impl From<ThreadPolicy> for v1::ThreadPolicy {
    fn from(policy: ThreadPolicy) -> Self {
        match policy {
            ThreadPolicy::Prefer => Self::Prefer,
            ThreadPolicy::Isolate => Self::Isolate,
            ThreadPolicy::Require => Self::Require,
        }
    }
}

impl From<v1::ThreadPolicy> for ThreadPolicy {
    fn from(policy: v1::ThreadPolicy) -> Self {
        match policy {
            v1::ThreadPolicy::Unspecified | v1::ThreadPolicy::Prefer => Self::Prefer,
            v1::ThreadPolicy::Isolate => Self::Isolate,
            v1::ThreadPolicy::Require => Self::Require,
        }
    }
}

impl From<&CpuShape> for v1::CpuShape {
    fn from(shape: &CpuShape) -> Self {
        Self {
            sockets: shape.sockets,
            cores: shape.cores,
            threads: shape.threads,
        }
    }
}

impl TryFrom<v1::CpuShape> for CpuShape {
    type Error = Invalid;

    fn try_from(wire: v1::CpuShape) -> Result<Self, Invalid> {
        for (field, value) in [
            ("sockets", wire.sockets),
            ("cores", wire.cores),
            ("threads", wire.threads),
        ] {
            if value == 0 {
                return Err(Invalid::new(field, "must be at least 1"));
            }
        }
        Ok(Self {
            sockets: wire.sockets,
            cores: wire.cores,
            threads: wire.threads,
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
            requested: Some((&topology.requested).into()),
            assignment: Some((&topology.assignment).into()),
        }
    }
}

impl TryFrom<v1::InstanceNumaTopology> for InstanceNumaTopology {
    type Error = Invalid;

    fn try_from(wire: v1::InstanceNumaTopology) -> Result<Self, Invalid> {
        Ok(Self {
            requested: field::required(wire.requested, "requested")?,
            assignment: field::optional(wire.assignment, "assignment")?.unwrap_or_default(),
        })
    }
}
