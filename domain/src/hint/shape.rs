//! The least host that could take a guest, where no host that is there has the shape.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cpu_set::{CpuId, CpuSet};
use crate::name::{HostName, ZoneName};
use crate::resource::Trait;
use crate::topology::{CellId, HostCell, HostTopology, PagePool, SocketId};

/// The small pages that every NUMA node has beside what is needed, in MiB.
const SMALL_MIB: u64 = 64;

/// A host that could take a guest. Larger ones do too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostShape {
    /// How many NUMA nodes.
    pub nodes: u32,
    /// Dedicated CPUs of each.
    pub dedicated: u32,
    /// Shared CPUs of each.
    pub shared: u32,
    /// Threads of each core of dedicated CPUs.
    pub threads: u32,
    /// Memory of each in MiB, in pages of this size.
    pub memory_mib: u64,
    /// The size of a page in KiB.
    pub page_size_kib: u64,
    /// Traits.
    pub traits: Vec<Trait>,
    /// The availability zone; absent: any, or none.
    pub zone: Option<ZoneName>,
    /// Metadata of its aggregates.
    pub metadata: BTreeMap<String, String>,
    /// The host whose hypervisor driver and storage of guest disks it needs, for a guest that moves.
    pub storage_of: Option<HostName>,
}

impl HostShape {
    /// Returns the NUMA nodes of such a host; nothing where there is no such machine.
    #[must_use]
    pub fn topology(&self) -> Option<HostTopology> {
        let cells = (0..self.nodes).map(|id| self.cell(id));
        let cells: Vec<HostCell> = cells.collect();
        let count = cells.len();
        let distance = |a, b| if a == b { 10 } else { 20 };
        let row = |a| (0..count).map(|b| distance(a, b)).collect();
        HostTopology::new(cells, (0..count).map(row).collect()).ok()
    }

    fn cell(&self, id: u32) -> HostCell {
        let first = id * (self.dedicated + self.shared);
        let list = |from: u32, to: u32| -> CpuSet { (from..to).map(CpuId).collect() };
        let middle = first + self.dedicated;
        let end = middle + self.shared;
        let threads = self.threads.max(1);
        let paired = (first..middle).step_by(usize::try_from(threads).unwrap_or(1));
        let mut cores: Vec<CpuSet> = paired
            .map(|cpu| list(cpu, (cpu + threads).min(middle)))
            .collect();
        cores.extend((middle..end).map(|cpu| list(cpu, cpu + 1)));
        let pool = |size_kib: u64, mib: u64| PagePool {
            size_kib,
            total: (mib * 1024).div_ceil(size_kib.max(1)),
            reserved: 0,
        };
        let pages = match self.page_size_kib {
            4 => vec![pool(4, self.memory_mib + SMALL_MIB)],
            size => vec![pool(4, SMALL_MIB), pool(size, self.memory_mib)],
        };
        HostCell {
            id: CellId(id),
            socket: Some(SocketId(0)),
            shared: list(middle, end),
            dedicated: list(first, middle),
            cores,
            memory_mib: pages.iter().map(|p| p.total * p.size_kib).sum::<u64>() / 1024,
            pages,
        }
    }
}

impl fmt::Display for HostShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.nodes == 1 { "" } else { "s" };
        write!(f, "{} NUMA node{plural} of", self.nodes)?;
        if self.dedicated > 0 {
            write!(f, " {} dedicated CPUs,", self.dedicated)?;
        }
        if self.threads > 1 {
            write!(f, " {} threads a core,", self.threads)?;
        }
        write!(
            f,
            " {} shared CPUs and {} MiB",
            self.shared, self.memory_mib
        )?;
        if self.page_size_kib != 4 {
            let size = crate::numa::Resource::PageSize(Some(self.page_size_kib));
            write!(f, " in {size}")?;
        }
        for needed in &self.traits {
            write!(f, ", with trait {needed}")?;
        }
        if let Some(zone) = &self.zone {
            write!(f, ", in availability zone {zone}")?;
        }
        for (key, value) in &self.metadata {
            write!(f, ", in an aggregate with {key}={value}")?;
        }
        if let Some(source) = &self.storage_of {
            write!(f, ", with the driver and the storage of host {source}")?;
        }
        Ok(())
    }
}
