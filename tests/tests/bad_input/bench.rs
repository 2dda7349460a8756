//! The programs, and a place for what they are given.

use std::fs;

use berth_tests::processes::{Addresses, Answer, Process, Programs};

pub(crate) const PROGRAMS: &str = env!("CARGO_BIN_EXE_berth-programs");

/// The programs, and a directory for what they are given.
pub(crate) struct Bench {
    pub(crate) programs: Programs,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) addresses: Addresses,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            programs: Programs::new(PROGRAMS),
            folder: tempfile::tempdir().expect("a directory"),
            addresses: Addresses::new(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path
    }

    #[track_caller]
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Answer {
        let mut command = self.programs.command(program);
        command.args(["--log-filter", "error"]).args(arguments);
        Answer::of(command)
    }

    /// Starts a scheduler that is expected to run.
    #[track_caller]
    pub(crate) fn member(&self, arguments: &[&str]) -> Process {
        let mut command = self.programs.command("berth-scheduler");
        command.args(arguments);
        Process::start(command, &self.folder.path().join("member.log"))
    }

    /// Runs an agent with a simulated hypervisor on this machine file.
    #[track_caller]
    pub(crate) fn agent(&mut self, machine: &str, more: &[&str]) -> Answer {
        let address = self.addresses.free();
        let begin = ["--driver", "sim", "--name", "h1", "--listen", &address];
        let machine = ["--machine-file", machine];
        self.run(
            "berth-compute-agent",
            &[&begin[..], &machine, more].concat(),
        )
    }
}
