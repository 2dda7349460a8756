//! The disks of a guest that is off, sent to another host or fetched from one.
//!
//! The files are copied as they are: layers over images, in which only what the guest wrote takes space.
//! The paths of the destination's images are written into them there, once they have been inspected: the
//! other host may be an attacker's.
//!
//! Not here: the disks of a guest that runs, which the hypervisors copy.

use std::path::{Path, PathBuf};
use std::process::Command;

use berth_domain::agent::{DomainState as State, Side};
use berth_domain::id::{MigrationId, VmUid};
use berth_domain::vm::Disk;

use super::LibvirtDriver;
use crate::disks::{self, DiskReader, DiskWriter, Hooks, Place};
use crate::domain::DomainSpec;
use crate::error::Error;
use crate::libvirt::disk::{HEADER_LIMITS, run};
use crate::libvirt::inspect;

impl LibvirtDriver {
    fn place(&self, vm: VmUid, disks: usize) -> Place {
        let settings = &self.config.settings;
        Place {
            directory: settings.directory(vm),
            files: (0..disks).map(|index| settings.disk(vm, index)).collect(),
        }
    }

    fn require_off(&self, vm: VmUid, attempted: &'static str) -> Result<(), Error> {
        let Some(domain) = self.find(vm)? else {
            return Ok(());
        };
        match self.state(&domain)? {
            State::Absent | State::Stopped => Ok(()),
            state @ (State::Starting
            | State::Running
            | State::Paused
            | State::MigratingOut
            | State::MigratingIn
            | State::Prepared
            | State::PostCopyBroken) => Err(Self::wrong_state(vm, state, attempted)),
        }
    }

    pub(super) fn open_disks(
        &self,
        vm: VmUid,
        disks: usize,
        migration: MigrationId,
    ) -> Result<DiskReader, Error> {
        self.require_off(vm, "read the disks of")?;
        DiskReader::open(vm, &self.place(vm, disks), migration)
    }

    pub(super) fn take_disks(
        &self,
        guest: &DomainSpec,
        migration: MigrationId,
    ) -> Result<Option<DiskWriter>, Error> {
        self.require_off(guest.uid, "fetch the disks of")?;
        // What it lacks to be started here is better reported before anything is sent.
        self.check_surroundings(guest)?;
        let (settings, disks) = (self.config.settings.clone(), guest.spec.disks.clone());
        let lengths_max = disks
            .iter()
            .map(Disk::size_bytes)
            .map(disks::layer_length_max);
        let lengths_max = lengths_max.collect();
        let qemu_img = self.config.qemu_img.clone();
        let adapt = move |files: &[PathBuf]| {
            for (file, disk) in files.iter().zip(&disks) {
                inspect::fetched(file, disk)?;
                if let Some(image) = &disk.image {
                    let format = disk.format.as_str();
                    rebase(&qemu_img, file, &settings.image(image)?, format)?;
                }
                inspect::layer(file, disk, &settings)?;
            }
            Ok(())
        };
        let hooks = Hooks {
            adapt: Box::new(adapt),
            ..Hooks::default()
        };
        DiskWriter::begin(
            self.place(guest.uid, guest.spec.disks.len()),
            migration,
            lengths_max,
            hooks,
        )
    }

    pub(super) fn delete_disks(
        &self,
        vm: VmUid,
        migration: MigrationId,
        side: Side,
    ) -> Result<(), Error> {
        self.require_off(vm, "delete the disks of")?;
        disks::drop_disks(&self.config.settings.directory(vm), migration, side)
    }
}

/// Writes into a layer where its image lies; what is in either is left as it is, and neither the image nor
/// what the layer named before is opened (-u).
fn rebase(qemu_img: &Path, file: &Path, image: &Path, format: &str) -> Result<(), Error> {
    let mut command = Command::new(qemu_img);
    command.args(["rebase", "-q", "-u", "-f", "qcow2", "-F", format, "-b"]);
    command.arg(image).arg(file);
    run(command, HEADER_LIMITS)
}
