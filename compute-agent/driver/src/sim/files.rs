//! The disks of one simulated hypervisor as files, where a directory is configured for them: hosts with
//! the same directory share them.
//!
//! Simulated guests write nothing to them. What is in a new one follows from the guest and the number of
//! the disk, with holes before, between and after, so that copies can be compared.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use berth_domain::id::VmUid;

use crate::disks::{Place, is_fetching};
use crate::domain::DomainSpec;
use crate::error::Error;
use crate::seed;

/// How much is written in each position of a new disk.
const BLOCK: usize = 200 * 1024;
/// Where.
const PLACES: [u64; 3] = [4096, 3 * 1024 * 1024 + 512, 17 * 1024 * 1024];

/// The disks of all guests of one hypervisor.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// Without one there is nothing in the disks, and none is ever missing.
    pub(super) directory: Option<PathBuf>,
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::refused(format!("{}: {error}", path.display()))
}

impl Files {
    /// Returns where the disks of a guest are; nothing where they are not kept.
    pub(super) fn place(&self, vm: VmUid, disks: usize) -> Option<Place> {
        let directory = self.directory.as_ref()?.join(vm.to_string());
        let file = |index: usize| directory.join(format!("disk{index}.raw"));
        let files = (0..disks).map(file).collect();
        Some(Place { directory, files })
    }

    fn place_of(&self, guest: &DomainSpec) -> Option<Place> {
        self.place(guest.uid, guest.spec.disks.len())
    }

    /// Recreates the disks of a guest.
    pub(super) fn make(&self, guest: &DomainSpec) -> Result<(), Error> {
        let Some(place) = self.place_of(guest) else {
            return Ok(());
        };
        fs::create_dir_all(&place.directory).map_err(|e| failed(&place.directory, &e))?;
        for ((index, file), disk) in (0..).zip(&place.files).zip(&guest.spec.disks) {
            let made = match (disk.seed, &guest.first_boot) {
                (false, _) => fill(file, guest.uid, index, disk.size_bytes()),
                (true, Some(first_boot)) => seed::image(&guest.vm, guest.uid, first_boot)
                    .and_then(|bytes| fs::write(file, bytes)),
                // Of a guest that comes: its bytes are not sent either.
                (true, None) => File::options()
                    .create(true)
                    .append(true)
                    .open(file)
                    .and_then(|seed| seed.set_len(disk.size_bytes())),
            };
            made.map_err(|error| failed(file, &error))?;
        }
        Ok(())
    }

    /// Refuses a guest that has no disks to be started with.
    pub(super) fn require(&self, guest: &DomainSpec) -> Result<(), Error> {
        let Some(place) = self.place_of(guest) else {
            return Ok(());
        };
        if is_fetching(&place.directory) {
            let message = format!("the disks of guest {} are still being fetched", guest.vm);
            return Err(Error::refused(message));
        }
        let missing = place.files.iter().enumerate().find(|(_, f)| !f.exists());
        match missing {
            None => Ok(()),
            Some((index, path)) => Err(guest.disk_missing(index, path.clone())),
        }
    }

    /// Refuses a guest whose seed is not there: it cannot be made again.
    pub(super) fn require_seed(&self, guest: &DomainSpec) -> Result<(), Error> {
        let files = self.place_of(guest).map(|place| place.files);
        let files = files.into_iter().flatten().enumerate();
        let mut seeds = files.filter(|(index, _)| guest.spec.disks[*index].seed);
        match seeds.find(|(_, path)| !path.exists()) {
            None => Ok(()),
            Some((index, path)) => Err(guest.disk_missing(index, path)),
        }
    }

    /// Removes the disks of a guest.
    pub(super) fn remove(&self, vm: VmUid) -> Result<(), Error> {
        let Some(place) = self.place(vm, 0) else {
            return Ok(());
        };
        match fs::remove_dir_all(&place.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(&place.directory, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn fill(path: &Path, vm: VmUid, index: u64, length: u64) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(length)?;
    let mut state = vm.0.as_u64_pair().1 ^ index ^ 0x9e37_79b9_7f4a_7c15;
    for place in PLACES {
        let mut bytes = vec![0; BLOCK];
        for byte in &mut bytes {
            // xorshift: no randomness is needed here, only different positions.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state.to_le_bytes()[0];
        }
        let length = length.saturating_sub(place).min(BLOCK as u64);
        let length = usize::try_from(length).unwrap_or(BLOCK);
        file.write_all_at(&bytes[..length], place)?;
    }
    Ok(())
}
