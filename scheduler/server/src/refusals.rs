//! This member's record of recent requests that were refused before they reached the log.
//!
//! A refusal changes nothing, and its client has the response. It is kept here for operators, not in
//! the log: a storm of refusals would fill that, cost every member a write for each, and evict the
//! audit entries of completed requests. So it is lost with this process, and each leader has its own.
//!
//! Invariant: bounded in number and bytes. A repeated refusal that is still among the latest
//! increments a counter and takes no space, so that one retrying client hides nothing.

use std::collections::VecDeque;

use berth_domain::audit::{Refused, RequestSummary};
use berth_domain::id::TimeMs;
use berth_domain::refusal::Refusal;
use berth_replication::Retained;

/// Maximum number of records.
const REFUSALS_MAX: usize = 4_096;

/// Maximum size of all records.
const BYTES_MAX: usize = 8 << 20;

/// How many of the latest records are searched for the same refusal.
const ALIKE_AMONG: usize = 64;

/// Recent refusals, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    kept: VecDeque<Refused>,
    bytes: usize,
    number: u64,
}

impl Refusals {
    /// Records a refusal.
    pub(crate) fn record(
        &mut self,
        at: TimeMs,
        principal: &str,
        request: RequestSummary,
        refusal: Refusal,
    ) {
        let is_alike = |refused: &Refused| {
            refused.refusal.reason == refusal.reason
                && refused.principal == principal
                && refused.request.method == request.method
                && refused.request.vm == request.vm
                && refused.request.host == request.host
                && refused.request.summary == request.summary
        };
        let latest = self.kept.iter().rev().take(ALIKE_AMONG);
        let mut refused = Refused {
            number: self.number + 1,
            first_at: at,
            last_at: at,
            count: 1,
            principal: principal.to_owned(),
            request: request.clone(),
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

    /// Returns how much is retained.
    pub(crate) fn retained(&self) -> Retained {
        Retained::counted("refusals", self.kept.len(), REFUSALS_MAX)
            .with_bytes(self.bytes as u64, BYTES_MAX as u64)
    }

    /// Returns them, the latest first.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &Refused> + '_ {
        self.kept.iter().rev()
    }
}

/// Returns the approximate memory of a record.
fn bytes(refused: &Refused) -> usize {
    let refusal = &refused.refusal;
    let pairs = refusal.metadata.iter().map(|(k, v)| k.len() + v.len());
    let hosts = refusal.hosts.iter();
    let hosts = hosts.map(|host| size_of_val(host) + host.message.len() + host.cause.len());
    size_of::<Refused>()
        + refused.request.summary.len()
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

    fn record(refusals: &mut Refusals, at: u64, summary: &str, words: usize) {
        let request = RequestSummary {
            method: "ScheduleVm".to_owned(),
            request_id: None,
            vm: None,
            host: None,
            summary: summary.to_owned(),
            choice: None,
        };
        let refusal = Refusal::new(Code::ResourceExhausted, "NO_VALID_HOST", "x".repeat(words));
        refusals.record(TimeMs(at), "me", request, refusal);
    }

    /// Goal: a client that retries takes the space of one record, and is listed with what came
    /// between.
    #[test]
    fn a_storm_of_one_request_counts_up() {
        let mut refusals = Refusals::default();
        record(&mut refusals, 1, "other", 10);
        for at in 2..10_000 {
            record(&mut refusals, at, "storm", 10);
            record(&mut refusals, at, "second", 10);
        }
        let seen: Vec<_> = refusals.latest().collect();
        let records = seen
            .iter()
            .map(|r| (r.number, &*r.request.summary, r.count));
        let records: Vec<_> = records.collect();
        assert_eq!(
            records,
            [(3, "second", 9_998), (2, "storm", 9_998), (1, "other", 1)]
        );
        assert_eq!((seen[1].first_at.0, seen[1].last_at.0), (2, 9_999));
    }

    /// Goal: number and bytes are bounded whatever is refused.
    #[test]
    fn they_are_bounded() {
        let mut refusals = Refusals::default();
        for number in 0..2 * REFUSALS_MAX as u64 {
            record(&mut refusals, number, &number.to_string(), 10);
        }
        assert_eq!(refusals.latest().count(), REFUSALS_MAX);
        for number in 0..100 {
            record(&mut refusals, number, &format!("long {number}"), 1 << 20);
        }
        assert!(refusals.bytes <= BYTES_MAX && refusals.latest().count() < 10);
        let sum: usize = refusals.latest().map(bytes).sum();
        assert_eq!(refusals.bytes, sum);
    }
}
