//! A guest's serial console: its lines are read from a file, and a socket takes ours.
//!
//! What it is not: a terminal. The file is what libvirt's `<log file=…>` wrote, and goes
//! on to be written whether or not anybody is at the socket.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::process::{tail, wait_until};

/// What the guest's init puts before everything it says; the kernel does not.
const MARK: &str = "berth-guest: ";

/// How long an answer may take before the question is sent again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The console of one guest on one host.
#[derive(Debug, Clone)]
pub struct Console {
    log: PathBuf,
}

impl Console {
    /// Reads the console from the file that logs it.
    pub fn new(log: impl Into<PathBuf>) -> Self {
        Self { log: log.into() }
    }

    /// Returns what the guest's init has said so far, without the mark. A last line that
    /// is not complete is left out.
    pub fn lines(&self) -> Vec<String> {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let said = |line: &str| {
            line.split_once(MARK)
                .map(|(_, said)| said.trim_end().to_owned())
        };
        complete.lines().filter_map(said).collect()
    }

    /// Returns the highest number that the guest has counted to.
    pub fn count(&self) -> Option<u64> {
        self.lines()
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("count ")?.parse().ok())
    }

    /// Waits for a line that begins so, and returns the rest of it.
    pub fn wait_for(&self, beginning: &str, patience: Duration) -> Result<String> {
        wait_until(patience, || {
            Ok(self
                .lines()
                .iter()
                .find_map(|line| Some(line.strip_prefix(beginning)?.trim().to_owned())))
        })
        .with_context(|| self.silence(beginning))
    }

    /// Waits until the guest has counted beyond `number`, and returns how far it got.
    pub fn wait_for_count_above(&self, number: u64, patience: Duration) -> Result<u64> {
        wait_until(patience, || {
            Ok(self.count().filter(|count| *count > number))
        })
        .with_context(|| self.silence(&format!("count {}", number + 1)))
    }

    /// Sends a line to the guest through the socket, and returns its answer.
    ///
    /// A question that is not answered is sent again: a serial line promises nothing,
    /// least of all across a migration. The guest repeats the question in its answer, so
    /// that a late one is not taken for that to another.
    pub fn ask(&self, socket: &Path, question: &str, patience: Duration) -> Result<String> {
        let mut stream = UnixStream::connect(socket)
            .with_context(|| format!("no process listens at {}", socket.display()))?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        let expected = format!("{MARK}answer to {question}: ");
        let mut heard = Vec::new();
        let mut sent: Option<Instant> = None;
        wait_until(patience, || {
            if sent.is_none_or(|sent| sent.elapsed() > ASK_AGAIN) {
                writeln!(stream, "{question}")?;
                sent = Some(Instant::now());
            }
            let mut buffer = [0; 4096];
            // A timeout is a chance to look at the clock.
            if let Ok(length) = stream.read(&mut buffer) {
                heard.extend_from_slice(&buffer[..length]);
            }
            let text = String::from_utf8_lossy(&heard);
            Ok(text
                .split_once(&expected)
                .and_then(|(_, rest)| rest.split_once('\n'))
                .map(|(answer, _)| answer.trim().to_owned()))
        })
        .with_context(|| {
            let heard = String::from_utf8_lossy(&heard).into_owned();
            format!("the guest does not answer {question:?}; it says: {heard}")
        })
    }

    fn silence(&self, expected: &str) -> String {
        format!(
            "the guest does not say {expected:?}; its console: {}",
            tail(&self.log)
        )
    }
}
