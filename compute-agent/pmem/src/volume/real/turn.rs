//! Changes are made one after the other; while one is made, no other call reads.
//!
//! A program that changes something continues when this one is killed. It has the lock as its
//! input, an empty file, so that the next change waits until it has ended, instead of seeing what
//! it has half made. No other program that is started has the lock: neither programs that only read
//! nor guests, which stay. Overwriting a device takes no turn: only the programs that make and remove devices do.
//!
//! Invariant: no turn is held for longer than such a program may run.

use std::cell::Cell;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::super::folder::io_error;
use super::super::manager::Error;

/// How often it is looked whether the turn has come.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

thread_local! {
    /// The lock of the turn in which this thread changes something.
    static HELD: Cell<Option<File>> = const { Cell::new(None) };
}

/// Returns what a program that changes something has as its input: the lock, in a turn.
pub(super) fn input() -> Stdio {
    let held = HELD.take();
    let input = held.as_ref().and_then(|file| file.try_clone().ok());
    HELD.set(held);
    input.map_or_else(Stdio::null, Stdio::from)
}

/// A turn, until it is dropped, by the thread that waited for it.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Turn {
    /// Waits for a turn: exclusive for a change; shared for reading.
    pub(super) fn wait(folder: &Path, is_change: bool, limit: Duration) -> Result<Self, Error> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(io_error("make the folder", folder))?;
        let path = folder.join("lock");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(&path);
        let file = file.map_err(io_error("open", &path))?;
        let operation = match is_change {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        let deadline = Instant::now() + limit;
        loop {
            match flock(&file, operation) {
                Ok(()) => {
                    if is_change {
                        let held = file.try_clone().map_err(io_error("lock", &path))?;
                        HELD.set(Some(held));
                    }
                    return Ok(Self(file));
                }
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
        HELD.set(None);
        // Programs that have it and continue block no caller.
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

    /// Goal: a program that changes something holds the turn of one who was killed until it ends;
    /// another one, which stays, does not.
    #[test]
    fn what_changes_something_keeps_the_turn_of_one_who_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut turn = Turn::wait(folder.path(), true, Duration::ZERO).unwrap();
        let start = |input| {
            let mut tail = std::process::Command::new("tail");
            let tail = tail.args(["-f", "/dev/null"]).stdin(input);
            tail.spawn().unwrap()
        };
        let mut changes = start(input());
        let mut stays = start(Stdio::null());
        // A killed process leaves the lock.
        drop(std::mem::replace(
            &mut turn.0,
            File::open("/dev/null").unwrap(),
        ));
        drop(turn);
        let is_held = Turn::wait(folder.path(), false, Duration::ZERO).is_err();
        changes.kill().unwrap();
        changes.wait().unwrap();
        let after = Turn::wait(folder.path(), false, Duration::from_secs(60));
        stays.kill().unwrap();
        stays.wait().unwrap();
        assert!(is_held);
        after.unwrap();
    }
}
