//! Programs that are run, as long as is allowed and no longer.
//!
//! Invariant: when a run returns, the program and all that it started have ended or were killed; of
//! what they print a bounded amount is kept. Nothing of our environment reaches them: some of it
//! would change what they do.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The most that is read of what a program prints, of each of its two outputs.
pub(crate) const OUTPUT_MAX: u64 = 8 << 20;

/// How much of its complaint is repeated in a message, in characters.
const QUOTED_MAX: usize = 400;

/// How long a killed program may take to end. One that waits for a device in the kernel may
/// never end, and no caller should wait for it.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// How often it is looked whether a program has ended: at first often, as most are short.
const LOOK_AFTER_MIN: Duration = Duration::from_millis(1);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(50);

/// Why a program did not do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not there.
    #[error("there is no program {program}; is it installed?")]
    Missing {
        /// The program.
        program: String,
    },
    /// It cannot be started.
    #[error("cannot run {program}: {why}")]
    NotRun {
        /// The program.
        program: String,
        /// Why not.
        why: String,
    },
    /// It took longer than it may.
    #[error("{program} did not end within {seconds} s and was killed")]
    TimedOut {
        /// The program.
        program: String,
        /// How long it may take.
        seconds: u64,
    },
    /// It was stopped on request.
    #[error("{program} was stopped on request")]
    Stopped {
        /// The program.
        program: String,
    },
    /// It failed.
    #[error("{program} {how}{}", quoted(.said))]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        how: String,
        /// Its output, cut to a bounded length.
        said: String,
    },
    /// It printed more than is read.
    #[error("{program} printed more than {OUTPUT_MAX} bytes")]
    TooLong {
        /// The program.
        program: String,
    },
}

fn quoted(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(": {said}"),
    }
}

/// What a program printed.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Runs a program to its end. It is killed, with all that it started, after `limit` and as soon as
/// `stop` is set.
///
/// # Errors
///
/// When it did not run, did not end in time, or did not end well.
pub(crate) fn run(
    program: &Path,
    arguments: &[&str],
    limit: Duration,
    stop: &AtomicBool,
) -> Result<Output, Error> {
    run_with(program, arguments, Stdio::null(), limit, stop)
}

/// The same, with what the program has as its input.
pub(crate) fn run_with(
    program: &Path,
    arguments: &[&str],
    input: Stdio,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<Output, Error> {
    let name = program.display().to_string();
    let mut running = Running::start(program, arguments, input)?;
    let deadline = Instant::now() + limit;
    let mut pause = LOOK_AFTER_MIN;
    while !running.has_ended()? {
        if stop.load(Ordering::Acquire) {
            return Err(Error::Stopped { program: name });
        }
        if Instant::now() >= deadline {
            let seconds = limit.as_secs();
            return Err(Error::TimedOut {
                program: name,
                seconds,
            });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LOOK_AFTER_MAX);
    }
    let status = running.collect()?;
    let output = running.output();
    if output.stdout.len().max(output.stderr.len()) as u64 > OUTPUT_MAX {
        return Err(Error::TooLong { program: name });
    }
    if status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Failed {
        program: name,
        how: how(status),
        said: said.trim().chars().take(QUOTED_MAX).collect(),
    })
}

fn not_run(program: String, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return Error::Missing { program };
    }
    let why = error.to_string();
    Error::NotRun { program, why }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// A program under way, killed with all that it started when this is dropped.
struct Running {
    name: String,
    child: Child,
    group: Option<Pid>,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    is_collected: bool,
}

impl Running {
    fn start(program: &Path, arguments: &[&str], input: Stdio) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("LC_ALL", "C")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let name = || program.display().to_string();
        let mut child = command.spawn().map_err(|error| not_run(name(), &error))?;
        let stdout = child.stdout.take().map(reader);
        let stderr = child.stderr.take().map(reader);
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self {
            name: name(),
            child,
            group,
            stdout,
            stderr,
            is_collected: false,
        })
    }

    /// Returns whether it has ended, and leaves it uncollected: until it is collected its number
    /// is not given to another program, so that the right ones are killed.
    fn has_ended(&self) -> Result<bool, Error> {
        let Some(pid) = self.group else {
            return Ok(true);
        };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), look) {
            Ok(status) => Ok(status.is_some()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(not_run(self.name.clone(), &errno.into())),
        }
    }

    /// Collects it after it ended. What it left behind is killed: it would keep the pipes open.
    fn collect(&mut self) -> Result<ExitStatus, Error> {
        self.kill_group();
        let status = self.child.wait();
        self.is_collected = true;
        status.map_err(|error| not_run(self.name.clone(), &error))
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            // Nothing left to kill is what is hoped for.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn output(&mut self) -> Output {
        let join = |reader: Option<JoinHandle<Vec<u8>>>| {
            reader.map(|reader| reader.join().unwrap_or_default())
        };
        Output {
            stdout: join(self.stdout.take()).unwrap_or_default(),
            stderr: join(self.stderr.take()).unwrap_or_default(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_collected {
            return;
        }
        self.kill_group();
        let deadline = Instant::now() + GONE_AFTER;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK_AFTER_MIN);
        }
    }
}

/// Reads a pipe to its end, or to one byte more than is allowed; then it closes, and the program
/// that goes on to print is ended by that.
fn reader(pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is missing: the exit status decides.
        let _ = pipe.take(OUTPUT_MAX + 1).read_to_end(&mut bytes);
        bytes
    })
}
