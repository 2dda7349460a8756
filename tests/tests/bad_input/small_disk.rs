//! A disk that is soon full.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A file system of 200 MiB in a mount namespace of its own, which ends with a process.
pub(crate) struct SmallDisk {
    holder: Child,
    root: PathBuf,
}

impl SmallDisk {
    /// Makes one; says why there is none where the test may not mount.
    pub(crate) fn make() -> Option<Self> {
        // As root, or else as the root of a user namespace.
        for more in [&["--mount"][..], &["--map-root-user", "--mount"]] {
            if let Some(disk) = Self::make_with(more) {
                return Some(disk);
            }
        }
        let why = "a small file system cannot be mounted here, which takes root";
        assert_ne!(
            std::env::var("BERTH_REAL").as_deref(),
            Ok("require"),
            "{why}"
        );
        eprintln!("skipped: {why}");
        None
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

    pub(crate) fn path(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    /// Takes all space but so many MiB, until the guard is dropped.
    pub(crate) fn fill(&self, left_mib: u64) -> Filler {
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
pub(crate) struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("it was made");
    }
}
