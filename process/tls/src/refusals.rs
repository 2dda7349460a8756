//! The log lines of refused connections: bounded in number, and complete in their counts.
//!
//! Each kind, an address with a reason, is logged when it first occurs, and again with the count since
//! then, at most once in a period. The number of kinds is limited; refusals beyond it are counted
//! together.
//!
//! Invariant: each refused connection is in the log, by itself or in a count, and in a period there are
//! at most two lines for each kind and one for the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How many kinds are distinguished: any client that reaches the port can cause new ones.
const KINDS_MAX: usize = 256;

/// How often the same kind is logged, and how long a kind without new refusals is remembered.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Of one kind.
    Kind {
        /// The source address.
        from: IpAddr,
        /// Why they were refused.
        why: String,
        /// How many, since the last line.
        times: u64,
    },
    /// Of kinds beyond the limit.
    Others {
        /// How many, since the last line.
        times: u64,
    },
}

/// The kinds of refusals, and the counts that are not logged yet.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    kinds: HashMap<(IpAddr, String), Kind>,
    others: u64,
}

#[derive(Debug)]
struct Kind {
    logged_at: Instant,
    unlogged: u64,
}

impl Refusals {
    /// Counts a refused connection, and returns the line to log at once, if any.
    pub(crate) fn record(&mut self, now: Instant, from: IpAddr, why: &str) -> Option<Line> {
        if let Some(kind) = self.kinds.get_mut(&(from, why.to_owned())) {
            kind.unlogged += 1;
            return None;
        }
        if self.kinds.len() >= KINDS_MAX {
            self.others += 1;
            return None;
        }
        let kind = Kind {
            logged_at: now,
            unlogged: 0,
        };
        self.kinds.insert((from, why.to_owned()), kind);
        Some(Line::Kind {
            from,
            why: why.to_owned(),
            times: 1,
        })
    }

    /// Returns the lines that are due for refusals since the last ones, and forgets the kinds without
    /// any. To be called once in each period.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        self.kinds.retain(|(from, why), kind| {
            if now.saturating_duration_since(kind.logged_at) < PERIOD {
                return true;
            }
            let times = std::mem::take(&mut kind.unlogged);
            kind.logged_at = now;
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
    /// Writes the line to the log.
    pub(crate) fn log(&self) {
        match self {
            Self::Kind { from, why, times } => {
                tracing::warn!(%from, why, times, "connections refused");
            }
            Self::Others { times } => {
                tracing::warn!(times, "connections of other kinds refused");
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

    /// Goal: all refusals are counted, in few lines. Method: the sum of the counts is their number.
    #[test]
    fn all_are_counted_in_few_lines() {
        let mut refusals = Refusals::default();
        let begun = Instant::now();
        let mut lines = Vec::new();
        let mut came = 0;
        for round in 0..5 {
            let now = begun + PERIOD * round;
            for number in 0..1000 {
                // One of them connects often.
                for _ in 0..(if number == 7 { 50 } else { 1 }) {
                    lines.extend(refusals.record(now, address(number), "it sent nothing"));
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
        let counted: u64 = lines
            .iter()
            .map(|line| match line {
                Line::Kind { times, .. } | Line::Others { times } => *times,
            })
            .sum();
        assert_eq!(counted, came);
        assert!(
            refusals.kinds.is_empty(),
            "kinds without refusals are forgotten"
        );
    }

    /// Goal: a kind that comes after many others is logged by itself again. Once more than 256 kinds had
    /// been logged, nothing more was until the program was restarted.
    #[test]
    fn no_address_uses_up_the_log() {
        let mut refusals = Refusals::default();
        let begun = Instant::now();
        for number in 0..300 {
            let _ = refusals.record(begun, address(number), "no certificate was shown");
        }
        assert_eq!(refusals.due(begun), [Line::Others { times: 44 }]);
        let later = begun + PERIOD;
        assert_eq!(refusals.due(later), []);
        let why = "it is of another authority";
        let line = refusals.record(later, address(9999), why);
        let expected = Line::Kind {
            from: address(9999),
            why: why.to_owned(),
            times: 1,
        };
        assert_eq!(line, Some(expected));
    }
}
