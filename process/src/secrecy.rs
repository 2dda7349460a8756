//! What a process does so that its secrets stay with it: keys of certificates, and the key that signs
//! grants, which is in the memory and the data directory of each scheduler.
//!
//! Not here: the modes of single files (`berth-files`).

use std::io;

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Has the system write no core dump of this process, and lets no other process of its user read its
/// memory. Root's still may.
///
/// # Errors
///
/// That of the operating system.
pub(crate) fn hide_memory() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Has every file and directory that this process makes from now on be its user's alone, those of
/// libraries included. It is meant for `main`, and not for a process that makes files for others, as an
/// agent does for hypervisors.
pub fn hide_files() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}
