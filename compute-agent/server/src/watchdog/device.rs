//! The device itself: what the kernel reports of it, arming, feeding and disarming it.
//!
//! What it is not: when these are done; see the parent.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, major, minor};

use crate::config::{TIMEOUT_S_MAX, TIMEOUT_S_MIN};

/// Where the kernel lists its watchdogs, below the root of its files.
pub(super) const CLASS: &str = "sys/class/watchdog";

/// The numbers of `/dev/watchdog`: the first watchdog under its former name, or one of a driver that
/// the kernel's list does not contain, as `ipmi_watchdog`. It cannot be determined which.
const FORMER: (u32, u32) = (10, 130);

/// How much later than it should a device may reset the machine: it counts in whole seconds, and the
/// moment to which the core knows the time is up to a second ago.
const LATE_MS: u64 = 2_000;

/// Disarms the device when it is closed next.
const MAGIC: &[u8] = b"V";
/// Feeds it; any byte but the one above does.
const FOOD: &[u8] = b"\0";

/// Why a watchdog is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such file.
    #[error("there is no watchdog {}: its driver is not loaded, or it has another number", .0.display())]
    Absent(PathBuf),
    /// The file is of another kind.
    #[error("{} is not a watchdog: {what}", .path.display())]
    NoWatchdog {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// The agent may not use it.
    #[error("the watchdog {} may not be opened for writing: the agent has to run as root", .0.display())]
    Forbidden(PathBuf),
    /// Another process has it open.
    #[error(
        "the watchdog {} is fed by another process: systemd (RuntimeWatchdogSec), watchdogd, sbd, wdmd or \
         watchdog-mux; stop that one, or name another device", .0.display()
    )]
    Busy(PathBuf),
    /// The kernel does not list its watchdogs.
    #[error(
        "{} cannot be read, where the kernel lists its watchdogs (requires CONFIG_WATCHDOG_SYSFS)",
        .path.display()
    )]
    Untold {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What the kernel reports makes no sense, or cannot be used.
    #[error("the watchdog {name} cannot be used: {what}")]
    Unfit {
        /// Its name in the kernel.
        name: String,
        /// Why.
        what: String,
    },
    /// It cannot be opened, fed or closed.
    #[error("the watchdog {} fails when it is to be {doing}", .path.display())]
    Fails {
        /// The device.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A watchdog of this machine, with its properties.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    path: PathBuf,
    /// Its directory in the kernel's list.
    sysfs_directory: PathBuf,
    /// Which driver it has.
    pub(crate) identity: String,
    /// After how long without feeding the machine is reset.
    pub(crate) timeout_s: u64,
    /// Whether it cannot be disarmed.
    pub(crate) no_way_out: bool,
}

impl Device {
    /// Finds the configured device and reads its properties from the kernel; it is not opened.
    ///
    /// # Errors
    ///
    /// Why it cannot be used.
    pub(crate) fn find(path: &Path, configured_s: Option<u64>, root: &Path) -> Result<Self, Error> {
        let sysfs_directory = directory(path, root)?;
        let mut device = Self {
            path: path.to_owned(),
            identity: read(&sysfs_directory.join("identity"))?,
            timeout_s: 0,
            no_way_out: false,
            sysfs_directory,
        };
        let own_s = device.timeout()?;
        let timeout_s = configured_s.unwrap_or(own_s);
        if timeout_s < own_s {
            return Err(device.unfit(format!(
                "it resets the machine after {own_s} s, and watchdog.timeout_s says {timeout_s}"
            )));
        }
        device.timeout_s = timeout_s;
        device.no_way_out = device.cannot_be_left()?;
        rustix::fs::access(path, Access::WRITE_OK)
            .map_err(|error| device.failure("opened", error.into()))?;
        Ok(device)
    }

    /// Returns its path, as the configuration names it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns for how long after it was to be fed last, by a decision, something may run here.
    ///
    /// It runs out once after the last feeding. That one may come late, since this process may be held
    /// up between the decision and the feeding: by less than the timeout, or it would come too late.
    /// When the process dies in the end the kernel feeds once more, again before it has run out.
    pub(crate) fn reset_after_ms(&self) -> u64 {
        3 * self.timeout_s * 1_000 + LATE_MS
    }

    fn name(&self) -> String {
        let name = self.sysfs_directory.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn unfit(&self, what: impl Into<String>) -> Error {
        let (name, what) = (self.name(), what.into());
        Error::Unfit { name, what }
    }

    pub(super) fn failure(&self, doing: &'static str, source: io::Error) -> Error {
        let path = self.path.clone();
        let kind = source.kind();
        if kind == io::ErrorKind::NotFound {
            Error::Absent(path)
        } else if kind == io::ErrorKind::PermissionDenied {
            Error::Forbidden(path)
        } else if kind == io::ErrorKind::ResourceBusy {
            Error::Busy(path)
        } else {
            Error::Fails {
                path,
                doing,
                source,
            }
        }
    }

    fn timeout(&self) -> Result<u64, Error> {
        let text = read(&self.sysfs_directory.join("timeout"))?;
        let seconds = text.parse().ok();
        seconds
            .filter(|seconds| (TIMEOUT_S_MIN..=TIMEOUT_S_MAX).contains(seconds))
            .ok_or_else(|| {
                self.unfit(format!(
                    "its timeout is {text:?}, and must be from {TIMEOUT_S_MIN} to {TIMEOUT_S_MAX} \
                     seconds; its driver takes that as a parameter"
                ))
            })
    }

    pub(super) fn is_active(&self) -> Result<bool, Error> {
        match read(&self.sysfs_directory.join("state"))?.as_str() {
            "active" => Ok(true),
            "inactive" => Ok(false),
            other => Err(self.unfit(format!("its state is {other:?}"))),
        }
    }

    fn cannot_be_left(&self) -> Result<bool, Error> {
        Ok(read(&self.sysfs_directory.join("nowayout"))? == "1")
    }

    fn open(&self) -> Result<File, Error> {
        let opened = File::options().write(true).open(&self.path);
        opened.map_err(|source| self.failure("opened", source))
    }

    pub(super) fn feed(&self, file: &File) -> Result<(), Error> {
        self.write(file, FOOD, "fed")
    }

    fn write(&self, mut file: &File, bytes: &[u8], doing: &'static str) -> Result<(), Error> {
        let written = file.write_all(bytes);
        written.map_err(|source| self.failure(doing, source))
    }

    /// Opens it, so that it runs until it is disarmed, and not until this process dies.
    pub(super) fn arm(&self) -> Result<File, Error> {
        if !self.is_active()? {
            drop(self.open()?);
            if !self.is_active()? {
                return Err(self.unfit(
                    "its driver disarms it when the process that feeds it dies, unless nowayout is set",
                ));
            }
        }
        let file = self.open()?;
        // No other process can change it from here on.
        let now_s = self.timeout()?;
        if now_s <= self.timeout_s {
            return Ok(file);
        }
        self.disarm(file)?;
        let before_s = self.timeout_s;
        Err(self.unfit(format!(
            "its timeout was {before_s} s when the agent started, and is {now_s} s now"
        )))
    }

    /// Closes it. Returns the device if it runs on all the same.
    pub(super) fn disarm(&self, file: File) -> Result<Option<File>, Error> {
        if self.cannot_be_left()? {
            return Ok(Some(file));
        }
        self.write(&file, MAGIC, "disarmed")?;
        drop(file);
        match self.is_active()? {
            true => self.open().map(Some),
            false => Ok(None),
        }
    }
}

/// Returns the directory of a device in sysfs.
fn directory(path: &Path, root: &Path) -> Result<PathBuf, Error> {
    let no_watchdog = |what: String| Error::NoWatchdog {
        path: path.to_owned(),
        what,
    };
    let found = fs::metadata(path).map_err(|source| {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::NotFound {
            return Error::Absent(path);
        }
        Error::Fails {
            path,
            doing: "found",
            source,
        }
    })?;
    if !found.file_type().is_char_device() {
        return Err(no_watchdog("it is no character device".to_owned()));
    }
    let numbers = (major(found.rdev()), minor(found.rdev()));
    let class = root.join(CLASS);
    if numbers == FORMER {
        return Err(no_watchdog(
            "it is a name that old drivers take as well; name /dev/watchdog0, or another that is listed \
             in /sys/class/watchdog"
                .to_owned(),
        ));
    }
    let (major, minor) = numbers;
    let number = format!("{major}:{minor}");
    let unlisted = |source| Error::Untold {
        path: class.clone(),
        source,
    };
    for entry in fs::read_dir(&class).map_err(unlisted)? {
        let directory = entry.map_err(unlisted)?.path();
        if read(&directory.join("dev")).is_ok_and(|dev| dev == number) {
            return Ok(directory);
        }
    }
    let class = class.display();
    Err(no_watchdog(format!(
        "the device {number} is not listed in {class}"
    )))
}

fn read(file: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(file).map_err(|source| Error::Untold {
        path: file.to_owned(),
        source,
    })?;
    Ok(text.trim().to_owned())
}
