//! Devices of volumes on a host: namespaces made by `ndctl`, logical volumes made by LVM.
//!
//! | module | what |
//! |---|---|
//! | `direct` | one namespace for each volume |
//! | `lvm` | one volume group for each region |
//! | `listing` | regions and namespaces by `ndctl list` and the kernel |
//! | `report` | what `lvm` reports, parsed, pure |
//! | `turn` | changes one after the other, also after this program was killed |
//! | `block` | the users of a block device, and overwriting it |
//!
//! Invariant: a namespace is removed only when it has a volume's name, or was begun by this program
//! for a volume group and never became a part of one; a logical volume only when it has a volume's
//! name and lies in a volume group that is made of our namespaces alone.

pub(crate) mod block;
mod direct;
mod listing;
mod lvm;
mod report;
#[cfg(test)]
mod tests;
mod turn;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use berth_domain::name::RegionName;
use berth_domain::volume::DIRECT_ALIGN_BYTES;

use super::manager::Error;
use crate::command;
pub use direct::DirectManager;
use listing::{Listing, NdRegion};
pub use lvm::LvmManager;
use turn::Turn;

/// The name of namespaces that volume groups are made of.
pub const GROUP_NAMESPACE: &str = "pmem-csi";

/// How the programs are found and used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The program that makes namespaces; looked for on the usual path if it is a bare name.
    pub ndctl: PathBuf,
    /// The program of LVM.
    pub lvm: PathBuf,
    /// Where devices are.
    pub devices: PathBuf,
    /// The kernel's files about processes and mounts.
    pub proc: PathBuf,
    /// The kernel's files about devices.
    pub sys: PathBuf,
    /// A folder of the managers' own; not the one with the records.
    pub state: PathBuf,
    /// Timeout of a program that only reads.
    pub tell_limit: Duration,
    /// How long a program that changes something may take; large namespaces take a while.
    pub change_limit: Duration,
    /// How much is overwritten before that is synced and reported.
    pub piece_bytes: u64,
    /// What sizes in mode direct, and of the namespaces of volume groups, are multiples of; for a
    /// region that is interleaved, that many times. Smaller than usual only for small modules.
    pub align_bytes: u64,
    /// How much of each region volume groups are made of, in percent.
    pub fsdax_percent: u64,
    /// The smallest namespace that is made for a volume group.
    pub fsdax_least_bytes: u64,
}

impl Settings {
    /// Returns the usual ones.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self {
            ndctl: "ndctl".into(),
            lvm: "lvm".into(),
            devices: "/dev".into(),
            proc: "/proc".into(),
            sys: "/sys".into(),
            state: state.to_owned(),
            tell_limit: Duration::from_secs(30),
            change_limit: Duration::from_secs(300),
            piece_bytes: 1 << 30,
            align_bytes: DIRECT_ALIGN_BYTES,
            fsdax_percent: 100,
            fsdax_least_bytes: 2 << 30,
        }
    }

    fn turn(&self, is_change: bool) -> Result<Turn, Error> {
        Turn::wait(&self.state, is_change, self.change_limit)
    }

    fn tell(&self, program: &Path, arguments: &[&str]) -> Result<Vec<u8>, Error> {
        let never = AtomicBool::new(false);
        let output = command::run(program, arguments, self.tell_limit, &never)?;
        Ok(output.stdout)
    }

    fn change(&self, program: &Path, arguments: &[&str]) -> Result<(), Error> {
        let never = AtomicBool::new(false);
        let input = turn::input();
        let output = command::run_with(program, arguments, input, self.change_limit, &never)?;
        let said = String::from_utf8_lossy(&output.stderr);
        tracing::info!(program = %program.display(), ?arguments, said = said.trim(), "changed");
        Ok(())
    }

    fn list(&self) -> Result<Listing, Error> {
        let output = self.tell(&self.ndctl, &listing::ARGUMENTS)?;
        listing::read(&output, &self.sys, &self.devices)
    }

    /// Makes a namespace of a mode for file systems.
    fn make_namespace(&self, region: &NdRegion, bytes: u64, name: &str) -> Result<(), Error> {
        let size = bytes.to_string();
        let (what, place) = ("create-namespace", ["--region", region.name.as_str()]);
        let form = ["--mode", "fsdax", "--map", "dev", "--size", &size];
        // It would free space by initialising labels, which may be foreign.
        let rest = ["--name", name, "--no-autolabel"];
        let arguments = [&[what][..], &place, &form, &rest].concat();
        let made = self.change(&self.ndctl, &arguments);
        made.map_err(|error| {
            let why = error.to_string();
            match why.contains("No space left on device") {
                true => no_space(&region.name, bytes, why),
                false => error,
            }
        })
    }

    fn destroy_namespace(&self, dev: &str) -> Result<(), Error> {
        self.change(&self.ndctl, &["destroy-namespace", "--force", dev])
    }
}

fn no_space(region: &RegionName, gross_bytes: u64, why: String) -> Error {
    Error::NoSpace {
        region: region.clone(),
        gross_bytes,
        why,
    }
}
