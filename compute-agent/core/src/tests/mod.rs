//! Goal: the core keeps its word whatever comes late, twice, from the past, or not at all.
//!
//! Method: agents of two or three hosts on one [`World`] under a virtual clock ([`rig`]); the
//! test is the conductor.

mod disks;
mod erasing;
mod fencing;
mod host_check;
mod hostile;
mod migration;
mod migration_tls;
mod power;
mod reality;
mod recovery;
mod rig;
mod self_fence;
mod spawn;
mod transfer;
