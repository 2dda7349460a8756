//! Runs the tests of this program, and reports which of them cannot run on this machine and why.
//!
//! What it is not: another way to write tests. Arguments and output are those of the harness that comes
//! with Rust (`libtest-mimic`); what is added is what that one cannot do:
//!
//! * A test that lacks something is counted as ignored, and a list after the summary names what is
//!   missing and how to get it. With `BERTH_REAL=require` it fails instead.
//! * Tests of different groups do not run beside each other, as if each group were a program. Each test
//!   that emulates a machine is a group by itself.
//! * What a test prints is shown if it fails, unless `--nocapture` is given: it runs as a process of
//!   its own.
//! * The program starts itself in other roles: see [`ROLE`].

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};
use berth_tests::lab::{Missing, Need};
use libtest_mimic::{Arguments, FormatSetting, Trial};
use rustix::process::{Signal, set_parent_process_death_signal};

/// The variable that names what this program does instead of running tests: a role from the list in
/// `main.rs`, in a machine of a lab, or one test.
pub(crate) const ROLE: &str = "BERTH_TEST_ROLE";

/// The last line that a role prints: a program that did nothing would end well too.
pub(crate) const FINISHED: &str = "the role is finished";

/// A test, and what it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test {
    /// `<group>::<function>`.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(),
}

impl Test {
    /// Returns the name that is equal for all tests that may run beside each other.
    fn group(&self) -> &'static str {
        let emulates = self.needs.iter().any(|need| need.is_emulated_machine());
        match self.name.split_once("::") {
            Some((group, _)) if !emulates => group,
            Some(_) | None => self.name,
        }
    }
}

/// Does what the arguments say with all tests, and returns the exit status.
pub(crate) fn main(tests: &'static [Test]) -> ExitCode {
    static TURNS: Turns = Turns::new();
    let arguments = Arguments::from_args();
    let is_required = std::env::var("BERTH_REAL").is_ok_and(|value| value == "require");
    let runs_ignored = arguments.ignored || arguments.include_ignored;
    let is_captured = !arguments.nocapture;
    // A list of all tests is the same on every machine, and is had at once.
    let is_examined = !arguments.list || arguments.ignored;
    let mut needs = Needs::default();
    let (mut trials, mut not_run) = (Vec::new(), Vec::new());
    for &test in tests {
        let missing = match is_examined && is_selected(&arguments, &test) {
            true => needs.missing(&test),
            false => None,
        };
        let is_ignored = missing
            .as_ref()
            .is_some_and(|missing| !(is_required && missing.is_required));
        if let Some(missing) = missing.as_ref().filter(|_| is_ignored && !runs_ignored) {
            not_run.push((test.name, missing.clone()));
        }
        let run = move || {
            if let Some(missing) = missing {
                return Err(format!("a required test cannot run here: {missing}").into());
            }
            let _turn = TURNS.take(test.group());
            match is_captured {
                true => run_apart(&test).map_err(|error| format!("{error:#}").into()),
                false => {
                    (test.run)();
                    Ok(())
                }
            }
        };
        trials.push(Trial::test(test.name, run).with_ignored_flag(is_ignored));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list && arguments.format != Some(FormatSetting::Json) {
        for (name, missing) in &not_run {
            println!("not run: {name}: {missing}");
        }
    }
    conclusion.exit_code()
}

/// Plays a role, or runs one test, and returns; a failure is a panic.
pub(crate) fn play(role: &str, roles: &[(&str, fn())], tests: &[Test]) {
    if let Some((_, run)) = roles.iter().find(|(name, _)| *name == role) {
        run();
        println!("{FINISHED}");
        return;
    }
    let Some(test) = tests.iter().find(|test| test.name == role) else {
        panic!("{ROLE}={role}: there is no such role");
    };
    // Otherwise what the test started would go on without the program that reports it.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux");
    (test.run)();
}

/// Returns whether the arguments select a test. What is ignored is not known yet.
fn is_selected(arguments: &Arguments, test: &Test) -> bool {
    let filters = Arguments {
        ignored: false,
        ..arguments.clone()
    };
    !filters.is_filtered_out(&Trial::test(test.name, || Ok(())))
}

/// Runs a test as a process of its own; what it prints is in the error.
fn run_apart(test: &Test) -> Result<()> {
    let mut printed = tempfile::tempfile().context("cannot keep what the test prints")?;
    let write = |file: &File| file.try_clone().map(Stdio::from);
    let status = Command::new(std::env::current_exe()?)
        .env(ROLE, test.name)
        .stdin(Stdio::null())
        .stdout(write(&printed)?)
        .stderr(write(&printed)?)
        .status()
        .context("cannot start the test")?;
    if status.success() {
        return Ok(());
    }
    let mut text = Vec::new();
    printed.rewind()?;
    printed.read_to_end(&mut text)?;
    bail!("{}{status}", String::from_utf8_lossy(&text));
}

/// What is missing on this machine. Each need is examined once.
#[derive(Debug, Default)]
struct Needs {
    examined: BTreeMap<Need, Option<Missing>>,
}

impl Needs {
    /// Returns the first thing that a test needs and that is not there.
    fn missing(&mut self, test: &Test) -> Option<Missing> {
        test.needs.iter().find_map(|&need| {
            let examined = self.examined.entry(need);
            examined.or_insert_with(|| need.examine().err()).clone()
        })
    }
}

/// Which group runs, and how many of its tests.
struct Turns {
    running: Mutex<(&'static str, usize)>,
    ended: Condvar,
}

/// Ends the turn of a test when dropped.
struct Turn<'a>(&'a Turns);

impl Turns {
    const fn new() -> Self {
        Self {
            running: Mutex::new(("", 0)),
            ended: Condvar::new(),
        }
    }

    /// Waits until no test of another group runs. Tests come group by group, so that no group waits
    /// for more than the one before it.
    fn take(&self, group: &'static str) -> Turn<'_> {
        let mut running = self.lock();
        while running.1 > 0 && running.0 != group {
            let woken = self.ended.wait(running);
            running = woken.unwrap_or_else(PoisonError::into_inner);
        }
        *running = (group, running.1 + 1);
        Turn(self)
    }

    fn lock(&self) -> MutexGuard<'_, (&'static str, usize)> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().1 -= 1;
        self.0.ended.notify_all();
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turns").field(&*self.lock()).finish()
    }
}
