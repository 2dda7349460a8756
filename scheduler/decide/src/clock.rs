//! The timestamp that a leader puts on a command; replicated time follows from these.
//!
//! Leases are counted in replicated time, so it must go on at about the pace of real time whatever
//! a machine's clock does. The rule:
//!
//! * It never runs backwards.
//! * A member that knows how old the latest replicated time is (it wrote it itself, or it followed the leader
//!   that did) goes on from there by a monotonic clock. The machine's wall clock only bends the
//!   pace: a wall clock that jumps or is wrong moves replicated time by at most that, and once it is
//!   right again replicated time comes back to it by itself. Where replicated time is ahead, it
//!   goes on more slowly (by one part in [`SLOWER`]); it never stands still. Where it is behind, it
//!   goes on hardly faster (by one part in [`FASTER`]), since holders of leases count by their own
//!   clocks.
//! * A member that does not know it has just started, perhaps after an outage of the whole cluster. It
//!   takes the wall clock, unless that is behind what is known to have passed. This is the only
//!   jump, and it is made once in the life of a process.
//!
//! What this does not do: a process that starts with a clock far ahead and leads before it has
//! followed another member for [`SETTLED_MS`] takes replicated time with it, which comes back at the
//! bent pace. Such a clock cannot be distinguished from the end of a long outage.
//!
//! Pure: both clocks are passed in.

use berth_domain::id::TimeMs;

/// A wall clock that is ahead speeds time up by at most one part in so many.
pub const FASTER: u64 = 64;

/// A wall clock that is behind slows time down by at most one part in so many.
pub const SLOWER: u64 = 8;

/// A follower takes what it sees applied as fresh once it has followed the same leader for so many
/// milliseconds: before, it may be catching up with what is long past.
pub const SETTLED_MS: u64 = 10_000;

/// How often the basis is renewed. Counting from one that is milliseconds old would round the bend
/// away.
const BASIS_MS: u64 = 1_000;

/// How long ago replicated time was what is known of it, by a monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// So many milliseconds.
    Exactly(u64),
    /// So many milliseconds, or any time longer.
    AtLeast(u64),
}

/// Returns the timestamp for a command, by the rule of this module.
#[must_use]
pub fn stamp(known: TimeMs, age: Age, wall: TimeMs) -> TimeMs {
    match age {
        Age::AtLeast(elapsed) => wall.max(TimeMs(known.0.saturating_add(elapsed))),
        Age::Exactly(elapsed) => {
            let after = |elapsed| known.0.saturating_add(elapsed);
            let (slow, fast) = (elapsed - elapsed / SLOWER, elapsed + elapsed / FASTER);
            TimeMs(wall.0.clamp(after(slow), after(fast)))
        }
    }
}

/// What is known of replicated time, and when it became known.
#[derive(Clone, Copy, Debug)]
struct Basis {
    time: TimeMs,
    /// By the monotonic clock.
    at_ms: u64,
    /// Whether it was fresh then.
    is_exact: bool,
}

impl Basis {
    fn age(&self, monotonic_ms: u64) -> Age {
        let elapsed = monotonic_ms.saturating_sub(self.at_ms);
        if self.is_exact {
            Age::Exactly(elapsed)
        } else {
            Age::AtLeast(elapsed)
        }
    }

    /// Returns the latest moment that it would stamp by itself.
    fn reach(&self, monotonic_ms: u64) -> TimeMs {
        let elapsed = monotonic_ms.saturating_sub(self.at_ms);
        TimeMs(self.time.0.saturating_add(elapsed + elapsed / FASTER))
    }
}

/// One member's sense of replicated time.
#[derive(Debug, Default)]
pub struct Clock {
    basis: Option<Basis>,
    /// Replicated time when it was last looked at.
    seen: TimeMs,
    /// The leader that this member follows, and since when by the monotonic clock.
    following: Option<(u64, u64)>,
}

impl Clock {
    /// Records replicated time as this member has it now, and the leader if it is another member.
    /// Called every now and then, on every member.
    pub fn observe(&mut self, time: TimeMs, leader: Option<u64>, monotonic_ms: u64) {
        self.following = match (leader, self.following) {
            (Some(leader), Some((followed, since))) if leader == followed => Some((leader, since)),
            (Some(leader), _) => Some((leader, monotonic_ms)),
            (None, _) => None,
        };
        let settled = |(_, since)| monotonic_ms.saturating_sub(since) >= SETTLED_MS;
        if self.following.is_some_and(settled) && time > self.seen && self.basis.is_some() {
            self.basis = Some(Basis {
                time,
                at_ms: monotonic_ms,
                is_exact: true,
            });
        }
        self.learn(time, monotonic_ms);
    }

    /// Returns what replicated time would be if a command were written now.
    #[must_use]
    pub fn now(&self, time: TimeMs, monotonic_ms: u64, wall: TimeMs) -> TimeMs {
        let basis = self.basis_with(time, monotonic_ms);
        stamp(basis.time, basis.age(monotonic_ms), wall).max(time)
    }

    /// Returns the timestamp for a command that is decided now, on a state whose replicated
    /// time is `time`.
    pub fn stamp(&mut self, time: TimeMs, monotonic_ms: u64, wall: TimeMs) -> TimeMs {
        self.learn(time, monotonic_ms);
        let stamped = self.now(time, monotonic_ms, wall);
        let renew =
            |basis: Basis| !basis.is_exact || monotonic_ms.saturating_sub(basis.at_ms) >= BASIS_MS;
        if self.basis.is_none_or(renew) {
            self.basis = Some(Basis {
                time: stamped,
                at_ms: monotonic_ms,
                is_exact: true,
            });
        }
        stamped
    }

    fn learn(&mut self, time: TimeMs, monotonic_ms: u64) {
        self.basis = Some(self.basis_with(time, monotonic_ms));
        self.seen = self.seen.max(time);
    }

    /// Returns the basis, advanced to `time` where another leader was faster than it would be.
    fn basis_with(&self, time: TimeMs, monotonic_ms: u64) -> Basis {
        match self.basis {
            Some(basis) if time <= basis.reach(monotonic_ms) => basis,
            outrun => Basis {
                time,
                at_ms: monotonic_ms,
                is_exact: outrun.is_some_and(|basis| basis.is_exact),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn the_wall_clock_bends_the_pace_and_no_more() {
        let known = TimeMs(100 * HOUR);
        // (age, wall, expected), all relative to what is known.
        let table = [
            (Age::Exactly(0), 0, 0),
            (Age::Exactly(800), 800, 800),
            (Age::Exactly(800), 810, 810),
            (Age::Exactly(800), 750, 750),
            (Age::Exactly(800), 50 * HOUR, 812),
            (Age::Exactly(800), 0, 700),
            (Age::AtLeast(800), 50 * HOUR, 50 * HOUR),
            (Age::AtLeast(800), 700, 800),
        ];
        for (age, wall, expected) in table {
            let stamped = stamp(known, age, TimeMs(known.0 + wall));
            assert_eq!(stamped.0 - known.0, expected, "{age:?} {wall}");
        }
        for age in [Age::Exactly(9), Age::AtLeast(9)] {
            assert!(stamp(known, age, TimeMs(0)) > known, "it goes on");
            let end = TimeMs(u64::MAX);
            assert_eq!(stamp(end, age, TimeMs(0)), end);
        }
    }

    /// A leader that writes a command every `step_ms`, with a wall clock that is a function of the
    /// monotonic one. Begins and ends with the two times.
    fn lead(
        clock: &mut Clock,
        (mut monotonic, mut time): (u64, u64),
        until: u64,
        step_ms: u64,
        wall: fn(u64) -> u64,
    ) -> (u64, u64) {
        while monotonic < until {
            monotonic += step_ms;
            let stamped = clock.stamp(TimeMs(time), monotonic, TimeMs(wall(monotonic)));
            assert!(stamped.0 >= time, "backwards at {monotonic}");
            time = stamped.0;
        }
        (monotonic, time)
    }

    const START: u64 = 1000 * HOUR;

    /// A clock that was far ahead for one command froze leases until the others had caught up.
    #[test]
    fn a_clock_that_jumps_for_one_command_freezes_nothing() {
        let mut clock = Clock::default();
        let wall = |monotonic| {
            let jump = if monotonic == 5_000 { 24 * HOUR } else { 0 };
            START + monotonic + jump
        };
        let jumped = lead(&mut clock, (0, START), 5_000, 100, wall);
        assert!(jumped.1 <= START + 5_000 + 20, "{}", jumped.1 - START);
        let after = lead(&mut clock, jumped, 10_000, 100, wall);
        assert_eq!(after, (10_000, START + 10_000), "it is back");
    }

    #[test]
    fn a_clock_that_stays_ahead_does_not_take_time_with_it() {
        let right = |monotonic| START + monotonic;
        let ahead = |monotonic| START + monotonic + 365 * 24 * HOUR;
        for step_ms in [1, 100, 7_000] {
            let mut clock = Clock::default();
            let before = lead(&mut clock, (0, START), 20_000, step_ms, right);
            let led = lead(&mut clock, before, 100_000, step_ms, ahead);
            let gained = led.1 - START - led.0;
            assert!((1_100..=1_400).contains(&gained), "{step_ms}: {gained}");
            let back = lead(&mut clock, led, 200_000, step_ms, right);
            assert_eq!(back.1, START + back.0, "{step_ms}: it comes back");
        }
    }

    #[test]
    fn replicated_time_that_is_ahead_goes_on() {
        let mut clock = Clock::default();
        let time = START + HOUR;
        clock.observe(TimeMs(time), None, 0);
        let right = |monotonic| START + monotonic;
        let (_, after) = lead(&mut clock, (0, time), 80_000, 1_000, right);
        let passed = after - time;
        assert!((70_000..=80_000).contains(&passed), "{passed}");
    }

    #[test]
    fn after_an_outage_it_is_the_wall_clock() {
        let mut clock = Clock::default();
        clock.observe(TimeMs(START), None, 0);
        // What was in the log is applied after the start, and is not fresh for that.
        clock.observe(TimeMs(START + 40), None, 20);
        let wall = TimeMs(START + 9 * HOUR);
        assert_eq!(clock.now(TimeMs(START + 50), 30, wall), wall);
        assert_eq!(clock.stamp(TimeMs(START + 50), 30, wall), wall);
    }

    #[test]
    fn a_former_follower_continues_from_replicated_time() {
        let ahead = TimeMs(START + 9 * HOUR);
        let mut clock = Clock::default();
        clock.observe(TimeMs(START - 5 * HOUR), None, 0);
        // It catches up first.
        clock.observe(TimeMs(START - 4 * HOUR), Some(2), 1_000);
        clock.observe(TimeMs(START), Some(2), 1_000 + SETTLED_MS);
        clock.observe(TimeMs(START), None, 16_000);
        let elapsed = 16_000 - 1_000 - SETTLED_MS;
        let stamped = clock.stamp(TimeMs(START + 10), 16_000, ahead);
        assert_eq!(stamped.0, START + elapsed + elapsed / FASTER);
        // Another led meanwhile, and was ahead: its time is kept, and goes on.
        let other = TimeMs(START + HOUR);
        assert_eq!(clock.stamp(other, 17_000, TimeMs(START)), other);
        let next = clock.stamp(other, 17_800, TimeMs(START));
        assert_eq!(next.0, other.0 + 700);
    }

    #[test]
    fn a_change_of_leader_restarts_the_wait() {
        let wall = TimeMs(START + 9 * HOUR);
        let mut clock = Clock::default();
        clock.observe(TimeMs(START), Some(2), 0);
        clock.observe(TimeMs(START), Some(3), SETTLED_MS);
        clock.observe(TimeMs(START + 1), Some(3), SETTLED_MS + 1);
        assert_eq!(clock.now(TimeMs(START + 1), SETTLED_MS + 2, wall), wall);
    }
}
