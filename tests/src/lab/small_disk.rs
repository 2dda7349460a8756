//! A disk that is soon full.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::prerequisites::Missing;

/// A file system of 200 MiB in a mount namespace of its own, which ends with a process.
#[derive(Debug)]
pub struct SmallDisk {
    holder: Child,
    root: PathBuf,
}

impl SmallDisk {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// Where it may not be mounted.
    pub fn make() -> Result<Self, Missing> {
        // As root, or else as the root of a user namespace.
        let attempts = [&["--mount"][..], &["--map-root-user", "--mount"]];
        let disk = attempts.into_iter().find_map(Self::make_with);
        disk.ok_or_else(|| {
            Missing::new("a small file system cannot be mounted here").hint("run it as root")
        })
    }

    fn make_with(namespaces: &[&str]) -> Option<Self> {
        let script = "mount --make-rprivate / && mount -t tmpfs -o size=200m small /mnt \
                      && echo ready && read -r _";
        let mut holder = Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let output = holder.stdout.take().expect("it is piped");
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let disk = Self {
            root: PathBuf::from(format!("/proc/{}/root/mnt", holder.id())),
            holder,
        };
        (read.is_ok() && line == "ready\n").then_some(disk)
    }

    /// Returns the path of a file on it.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    /// Takes all space but so many MiB, until the guard is dropped.
    ///
    /// # Panics
    ///
    /// When nothing can be written there.
    #[must_use]
    pub fn fill(&self, left_mib: u64) -> Filler {
        let filler = Filler(self.root.join("filler"));
        let mut file = File::create(&filler.0).expect("a file");
        let part = [0; 1 << 16];
        let mut written = 0;
        while let Ok(count @ 1..) = file.write(&part) {
            written += count as u64;
        }
        let kept = written.saturating_sub(left_mib << 20);
        file.set_len(kept).expect("it was longer");
        filler
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Its input ends here, and with it the namespace; killed, should it not read.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A file that takes space away while it lives.
#[derive(Debug)]
pub struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("it was made");
    }
}
