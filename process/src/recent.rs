//! The latest log lines of this process, for who looks into a fault when the lines themselves are on
//! another machine.
//!
//! Not here: writing log lines ([`log`](crate::log)), which go to standard error as ever. Programs that
//! run in one process share the lines.
//!
//! Invariant: it never holds more than [`LINES_MAX`] lines and [`BYTES_MAX`] bytes; the oldest go first.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use crate::wall_clock::wall_clock_ms;

/// The maximum number of lines.
pub const LINES_MAX: usize = 4_096;
/// The maximum size of all lines together, in bytes.
pub const BYTES_MAX: usize = 1 << 20;
/// The maximum size of one line; what is longer is cut.
const LINE_BYTES_MAX: usize = 8 << 10;

static RECENT: Mutex<Recent> = Mutex::new(Recent::new());

/// A line that was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The line, without a newline.
    pub text: String,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of lines.
    pub lines: usize,
    /// Their size in bytes.
    pub bytes: usize,
}

/// Returns the lines from this time on, in milliseconds since 1970, the oldest first.
#[must_use]
pub fn lines_since(since_ms: u64) -> Vec<Line> {
    let recent = recent();
    let since = recent.lines.iter().filter(|line| line.at_ms >= since_ms);
    since.cloned().collect()
}

/// Returns how much there is.
#[must_use]
pub fn size() -> Size {
    let recent = recent();
    Size {
        lines: recent.lines.len(),
        bytes: recent.bytes,
    }
}

fn recent() -> MutexGuard<'static, Recent> {
    // A line is added as a whole.
    RECENT.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Recent {
    lines: VecDeque<Line>,
    bytes: usize,
}

impl Recent {
    const fn new() -> Self {
        Self {
            lines: VecDeque::new(),
            bytes: 0,
        }
    }

    fn add(&mut self, at_ms: u64, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        let text = String::from_utf8_lossy(bytes).trim_end().to_owned();
        self.bytes += text.len();
        self.lines.push_back(Line { at_ms, text });
        while self.lines.len() > LINES_MAX || self.bytes > BYTES_MAX {
            let oldest = self.lines.pop_front();
            self.bytes -= oldest.map_or(0, |line| line.text.len());
        }
    }
}

/// Adds each event that is written to the lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The formatter writes an event at once.
        recent().add(wall_clock_ms(), bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Writer {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_go_first() {
        let mut recent = Recent::new();
        for number in 0..LINES_MAX + 10 {
            recent.add(number as u64, format!("line {number}\n").as_bytes());
        }
        assert_eq!(recent.lines.len(), LINES_MAX);
        assert_eq!(recent.lines[0].text, "line 10");
        let bytes: usize = recent.lines.iter().map(|line| line.text.len()).sum();
        assert_eq!(recent.bytes, bytes);
    }

    #[test]
    fn long_lines_are_cut_and_take_the_place_of_others() {
        let mut recent = Recent::new();
        let long = vec![b'x'; 10 * LINE_BYTES_MAX];
        for _ in 0..1_000 {
            recent.add(0, &long);
        }
        assert!(recent.bytes <= BYTES_MAX, "{}", recent.bytes);
        assert_eq!(recent.lines.len(), BYTES_MAX / LINE_BYTES_MAX);
        assert!(
            recent
                .lines
                .iter()
                .all(|line| line.text.len() == LINE_BYTES_MAX)
        );
    }
}
