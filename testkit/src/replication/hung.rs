//! A disk whose log can hang: while it is held, no synchronisation of the log returns.
//!
//! What it is not: a disk that fails or forgets. Once it is released, everything that was handed
//! to it is durable.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use berth_store::LogBatch;
use berth_store::disk::{Disk, Parts};
use berth_store::log::{Error, LogContents, LogStore};

/// Holds and releases the log of one disk.
#[derive(Clone, Debug, Default)]
pub struct Hold(Arc<(Mutex<bool>, Condvar)>);

impl Hold {
    /// Lets the log hang from its next synchronisation on.
    pub fn hold(&self) {
        self.set(true);
    }

    /// Lets the log go on.
    pub fn release(&self) {
        self.set(false);
    }

    fn set(&self, held: bool) {
        let (state, changed) = &*self.0;
        *state.lock().unwrap_or_else(PoisonError::into_inner) = held;
        changed.notify_all();
    }

    fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut held = state.lock().unwrap_or_else(PoisonError::into_inner);
        while *held {
            held = changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A disk with a log that can hang.
pub struct HungDisk<D> {
    disk: D,
    hold: Hold,
}

impl<D: Disk> HungDisk<D> {
    /// Puts the log of this disk under the hold.
    pub fn new(disk: D, hold: Hold) -> Self {
        Self { disk, hold }
    }
}

impl<D: Disk> Disk for HungDisk<D> {
    type Log = HungLog<D::Log>;
    type Checkpoints = D::Checkpoints;
    type Table = D::Table;

    fn split(self) -> Parts<Self> {
        let parts = self.disk.split();
        Parts {
            identity: parts.identity,
            log: HungLog {
                log: parts.log,
                hold: self.hold,
            },
            checkpoints: parts.checkpoints,
            table: parts.table,
            repairs: parts.repairs,
            guard: parts.guard,
        }
    }
}

/// The log of such a disk.
pub struct HungLog<L> {
    log: L,
    hold: Hold,
}

impl<L: LogStore> LogStore for HungLog<L> {
    fn load(&mut self) -> Result<LogContents, Error> {
        self.log.load()
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.log.begin()
    }

    fn append(&mut self, batch: LogBatch) -> Result<(), Error> {
        self.log.append(batch)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.hold.pass();
        self.log.sync()
    }

    fn compact(&mut self, first_kept: u64) -> Result<(), Error> {
        self.log.compact(first_kept)
    }
}
