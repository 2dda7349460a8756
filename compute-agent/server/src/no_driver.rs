//! The hypervisor of a host that has none: it makes volumes and runs no guests.
//!
//! Calls about guests do not reach it: the service refuses them, since "there is no such guest" would be
//! a definite reply. Those that do are refused here as well.

use std::collections::BTreeMap;

use berth_domain::agent::{DomainStatus, Side};
use berth_domain::cpu_model::HostCpu;
use berth_domain::cpu_set::CpuSet;
use berth_domain::host::NO_DRIVER;
use berth_domain::id::{ClaimId, MigrationId, VmUid};
use berth_domain::name::{HostName, PmemName, VmName};
use berth_domain::network::{BridgeMapping, HostNetwork};
use berth_domain::pmem::PmemDevice;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::signals::GuestMemory;
use berth_domain::topology::{HostCell, HostTopology};
use berth_domain::transfer::DiskCopy;
use berth_driver::disks::{DiskReader, DiskWriter};
use berth_driver::{
    Arrival, Chunk, ConsoleInput, ConsoleLog, DomainSpec, Draft, Driver, Ending, Error, Force,
    FreePages, Info, Known, Other, Sending,
};

/// Why a call for a guest is refused.
const WHY: &str = "it runs no VMs: its agent has driver = \"none\" and is there for volumes";

/// Returns the refusal of a call for a guest.
pub(crate) fn refusal(host: &HostName) -> Refusal {
    Refusal::new(
        Code::FailedPrecondition,
        "HOST_RUNS_NO_VMS",
        format!("host {host}: {WHY}"),
    )
    .with_hint("where VMs are to run, set driver in the configuration of that agent and restart it")
    .with("host", host)
}

/// Returns the shape of a machine that offers nothing to guests: its cells, which volumes are near to.
///
/// # Panics
///
/// Never: what is left of a shape is one.
pub(crate) fn shape(machine: &HostTopology) -> HostTopology {
    let cell = |cell: &HostCell| HostCell {
        id: cell.id,
        socket: cell.socket,
        shared: CpuSet::new(),
        dedicated: CpuSet::new(),
        cores: Vec::new(),
        memory_mib: 0,
        pages: Vec::new(),
    };
    let cells = machine.cells().iter().map(cell).collect();
    let emptied = HostTopology::new(cells, machine.distances().to_vec());
    emptied.expect("cells and distances of a shape")
}

/// No hypervisor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoDriver;

fn refused<T>() -> Result<T, Error> {
    Err(Error::refused(format!("this host: {WHY}")))
}

impl Driver for NoDriver {
    fn info(&self) -> Result<Info, Error> {
        Ok(Info {
            driver: NO_DRIVER.to_owned(),
            hypervisor: NO_DRIVER.to_owned(),
            version: String::new(),
            migration_uri: NO_DRIVER.to_owned(),
        })
    }

    fn networks(&self, _: &[BridgeMapping]) -> Result<Vec<HostNetwork>, Error> {
        Ok(Vec::new())
    }

    fn cpu(&self) -> Result<Option<HostCpu>, Error> {
        Ok(None)
    }

    fn ending(&self, _: &VmName) -> Option<Ending> {
        None
    }

    fn create(&self, _: &DomainSpec) -> Result<(), Error> {
        refused()
    }

    fn destroy(&self, _: VmUid) -> Result<(), Error> {
        refused()
    }

    fn domain(&self, _: VmUid) -> Result<DomainStatus, Error> {
        refused()
    }

    fn domains(&self) -> Result<Vec<Known>, Error> {
        Ok(Vec::new())
    }

    fn prepare_incoming(&self, _: &DomainSpec, _: &[DiskCopy]) -> Result<(), Error> {
        refused()
    }

    fn cancel_incoming(&self, _: VmUid) -> Result<(), Error> {
        refused()
    }

    fn forget_incoming(&self, _: VmUid) -> Result<(), Error> {
        refused()
    }

    fn check_peer(&self, _: &str) -> Result<(), Error> {
        refused()
    }

    fn check_tls(&self) -> Result<(), Error> {
        refused()
    }

    fn migrate(&self, _: VmUid, _: &str, _: &DomainSpec, _: &Sending) -> Result<(), Error> {
        refused()
    }

    fn abort(&self, _: VmUid) -> Result<(), Error> {
        refused()
    }

    fn force_complete(&self, _: VmUid, _: Force) -> Result<(), Error> {
        refused()
    }

    fn release(&self, _: VmUid) -> Result<(), Error> {
        refused()
    }

    fn shutdown(&self, _: VmUid) -> Result<(), Error> {
        refused()
    }

    fn stop(&self, _: VmUid) -> Result<(), Error> {
        refused()
    }

    fn start(&self, _: &DomainSpec) -> Result<(), Error> {
        refused()
    }

    fn make_disks(&self, _: &DomainSpec) -> Result<(), Error> {
        refused()
    }

    fn copy_disk(&self, _: &DomainSpec, _: usize, _: &Draft) -> Result<(), Error> {
        refused()
    }

    fn publish_image(&self, _: &Draft) -> Result<(), Error> {
        refused()
    }

    fn drop_image(&self, _: &Draft) -> Result<bool, Error> {
        refused()
    }

    fn free_pages(&self) -> Result<FreePages, Error> {
        refused()
    }

    fn console_read(&self, _: VmUid, _: u64) -> Result<Chunk, Error> {
        refused()
    }

    fn console_log(&self, _: VmUid) -> Result<ConsoleLog, Error> {
        refused()
    }

    fn console_open(&self, _: VmUid) -> Result<Box<dyn ConsoleInput>, Error> {
        refused()
    }

    fn others(&self) -> Result<Vec<Other>, Error> {
        Ok(Vec::new())
    }

    fn evict(&self, _: VmUid, _: Option<ClaimId>) -> Result<(), Error> {
        refused()
    }

    fn erase(&self, _: &PmemDevice) -> Result<(), Error> {
        refused()
    }

    fn take_arrivals(&self) -> Vec<Arrival> {
        Vec::new()
    }

    fn erased_bytes(&self) -> BTreeMap<PmemName, u64> {
        BTreeMap::new()
    }

    fn read_disks(&self, _: VmUid, _: usize, _: MigrationId) -> Result<DiskReader, Error> {
        refused()
    }

    fn receive_disks(&self, _: &DomainSpec, _: MigrationId) -> Result<Option<DiskWriter>, Error> {
        refused()
    }

    fn drop_disks(&self, _: VmUid, _: MigrationId, _: Side) -> Result<(), Error> {
        refused()
    }

    fn guest_memory(&self) -> Result<BTreeMap<VmName, GuestMemory>, Error> {
        Ok(BTreeMap::new())
    }
}
