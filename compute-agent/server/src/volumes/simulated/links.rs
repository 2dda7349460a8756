//! Simulated mounts: symbolic links, which outlive the agent.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use berth_csi::{Local, Mount, Space};
use berth_domain::name::VolumeId;

use super::devices::absent_is_fine;
use crate::error::Error as StartError;
use crate::volumes::mounts::{Error, Mounts};

/// What the simulated file systems and devices hold.
#[derive(Clone)]
pub(super) struct Links(PathBuf);

impl Links {
    pub(super) fn open(folder: &Path) -> Result<Self, StartError> {
        for name in ["files", "blocks"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(|source| StartError::VolumeState { path, source })?;
        }
        Ok(Self(folder.to_owned()))
    }

    fn files(&self, id: &VolumeId) -> PathBuf {
        self.0.join("files").join(id.as_str())
    }

    fn block(&self, id: &VolumeId) -> PathBuf {
        self.0.join("blocks").join(id.as_str())
    }

    /// Lets everything that a device holds go.
    pub(super) fn erase(&self, id: &VolumeId) -> io::Result<()> {
        absent_is_fine(fs::remove_dir_all(self.files(id)))?;
        absent_is_fine(fs::remove_file(self.kind(id)))?;
        absent_is_fine(fs::remove_file(self.block(id)))
    }

    fn kind(&self, id: &VolumeId) -> PathBuf {
        self.0.join("files").join(format!("{id}.type"))
    }

    /// Returns the file system of a volume, and how large it is.
    fn format(&self, id: &VolumeId) -> io::Result<(String, u64)> {
        let text = fs::read_to_string(self.kind(id))?;
        let (kind, size) = text.split_once(' ').unwrap_or((&text, "0"));
        Ok((kind.to_owned(), size.parse().unwrap_or(0)))
    }

    /// Where a link of ours leads to; none: no such link is there.
    fn led(&self, at: &Path) -> io::Result<Option<PathBuf>> {
        match fs::read_link(at) {
            Ok(to) => Ok(to.starts_with(&self.0).then_some(to)),
            Err(error) => {
                let none = [
                    io::ErrorKind::NotFound,
                    io::ErrorKind::InvalidInput,
                    io::ErrorKind::NotADirectory,
                ];
                match none.contains(&error.kind()) {
                    true => Ok(None),
                    false => Err(error),
                }
            }
        }
    }

    /// Puts a link in place of an empty folder or file, or of nothing.
    fn link(&self, to: &Path, at: &Path) -> Result<(), Error> {
        let link = || -> io::Result<bool> {
            match self.led(at)? {
                Some(there) => return Ok(there == to),
                None => clear(at)?,
            }
            symlink(to, at).map(|()| true)
        };
        match link().map_err(failed("mount at", at))? {
            true => Ok(()),
            false => Err(Error::InTheWay {
                path: at.display().to_string(),
                why: "shows another volume".to_owned(),
            }),
        }
    }
}

impl Mounts for Links {
    fn mount(&self, volume: &Local, at: &Path, how: &Mount) -> Result<(), Error> {
        let (files, kind) = (self.files(&volume.id), self.kind(&volume.id));
        let requested = how.file_system.to_string();
        if volume.is_raw && !kind.exists() {
            return Err(Error::MayHoldData {
                volume: volume.id.to_string(),
            });
        }
        let make = || -> io::Result<String> {
            if !kind.exists() {
                fs::create_dir_all(&files)?;
                fs::write(&kind, format!("{requested} {}", volume.size_bytes))?;
            }
            Ok(self.format(&volume.id)?.0)
        };
        let is = make().map_err(failed("make a file system for", at))?;
        if is != requested {
            return Err(Error::OtherFileSystem {
                volume: volume.id.to_string(),
                is,
                requested,
            });
        }
        self.link(&files, at)
    }

    fn bind(&self, volume: &Local, _: &Path, at: &Path, _: bool) -> Result<(), Error> {
        self.link(&self.files(&volume.id), at)
    }

    fn bind_device(&self, volume: &Local, at: &Path, _: bool) -> Result<(), Error> {
        let block = self.device(volume)?;
        self.link(&block, at)
    }

    fn is_empty(&self, volume: &Local) -> Result<bool, Error> {
        Ok(!self.kind(&volume.id).exists())
    }

    /// A file in place of the device.
    fn device(&self, volume: &Local) -> Result<PathBuf, Error> {
        let block = self.block(&volume.id);
        let make = || {
            let mut options = File::options();
            let file = options
                .create(true)
                .truncate(false)
                .write(true)
                .open(&block)?;
            file.set_len(volume.size_bytes)
        };
        make().map_err(failed("make the device", &block))?;
        Ok(block)
    }

    /// A hole: that much is only pretended to be there.
    fn allocate(&self, file: &Path, size_bytes: u64) -> Result<(), Error> {
        let made = File::create(file).and_then(|made| made.set_len(size_bytes));
        made.map_err(failed("make", file))
    }

    fn unmount(&self, _: &Local, at: &Path) -> Result<(), Error> {
        let unlink = || -> io::Result<()> {
            let Some(to) = self.led(at)? else {
                return Ok(());
            };
            fs::remove_file(at)?;
            // What was there before it was hidden.
            match to.starts_with(self.0.join("blocks")) {
                true => File::create(at).map(drop),
                false => fs::create_dir(at),
            }
        };
        unlink().map_err(failed("unmount", at))
    }

    fn is_mounted(&self, at: &Path) -> Result<bool, Error> {
        let led = self.led(at).map_err(failed("read", at))?;
        Ok(led.is_some())
    }

    fn shows(&self, volume: &Local, at: &Path) -> Result<bool, Error> {
        let led = self.led(at).map_err(failed("read", at))?;
        let own = [self.files(&volume.id), self.block(&volume.id)];
        Ok(led.is_some_and(|to| own.contains(&to)))
    }

    fn space(&self, at: &Path) -> Result<(Space, Space), Error> {
        let sum = || -> io::Result<(u64, u64, u64)> {
            let led = self.led(at)?.unwrap_or_default();
            let name = led
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let id = VolumeId::new(&name).map_err(io::Error::other)?;
            let mut all = (self.format(&id)?.1, 0, 0);
            for entry in fs::read_dir(at)? {
                let metadata = entry?.metadata()?;
                all = (all.0, all.1 + metadata.len(), all.2 + 1);
            }
            Ok(all)
        };
        let (size, bytes, files) = sum().map_err(failed("read", at))?;
        let space = |total: u64, used| Space {
            total,
            used,
            available: total.saturating_sub(used),
        };
        // One inode in each 16 KiB, as ext4 makes them.
        Ok((space(size, bytes), space(size >> 14, files)))
    }
}

/// Removes what a mount would hide, if that is nothing.
fn clear(at: &Path) -> io::Result<()> {
    match fs::symlink_metadata(at) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(there) if there.is_dir() => fs::remove_dir(at),
        Ok(there) if there.is_file() && there.len() == 0 => fs::remove_file(at),
        Ok(_) => Err(io::Error::other("something is there")),
    }
}

fn failed<'a>(what: &'static str, at: &'a Path) -> impl Fn(io::Error) -> Error + use<'a> {
    move |error| Error::Failed {
        what,
        path: at.display().to_string(),
        why: error.to_string(),
    }
}
