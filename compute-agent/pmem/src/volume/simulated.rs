//! Devices of volumes in memory, with sizes by configuration and faults on order.
//!
//! A [`SimulatedMemory`] is a host's memory. It outlives the managers that an agent uses, as the real
//! one outlives the agent, and both modes use the same: a region that is a volume group in mode lvm
//! has that piece taken in mode direct. Contents are kept as runs of one byte, so that a volume may
//! have terabytes. File systems and mounts are not simulated.
//!
//! Nothing takes time by itself. At each step [`Pace`] is called, outside of all locks: a test
//! advances its clock there, waits for something, sets a stop, or panics to end the "process" in the
//! middle.
//!
//! Invariant: sizes, holes and which hole is taken follow the domain's arithmetic, as on a real host.

mod memory;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::topology::CellId;
use berth_domain::volume::{DIRECT_ALIGN_BYTES, DeviceMode, Region};

use super::manager::{Device, Error, VolumeManager, Watch, Wipe, check_id, check_size};
pub use memory::SimulatedMemory;

/// A region as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedRegion {
    /// Its name.
    pub name: RegionName,
    /// The cell that it is attached to.
    pub cell: Option<CellId>,
    /// How large it is.
    pub size_bytes: u64,
    /// What sizes in mode direct are multiples of.
    pub align_bytes: u64,
}

impl SimulatedRegion {
    /// Returns a region of that size with the usual alignment, attached to no cell.
    ///
    /// # Panics
    ///
    /// When the name is none.
    #[must_use]
    pub fn new(name: &str, size_bytes: u64) -> Self {
        Self {
            name: RegionName::new(name).expect("a region's name"),
            cell: None,
            size_bytes,
            align_bytes: DIRECT_ALIGN_BYTES,
        }
    }
}

/// What a manager does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// It looks which regions and devices there are.
    Look,
    /// It makes volume groups.
    Prepare,
    /// It makes a device.
    Create,
    /// It overwrites a device.
    Wipe,
    /// It removes a device.
    Remove,
}

/// A step of what a manager does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub operation: Operation,
    /// With which volume.
    pub id: Option<VolumeId>,
    /// Whether it is done: logged before and after.
    pub is_done: bool,
    /// How much is overwritten from the beginning.
    pub wiped_bytes: u64,
    /// How long it would take; see [`SimulatedManager::with_delays`].
    pub takes: Duration,
}

/// Called at each step, by the thread that does it.
pub type Pace = Arc<dyn Fn(&Step) + Send + Sync>;

/// What goes wrong, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails, and nothing was done.
    Refused(String),
    /// It fails after a part was done: a device is there and cannot be used, or is overwritten up to
    /// the middle of a piece.
    InTheMiddle(String),
    /// It is done, and fails all the same.
    Done(String),
}

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// To look.
    pub look: Duration,
    /// To make or to remove a device.
    pub change: Duration,
    /// How much is overwritten in a second.
    pub wipe_bytes_per_second: u64,
    /// How much is overwritten in one step.
    pub piece_bytes: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            look: Duration::from_millis(20),
            change: Duration::from_millis(200),
            wipe_bytes_per_second: 2 << 30,
            piece_bytes: 1 << 30,
        }
    }
}

/// A manager of a [`SimulatedMemory`].
#[derive(Clone)]
pub struct SimulatedManager {
    memory: SimulatedMemory,
    mode: DeviceMode,
    pace: Pace,
    delays: Delays,
}

impl SimulatedManager {
    /// Returns a manager that takes no time.
    #[must_use]
    pub fn new(memory: &SimulatedMemory, mode: DeviceMode) -> Self {
        Self {
            memory: memory.clone(),
            mode,
            pace: Arc::new(|_| {}),
            delays: Delays::default(),
        }
    }

    /// Has a function called at each step.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Sets the reported duration of each step.
    #[must_use]
    pub fn with_delays(mut self, delays: Delays) -> Self {
        self.delays = delays;
        self
    }

    fn step(&self, operation: Operation, id: Option<&VolumeId>, is_done: bool, wiped_bytes: u64) {
        let takes = match (is_done, operation) {
            (true, _) => Duration::ZERO,
            (false, Operation::Look) => self.delays.look,
            (false, Operation::Prepare | Operation::Create | Operation::Remove) => {
                self.delays.change
            }
            (false, Operation::Wipe) => {
                let rate = self.delays.wipe_bytes_per_second.max(1);
                Duration::from_secs_f64(self.delays.piece_bytes as f64 / rate as f64)
            }
        };
        (self.pace)(&Step {
            operation,
            id: id.cloned(),
            is_done,
            wiped_bytes,
            takes,
        });
    }

    /// Does one thing, with what was ordered to go wrong.
    fn act<T>(
        &self,
        operation: Operation,
        id: Option<&VolumeId>,
        whole: impl FnOnce() -> Result<T, Error>,
        half: impl FnOnce(),
    ) -> Result<T, Error> {
        self.step(operation, id, false, 0);
        let failed = |why: String| Error::Io {
            what: "use the simulated memory of",
            path: PathBuf::from(id.map_or("all volumes", VolumeId::as_str)),
            why,
        };
        let result = match self.memory.fault(operation) {
            None => whole(),
            Some(Fault::Refused(why)) => Err(failed(why)),
            Some(Fault::InTheMiddle(why)) => {
                half();
                Err(failed(why))
            }
            Some(Fault::Done(why)) => whole().and_then(|_| Err(failed(why))),
        };
        self.step(operation, id, true, 0);
        result
    }

    fn wipe(&self, device: &Device, from_bytes: u64, watch: &Watch<'_>) -> Result<(), Error> {
        let id = &device.id;
        let mut done = from_bytes.min(device.size_bytes);
        while done < device.size_bytes {
            watch.check(id)?;
            let length = self.delays.piece_bytes.max(1).min(device.size_bytes - done);
            self.step(Operation::Wipe, Some(id), false, done);
            match self.memory.fault(Operation::Wipe) {
                None => self.memory.zero(id, done, length)?,
                Some(Fault::Refused(why) | Fault::InTheMiddle(why) | Fault::Done(why)) => {
                    self.memory.zero(id, done, length / 2)?;
                    return Err(Error::Io {
                        what: "overwrite",
                        path: device.path.clone(),
                        why,
                    });
                }
            }
            done += length;
            (watch.progress)(done);
            self.step(Operation::Wipe, Some(id), true, done);
        }
        Ok(())
    }
}

impl VolumeManager for SimulatedManager {
    fn mode(&self) -> DeviceMode {
        self.mode
    }

    fn prepare(&self) -> Result<(), Error> {
        let whole = || {
            if self.mode == DeviceMode::Lvm {
                self.memory.make_groups();
            }
            Ok(())
        };
        self.act(Operation::Prepare, None, whole, || {})
    }

    fn regions(&self) -> Result<Vec<Region>, Error> {
        let whole = || Ok(self.memory.regions(self.mode));
        self.act(Operation::Look, None, whole, || {})
    }

    fn devices(&self) -> Result<Vec<Device>, Error> {
        let whole = || Ok(self.memory.devices(self.mode));
        self.act(Operation::Look, None, whole, || {})
    }

    fn create(
        &self,
        id: &VolumeId,
        region: &RegionName,
        gross_bytes: u64,
    ) -> Result<Device, Error> {
        check_id(id)?;
        let regions = self.memory.regions(self.mode);
        let found = regions.into_iter().find(|known| known.name == *region);
        let found = found.ok_or_else(|| Error::NoRegion {
            region: region.clone(),
            mode: self.mode,
        })?;
        check_size(region, gross_bytes, found.align_bytes)?;
        let make = |is_whole| {
            self.memory
                .make(self.mode, id, &found, gross_bytes, is_whole)
        };
        let half = || {
            // Too full, there is no half either.
            let _ = make(false);
        };
        self.act(Operation::Create, Some(id), || make(true), half)
    }

    fn users(&self, id: &VolumeId) -> Result<Vec<String>, Error> {
        Ok(self.memory.users(id))
    }

    fn delete(&self, id: &VolumeId, wipe: Wipe, watch: &Watch<'_>) -> Result<(), Error> {
        let devices = self.memory.devices(self.mode);
        let Some(device) = devices.into_iter().find(|device| device.id == *id) else {
            return Ok(());
        };
        self.memory.check_unused(id)?;
        match wipe {
            Wipe::Nothing => {}
            Wipe::Beginning => self.memory.zero(id, 0, super::manager::BEGINNING_BYTES)?,
            Wipe::Everything { from_bytes } => self.wipe(&device, from_bytes, watch)?,
        }
        watch.check(id)?;
        let whole = || self.memory.remove(id);
        self.act(Operation::Remove, Some(id), whole, || {})
    }
}
