//! The programs by their names, in a directory of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What is to be found under its own name.
const NAMES: [&str; 8] = [
    "berth",
    "berth-scheduler",
    "berth-conductor",
    "berth-compute-agent",
    "berth-csi-controller",
    "berth-csi-operator",
    "berth-dist",
    "grpcurl",
];

/// A directory with all programs; removed when dropped.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Removed when the last of those who start programs is gone.
    directory: Arc<tempfile::TempDir>,
}

impl Programs {
    /// Gives the one binary that holds all programs (`env!("CARGO_BIN_EXE_berth-programs")`) each
    /// of their names.
    ///
    /// # Panics
    ///
    /// When no directory can be made.
    #[must_use]
    pub fn new(binary: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("berth-programs-")
            .tempdir()
            .expect("a directory for programs");
        for name in NAMES {
            std::os::unix::fs::symlink(binary, directory.path().join(name))
                .expect("a link to the programs");
        }
        Self {
            directory: Arc::new(directory),
        }
    }

    /// Returns the directory, for a search path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of one program.
    #[must_use]
    pub fn path(&self, program: &str) -> PathBuf {
        self.directory.path().join(program)
    }

    /// Returns a command that runs a program, without the settings of the user who runs the test.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path(program));
        command
            .env_remove("BERTH_LOG")
            .env_remove("BERTH_SCHEDULER")
            .env_remove("BERTH_TLS_CA")
            .env_remove("BERTH_TLS_CERT")
            .env_remove("BERTH_TLS_KEY")
            .env_remove("TRACEPARENT")
            .env("NO_COLOR", "1");
        command
    }
}
