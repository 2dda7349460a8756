//! Changes are made one after the other; while one is made, nobody looks.
//!
//! A program that this one started goes on by itself when this one is killed. It has inherited the
//! lock, so that whoever comes after waits until it has ended, instead of finding what it has half
//! made. Overwriting a device takes no turn: only the programs that make and remove devices do.
//!
//! Invariant: nobody holds a turn for longer than such a program may run.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::super::folder::io_error;
use super::super::manager::Error;

/// How often it is looked whether the turn has come.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// A turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Turn {
    /// Waits for a turn: to change something, alone; to look, with others who look.
    pub(super) fn wait(folder: &Path, is_change: bool, limit: Duration) -> Result<Self, Error> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(io_error("make the folder", folder))?;
        let path = folder.join("lock");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(&path);
        let file = file.map_err(io_error("open", &path))?;
        // What is started now inherits it.
        fcntl_setfd(&file, FdFlags::empty()).map_err(|e| io_error("open", &path)(e.into()))?;
        let operation = match is_change {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        let deadline = Instant::now() + limit;
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                    thread::sleep(LOOK_AGAIN_AFTER);
                }
                Err(errno) => return Err(io_error("lock", &path)(errno.into())),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Programs that inherited it and go on hold nobody up.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_look_do_not_wait_for_each_other_but_for_changes() {
        let folder = tempfile::tempdir().unwrap();
        let now = Duration::ZERO;
        let wait = |is_change| Turn::wait(folder.path(), is_change, now);
        let (one, two) = (wait(false).unwrap(), wait(false).unwrap());
        let said = wait(true).unwrap_err().to_string();
        assert!(said.starts_with("cannot lock /"), "{said}");
        drop((one, two));
        let change = wait(true).unwrap();
        assert!(wait(false).is_err());
        assert!(wait(true).is_err());
        drop(change);
        wait(true).unwrap();
    }

    /// A program that was started during a turn holds it after this one was killed, and only then.
    #[test]
    fn what_was_started_keeps_the_turn_of_one_who_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let now = Duration::ZERO;
        let turn = Turn::wait(folder.path(), true, now).unwrap();
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Killed, nobody unlocks.
        let file = turn.0.try_clone().unwrap();
        std::mem::forget(turn);
        drop(file);
        assert!(Turn::wait(folder.path(), false, now).is_err());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
