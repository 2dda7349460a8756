//! The disk of one member: a file system of its own, which can be filled, and which can hang.
//!
//! It is ext4 over a loop device over a sparse file. What hangs is what the kernel makes wait: a frozen file
//! system answers no write until it is thawed.
//!
//! What it is not: a disk that loses something.
//!
//! Invariant: a frozen file system thaws by itself, whatever becomes of the test: a process that waits for
//! it could not even be killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_tests::lab::LoopDevice;
use berth_tests::processes::Process;
use tempfile::NamedTempFile;

/// How large it is: more than what counts as nearly full.
const SIZE: u64 = 4 << 30;

/// A file system that is mounted somewhere.
pub(super) struct Disk {
    mounted_at: PathBuf,
    /// The process that thaws it.
    freezing: Option<Process>,
    _device: LoopDevice,
    _file: NamedTempFile,
}

impl Disk {
    /// Makes one, and mounts it on a directory, which is made.
    pub(super) fn mount(at: &Path) -> Self {
        let file = NamedTempFile::new().expect("a file");
        file.as_file().set_len(SIZE).expect("a sparse file");
        run(Command::new("mkfs.ext4")
            .args(["-q", "-E", "lazy_itable_init=1,nodiscard"])
            .arg(file.path()));
        let device = LoopDevice::over(file.path()).expect("it was looked for");
        fs::create_dir(at).expect("a directory of our own");
        run(Command::new("mount")
            .args(["-o", "noinit_itable"])
            .arg(device.path())
            .arg(at));
        Self {
            mounted_at: at.to_owned(),
            freezing: None,
            _device: device,
            _file: file,
        }
    }

    /// Takes most of its space. Nothing is written: the space is reserved.
    pub(super) fn fill(&self) {
        let file = File::create(self.filler()).expect("a file");
        let length = SIZE * 3 / 4;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length)
            .expect("there is space");
    }

    /// Gives the space back.
    pub(super) fn empty(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.mounted_at.join("lost+found").join("filler")
    }

    /// Lets it hang for so many seconds.
    pub(super) fn freeze(&mut self, seconds: u32, log: &Path) {
        let at = self.mounted_at.display();
        let script = format!("fsfreeze -f '{at}' && sleep {seconds}; fsfreeze -u '{at}'");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        self.freezing = Some(Process::start(command, log));
    }

    /// Waits until it answers again.
    pub(super) fn thaw(&mut self) {
        if let Some(mut process) = self.freezing.take() {
            assert_eq!(process.wait(), 0, "{}", process.log());
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Killed, the process would leave it frozen.
        if let Some(mut process) = self.freezing.take() {
            process.wait();
        }
        // The programs that have files there end later.
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(&self.mounted_at)
            .status();
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
}
