//! Single programs with wrong input, and a place for what they are given.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Addresses, Answer, Cluster, Process, Programs, eventually};

/// The programs, and a directory for what they are given.
#[derive(Debug)]
pub struct Bench {
    /// The programs.
    pub programs: Programs,
    /// The directory.
    pub folder: tempfile::TempDir,
    /// Where they listen.
    pub addresses: Addresses,
}

impl Bench {
    /// Makes one; `binary` is `env!("CARGO_BIN_EXE_berth-programs")`.
    ///
    /// # Panics
    ///
    /// When no directory can be made.
    #[must_use]
    pub fn new(binary: &str) -> Self {
        Self {
            programs: Programs::new(binary),
            folder: tempfile::tempdir().expect("a directory"),
            addresses: Addresses::new(),
        }
    }

    /// Returns the path of a file in the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Writes a file into the directory, and returns its path.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    #[must_use]
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path
    }

    /// Runs a program to its end.
    #[track_caller]
    #[must_use]
    pub fn run(&self, program: &str, arguments: &[&str]) -> Answer {
        let mut command = self.programs.command(program);
        command.args(["--log-filter", "error"]).args(arguments);
        Answer::of(command)
    }

    /// Runs a command that writes no log to its end.
    #[track_caller]
    #[must_use]
    pub fn run_plain(&self, program: &str, arguments: &[&str]) -> Answer {
        let mut command = self.programs.command(program);
        command.args(arguments);
        Answer::of(command)
    }

    /// Starts a scheduler that is expected to run.
    #[track_caller]
    #[must_use]
    pub fn member(&self, arguments: &[&str]) -> Process {
        let mut command = self.programs.command("berth-scheduler");
        command.args(arguments);
        Process::start(command, &self.folder.path().join("member.log"))
    }

    /// Runs an agent with a simulated hypervisor on this machine file.
    #[track_caller]
    #[must_use]
    pub fn agent(&mut self, machine: &str, more: &[&str]) -> Answer {
        let address = self.addresses.free();
        let begin = ["--driver", "sim", "--name", "h1", "--listen", &address];
        let machine = ["--machine-file", machine];
        self.run(
            "berth-compute-agent",
            &[&begin[..], &machine, more].concat(),
        )
    }
}

/// Returns a member that has written two checkpoints and was killed; its flavor "kept" must never be
/// lost.
///
/// # Panics
///
/// When it does not start.
#[must_use]
pub fn used_member(binary: &str) -> Cluster {
    let mut cluster = Cluster::builder(binary)
        .schedulers(1)
        .conductors(0)
        .checkpoint_entries(100)
        .start();
    let folder = checkpoints(&cluster);
    let first = files(&folder);
    cluster.pinned_flavor("kept", 1);
    // The flavor must be in both, and neither be the one that the cluster began with.
    eventually("two checkpoints of later states", || {
        cluster.keep_busy(100);
        let found = files(&folder);
        let later = found.iter().all(|file| file != &first[0]);
        (later && found.len() == 2)
            .then_some(())
            .ok_or_else(|| format!("{found:?}"))
    });
    cluster.schedulers[0].kill();
    cluster
}

/// Returns the directory of the checkpoints of the first scheduler.
#[must_use]
pub fn checkpoints(cluster: &Cluster) -> PathBuf {
    cluster.data_dir(0).join("checkpoints")
}

/// Returns the files of a directory by name, without those that were still being written.
///
/// # Panics
///
/// When there is no such directory.
#[must_use]
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a directory");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_none_or(|e| e != "part"))
        .collect();
    files.sort();
    files
}

/// Starts a [`used_member`] again.
///
/// # Panics
///
/// When its flavor is not there.
#[track_caller]
pub fn nothing_is_lost(cluster: &mut Cluster) {
    cluster.schedulers[0].start(&cluster.programs);
    cluster.wait();
    assert_eq!(cluster.json(&["flavor", "show", "kept"])["name"], "kept");
}
