//! What was refused lately before it came into the log: this member's memory of it.
//!
//! A refusal changes nothing, and who asked was told. It is kept here for operators, not in the
//! log: a storm of refusals would fill that, cost every member a write for each, and push what was
//! done out of the audit. So it is lost with this process, and each leader knows its own.
//!
//! Invariant: bounded in number and bytes. The same refused again while it is among the latest
//! counts up and takes no room, so that one client that tries again and again hides nothing.

use std::collections::VecDeque;

use berth_domain::audit::{Asked, Refused};
use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;

/// How many are kept.
const REFUSALS_MAX: usize = 4_096;

/// Their size at most.
const BYTES_MAX: usize = 8 << 20;

/// Among how many of the latest the same is looked for.
const ALIKE_AMONG: usize = 64;

/// What was refused lately, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    kept: VecDeque<Refused>,
    bytes: usize,
    number: u64,
}

impl Refusals {
    /// Takes note of a refusal.
    pub(crate) fn note(&mut self, at: TimeMs, principal: &str, asked: Asked, refusal: Refusal) {
        let is_alike = |refused: &Refused| {
            refused.refusal.reason == refusal.reason
                && refused.principal == principal
                && refused.asked.method == asked.method
                && refused.asked.vm == asked.vm
                && refused.asked.host == asked.host
                && refused.asked.summary == asked.summary
        };
        let latest = self.kept.iter().rev().take(ALIKE_AMONG);
        let mut refused = Refused {
            number: self.number + 1,
            first_at: at,
            last_at: at,
            count: 1,
            principal: principal.to_owned(),
            asked: asked.clone(),
            refusal: refusal.clone(),
        };
        if let Some(back) = latest.into_iter().position(is_alike) {
            let place = self.kept.len() - 1 - back;
            if let Some(before) = self.kept.remove(place) {
                self.bytes -= bytes(&before);
                refused.number = before.number;
                refused.first_at = before.first_at;
                refused.count = before.count + 1;
            }
        } else {
            self.number += 1;
        }
        self.bytes += bytes(&refused);
        self.kept.push_back(refused);
        while self.kept.len() > REFUSALS_MAX || (self.bytes > BYTES_MAX && self.kept.len() > 1) {
            let Some(oldest) = self.kept.pop_front() else {
                return;
            };
            self.bytes -= bytes(&oldest);
        }
    }

    /// Returns them, the latest first.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &Refused> + '_ {
        self.kept.iter().rev()
    }
}

/// Returns about how much memory one takes.
fn bytes(refused: &Refused) -> usize {
    let refusal = &refused.refusal;
    let pairs = refusal.metadata.iter().map(|(k, v)| k.len() + v.len());
    let hosts = refusal.hosts.iter();
    let hosts = hosts.map(|host| size_of_val(host) + host.message.len() + host.cause.len());
    size_of::<Refused>()
        + refused.asked.summary.len()
        + refused.principal.len()
        + refusal.message.len()
        + refusal.hint.as_ref().map_or(0, String::len)
        + pairs.sum::<usize>()
        + refusal
            .causes
            .keys()
            .map(|cause| cause.len() + 64)
            .sum::<usize>()
        + hosts.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use berth_domain::refusal::Code;

    use super::*;

    fn note(refusals: &mut Refusals, at: u64, summary: &str, words: usize) {
        let asked = Asked {
            method: "ScheduleVm".to_owned(),
            request_id: None,
            vm: None,
            host: None,
            summary: summary.to_owned(),
            choice: None,
        };
        let refusal = Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "x".repeat(words));
        refusals.note(TimeMs(at), "me", asked, refusal);
    }

    /// Goal: a client that tries again and again takes the room of one, and is told with what came
    /// between.
    #[test]
    fn a_storm_of_one_request_counts_up() {
        let mut refusals = Refusals::default();
        note(&mut refusals, 1, "other", 10);
        for at in 2..10_000 {
            note(&mut refusals, at, "storm", 10);
            note(&mut refusals, at, "second", 10);
        }
        let seen: Vec<_> = refusals.latest().collect();
        let told = seen.iter().map(|r| (r.number, &*r.asked.summary, r.count));
        let told: Vec<_> = told.collect();
        assert_eq!(
            told,
            [(3, "second", 9_998), (2, "storm", 9_998), (1, "other", 1)]
        );
        assert_eq!((seen[1].first_at.0, seen[1].last_at.0), (2, 9_999));
    }

    /// Goal: number and bytes are bounded whatever is refused.
    #[test]
    fn they_are_bounded() {
        let mut refusals = Refusals::default();
        for number in 0..2 * REFUSALS_MAX as u64 {
            note(&mut refusals, number, &number.to_string(), 10);
        }
        assert_eq!(refusals.latest().count(), REFUSALS_MAX);
        for number in 0..100 {
            note(&mut refusals, number, &format!("long {number}"), 1 << 20);
        }
        assert!(refusals.bytes <= BYTES_MAX && refusals.latest().count() < 10);
        let sum: usize = refusals.latest().map(bytes).sum();
        assert_eq!(refusals.bytes, sum);
    }
}
