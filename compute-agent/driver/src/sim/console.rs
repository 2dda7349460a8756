//! The console of a simulated guest: it counts, one line at a time, and repeats each line that is typed.
//!
//! The count goes on across a migration, so that a reader can distinguish a guest that moved from one
//! that was started again.
//!
//! Invariant: bounded (`KEPT_MAX`); offsets count all bytes ever written, kept or not.

use berth_domain::id::TimeMs;
use serde::{Deserialize, Serialize};

use crate::driver::{CONSOLE_CHUNK_MAX, Chunk, ConsoleLog};

/// How much output is kept.
const KEPT_MAX: usize = 64 * 1024;

/// The time between two lines.
const LINE_MS: u64 = 100;

/// The most lines that are written out at one look; a longer silence is skipped over.
const LINES_MAX: u64 = (KEPT_MAX as u64) / LINE_LENGTH;

/// The length of a line, `count 0000000042` and its end.
const LINE_LENGTH: u64 = 17;

/// The longest line that is repeated; what is typed beyond it is lost.
const TYPED_MAX: usize = 256;

/// A console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Console {
    /// The offset of the first byte that is kept.
    offset: u64,
    kept: String,
    count: u64,
    /// When the next line is due; absent while the guest stands still.
    next_at: Option<TimeMs>,
    /// What was typed of a line that has no end yet.
    #[serde(default)]
    typed: String,
    /// Which log it is.
    #[serde(default)]
    log: String,
}

impl Console {
    /// Returns the console of a guest that starts now; `number` differs for each that its host starts.
    #[must_use]
    pub fn start(now: TimeMs, number: u64) -> Self {
        let mut console = Self {
            offset: 0,
            kept: String::new(),
            count: 0,
            next_at: None,
            typed: String::new(),
            log: format!("since {}, {number}", now.0),
        };
        console.write("guest is up\n");
        console.resume(now);
        console
    }

    /// Lets the guest stand still.
    pub fn pause(&mut self, now: TimeMs) {
        self.run_to(now);
        self.next_at = None;
    }

    /// Lets the guest go on.
    pub fn resume(&mut self, now: TimeMs) {
        self.next_at = Some(TimeMs(now.0 + LINE_MS));
    }

    /// Types a text. The guest repeats it in brackets, line by line; one that stands still hears nothing.
    pub fn input(&mut self, now: TimeMs, text: &str) {
        self.run_to(now);
        if self.next_at.is_none() {
            return;
        }
        for typed in text.chars() {
            match typed {
                '\n' | '\r' => {
                    let line = std::mem::take(&mut self.typed);
                    self.write(&format!("[{line}]\n"));
                }
                _ if self.typed.len() < TYPED_MAX => self.typed.push(typed),
                _ => {}
            }
        }
    }

    /// Returns its log: one of its own from each start on, which the guest takes along.
    pub fn log(&mut self, now: TimeMs) -> ConsoleLog {
        ConsoleLog {
            id: self.log.clone(),
            end: self.end(now),
        }
    }

    /// Returns the offset of what is written next.
    fn end(&mut self, now: TimeMs) -> u64 {
        self.run_to(now);
        self.offset + self.kept.len() as u64
    }

    /// Returns what was written from `offset` on.
    pub fn read(&mut self, now: TimeMs, offset: u64) -> Chunk {
        let end = self.end(now);
        let from = offset.clamp(self.offset, end);
        let start = usize::try_from(from - self.offset).expect("within what is kept");
        let bytes = &self.kept.as_bytes()[start..];
        Chunk {
            offset: from,
            bytes: bytes[..bytes.len().min(CONSOLE_CHUNK_MAX)].to_vec(),
        }
    }

    /// Returns how far the guest has counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    fn run_to(&mut self, now: TimeMs) {
        let Some(next) = self.next_at else { return };
        if now < next {
            return;
        }
        let due = (now.0 - next.0) / LINE_MS + 1;
        let skipped = due.saturating_sub(LINES_MAX);
        if skipped > 0 {
            self.offset += self.kept.len() as u64 + skipped * LINE_LENGTH;
            self.kept.clear();
            self.count += skipped;
        }
        for _ in skipped..due {
            self.count += 1;
            let line = format!("count {:010}\n", self.count);
            self.write(&line);
        }
        self.next_at = Some(TimeMs(next.0 + due * LINE_MS));
    }

    fn write(&mut self, text: &str) {
        self.kept.push_str(text);
        if self.kept.len() > KEPT_MAX {
            let mut cut = self.kept.len() - KEPT_MAX;
            while !self.kept.is_char_boundary(cut) {
                cut += 1;
            }
            self.kept.drain(..cut);
            self.offset += cut as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_stands_still_and_goes_on() {
        let mut console = Console::start(TimeMs(0), 0);
        let chunk = console.read(TimeMs(250), 0);
        let text = String::from_utf8(chunk.bytes).unwrap();
        assert_eq!(text, "guest is up\ncount 0000000001\ncount 0000000002\n");
        console.pause(TimeMs(310));
        console.input(TimeMs(320), "lost");
        assert_eq!(console.count(), 3);
        console.resume(TimeMs(5000));
        console.input(TimeMs(5150), "hel");
        console.input(TimeMs(5150), "lo\n");
        let rest = console.read(TimeMs(5150), text.len() as u64);
        assert_eq!(rest.offset, text.len() as u64);
        assert_eq!(rest.bytes, b"count 0000000003\ncount 0000000004\n[hello]\n");
    }

    #[test]
    fn a_long_silence_is_bounded_and_offsets_stay_true() {
        let mut console = Console::start(TimeMs(0), 0);
        let chunk = console.read(TimeMs(100_000_000), 0);
        assert_eq!(console.count(), 1_000_000);
        assert!(chunk.offset > 0 && chunk.bytes.len() <= KEPT_MAX);
        assert_eq!(
            chunk.offset + chunk.bytes.len() as u64,
            12 + 1_000_000 * LINE_LENGTH
        );
        assert!(console.read(TimeMs(100_000_000), u64::MAX).bytes.is_empty());
    }
}
