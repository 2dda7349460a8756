//! Restores and recoveries on a disk that is full, before they begin or in the middle.
//!
//! Goal: a command that ends for it says so, leaves nothing behind, and works once there is space. Method:
//! whole processes; each call that writes, of each file, fails as on a full disk; and a small file
//! system, which needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use berth_scheduler::Machine;
use berth_state::State;
use berth_testkit::state::World;
use tempfile::TempDir;

use super::content::{full, position_of};
use crate::common::eventually;
use crate::common::failing_disk::{begin, preload};
use crate::common::process::{PROGRAM, Process, addresses, knows};

/// The number of the error on Linux.
const ENOSPC: i32 = 28;

/// The calls that a full disk lets fail, and the files of a directory.
const CALLS: [&str; 3] = ["create", "write", "sync"];
const FILES: [&str; 6] = [
    "MEMBER",
    "FORMAT",
    "WITNESS",
    "log/",
    "checkpoints",
    "table",
];

/// Writes the backup of a state below a folder.
fn write_backup(folder: &Path, state: State) -> PathBuf {
    let machine = Machine::new(state);
    let at = position_of(&machine, machine.state().revision());
    let path = folder.join("full.backup");
    fs::write(&path, full(&machine, at)).expect("a file");
    path
}

/// Runs a command with its new directory and address, and returns the exit status and what it said.
async fn run(command: Command, directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let address = addresses(1).remove(0);
    let process = Process::run(command, directory, &address, arguments);
    let ended = tokio::task::spawn_blocking(|| process.ended()).await;
    ended.expect("it ends")
}

/// Fails unless a command ended since the disk is full, and left nothing.
#[track_caller]
fn expect_full((status, said): &(Option<i32>, String), new: &Path, when: &str) {
    assert_eq!(*status, Some(1), "{when}: {said}");
    let says_why = ["is full", "No space left", "StorageFull"]
        .iter()
        .any(|w| said.contains(w));
    assert!(says_why, "{when}: {said}");
    assert!(is_empty(new), "{when} left something in {}", new.display());
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// Runs a command once for each call and file that fails, and once without a fault. `own` is the
/// directory of its configuration, `new` the one that it makes.
async fn fail_each(folder: &Path, own: &Path, new: &Path, arguments: &[&str]) {
    let faults = folder.join("faults");
    let mut failed = Vec::new();
    for call in CALLS {
        for file in FILES {
            begin(&faults, call, ENOSPC, file);
            let mut command = Command::new(PROGRAM);
            preload(&mut command, new, &faults);
            let ended = run(command, own, arguments).await;
            if ended.0 == Some(0) {
                // It makes no such call.
                fs::remove_dir_all(new).expect("it was made");
                continue;
            }
            failed.push((call, file));
            expect_full(&ended, new, &format!("{call} {file}"));
        }
    }
    for expected in [
        ("create", "MEMBER"),
        ("write", "checkpoints"),
        ("sync", "checkpoints"),
    ] {
        assert!(failed.contains(&expected), "{expected:?} of {failed:?}");
    }
    fs::remove_file(faults).expect("there was a fault");
    let (status, said) = run(Command::new(PROGRAM), own, arguments).await;
    assert_eq!(status, Some(0), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_leaves_nothing_wherever_the_disk_is_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write_backup(folder.path(), World::with_hosts(2).state);
    let new = folder.path().join("new");
    fail_each(folder.path(), &new, &new, &["restore", text(&file)]).await;
    serves(&new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_group_leaves_nothing_wherever_the_disk_is_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
    let address = addresses(1).remove(0);
    let member = Process::spawn(&old, &address, &["--bootstrap"]);
    eventually("the member to lead", || knows(&address, 1)).await;
    member.terminate().await;
    let into = ["recover", "--force-new-group", "--into", text(&new)];
    fail_each(folder.path(), &old, &new, &into).await;
    serves(&new).await;
}

/// A file system of its own.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mounted(options: &str) -> Option<Self> {
        let disk = Self(tempfile::tempdir().expect("a folder"));
        disk.mount(options).then_some(disk)
    }

    fn mount(&self, options: &str) -> bool {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let mounted = command.arg(self.0.path()).stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success())
    }

    fn remount(&self, options: &str) {
        assert!(self.mount(&format!("remount,{options}")), "{options}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a failing test may still hold files open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Goal: the kernel's own errors have the same effect. Method: a file system with too little space to begin,
/// and one that is full after each number of files.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_disk_is_left_as_it_was_needs_root() {
    let Some(disk) = SmallDisk::mounted("size=40m") else {
        eprintln!("SKIPPED: mounting a tmpfs needs root");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = write_backup(folder.path(), World::with_hosts(2).state);
    let new = disk.0.path().join("new");
    let restore = ["restore", text(&file)];
    let ended = run(Command::new(PROGRAM), &new, &restore).await;
    expect_full(&ended, &new, "40 MiB");
    let mut files = 2;
    loop {
        disk.remount(&format!("size=200m,nr_inodes={files}"));
        let ended = run(Command::new(PROGRAM), &new, &restore).await;
        if ended.0 == Some(0) {
            break;
        }
        expect_full(&ended, &new, &format!("{files} files"));
        files += 1;
    }
    assert!(files > 8, "{files} files are enough");
    disk.remount("size=200m,nr_inodes=1000");
    serves(&new).await;
}

/// Starts the new member, and waits until it leads.
async fn serves(new: &Path) {
    let address = addresses(1).remove(0);
    let member = Process::spawn(new, &address, &[]);
    eventually("the new member to lead", || knows(&address, 1)).await;
    member.terminate().await;
}
