//! Whether a guest fits on a simulated hypervisor: what a kernel would refuse.
//!
//! Not what was claimed: like a real one it knows no claims.

use std::path::PathBuf;

use berth_domain::cpu_set::CpuSet;

use super::host::{Domain, Host};
use crate::domain::DomainSpec;
use crate::error::Error;
use crate::request::FreePages;

impl Host {
    /// Returns the free pages of every cell.
    #[must_use]
    pub fn free_pages(&self) -> FreePages {
        let mut free: FreePages = self
            .topology()
            .cells()
            .iter()
            .map(|c| {
                (
                    c.id,
                    c.pages.iter().map(|p| (p.size_kib, p.total)).collect(),
                )
            })
            .collect();
        for ((cell, size), count) in &self.foreign_pages {
            let pool = free.get_mut(cell).and_then(|pools| pools.get_mut(size));
            if let Some(pool) = pool {
                *pool = pool.saturating_sub(*count);
            }
        }
        for cell in self
            .domains
            .values()
            .filter(|d| d.holds_memory())
            .flat_map(|d| &d.spec.assignment.cells)
        {
            let pool = cell
                .page_size_kib
                .and_then(|size| free.get_mut(&cell.host_cell)?.get_mut(&size));
            if let Some(pool) = pool {
                *pool = pool.saturating_sub(cell.pages());
            }
        }
        free
    }

    /// What a hypervisor would refuse: a CPU that this one cannot give.
    pub(super) fn check_cpu(&self, spec: &DomainSpec) -> Result<(), Error> {
        let (Some(cpu), Some(own)) = (&spec.cpu, self.cpu()) else {
            return Ok(());
        };
        let fits = own.check(cpu, false);
        fits.map_err(|why| {
            Error::refused(format!("guest CPU is incompatible with this host: {why}"))
        })
    }

    /// What a hypervisor would refuse: volumes without a device, or one that another guest writes to.
    pub(super) fn check_volumes(&self, spec: &DomainSpec) -> Result<(), Error> {
        spec.check_volumes()?;
        let others = self.domains.values();
        let others = others.filter(|d| d.spec.uid != spec.uid && d.holds_memory());
        for other in others {
            let has = |path: &&PathBuf| other.spec.volumes.iter().any(|v| v.path == **path);
            let mut paths = spec.volumes.iter().map(|volume| &volume.path);
            if let Some(path) = paths.find(has) {
                return Err(Error::refused(format!(
                    "cannot lock {}: guest {} writes to it",
                    path.display(),
                    other.spec.vm
                )));
            }
        }
        Ok(())
    }

    /// What a hypervisor would refuse: PCI functions that are not there, or in another guest.
    fn check_functions(&self, spec: &DomainSpec) -> Result<(), Error> {
        for address in spec.assignment.pci.iter().flatten() {
            let mut there = self.topology().pci().iter();
            if !there.any(|device| device.address == *address) {
                return Err(Error::refused(format!(
                    "device not found: could not access /sys/bus/pci/devices/{address}"
                )));
            }
            let has = |d: &&Domain| d.spec.assignment.pci.iter().any(|g| g.contains(address));
            let others = self.domains.values();
            let mut others = others.filter(|d| d.spec.uid != spec.uid && d.holds_memory());
            if let Some(other) = others.find(has) {
                return Err(Error::refused(format!(
                    "PCI device {address} is in use by domain {}",
                    other.spec.vm
                )));
            }
        }
        Ok(())
    }

    /// What a hypervisor would refuse: namespaces that are not there, or in another guest.
    fn check_namespaces(&self, spec: &DomainSpec) -> Result<(), Error> {
        for device in &spec.assignment.pmem {
            let there = self.topology().namespace(&device.name);
            if there.is_none_or(|namespace| !namespace.trouble.is_empty()) {
                return Err(Error::refused(format!(
                    "cannot open {}: no such pmem namespace as {}",
                    device.path, device.name
                )));
            }
            let has = |d: &&Domain| {
                let mut devices = d.spec.assignment.pmem.iter();
                devices.any(|other| other.name == device.name)
            };
            let others = self.domains.values();
            let mut others = others.filter(|d| d.spec.uid != spec.uid && d.holds_memory());
            if let Some(other) = others.find(has) {
                return Err(Error::refused(format!(
                    "pmem namespace {} is in use by domain {}",
                    device.name, other.spec.vm
                )));
            }
        }
        Ok(())
    }

    /// What a kernel would refuse: CPUs and cells that are not there, pages that are taken.
    pub(super) fn check_capacity(&self, spec: &DomainSpec) -> Result<(), Error> {
        let all = self.topology().shared().union(&self.topology().dedicated());
        let cpus = spec
            .vcpu_cpus()
            .values()
            .fold(spec.emulator_cpus(), |all: CpuSet, c| all.union(c));
        if !cpus.is_subset(&all) {
            let absent = cpus.difference(&all);
            return Err(Error::refused(format!(
                "cannot set CPU affinity: this host has no CPU {absent}"
            )));
        }
        self.check_functions(spec)?;
        self.check_namespaces(spec)?;
        let free = self.free_pages();
        for cell in &spec.assignment.cells {
            let Some(pools) = free.get(&cell.host_cell) else {
                let message = format!("NUMA node {} is unavailable", cell.host_cell);
                return Err(Error::refused(message));
            };
            let Some(size) = cell.page_size_kib else {
                continue;
            };
            let (needed, have) = (cell.pages(), pools.get(&size).copied().unwrap_or(0));
            if needed > have {
                return Err(Error::refused(format!(
                    "cannot allocate guest memory: cell {} has {have} free pages of {size} KiB, {needed} are needed",
                    cell.host_cell
                )));
            }
        }
        Ok(())
    }
}
