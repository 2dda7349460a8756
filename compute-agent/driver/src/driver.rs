//! The trait that every hypervisor driver implements.
//!
//! All calls block, a transfer as long as it takes; an async caller uses threads for them. All may
//! be made at the same time from several threads; the caller orders the changing ones per guest.
//!
//! Every changing call can be repeated: what is done already is done again without effect.
//! [`crate::conformance`] holds each driver to these words.

use std::collections::BTreeMap;

use berth_domain::agent::{DomainStatus, Side};
use berth_domain::cpu_model::HostCpu;
use berth_domain::id::{ClaimId, MigrationId, VmUid};
use berth_domain::name::{PmemName, VmName};
use berth_domain::network::{BridgeMapping, HostNetwork};
use berth_domain::pmem::PmemDevice;
use berth_domain::signals::{GuestMemory, MemorySignals};
use berth_domain::transfer::DiskCopy;
use serde::{Deserialize, Serialize};

use crate::arrivals::Arrival;
use crate::disks::{DiskReader, DiskWriter};
use crate::domain::{DomainSpec, Draft, Ending, Force, Known, Other, Sending};
use crate::error::Error;
use crate::request::FreePages;

/// A driver's description of its hypervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The driver: `sim` or `libvirt`. Guests move between equal ones only.
    pub driver: String,
    /// The hypervisor and its version, for people.
    pub hypervisor: String,
    /// The version that decides where guests can move to, as `7.2.0`. Empty: without guests.
    pub version: String,
    /// Where another hypervisor of this kind sends guests to.
    pub migration_uri: String,
}

/// A piece of what a guest wrote to its console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Where the piece begins; later than requested when older output is no longer kept.
    pub offset: u64,
    /// The bytes; empty when there is nothing after `offset` yet.
    pub bytes: Vec<u8>,
}

/// What a guest's console is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleLog {
    /// Differs from that of every other log of hosts with the same storage.
    pub id: String,
    /// The offset at which the next byte will be.
    pub end: u64,
}

/// The longest piece of console that one call returns.
pub const CONSOLE_CHUNK_MAX: usize = 64 * 1024;

/// The most bytes that one call types on a console.
pub const CONSOLE_INPUT_MAX: usize = 4096;

/// Types on the console of a guest, from [`Driver::console_open`] on. To drop it waits a moment for a
/// guest that takes what was typed slowly.
pub trait ConsoleInput: Send + Sync {
    /// Types bytes, [`CONSOLE_INPUT_MAX`] at most.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`] or [`Error::Refused`] when the guest is gone: some bytes may have been typed.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error>;

    /// Returns whether the guest can still hear it: not one that was started again.
    fn is_open(&self) -> bool;
}

/// Erases namespaces of persistent memory of the machine that a hypervisor runs on: see
/// [`Driver::erase`].
pub trait Eraser: Send + Sync {
    /// Overwrites all of a namespace with zeros; blocks until that is durable.
    ///
    /// # Errors
    ///
    /// When it cannot be.
    fn erase(&self, device: &PmemDevice) -> Result<(), Error>;

    /// Returns of how many bytes the namespaces that are being erased are rid by now.
    fn erased_bytes(&self) -> BTreeMap<PmemName, u64>;
}

/// That of a machine without persistent memory.
#[derive(Clone, Copy, Debug)]
pub struct NoPmem;

impl Eraser for NoPmem {
    fn erase(&self, device: &PmemDevice) -> Result<(), Error> {
        let PmemDevice { name, .. } = device;
        let message = format!("pmem namespace {name} is not on this host");
        Err(Error::Refused { message })
    }

    fn erased_bytes(&self) -> BTreeMap<PmemName, u64> {
        BTreeMap::new()
    }
}

/// A hypervisor.
pub trait Driver: Send + Sync {
    /// Returns the description of the hypervisor.
    ///
    /// # Errors
    ///
    /// When the hypervisor cannot be reached.
    fn info(&self) -> Result<Info, Error>;

    /// Returns which physical networks the host reaches with these bridges now, in their order.
    ///
    /// # Errors
    ///
    /// When the hypervisor cannot be reached.
    fn networks(&self, mappings: &[BridgeMapping]) -> Result<Vec<HostNetwork>, Error>;

    /// Returns what the hypervisor offers to guests as a CPU; nothing where it does not matter, as where
    /// guests are simulated.
    ///
    /// # Errors
    ///
    /// When the hypervisor does not reply, or its reply cannot be understood.
    fn cpu(&self) -> Result<Option<HostCpu>, Error>;

    /// Makes the guest's disks and starts it. Repeated with the same claim: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] when it is here on another claim; [`Error::Refused`] when the hypervisor
    /// will not, with everything undone.
    fn create(&self, domain: &DomainSpec) -> Result<(), Error>;

    /// Stops the guest and removes it with its disks. Absent: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] while it is being sent or received.
    fn destroy(&self, vm: VmUid) -> Result<(), Error>;

    /// Returns the state of the guest; an unknown one is absent, not an error.
    ///
    /// # Errors
    ///
    /// When the hypervisor does not reply.
    fn domain(&self, vm: VmUid) -> Result<DomainStatus, Error>;

    /// Returns every guest that Berth started or sent here, and nothing else.
    ///
    /// # Errors
    ///
    /// When the hypervisor does not reply.
    fn domains(&self) -> Result<Vec<Known>, Error>;

    /// Returns how a guest ended that should run and does not; nothing where that is not known, as after
    /// a restart of the machine.
    fn ending(&self, vm: &VmName) -> Option<Ending>;

    /// Makes ready to receive the guest; what can be checked before anything moves is checked
    /// here. Repeated: the newer specification replaces the older one. Of the disks that are copied
    /// empty images are made, of the size that the guest sees and over the image that they lie over on
    /// the source.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] when it is here already; [`Error::Refused`] when it cannot be
    /// received.
    fn prepare_incoming(&self, domain: &DomainSpec, copies: &[DiskCopy]) -> Result<(), Error>;

    /// Undoes [`Self::prepare_incoming`]. A guest that has stopped here is removed; disks that were
    /// made to be copied to are deleted, shared ones stay. Unknown: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] when the guest is being received or runs here.
    fn cancel_incoming(&self, vm: VmUid) -> Result<(), Error>;

    /// As [`Self::cancel_incoming`], but disks that were made to be copied to stay: the guest is lost,
    /// and may have run here last.
    ///
    /// # Errors
    ///
    /// Those of [`Self::cancel_incoming`].
    fn forget_incoming(&self, vm: VmUid) -> Result<(), Error>;

    /// Checks that guests can be sent from here, and received, encrypted; see [`Sending::tls`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with what is missing and what to do.
    fn check_tls(&self) -> Result<(), Error>;

    /// Checks that the hypervisor at `uri` can be reached from here, as for a transfer; bounded in time.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with the reason.
    fn check_peer(&self, uri: &str) -> Result<(), Error>;

    /// Sends the guest to the hypervisor at `destination_uri`, where it becomes `destination`.
    /// Returns when it runs there and is gone here.
    ///
    /// # Errors
    ///
    /// Whatever failed; unless [`Error::is_unknown`], the guest runs on here.
    fn migrate(
        &self,
        vm: VmUid,
        destination_uri: &str,
        destination: &DomainSpec,
        sending: &Sending,
    ) -> Result<(), Error>;

    /// Stops a transfer that [`Self::migrate`] carries out. None: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] when the guest runs on the other side already; or when the hypervisor
    /// does not reply.
    fn abort(&self, vm: VmUid) -> Result<(), Error>;

    /// Makes a transfer that [`Self::migrate`] carries out end soon. Post-copy has to have been
    /// allowed when it began. None under way, or done already: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the hypervisor will not.
    fn force_complete(&self, vm: VmUid, how: Force) -> Result<(), Error>;

    /// Drops what is left here of a guest that has arrived elsewhere; disks that were copied are
    /// deleted, shared ones stay. Absent: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] when it runs here.
    fn release(&self, vm: VmUid) -> Result<(), Error>;

    /// Requests the guest to power off, and returns at once; [`Self::domain`] reports whether it did.
    /// Absent or stopped: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] while it is being sent or received; [`Error::Refused`] when it cannot
    /// be reached.
    fn shutdown(&self, vm: VmUid) -> Result<(), Error>;

    /// Pulls the guest's plug. Only its disks and its console log stay here. Absent:
    /// no effect. Half a guest, whose post-copy broke, is stopped too.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] while it is being sent or received.
    fn stop(&self, vm: VmUid) -> Result<(), Error>;

    /// Starts the guest with the disks that it has; one that has stopped here is restarted.
    /// Repeated with the same claim: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::DiskMissing`]; [`Error::Exists`] when it runs here on another claim;
    /// [`Error::Refused`] when the hypervisor refuses, with everything undone but the disks.
    fn start(&self, domain: &DomainSpec) -> Result<(), Error>;

    /// Recreates the disks of a guest that is off from their images. Repeated: recreated again.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] while it is here; [`Error::Refused`] when they cannot be made: some
    /// may be recreated by then.
    fn make_disks(&self, domain: &DomainSpec) -> Result<(), Error>;

    /// Copies a disk of the guest to a draft of an image, as it is at one moment: that at which the
    /// copy of a running guest's disk ends. The guest runs on. Repeated: copied again.
    ///
    /// # Errors
    ///
    /// [`Error::ImageExists`] when the image's name is taken; [`Error::WrongState`] while the guest
    /// is being sent or received; [`Error::Refused`] when it cannot be copied, with nothing left.
    fn copy_disk(&self, domain: &DomainSpec, disk: usize, draft: &Draft) -> Result<(), Error>;

    /// Gives a draft its name; it is on stable storage then. Repeated: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::ImageExists`] when the name is taken by another; [`Error::Refused`] when there is
    /// no draft.
    fn publish_image(&self, draft: &Draft) -> Result<(), Error>;

    /// Removes a draft, and returns whether it had got its name before. Unknown: no effect.
    ///
    /// # Errors
    ///
    /// When it cannot be removed.
    fn drop_image(&self, draft: &Draft) -> Result<bool, Error>;

    /// Returns the free pages of every cell.
    ///
    /// # Errors
    ///
    /// When the host does not report them.
    fn free_pages(&self) -> Result<FreePages, Error>;

    /// Returns what the guest wrote to its console from `offset` on, at most
    /// [`CONSOLE_CHUNK_MAX`] bytes. Offsets go on across a migration where hosts share storage.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`], or that the console cannot be read.
    fn console_read(&self, vm: VmUid, offset: u64) -> Result<Chunk, Error>;

    /// Returns what the guest's console is written to, and how far.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`], or that the console cannot be read.
    fn console_log(&self, vm: VmUid) -> Result<ConsoleLog, Error>;

    /// Opens the guest's console to type on it. A console has one line: what a second caller types
    /// arrives when the first has dropped its own.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`], or that the console cannot be typed on.
    fn console_open(&self, vm: VmUid) -> Result<Box<dyn ConsoleInput>, Error>;

    /// Returns every domain that Berth did not make, and those whose record cannot be read.
    ///
    /// # Errors
    ///
    /// When the hypervisor does not reply.
    fn others(&self) -> Result<Vec<Other>, Error>;

    /// Stops the guest at once and removes it; its disks stay. With another claim in its record, or
    /// absent: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] while it is being sent or received.
    fn evict(&self, vm: VmUid, claim: Option<ClaimId>) -> Result<(), Error>;

    /// Overwrites all of a namespace of persistent memory with zeros. Returns when nothing of what was
    /// written to it is left, not after a power cut either. Repeated: overwritten again.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when it cannot be, or some guest has it: part of it may be overwritten.
    fn erase(&self, device: &PmemDevice) -> Result<(), Error>;

    /// Returns of how many bytes the namespaces that are being erased are rid by now.
    fn erased_bytes(&self) -> BTreeMap<PmemName, u64>;
    /// Opens the disks of a guest that is off, to be sent to another host.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] when it is not off; [`Error::DiskMissing`]; [`Error::StorageShared`] when they
    /// are being fetched for this migration to the very place.
    fn read_disks(
        &self,
        vm: VmUid,
        disks: usize,
        migration: MigrationId,
    ) -> Result<DiskReader, Error>;

    /// Prepares a fetch of the disks of a guest that is off from another host. Nothing if all of them
    /// were fetched for this migration already; one that broke off is restarted.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] when it is here; [`Error::Refused`] when it could not be started here, or
    /// there are disks of it that were not fetched.
    fn receive_disks(
        &self,
        domain: &DomainSpec,
        migration: MigrationId,
    ) -> Result<Option<DiskWriter>, Error>;

    /// Deletes the disks of a guest that is not here: on the destination of a migration those that were
    /// fetched for it, whole or not; on the source all. Repeated or unknown: no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`] when it is here; or when they cannot be deleted.
    fn drop_disks(&self, vm: VmUid, migration: MigrationId, side: Side) -> Result<(), Error>;

    /// Returns the guests that arrived by live migration since the last call; waits for nothing.
    fn take_arrivals(&self) -> Vec<Arrival>;

    /// Returns the memory usage of each guest of Berth's that is here. It may take long
    /// where the hypervisor does, and does not block other calls then.
    ///
    /// # Errors
    ///
    /// When it cannot be determined for all of them.
    fn guest_memory(&self) -> Result<BTreeMap<VmName, GuestMemory>, Error>;

    /// Returns the memory of a simulated machine; that of a real one is in the kernel's files,
    /// and nothing is returned.
    fn machine_memory(&self) -> Option<MemorySignals> {
        None
    }

    /// Breaks off what lives in this process alone, as it is about to end. What a hypervisor of
    /// its own carries on is left to it.
    fn close(&self) {}
}
