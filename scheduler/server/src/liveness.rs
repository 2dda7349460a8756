//! Which hosts are heard of: the leader's memory of their agents' reports.
//!
//! Reports do not go through the log; only the change between up and down does. What is known
//! here is lost with leadership, so a new leader counts every host as heard of when it began to
//! lead, and judges nobody before a full limit has passed.
//!
//! Time is passed in, as milliseconds of any clock that does not run backwards.

use std::collections::HashMap;

use berth_domain::host;
use berth_domain::name::HostName;
use berth_state::State;

/// What the leader knows.
#[derive(Debug)]
pub struct Liveness {
    limit_ms: u64,
    /// Since when this member decides; absent while it does not.
    leading_since: Option<u64>,
    heard: HashMap<HostName, u64>,
}

impl Liveness {
    /// Returns the memory of a member that does not lead.
    #[must_use]
    pub fn new(limit_ms: u64) -> Self {
        Self {
            limit_ms,
            leading_since: None,
            heard: HashMap::new(),
        }
    }

    /// Takes note of whether this member decides.
    pub fn lead(&mut self, deciding: bool, now_ms: u64) {
        match (deciding, self.leading_since) {
            (true, None) => {
                self.heard.clear();
                self.leading_since = Some(now_ms);
            }
            (false, Some(_)) => self.leading_since = None,
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Takes note of a report.
    pub fn heard(&mut self, host: &HostName, now_ms: u64) {
        match self.heard.get_mut(host) {
            Some(at) => *at = now_ms,
            None => {
                self.heard.insert(host.clone(), now_ms);
            }
        }
    }

    /// Returns the hosts whose recorded liveness is wrong, with what it should be.
    #[must_use]
    pub fn judge(&self, state: &State, now_ms: u64) -> Vec<(HostName, host::Liveness)> {
        let Some(since) = self.leading_since else {
            return Vec::new();
        };
        let verdict = |name: &HostName, recorded: host::Liveness| {
            let heard = self.heard.get(name).copied();
            let silent_ms = now_ms.saturating_sub(heard.unwrap_or(since).max(since));
            match recorded {
                host::Liveness::Up if silent_ms > self.limit_ms => Some(host::Liveness::Down),
                host::Liveness::Down if heard.is_some() && silent_ms <= self.limit_ms => {
                    Some(host::Liveness::Up)
                }
                host::Liveness::Up | host::Liveness::Down => None,
            }
        };
        state
            .hosts()
            .iter()
            .filter_map(|(name, view)| {
                verdict(name, view.host.liveness).map(|wanted| (name.clone(), wanted))
            })
            .collect()
    }

    /// Forgets hosts that are no longer part of the cluster.
    pub fn forget_removed(&mut self, state: &State) {
        self.heard.retain(|name, _| state.host(name).is_some());
    }
}
