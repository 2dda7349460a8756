//! Which endpoint an attempt of a call is made at, and how long is waited before.
//!
//! Not here: what an answer means, and when a call is given up.

use std::time::Duration;

use super::Policy;

/// Where the attempts of one call go. Hints are followed at once, but only so often in a row: two
/// members that name each other must not make a busy loop.
pub(super) struct Route {
    /// How many attempts have gone by since the last wait.
    hops: usize,
    wait: Duration,
    policy: Policy,
}

impl Route {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            hops: 0,
            wait: policy.wait_min,
            policy,
        }
    }

    /// Returns the next address and how long to wait before.
    pub(super) fn next(
        &mut self,
        hint: Option<String>,
        failed: &str,
        endpoints: &[String],
    ) -> (String, Duration) {
        let address = hint.unwrap_or_else(|| {
            let position = endpoints.iter().position(|e| e == failed);
            endpoints[position.map_or(0, |p| (p + 1) % endpoints.len())].clone()
        });
        self.hops += 1;
        // A round, after which it waits, are as many as there are endpoints.
        if self.hops < endpoints.len().max(2) && address != failed {
            return (address, Duration::ZERO);
        }
        self.hops = 0;
        let wait = self.wait;
        self.wait = (wait * 2).min(self.policy.wait_max);
        (address, wait)
    }
}
