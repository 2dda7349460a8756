//! One scheduler, conductor or agent, which outlives its processes.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::process::{read, tail};
use super::{Answer, Process, Programs};

/// A part of a cluster: how it is started, and the process that it is just now.
#[derive(Debug)]
pub struct Part {
    /// What it is called: the file of its log, and of a host or conductor also its name.
    pub name: String,
    /// The address that it serves.
    pub address: String,
    /// Where its metrics and its health are served, if they are.
    pub watch: Option<String>,
    /// Where its page is served, if it is.
    pub page: Option<String>,
    /// Its program.
    program: &'static str,
    /// What it is started with each time.
    pub arguments: Vec<String>,
    log: PathBuf,
    /// Where the log of the latest process begins.
    log_from: usize,
    process: Option<Process>,
}

impl Part {
    pub(super) fn new(
        program: &'static str,
        name: String,
        address: String,
        arguments: Vec<String>,
        log: PathBuf,
    ) -> Self {
        Self {
            name,
            address,
            watch: None,
            page: None,
            program,
            arguments,
            log,
            log_from: 0,
            process: None,
        }
    }

    /// Gives an option that it is started with another value.
    ///
    /// # Panics
    ///
    /// When it is started without that option.
    pub fn set(&mut self, option: &str, value: &str) {
        let at = self.arguments.iter().position(|word| word == option);
        let at = at.unwrap_or_else(|| panic!("{} has no {option}", self.name));
        value.clone_into(&mut self.arguments[at + 1]);
    }

    /// Has metrics and health served there.
    pub(super) fn watched(mut self, address: String) -> Self {
        self.arguments
            .extend(["--metrics-listen".to_owned(), address.clone()]);
        self.watch = Some(address);
        self
    }

    /// Has browsers log in to the page.
    pub(super) fn with_logins(mut self) -> Self {
        self.arguments.push("--page-login".to_owned());
        self
    }

    /// Has the page served there.
    pub(super) fn paged(mut self, address: String) -> Self {
        self.arguments
            .extend(["--page-listen".to_owned(), address.clone()]);
        self.page = Some(address);
        self
    }

    /// Returns where its page is served.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[track_caller]
    #[must_use]
    pub fn page(&self) -> &str {
        let page = self.page.as_deref();
        page.unwrap_or_else(|| panic!("{} has no page", self.name))
    }

    /// Returns where its metrics and its health are served.
    ///
    /// # Panics
    ///
    /// When they are not.
    #[track_caller]
    #[must_use]
    pub fn watch(&self) -> &str {
        let watch = self.watch.as_deref();
        watch.unwrap_or_else(|| panic!("{} is not watched", self.name))
    }

    /// Runs its program with its arguments and more of them to its end.
    #[track_caller]
    #[must_use]
    pub fn answer(&self, programs: &Programs, more: &[&str]) -> Answer {
        let mut command = programs.command(self.program);
        command.args(&self.arguments).args(more);
        Answer::of(command)
    }

    /// Starts it.
    #[track_caller]
    pub fn start(&mut self, programs: &Programs) {
        self.start_with(programs, &[]);
    }

    /// Starts it with more arguments, this time only.
    ///
    /// # Panics
    ///
    /// When it runs already.
    #[track_caller]
    pub fn start_with(&mut self, programs: &Programs, more: &[&str]) {
        assert!(self.process.is_none(), "{} runs already", self.name);
        self.log_from = read(&self.log).len();
        let mut command: Command = programs.command(self.program);
        command.args(&self.arguments).args(more);
        self.process = Some(Process::start(command, &self.log));
    }

    /// Ends its process with `SIGKILL`, if it has one.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Returns its process.
    ///
    /// # Panics
    ///
    /// When it has none.
    #[track_caller]
    pub fn process(&mut self) -> &mut Process {
        let process = self.process.as_mut();
        process.unwrap_or_else(|| panic!("{} was killed", self.name))
    }

    /// Sends a signal to its process.
    ///
    /// # Panics
    ///
    /// When it has none.
    #[track_caller]
    pub fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_raw(self.process().pid().cast_signed());
        kill_process(pid.expect("a process"), signal).expect("it runs");
    }

    /// Returns whether its process runs.
    pub fn is_running(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_some_and(|process| process.ended().is_none())
    }

    /// Returns everything that its processes have printed.
    #[must_use]
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Returns what its latest process has printed.
    #[must_use]
    pub fn said(&self) -> String {
        self.log().split_off(self.log_from)
    }

    /// Starts it where it cannot run, and returns what it says of that.
    ///
    /// # Panics
    ///
    /// When it goes on, or ends with another status than this.
    #[track_caller]
    pub fn fails(&mut self, programs: &Programs, status: i32) -> String {
        self.start(programs);
        let ended = self.process().wait();
        self.kill();
        assert_eq!(ended, status, "{}", self.said());
        self.said()
    }

    /// Returns the end of its log, under a head line.
    pub(super) fn shown(&self) -> String {
        format!("---- {} ----\n{}", self.name, tail(&self.log))
    }
}
