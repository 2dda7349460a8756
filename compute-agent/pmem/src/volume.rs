//! Volumes of persistent memory on a host: what makes their devices, and what is written down of
//! them.
//!
//! What it is not: a chooser. How large a volume is and in which region it lies is decided by the
//! scheduler.
//!
//! | room | what |
//! |---|---|
//! | [`manager`] | the trait behind which devices are made, and what it answers |
//! | [`keeper`] | the volumes of this host: state before the device, one volume at a time |
//! | [`record`], `folder` | what is written down of a volume, and how it survives everything |
//! | [`real`] | namespaces made by ndctl, logical volumes made by LVM |
//! | [`filesystem`], [`kata`] | what is made on a device, and mounted |
//! | [`simulated`] | devices in memory, with faults on order |
//! | [`conformance`] | what all managers are held to |
//!
//! Invariant: a device is made, wiped or removed only under the name of a volume; whatever bears
//! another name is somebody else's and is not touched.

pub mod conformance;
pub mod filesystem;
mod folder;
mod gone;
pub mod kata;
pub mod keeper;
pub mod manager;
pub mod real;
pub mod record;
pub mod simulated;

pub use keeper::{Order, Volume, Volumes};
pub use manager::{Device, Error, VolumeManager, Watch, Wipe};
pub use real::{DirectManager, LvmManager};
pub use record::{Phase, Record};
pub use simulated::{SimulatedManager, SimulatedMemory};
