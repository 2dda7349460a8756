//! Runs the tests of this program, and reports which of them cannot run on this machine and why.
//!
//! What it is not: another way to write tests. Arguments and output are those of the harness that comes
//! with Rust (`libtest-mimic`); what is added is what that one cannot do:
//!
//! * A test that lacks something is counted as ignored, and a list after the summary names what is
//!   missing and how to get it. With `BERTH_REAL=require` it fails instead.
//! * A test that emulates a whole machine runs alone: it needs all CPUs. The others wait more than they
//!   compute, and run beside each other.
//! * A test that does not end is ended, and what it was waiting for is shown.
//! * A test whose guest lost writes to its memory runs once more: see [`LOST_WRITES`]. A list after the
//!   summary names it.
//! * What a test prints is shown if it fails, unless `--nocapture` is given: it runs as a process of
//!   its own.
//! * The program starts itself in other roles: see [`ROLE`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use berth_tests::lab::{LONG, Missing, Need};
use libtest_mimic::{Arguments, FormatSetting, Trial};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::process_tree;

/// The variable that names what this program does instead of running tests: a role from the list in
/// `main.rs`, in a machine of a lab, or one test.
pub(crate) const ROLE: &str = "BERTH_TEST_ROLE";

/// The last line that a role prints: a program that did nothing would end well too.
pub(crate) const FINISHED: &str = "the role is finished";

/// What the kernel of a guest prints when it stops for good.
///
/// An emulated guest can lose writes to its memory in a live migration, whatever Berth does: until 9.0,
/// QEMU clears the dirty bit of a page without the entry of the virtual CPU's TLB that lets further
/// writes to it pass unnoticed (its commit "physmem: Fix migration dirty bitmap coherency with TCG
/// memory access"). The lists of the guest's timers break first. Guests under KVM do not have this.
const LOST_WRITES: &str = "Kernel panic - not syncing";

/// How many of the tests that took longest are named after the summary.
const SLOWEST: usize = 12;

/// How often the end of a test is looked for.
const GLANCE: Duration = Duration::from_millis(50);

/// A test, and what it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Test {
    /// `<group>::<function>`.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(),
}

impl Test {
    fn emulates_a_machine(&self) -> bool {
        self.needs.iter().any(|need| need.is_emulated_machine())
    }
}

/// Does what the arguments say with all tests, and returns the exit status.
pub(crate) fn main(tests: &'static [Test]) -> ExitCode {
    static TURNS: Turns = Turns::new();
    static TWICE: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    static LASTED: Mutex<Vec<(Duration, &str)>> = Mutex::new(Vec::new());
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
            let _turn = TURNS.take(test.emulates_a_machine());
            let started = Instant::now();
            let verdict = match is_captured {
                true => run_to_a_verdict(|| run_apart(&test)),
                false => {
                    (test.run)();
                    Ok(false)
                }
            };
            lock(&LASTED).push((started.elapsed(), test.name));
            if verdict.map_err(|error| format!("{error:#}"))? {
                lock(&TWICE).push(test.name);
            }
            Ok(())
        };
        trials.push(Trial::test(test.name, run).with_ignored_flag(is_ignored));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list && arguments.format != Some(FormatSetting::Json) {
        for (name, missing) in &not_run {
            println!("not run: {name}: {missing}");
        }
        let mut lasted = std::mem::take(&mut *lock(&LASTED));
        lasted.sort_unstable_by(|a, b| b.cmp(a));
        for (time, name) in lasted.iter().take(SLOWEST) {
            println!("slowest: {:4} s: {name}", time.as_secs());
        }
        for name in lock(&TWICE).iter() {
            println!("ran twice: {name}: the first time the kernel of a guest stopped");
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

/// Runs a test, and once more if a guest of it lost writes to its memory; returns whether it did.
fn run_to_a_verdict(mut run: impl FnMut() -> Result<()>) -> Result<bool> {
    match run() {
        Ok(()) => Ok(false),
        Err(error) if format!("{error:#}").contains(LOST_WRITES) => {
            run().map(|()| true).with_context(|| {
                format!("the kernel of a guest stopped, and this is the second run; the first: {error:#}")
            })
        }
        Err(error) => Err(error),
    }
}

/// Runs a test as a process of its own; what it prints is in the error.
fn run_apart(test: &Test) -> Result<()> {
    let mut printed = tempfile::tempfile().context("cannot keep what the test prints")?;
    let write = |file: &File| file.try_clone().map(Stdio::from);
    let child = Command::new(std::env::current_exe()?)
        .env(ROLE, test.name)
        .stdin(Stdio::null())
        .stdout(write(&printed)?)
        .stderr(write(&printed)?)
        .spawn()
        .context("cannot start the test")?;
    let ended = wait_within(child, limit());
    if let Ok(status) = &ended
        && status.success()
    {
        return Ok(());
    }
    let mut text = Vec::new();
    printed.rewind()?;
    printed.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    match ended {
        Ok(status) => bail!("{text}{status}"),
        Err(error) => bail!("{text}{error:#}"),
    }
}

/// How long one test may take: three times what the longest takes on two CPUs.
fn limit() -> Duration {
    let is_long = std::env::var_os(LONG).is_some();
    Duration::from_secs(if is_long { 7_200 } else { 900 })
}

/// Waits for a test; one that takes longer is ended, with all processes that it started.
fn wait_within(mut test: Child, limit: Duration) -> Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = test.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(GLANCE);
    }
    let processes = process_tree::descendants(test.id());
    process_tree::kill(&processes);
    test.wait()?;
    let mut shown = String::new();
    for process in &processes {
        let _ = write!(shown, "\n    {process}");
    }
    let seconds = limit.as_secs();
    bail!(
        "the test did not end within {seconds} s and was killed; its processes (pid, where it waits: command):{shown}"
    )
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

/// How many tests run, and whether it is one that runs alone.
#[derive(Debug)]
struct Turns {
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    Alone,
    Together(usize),
}

/// Ends the turn of a test when dropped.
struct Turn<'a>(&'a Turns);

impl Turns {
    const fn new() -> Self {
        Self {
            running: Mutex::new(Running::Together(0)),
            ended: Condvar::new(),
        }
    }

    /// Waits until the test may run. One that runs alone is overtaken as long as there are others, so
    /// that the list has those last.
    fn take(&self, alone: bool) -> Turn<'_> {
        let mut running = lock(&self.running);
        let next = loop {
            match (*running, alone) {
                (Running::Together(0), true) => break Running::Alone,
                (Running::Together(others), false) => break Running::Together(others + 1),
                (Running::Together(_), true) | (Running::Alone, _) => {
                    let woken = self.ended.wait(running);
                    running = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        *running = next;
        Turn(self)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut running = lock(&self.0.running);
        *running = match *running {
            Running::Alone => Running::Together(0),
            Running::Together(tests) => Running::Together(tests - 1),
        };
        self.0.ended.notify_all();
    }
}

/// Goal: a test that hangs does not hold up the others for ever, and leaves nothing that runs.
pub(crate) fn a_test_that_does_not_end_is_killed() {
    let mut test = Command::new("sh")
        .args(["-c", "sleep 1001 & echo $!; wait"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut printed = BufReader::new(test.stdout.take().expect("a pipe"));
    let (shell, mut child) = (test.id(), String::new());
    printed.read_line(&mut child).expect("it prints a line");
    let error = wait_within(test, Duration::ZERO).expect_err("it does not end by itself");
    let error = format!("{error:#}");
    // By their ids: a process that was just forked still has its parent's command line.
    assert!(error.contains(&format!("\n    {shell} ")), "{error}");
    assert!(
        error.contains(&format!("\n    {} ", child.trim_end())),
        "{error}"
    );
    // Both ends of the pipe are closed when both processes have ended.
    let mut rest = Vec::new();
    printed.read_to_end(&mut rest).expect("the end of the pipe");
}

/// Goal: nothing but a guest whose kernel stopped gives a test a second run, and it gets one only.
pub(crate) fn only_a_guest_that_lost_writes_gives_a_second_run() {
    let panicked = format!("the guest does not say \"up\"; its console: {LOST_WRITES}: oops");
    let verdict = |answers: &[Option<&str>]| {
        let mut runs = answers.iter();
        let verdict = run_to_a_verdict(|| match runs.next().expect("no further run") {
            Some(error) => bail!("{error}"),
            None => Ok(()),
        });
        (verdict.map_err(|error| format!("{error:#}")), runs.len())
    };
    assert_eq!(verdict(&[None]), (Ok(false), 0));
    assert_eq!(verdict(&[Some(&panicked), None]), (Ok(true), 0));
    let (error, left) = verdict(&[Some("the guest is silent"), None]);
    assert_eq!(
        (error.unwrap_err().as_str(), left),
        ("the guest is silent", 1)
    );
    let (error, left) = verdict(&[Some(&panicked), Some("the second error"), None]);
    let error = error.unwrap_err();
    assert!(
        error.contains(&panicked) && error.contains("the second error"),
        "{error}"
    );
    assert_eq!(left, 1);
}
