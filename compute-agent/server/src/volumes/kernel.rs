//! Mounts as the kernel makes them.
//!
//! ```text
//!   plain:  device ─ mount with dax ─▶ path
//!   Kata:   device ─ mount with dax ─▶ <state_dir>/mounts/<id> ─ image file ─ loop device ─▶ path
//! ```
//!
//! Invariant: a volume for Kata Containers is mounted below for as long as its image is mounted
//! anywhere, and no longer.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use berth_csi::{Local, Mount, Space};
use berth_pmem::volume::filesystem::{Dax, FileSystem, Found, Programs, detect};
use berth_pmem::volume::{Error as VolumeError, kata};
use berth_proto::convert::csi;

use super::mounts::{Error, Mounts};

/// The kernel's mounts.
pub(super) struct Kernel {
    programs: Programs,
    /// Where volumes for Kata Containers are mounted below.
    below: PathBuf,
}

impl Kernel {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self {
            programs: Programs::default(),
            below: state_dir.join("mounts"),
        }
    }

    fn below(&self, volume: &Local) -> PathBuf {
        self.below.join(volume.id.as_str())
    }

    /// Mounts what is below an image, and returns the loop device at the image's file system.
    fn attach(&self, volume: &Local, kind: FileSystem) -> Result<PathBuf, Error> {
        let below = self.below(volume);
        folder(&below)?;
        if !self.is_mounted(&below)? {
            self.format(volume, &volume.device, kind)?;
            let mounted = self
                .programs
                .mount(&volume.device, &below, kind, Dax::Preferred, &[]);
            mounted.map_err(|error| failed("mount", &below, &error))?;
        }
        let image = kata::make(&below, &self.programs);
        let image = image.map_err(|error| failed("make the image in", &below, &error))?;
        let device = kata::attach(&image, &self.programs);
        device.map_err(|error| failed("attach the image in", &below, &error))
    }

    fn format(&self, volume: &Local, device: &Path, kind: FileSystem) -> Result<(), Error> {
        let found = detect(device).map_err(|error| failed("look at", device, &error))?;
        let other = |is: String| Error::OtherFileSystem {
            volume: volume.id.to_string(),
            is,
            wanted: kind.to_string(),
        };
        match found {
            Found::FileSystem(is) if is != kind => return Err(other(is.to_string())),
            Found::Other(is) => return Err(other(is.to_owned())),
            Found::Nothing | Found::FileSystem(_) => {}
        }
        let formatted = self.programs.format(device, kind);
        formatted.map_err(|error| failed("format", device, &error))
    }
}

impl Mounts for Kernel {
    fn mount(&self, volume: &Local, at: &Path, how: &Mount) -> Result<(), Error> {
        if self.is_mounted(at)? {
            return Ok(());
        }
        let kind = match how.file_system {
            csi::FileSystem::Ext4 => FileSystem::Ext4,
            csi::FileSystem::Xfs => FileSystem::Xfs,
        };
        let (device, dax) = match volume.is_kata {
            true => (self.attach(volume, kind)?, Dax::Off),
            false => (volume.device.clone(), Dax::Required),
        };
        self.format(volume, &device, kind)?;
        folder(at)?;
        let flags = how.flags.iter().map(String::as_str);
        let flags: Vec<&str> = flags.chain(how.readonly.then_some("ro")).collect();
        let mounted = self.programs.mount(&device, at, kind, dax, &flags);
        mounted
            .map(drop)
            .map_err(|error| failed("mount", at, &error))
    }

    fn bind(&self, _: &Local, from: &Path, at: &Path, readonly: bool) -> Result<(), Error> {
        if self.is_mounted(at)? {
            return Ok(());
        }
        folder(at)?;
        let bound = self.programs.bind(from, at, readonly);
        bound.map_err(|error| failed("mount at", at, &error))
    }

    fn bind_device(&self, volume: &Local, at: &Path, readonly: bool) -> Result<(), Error> {
        if self.is_mounted(at)? {
            return Ok(());
        }
        let mut options = File::options();
        let made = options.create(true).truncate(false).write(true).open(at);
        made.map_err(|error| failed_io("make", at, &error))?;
        let bound = self.programs.bind(&volume.device, at, readonly);
        bound.map_err(|error| failed("mount at", at, &error))
    }

    fn unmount(&self, volume: &Local, at: &Path) -> Result<(), Error> {
        let unmounted = self.programs.unmount(at);
        unmounted.map_err(|error| failed("unmount", at, &error))?;
        if !volume.is_kata {
            return Ok(());
        }
        let shown = at.to_string_lossy();
        for other in volume.targets.keys().filter(|path| **path != *shown) {
            if self.is_mounted(Path::new(other))? {
                return Ok(());
            }
        }
        let below = self.below(volume);
        if self.is_mounted(&below)? {
            let detached = kata::detach(&below.join(kata::IMAGE), &self.programs);
            detached.map_err(|error| failed("detach the image in", &below, &error))?;
            let unmounted = self.programs.unmount(&below);
            unmounted.map_err(|error| failed("unmount", &below, &error))?;
        }
        match fs::remove_dir(&below) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed_io("remove", &below, &error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn is_mounted(&self, at: &Path) -> Result<bool, Error> {
        let mounted = self.programs.mounted(at);
        let mounted = mounted.map_err(|error| failed("look at", at, &error))?;
        Ok(mounted.is_some())
    }

    fn space(&self, at: &Path) -> Result<(Space, Space), Error> {
        let told = self.programs.statistics(at);
        let told = told.map_err(|error| failed("look at", at, &error))?;
        let bytes = Space {
            total: told.total_bytes,
            used: told.used_bytes,
            available: told.available_bytes,
        };
        let files = Space {
            total: told.total_inodes,
            used: told.used_inodes,
            available: told.available_inodes,
        };
        Ok((bytes, files))
    }
}

/// Makes a folder unless it is there.
fn folder(at: &Path) -> Result<(), Error> {
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o750).create(at);
    made.map_err(|error| failed_io("make the folder", at, &error))
}

fn failed(what: &'static str, at: &Path, error: &VolumeError) -> Error {
    Error::Failed {
        what,
        path: at.display().to_string(),
        why: error.to_string(),
    }
}

fn failed_io(what: &'static str, at: &Path, error: &io::Error) -> Error {
    Error::Failed {
        what,
        path: at.display().to_string(),
        why: error.to_string(),
    }
}
