//! Loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::prerequisites::Missing;

/// A loop device over a file, as root can make it; removed when dropped.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// Where it may not be made.
    pub fn over(file: &Path) -> Result<Self, Missing> {
        let missing = |why: &str| {
            Missing::new(format!("no loop device can be made: {}", why.trim()))
                .hint("run it as root")
        };
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output();
        let made = made.map_err(|error| missing(&error.to_string()))?;
        match made.status.success() {
            true => Ok(Self(String::from_utf8_lossy(&made.stdout).trim().into())),
            false => Err(missing(&String::from_utf8_lossy(&made.stderr))),
        }
    }

    /// Returns the path of the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

/// Looks whether there are loop devices and mounts.
pub(super) fn prerequisites() -> Result<(), Missing> {
    let failed = |error: std::io::Error| Missing::new(format!("no file can be made: {error}"));
    let directory = tempfile::tempdir().map_err(failed)?;
    let file = tempfile::NamedTempFile::new().map_err(failed)?;
    file.as_file().set_len(1 << 20).map_err(failed)?;
    drop(LoopDevice::over(file.path())?);
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "none"]).arg(directory.path());
    let mounted = mount.output().map_err(failed)?;
    if !mounted.status.success() {
        let why = String::from_utf8_lossy(&mounted.stderr);
        let missing = Missing::new(format!("nothing can be mounted: {}", why.trim()));
        return Err(missing.hint("run it as root"));
    }
    let _ = Command::new("umount").arg(directory.path()).status();
    Ok(())
}
