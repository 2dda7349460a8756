//! What a host has, and what the claims on it take, in the amounts of the table of hosts.
//!
//! Not here: the allocation ratios of the policy. These are installed amounts, so shared CPUs and memory
//! may be taken beyond them.
//!
//! Invariant: adding claims and subtracting some of them again leaves the sum of the others.

use berth_domain::claim::Claim;
use berth_domain::host::HostReport;
use berth_domain::resource::ResourceClass;

/// Small pages are of at most so many KiB, on every architecture.
const SMALL_PAGE_KIB_MAX: u64 = 64;

/// What a host has for guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// CPUs that are given to one vCPU each.
    pub dedicated: u64,
    /// CPUs over which vCPUs float.
    pub shared: u64,
    /// Memory in MiB, without what is reserved for the host.
    pub memory_mib: u64,
    /// Memory in MiB that is in huge pages, without reserved ones.
    pub pages_mib: u64,
    /// Disk space in GiB.
    pub disk_gib: u64,
    /// Namespaces of persistent memory.
    pub pmem: u64,
}

impl Capacity {
    /// Returns what a host has; nothing if it runs no guests.
    #[must_use]
    pub fn of(report: &HostReport) -> Self {
        if !report.runs_guests() {
            return Self::default();
        }
        let topology = &report.topology;
        let pools = topology.cells().iter().flat_map(|cell| &cell.pages);
        let huge = pools.filter(|pool| pool.size_kib > SMALL_PAGE_KIB_MAX);
        let pages_kib = huge.map(|pool| pool.total.saturating_sub(pool.reserved) * pool.size_kib);
        let total = topology.memory_mib();
        Self {
            dedicated: topology.dedicated().len() as u64,
            shared: topology.shared().len() as u64,
            memory_mib: total.saturating_sub(report.memory_reserved_mib),
            pages_mib: pages_kib.sum::<u64>() / 1024,
            disk_gib: report.disk_gib,
            pmem: topology.pmem().len() as u64,
        }
    }

    /// Adds another host.
    pub fn add(&mut self, other: &Self) {
        self.dedicated += other.dedicated;
        self.shared += other.shared;
        self.memory_mib += other.memory_mib;
        self.pages_mib += other.pages_mib;
        self.disk_gib += other.disk_gib;
        self.pmem += other.pmem;
    }
}

/// What claims take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many claims there are.
    pub claims: u64,
    /// Dedicated CPUs, those included that stay idle beside isolated threads.
    pub dedicated: u64,
    /// vCPUs that float over shared CPUs.
    pub shared: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Memory in MiB that is in huge pages.
    pub pages_mib: u64,
    /// Disk space in GiB.
    pub disk_gib: u64,
    /// Namespaces of persistent memory.
    pub pmem: u64,
}

impl Usage {
    /// Returns what a claim takes.
    #[must_use]
    pub fn of(claim: &Claim) -> Self {
        let given = &claim.assignment;
        let cells = given.cells.iter();
        let dedicated: usize = cells.map(|cell| cell.pins.len() + cell.idle.len()).sum();
        let is_huge = |size: Option<u64>| size.is_some_and(|kib| kib > SMALL_PAGE_KIB_MAX);
        let huge = given.cells.iter().filter(|c| is_huge(c.page_size_kib));
        let counted = |class| claim.resources.get(&class).copied().unwrap_or(0);
        Self {
            claims: 1,
            dedicated: (dedicated + given.emulator.len()) as u64,
            shared: counted(ResourceClass::vcpu()),
            memory_mib: counted(ResourceClass::memory_mb()),
            pages_mib: huge.map(|cell| cell.memory_mib).sum(),
            disk_gib: counted(ResourceClass::disk_gb()),
            pmem: given.pmem.len() as u64,
        }
    }

    /// Adds what others take.
    pub fn add(&mut self, other: &Self) {
        self.claims += other.claims;
        self.dedicated += other.dedicated;
        self.shared += other.shared;
        self.memory_mib += other.memory_mib;
        self.pages_mib += other.pages_mib;
        self.disk_gib += other.disk_gib;
        self.pmem += other.pmem;
    }

    /// Subtracts what was added before.
    pub fn subtract(&mut self, other: &Self) {
        self.claims -= other.claims;
        self.dedicated -= other.dedicated;
        self.shared -= other.shared;
        self.memory_mib -= other.memory_mib;
        self.pages_mib -= other.pages_mib;
        self.disk_gib -= other.disk_gib;
        self.pmem -= other.pmem;
    }
}
