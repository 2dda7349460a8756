//! A moment in the history of a cluster, as it is typed.
//!
//! Not here: how a state of that moment is made, which is in `history`.
//!
//! Invariant: a time names its offset.

use std::str::FromStr;

use berth_domain::id::TimeMs;
use prost_types::Timestamp;

/// A moment in the history of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After the command of this revision.
    Revision(u64),
    /// At this time, by the clocks of the leaders, and as it was typed.
    Time(TimeMs, String),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(revision) = text.parse() {
            return Ok(Self::Revision(revision));
        }
        let rule = "must be a revision, or a time with its offset as 2026-11-27T18:42:31Z";
        let time = text.parse::<Timestamp>().ok().filter(|_| has_offset(text));
        let time = time.ok_or(rule)?;
        let seconds = u64::try_from(time.seconds).map_err(|_| rule)?;
        let millis = u64::try_from(time.nanos).map_err(|_| rule)? / 1_000_000;
        let time = TimeMs(seconds.saturating_mul(1_000).saturating_add(millis));
        Ok(Self::Time(time, text.to_owned()))
    }
}

/// Returns whether a time says which zone it is of: an hour too much or too little restores another state.
fn has_offset(text: &str) -> bool {
    let Some((_, clock)) = text.split_once(['T', 't', ' ']) else {
        return false;
    };
    clock.ends_with(['Z', 'z']) || clock.contains(['+', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_and_times_are_read() {
        let of = |text: &str| text.parse::<Moment>();
        assert_eq!(of("17"), Ok(Moment::Revision(17)));
        let second = 1_000;
        for (text, ms) in [
            ("1970-01-01T00:00:01Z", second),
            ("1970-01-01T01:00:01.5+01:00", second + 500),
            ("1970-01-02t00:00:00z", 86_400 * second),
        ] {
            assert_eq!(of(text), Ok(Moment::Time(TimeMs(ms), text.to_owned())));
        }
        for bad in [
            "",
            "-1",
            "yesterday",
            "2026-11-27",
            "2026-11-27T18:42:31",
            "2026-13-27T18:42:31Z",
            "1969-01-01T00:00:00Z",
            "18446744073709551616",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
