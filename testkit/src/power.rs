//! A disk whose power can be cut: ext4 on a file behind a loop device.
//!
//! The writer is stopped in mid-flight and the file behind the file system is copied. The copy
//! holds what had reached the block device by then: neither dirty pages nor the journal's
//! uncommitted part are in it. Mounted again, it is what a machine finds after a loss of power.
//!
//! It needs root, loop devices and `mkfs.ext4`; [`Disk::new`] says what is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A file system that can be cut off.
pub struct Disk {
    folder: tempfile::TempDir,
    mounted: Vec<PathBuf>,
    cuts: u32,
}

impl Disk {
    /// Makes a file system of this size, or says in a sentence why it cannot.
    pub fn new(mib: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut disk = Self {
            folder,
            mounted: Vec::new(),
            cuts: 0,
        };
        let image = disk.image();
        let file = fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(mib << 20).map_err(|e| e.to_string())?;
        run("mkfs.ext4", &["-q", "-F", &text(&image)])?;
        let mount = disk.path();
        // The journal commits by itself only after five minutes: nothing is saved by luck.
        disk.mount(&image, &mount, "loop,commit=300")?;
        run("sync", &["-f", &text(&mount)])?;
        Ok(disk)
    }

    /// Where the file system is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    /// Stops this process, takes what had reached the device, kills the process, and returns
    /// where the disk is mounted as it was at that moment. `stopped` is called in between.
    pub fn cut<T>(
        &mut self,
        process: &mut std::process::Child,
        stopped: impl FnOnce() -> T,
    ) -> (PathBuf, T) {
        signal(process.id(), "STOP");
        wait_until_stopped(process.id());
        let seen = stopped();
        self.cuts += 1;
        let copy = self.folder.path().join(format!("cut-{}.img", self.cuts));
        run(
            "cp",
            &["--sparse=always", &text(&self.image()), &text(&copy)],
        )
        .expect("copy");
        signal(process.id(), "KILL");
        process.wait().expect("it was killed");
        let mount = self.folder.path().join(format!("cut-{}", self.cuts));
        self.mount(&copy, &mount, "loop").expect("mount the copy");
        (mount, seen)
    }

    fn mount(&mut self, image: &Path, at: &Path, options: &str) -> Result<(), String> {
        fs::create_dir_all(at).map_err(|e| e.to_string())?;
        run("mount", &["-o", options, &text(image), &text(at)])?;
        self.mounted.push(at.to_owned());
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for mount in self.mounted.drain(..).rev() {
            // Lazily: a failing test may still hold files open.
            let _ = run("umount", &["-l", &text(&mount)]);
        }
    }
}

/// Prints that a test did not run, or fails where real tests must (`BERTH_REAL=require`).
pub fn skipped(test: &str, why: &str) {
    assert!(
        std::env::var("BERTH_REAL").as_deref() != Ok("require"),
        "{test} did not run: {why}"
    );
    eprintln!("SKIPPED {test}: {why}");
}

fn wait_until_stopped(process: u32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let threads = fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
        let all = threads.flatten().all(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("State:\tT"))
        });
        if all {
            return;
        }
        assert!(Instant::now() < deadline, "the process does not stop");
        std::thread::yield_now();
    }
}

fn signal(process: u32, name: &str) {
    run("kill", &[&format!("-{name}"), &process.to_string()]).expect("signal");
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
