//! One program that runs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::eventually;

/// How many lines of a log are shown when something failed.
const SHOWN: usize = 60;

/// A program that runs; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program; what it prints is added to the file `log`.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[track_caller]
    #[must_use]
    pub fn start(mut command: Command, log: &Path) -> Self {
        let opened = File::options().create(true).append(true).open(log);
        let output = opened.expect("a log file");
        let errors = output.try_clone().expect("a second handle of the log");
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        Self {
            child,
            log: log.to_owned(),
        }
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it has printed, and what its predecessors with the same log have.
    #[must_use]
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Returns how it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of this process")
    }

    /// Ends it with `SIGKILL` and returns when it is gone.
    pub fn kill(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end; returns its exit status.
    ///
    /// # Panics
    ///
    /// When it goes on, or was ended by a signal.
    #[track_caller]
    pub fn wait(&mut self) -> i32 {
        let log = self.log.clone();
        let status = eventually("the end of the program", || {
            self.ended().ok_or_else(|| tail(&log))
        });
        status.code().expect("it ended by itself")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns what a log holds; nothing if there is none yet.
pub(super) fn read(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the end of a log, to show it.
pub(super) fn tail(log: &Path) -> String {
    let text = read(log);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(SHOWN);
    lines[from..].join("\n")
}
