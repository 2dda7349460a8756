//! Volumes of persistent memory on a host: the managers of their devices, and their records.
//!
//! What it is not: a chooser. How large a volume is and in which region it lies is decided by the
//! scheduler.
//!
//! | module | what |
//! |---|---|
//! | [`manager`] | the trait behind which devices are made, and its results |
//! | [`store`] | the volumes of this host: record before device, one call per volume at a time |
//! | [`record`], `folder` | the record of a volume, and how it survives crashes |
//! | [`real`] | namespaces made by ndctl, logical volumes made by LVM |
//! | [`filesystem`], [`kata`] | what is made on a device, and mounted |
//! | [`simulated`] | devices in memory, with injected faults |
//! | `conformance` | the conformance suite of all managers |
//!
//! Invariant: a device is made, wiped or removed only under the name of a volume; whatever has
//! another name is foreign and is not touched.

mod absence;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod filesystem;
mod folder;
pub mod kata;
pub mod manager;
pub mod real;
pub mod record;
pub mod simulated;
pub mod store;

pub use manager::{Device, Error, VolumeManager, Watch, Wipe};
pub use real::{DirectManager, LvmManager};
pub use record::{Phase, Record};
pub use simulated::{SimulatedManager, SimulatedMemory};
pub use store::{Order, Volume, VolumeStore};
