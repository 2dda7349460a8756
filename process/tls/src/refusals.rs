//! What the log is told of those who were turned away: bounded, and never silent.
//!
//! Each kind, an address with a reason, is told when it comes up, and again with how often it came
//! since, at most once in a while. Of kinds there are only so many; what is of none of them is counted
//! together.
//!
//! Invariant: whoever is turned away is in the log, by himself or in a count, and however many come, there
//! are no more lines in a while than twice as many as kinds, and one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How many kinds are told apart: anybody who reaches the port can make new ones.
const KINDS_MAX: usize = 256;

/// How often the same is told, and how long a kind is remembered that comes no more.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Of one kind.
    Kind {
        /// Where they came from.
        from: IpAddr,
        /// Why they were turned away.
        why: String,
        /// How many, since it was told last.
        times: u64,
    },
    /// Of kinds for which there was no room.
    Others {
        /// How many, since it was told last.
        times: u64,
    },
}

/// Who was turned away and why, as far as it was not told yet.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    kinds: HashMap<(IpAddr, String), Kind>,
    others: u64,
}

#[derive(Debug)]
struct Kind {
    told_at: Instant,
    untold: u64,
}

impl Refusals {
    /// Takes note of somebody who was turned away, and returns what is told at once.
    pub(crate) fn note(&mut self, now: Instant, from: IpAddr, why: &str) -> Option<Line> {
        if let Some(kind) = self.kinds.get_mut(&(from, why.to_owned())) {
            kind.untold += 1;
            return None;
        }
        if self.kinds.len() >= KINDS_MAX {
            self.others += 1;
            return None;
        }
        let kind = Kind {
            told_at: now,
            untold: 0,
        };
        self.kinds.insert((from, why.to_owned()), kind);
        Some(Line::Kind {
            from,
            why: why.to_owned(),
            times: 1,
        })
    }

    /// Returns what is to be told by now of those who came since it was told last, and forgets the
    /// kinds that came no more. To be asked once in each period.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        self.kinds.retain(|(from, why), kind| {
            if now.saturating_duration_since(kind.told_at) < PERIOD {
                return true;
            }
            let times = std::mem::take(&mut kind.untold);
            kind.told_at = now;
            if times > 0 {
                let (from, why) = (*from, why.clone());
                lines.push(Line::Kind { from, why, times });
            }
            times > 0
        });
        let times = std::mem::take(&mut self.others);
        if times > 0 {
            lines.push(Line::Others { times });
        }
        lines
    }
}

impl Line {
    /// Writes the line.
    pub(crate) fn tell(&self) {
        match self {
            Self::Kind { from, why, times } => {
                tracing::warn!(%from, why, times, "connections were turned away");
            }
            Self::Others { times } => {
                tracing::warn!(times, "connections of other kinds were turned away");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    /// Goal: whatever comes is counted, in few lines. Method: the sum of what is told is what came.
    #[test]
    fn everybody_is_counted_in_few_lines() {
        let mut refusals = Refusals::default();
        let begun = Instant::now();
        let mut lines = Vec::new();
        let mut came = 0;
        for round in 0..5 {
            let now = begun + PERIOD * round;
            for number in 0..1000 {
                // One of them knocks often.
                for _ in 0..(if number == 7 { 50 } else { 1 }) {
                    lines.extend(refusals.note(now, address(number), "it said nothing"));
                    came += 1;
                }
            }
            lines.extend(refusals.due(now + PERIOD));
            assert!(lines.len() <= (KINDS_MAX + 1) * (round as usize + 2));
            assert!(refusals.kinds.len() <= KINDS_MAX);
        }
        for round in 5..8 {
            lines.extend(refusals.due(begun + PERIOD * round));
        }
        let told: u64 = lines
            .iter()
            .map(|line| match line {
                Line::Kind { times, .. } | Line::Others { times } => *times,
            })
            .sum();
        assert_eq!(told, came);
        assert!(refusals.kinds.is_empty(), "what comes no more is forgotten");
    }

    /// Goal: a kind that comes after many others is told by itself again. Once more than 256 kinds had
    /// been told, the log said nothing more until the program was started again.
    #[test]
    fn nobody_uses_up_the_log() {
        let mut refusals = Refusals::default();
        let begun = Instant::now();
        for number in 0..300 {
            let _ = refusals.note(begun, address(number), "no certificate was shown");
        }
        assert_eq!(refusals.due(begun), [Line::Others { times: 44 }]);
        let later = begun + PERIOD;
        assert_eq!(refusals.due(later), []);
        let why = "it is of another authority";
        let told = refusals.note(later, address(9999), why);
        let expected = Line::Kind {
            from: address(9999),
            why: why.to_owned(),
            times: 1,
        };
        assert_eq!(told, Some(expected));
    }
}
