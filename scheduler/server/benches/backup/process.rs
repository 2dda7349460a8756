//! Processes that are measured: this program again, as a scheduler or to write or verify a backup, and etcd's.
//!
//! A benchmark has no binaries of other packages, so that the first argument says which one it is.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::fault::{Outcome, fault};
use crate::files;

/// The first argument that makes this program a scheduler.
pub(crate) const SCHEDULER: &str = "berth-scheduler";
/// The first argument that makes this program write a backup.
pub(crate) const BACK_UP: &str = "back-up";
/// The first argument that makes this program verify a backup.
pub(crate) const VERIFY: &str = "verify";

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Runs as another program, and returns its exit status, where the first argument says so.
pub(crate) fn become_another() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let first = arguments.first()?.to_str()?;
    match first {
        SCHEDULER => Some(berth_scheduler::main(arguments)),
        BACK_UP => Some(files::save(
            arguments.get(1)?.to_str()?,
            Path::new(arguments.get(2)?),
            arguments.get(3).map(Path::new),
        )),
        VERIFY => Some(files::verify(Path::new(arguments.get(1)?))),
        _ => None,
    }
}

/// A process, ended when dropped.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts this program as a scheduler with these arguments.
    pub(crate) fn scheduler(arguments: &[OsString]) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(SCHEDULER).args(arguments).stdout(log()?);
        Self::start(command)
    }

    /// Starts a process.
    pub(crate) fn start(mut command: Command) -> Outcome<Self> {
        let child = command.spawn();
        let failed = |error| fault(format!("failed to start {command:?}: {error}"));
        Ok(Self(child.map_err(failed)?))
    }

    /// Returns what a line of the process's status in `/proc` says, in MiB.
    pub(crate) fn memory_mib(&self, line: &str) -> u64 {
        memory_mib(self.0.id(), line).unwrap_or(0)
    }
}

/// Returns where the log lines of schedulers go.
fn log() -> Outcome<Stdio> {
    match std::env::var_os("BERTH_BENCH_LOG") {
        Some(path) => {
            let file = std::fs::File::options()
                .create(true)
                .append(true)
                .open(path);
            Ok(file?.into())
        }
        None => Ok(Stdio::null()),
    }
}

/// What a program took that has ended.
pub(crate) struct Ended {
    pub(crate) took: Duration,
    /// Its resident memory at most, in MiB, as far as it was seen.
    pub(crate) memory_mib: u64,
}

/// Runs this program as another one, to its end.
pub(crate) async fn run_self(arguments: Vec<OsString>) -> Outcome<Ended> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    run(command).await
}

/// Runs a program to its end, which has to be a success.
pub(crate) async fn run(mut command: Command) -> Outcome<Ended> {
    command.stdout(Stdio::null());
    let name = format!("{command:?}");
    let begun = Instant::now();
    let mut running = Running::start(command)?;
    let mut memory = 0;
    loop {
        memory = memory.max(running.memory_mib("VmHWM"));
        if let Some(status) = running.0.try_wait()? {
            if !status.success() {
                return Err(fault(format!("{name}: {status}")));
            }
            let took = begun.elapsed();
            return Ok(Ended {
                took,
                memory_mib: memory,
            });
        }
        if begun.elapsed() > Duration::from_secs(1_800) {
            return Err(fault(format!("{name} did not end within half an hour")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn memory_mib(process: u32, line: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut lines = status.lines().filter_map(|l| l.split_once(':'));
    let (_, value) = lines.find(|(name, _)| *name == line)?;
    let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// Returns the bytes of all files below a folder.
pub(crate) fn bytes_below(folder: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => bytes_below(&entry.path())?,
            false => metadata.len(),
        };
    }
    Ok(bytes)
}
