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
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use berth_csi::{Local, Mount, Space};
use berth_pmem::volume::filesystem::{Contents, Dax, FileSystem, Programs, detect};
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

    /// Returns whether a file system is that in the image file of a volume.
    fn is_of_image(&self, volume: &Local, device: u64, at: &Path) -> Result<bool, Error> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let sysfs_file = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
        let image = self.below(volume).join(kata::IMAGE);
        // The kernel reports its path without symbolic links.
        let image = fs::canonicalize(&image).unwrap_or(image);
        match fs::read_to_string(sysfs_file) {
            Ok(file) => Ok(Path::new(file.trim_end_matches('\n')) == image),
            // It is on no loop device.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed_io("stat the device of", at, &error)),
        }
    }

    fn format(&self, volume: &Local, device: &Path, kind: FileSystem) -> Result<(), Error> {
        let found = detect(device).map_err(|error| failed("read", device, &error))?;
        let other = |is: String| Error::OtherFileSystem {
            volume: volume.id.to_string(),
            is,
            requested: kind.to_string(),
        };
        match found {
            Contents::FileSystem(is) if is != kind => return Err(other(is.to_string())),
            Contents::Other(is) => return Err(other(is.to_owned())),
            // A loop device over an image of ours was never assigned.
            Contents::Nothing if volume.is_raw && device == volume.device => {
                return Err(Error::MayHoldData {
                    volume: volume.id.to_string(),
                });
            }
            Contents::Nothing | Contents::FileSystem(_) => {}
        }
        let formatted = self.programs.format(device, kind);
        formatted.map_err(|error| failed("format", device, &error))
    }

    fn remount(&self, volume: &Local, at: &Path, how: &Mount) -> Result<(), Error> {
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
}

impl Mounts for Kernel {
    fn mount(&self, volume: &Local, at: &Path, how: &Mount) -> Result<(), Error> {
        if self.is_mounted(at)? {
            return Ok(());
        }
        let mounted = self.remount(volume, at, how);
        if mounted.is_err() && volume.is_kata {
            // What is below would keep the device in use for ever.
            if let Err(error) = self.unmount(volume, at) {
                tracing::warn!(volume = %volume.id, %error, "file system stays mounted below its image");
            }
        }
        mounted
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
        let mounted = mounted.map_err(|error| failed("read", at, &error))?;
        Ok(mounted.is_some())
    }

    fn shows(&self, volume: &Local, at: &Path) -> Result<bool, Error> {
        if !self.is_mounted(at)? {
            return Ok(false);
        }
        let there = fs::metadata(at).map_err(|error| failed_io("read", at, &error))?;
        if volume.is_kata {
            return self.is_of_image(volume, there.dev(), at);
        }
        let device = match fs::metadata(&volume.device) {
            Ok(device) if device.file_type().is_block_device() => device.rdev(),
            Ok(_) => return Ok(false),
            // What is mounted cannot be compared to what is not there.
            Err(error) => return Err(failed_io("read", &volume.device, &error)),
        };
        // A device shown as a file, or its file system.
        Ok(match there.file_type().is_block_device() {
            true => there.rdev() == device,
            false => there.dev() == device,
        })
    }

    fn is_empty(&self, volume: &Local) -> Result<bool, Error> {
        let found = detect(&volume.device);
        let found = found.map_err(|error| failed("read", &volume.device, &error))?;
        Ok(matches!(found, Contents::Nothing))
    }

    fn device(&self, volume: &Local) -> Result<PathBuf, Error> {
        Ok(volume.device.clone())
    }

    fn space(&self, at: &Path) -> Result<(Space, Space), Error> {
        let statistics = self.programs.statistics(at);
        let statistics = statistics.map_err(|error| failed("read", at, &error))?;
        let bytes = Space {
            total: statistics.total_bytes,
            used: statistics.used_bytes,
            available: statistics.available_bytes,
        };
        let files = Space {
            total: statistics.total_inodes,
            used: statistics.used_inodes,
            available: statistics.available_inodes,
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

#[cfg(feature = "testing")]
pub mod checks {
    //! What `tests/tests/real/mounts.rs` runs where root, loop devices and mkfs.ext4 are at hand. Not
    //! unit tests, which cannot report that they did not run.

    use std::collections::BTreeMap;
    use std::thread;
    use std::time::Duration;

    use berth_domain::name::VolumeId;

    use super::*;

    /// Goal: what was mounted is there, what was taken away is gone, image and loop device included.
    /// Method: a volume for Kata Containers over a loop device, which needs no dax; then its device as
    /// a file. Needs root, an empty directory and a loop device of 128 MiB.
    pub fn real_mounts_come_and_go(folder: &Path, device: &Path) {
        let kernel = Kernel::new(folder);
        let path = |name: &str| folder.join(name);
        let (staging, target, block) = (path("staging"), path("target"), path("block"));
        let (mut volume, how) = (kata_volume(device), ext4());
        kernel.mount(&volume, &staging, &how).unwrap();
        kernel.unmount(&volume, &staging).unwrap();
        // An existing file system is not formatted again, whichever volume had its device.
        volume.is_raw = true;
        kernel.mount(&volume, &staging, &how).unwrap();
        for path in [&staging, &target] {
            volume
                .targets
                .insert(path.display().to_string(), "used".to_owned());
        }
        for _ in 0..2 {
            kernel.bind(&volume, &staging, &target, true).unwrap();
        }
        for at in [&staging, &target] {
            let mounted = kernel.programs.mounted(at).unwrap().unwrap();
            for flag in ["nosuid", "nodev"] {
                let is_set = mounted.options.iter().any(|option| option == flag);
                assert!(is_set, "{flag} at {}: {mounted:?}", at.display());
            }
        }
        fs::write(staging.join("file"), "kept").unwrap();
        assert_eq!(fs::read(target.join("file")).unwrap(), b"kept");
        assert!(
            fs::write(target.join("file"), "no").is_err(),
            "it is read only"
        );
        let (bytes, files) = kernel.space(&target).unwrap();
        assert!(
            bytes.total > 32 << 20 && bytes.used > 0 && files.total > 0,
            "{bytes:?}"
        );
        assert!(kernel.below(&volume).join(kata::IMAGE).exists());
        for _ in 0..2 {
            kernel.unmount(&volume, &target).unwrap();
        }
        assert!(kernel.is_mounted(&staging).unwrap());
        assert!(kernel.shows(&volume, &staging).unwrap());
        assert!(!kernel.shows(&volume, &target).unwrap());
        let other = Local {
            id: VolumeId::new("kata-1123456789abcdef0123456789abcdef").unwrap(),
            ..volume.clone()
        };
        assert!(!kernel.shows(&other, &staging).unwrap());
        assert!(kernel.is_mounted(&kernel.below(&volume)).unwrap());
        for _ in 0..2 {
            kernel.unmount(&volume, &staging).unwrap();
        }
        assert!(!kernel.is_mounted(&staging).unwrap());
        assert!(!kernel.below(&volume).exists(), "nothing is left of it");
        let xfs = Mount {
            file_system: csi::FileSystem::Xfs,
            ..how.clone()
        };
        let refused = kernel.mount(&volume, &staging, &xfs).unwrap_err();
        assert!(
            matches!(refused, Error::OtherFileSystem { .. }),
            "{refused}"
        );
        // What is written is found again.
        kernel.mount(&volume, &staging, &how).unwrap();
        assert_eq!(fs::read(staging.join("file")).unwrap(), b"kept");
        kernel.unmount(&volume, &staging).unwrap();

        for _ in 0..2 {
            kernel.bind_device(&volume, &block, true).unwrap();
        }
        assert!(kernel.is_mounted(&block).unwrap());
        kernel.unmount(&volume, &block).unwrap();
        assert!(!kernel.is_mounted(&block).unwrap() && block.exists());
    }

    /// Goal: a program that has the loop device open for a moment does not fail the unmount; one that
    /// keeps it open does, by a sentence that names the device, and the next attempt succeeds.
    /// Method: the device is held open for each time in turn. Needs what the check above needs.
    pub fn a_loop_device_in_use_is_waited_for(folder: &Path, device: &Path) {
        let mut kernel = Kernel::new(folder);
        let staging = folder.join("staging");
        let volume = kata_volume(device);
        let how = ext4();
        let loop_device = |kernel: &Kernel| {
            kernel.mount(&volume, &staging, &how).unwrap();
            kernel.attach(&volume, FileSystem::Ext4).unwrap()
        };
        for held in [0, 100, 1_000].map(Duration::from_millis) {
            let open = File::open(loop_device(&kernel)).unwrap();
            let holder = thread::spawn(move || {
                thread::sleep(held);
                drop(open);
            });
            kernel.unmount(&volume, &staging).unwrap();
            assert!(!kernel.below(&volume).exists(), "nothing is left of it");
            holder.join().unwrap();
        }
        let patient = std::mem::replace(&mut kernel.programs.detach_limit, Duration::ZERO);
        let device = loop_device(&kernel);
        let open = File::open(&device).unwrap();
        let refused = kernel.unmount(&volume, &staging).unwrap_err().to_string();
        let says = format!("{} is in use", device.display());
        assert!(refused.contains(&says), "{refused}");
        kernel.programs.detach_limit = patient;
        drop(open);
        kernel.unmount(&volume, &staging).unwrap();
        assert!(!kernel.below(&volume).exists(), "nothing is left of it");
    }

    fn kata_volume(device: &Path) -> Local {
        Local {
            id: VolumeId::new("kata-0123456789abcdef0123456789abcdef").unwrap(),
            device: device.to_owned(),
            size_bytes: 128 << 20,
            is_kata: true,
            is_ephemeral: false,
            is_raw: false,
            targets: BTreeMap::new(),
        }
    }

    fn ext4() -> Mount {
        Mount {
            file_system: csi::FileSystem::Ext4,
            flags: vec!["noatime".to_owned()],
            readonly: false,
        }
    }

    /// Goal: data behind the first 4 KiB of a device that was used raw is not
    /// formatted over; a volume whose device was never used is. Needs mkfs.ext4, and no root: the device is
    /// a file.
    pub fn what_looks_empty_and_was_given_away_is_not_formatted(folder: &Path) {
        let device = folder.join("device");
        let mut written = vec![0_u8; 16 << 20];
        written[8192..8200].copy_from_slice(b"precious");
        fs::write(&device, &written).unwrap();
        let kernel = Kernel::new(folder);
        let volume = |is_raw: bool| Local {
            id: VolumeId::new("data-0123456789abcdef0123456789abcdef").unwrap(),
            device: device.clone(),
            size_bytes: 16 << 20,
            is_kata: false,
            is_ephemeral: false,
            is_raw,
            targets: BTreeMap::new(),
        };
        let format = |is_raw| kernel.format(&volume(is_raw), &device, FileSystem::Ext4);
        let refused = format(true).unwrap_err();
        assert!(matches!(refused, Error::MayHoldData { .. }), "{refused}");
        assert_eq!(fs::read(&device).unwrap(), written);
        format(false).unwrap();
        assert_eq!(
            detect(&device).unwrap(),
            Contents::FileSystem(FileSystem::Ext4)
        );
        // The last user of the device made a file system on it: that is used.
        format(true).unwrap();
    }
}
