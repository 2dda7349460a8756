//! A program that runs inside a machine, as the test sees it.
//!
//! What it is not: `std::process::Child`. The child of the test is `nsenter`, which waits
//! for the program; signals must go to the program itself.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How long a process may take to appear or to go.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// A program that runs inside a machine; it is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Option<u32>,
    log: PathBuf,
}

impl Process {
    /// Starts `entering`, which enters a machine and forks the program in there.
    pub(super) fn start(mut entering: Command, log: &Path) -> Result<Self> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        entering
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut child = entering
            .spawn()
            .with_context(|| format!("cannot run {entering:?}"))?;
        let entrance = child.id();
        // Not until the program exists is there something to send a signal to; a quick one
        // may have ended by then.
        let pid = wait_until(PATIENCE, || {
            let ended = child.try_wait()?.is_some();
            let pid = children_of(entrance)?.first().copied();
            Ok((ended || pid.is_some()).then_some(pid))
        })?;
        Ok(Self {
            child,
            pid,
            log: log.to_owned(),
        })
    }

    /// Returns the program's pid, as the test sees it; a program that ended at once has none.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Returns the file that holds what the program printed.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns what the program printed so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until the program has printed these words.
    pub fn wait_for_log(&mut self, words: &str, patience: Duration) -> Result<()> {
        wait_until(patience, || {
            if self.log().contains(words) {
                return Ok(Some(()));
            }
            if !self.is_running() {
                bail!("it has ended");
            }
            Ok(None)
        })
        .with_context(|| format!("it does not say {words:?}: {}", tail(&self.log)))
    }

    /// Returns whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the program with `SIGKILL`, and returns when it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.signal("KILL")?;
        self.wait().map(|_| ())
    }

    /// Asks the program to end with `SIGTERM`, and returns how it ended.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.signal("TERM")?;
        self.wait()
    }

    /// Sends a signal, such as `STOP`; to a program that has ended it does nothing.
    pub fn signal(&mut self, name: &str) -> Result<()> {
        match (self.is_running(), self.pid) {
            (true, Some(pid)) => signal(pid, name),
            (true, None) | (false, _) => Ok(()),
        }
    }

    /// Waits until the program has ended by itself.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let (child, log) = (&mut self.child, &self.log);
        wait_until(PATIENCE, || Ok(child.try_wait()?))
            .with_context(|| format!("the program does not end: {}", tail(log)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Where the machine is gone already, so is the program; nothing is left to do.
        let _ = self.kill();
    }
}

/// Sends a signal to one process.
pub(super) fn signal(pid: u32, name: &str) -> Result<()> {
    let command = format!("kill -{name} {pid}");
    // The shell's own kill: the program of that name need not be installed.
    let output = Command::new("sh").args(["-c", &command]).output()?;
    // A process that is gone meanwhile needs no signal.
    if !output.status.success() && Path::new(&format!("/proc/{pid}")).exists() {
        bail!(
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// The processes whose parent is `pid`.
pub(super) fn children_of(pid: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(candidate) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // It may have ended since the directory was read.
        let Ok(stat) = fs::read_to_string(format!("/proc/{candidate}/stat")) else {
            continue;
        };
        // The name, in parentheses, may hold anything; the parent is the second field after.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1))
            .and_then(|parent| parent.parse::<u32>().ok());
        if parent == Some(pid) {
            children.push(candidate);
        }
    }
    Ok(children)
}

/// Looks until there is an answer, for so long.
pub(super) fn wait_until<T>(
    patience: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = look()? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            bail!("not within {} s", patience.as_secs());
        }
        std::thread::sleep(GLANCE);
    }
}

/// The last lines of a log, for an error message.
pub(super) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
