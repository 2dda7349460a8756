//! Liveness of hosts: the leader's record of their agents' heartbeats.
//!
//! Heartbeats do not go through the log; only the change between up and down does. The record
//! is lost with leadership, so a new leader counts every host as having reported when it began to
//! lead, and marks no host down before a full limit has passed.
//!
//! Time is passed in, as milliseconds of any clock that does not run backwards.

use std::collections::HashMap;
use std::sync::Arc;

use berth_domain::fence::lapsed_after_ms;
use berth_domain::host;
use berth_domain::id::Incarnation;
use berth_domain::name::HostName;
use berth_domain::signals::{Measured, MemorySignals};
use berth_state::State;

/// The heartbeats and memory signals known to the leader.
#[derive(Debug)]
pub struct Liveness {
    limit_ms: u64,
    /// Since when this member decides; absent while it does not.
    leading_since: Option<u64>,
    last_heartbeat: HashMap<HostName, u64>,
    /// As `last_heartbeat`, but never removed while this member leads: until when an agent may count on
    /// its lease depends on nothing else.
    renewed: HashMap<HostName, u64>,
    /// The latest memory signals of each host, and their time. Placement does not depend on them, so they
    /// are stored nowhere else: a new leader does not have them until an agent reports.
    signals: HashMap<HostName, Signals>,
}

/// The memory signals of a host.
#[derive(Debug)]
struct Signals {
    /// May be before this process began.
    age_ms: u64,
    /// When the age was that.
    at_ms: u64,
    signals: Arc<MemorySignals>,
}

impl Liveness {
    /// Returns the record of a member that does not lead.
    #[must_use]
    pub fn new(limit_ms: u64) -> Self {
        Self {
            limit_ms,
            leading_since: None,
            last_heartbeat: HashMap::new(),
            renewed: HashMap::new(),
            signals: HashMap::new(),
        }
    }

    /// Records whether this member leads.
    pub fn lead(&mut self, deciding: bool, now_ms: u64) {
        match (deciding, self.leading_since) {
            (true, None) => {
                self.last_heartbeat.clear();
                self.renewed.clear();
                self.leading_since = Some(now_ms);
            }
            (false, Some(_)) => {
                self.leading_since = None;
                // They would become stale here while the new leader receives newer ones.
                self.signals.clear();
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Records a heartbeat.
    pub fn record_heartbeat(&mut self, host: &HostName, now_ms: u64) {
        record(&mut self.last_heartbeat, host, now_ms);
        record(&mut self.renewed, host, now_ms);
    }

    /// Records that a heartbeat is about to be acknowledged, from which an agent may count a lease.
    pub fn renew(&mut self, host: &HostName, now_ms: u64) {
        record(&mut self.renewed, host, now_ms);
    }

    /// Records the memory signals that a host's agent measured.
    pub fn measured(&mut self, host: &HostName, measured: Measured, now_ms: u64) {
        if self.leading_since.is_none() {
            return;
        }
        let signals = Signals {
            age_ms: measured.age_ms,
            at_ms: now_ms,
            signals: measured.signals,
        };
        self.signals.insert(host.clone(), signals);
    }

    /// Returns the latest memory signals of a host, with their age; `None` where they are unknown,
    /// as to a member that does not lead, or to a new leader until the agent reports.
    #[must_use]
    pub fn signals(&self, host: &HostName, now_ms: u64) -> Option<Measured> {
        let known = self.signals.get(host)?;
        Some(Measured {
            age_ms: known
                .age_ms
                .saturating_add(now_ms.saturating_sub(known.at_ms)),
            signals: known.signals.clone(),
        })
    }

    /// Returns the hosts whose agents have stopped their guests by themselves since their heartbeats
    /// were missed, with the incarnations of these agents. A lease that an earlier leader granted began before this
    /// one led, as agents that count a lease are answered by confirmed leaders only; so it has
    /// lapsed a full term after that.
    #[must_use]
    pub fn lapsed(&self, state: &State, now_ms: u64) -> Vec<(HostName, Incarnation)> {
        let Some(since) = self.leading_since else {
            return Vec::new();
        };
        if state.policy().self_fence_ms.is_none() {
            return Vec::new();
        }
        let has_lapsed = |host: &host::Host| {
            let promised_ms = host.report.self_fence_ms;
            let is_fenced = host.fenced.as_ref().is_some_and(|f| !f.reported_since);
            let renewed = self.renewed.get(&host.name).copied().unwrap_or(since);
            let silent_ms = now_ms.saturating_sub(renewed.max(since));
            host.liveness == host::Liveness::Down
                && !is_fenced
                && promised_ms > 0
                && !state.receives(&host.name)
                && silent_ms > lapsed_after_ms(promised_ms)
        };
        let hosts = state.hosts().iter().map(|(_, view)| &view.host);
        hosts
            .filter(|host| has_lapsed(host))
            .map(|host| (host.name.clone(), host.report.incarnation))
            .collect()
    }

    /// Returns whether this member has led since then and heard nothing of the agent of a host.
    #[must_use]
    pub fn is_silent_since(&self, host: &HostName, since_ms: u64) -> bool {
        let has_led = self.leading_since.is_some_and(|since| since <= since_ms);
        let last = self.last_heartbeat.get(host);
        has_led && last.is_none_or(|at| *at <= since_ms)
    }

    /// Removes the last heartbeat of a host: it was fenced, and earlier reports no longer count.
    pub fn forget(&mut self, host: &HostName) {
        self.last_heartbeat.remove(host);
        self.signals.remove(host);
    }

    /// Returns the hosts whose recorded liveness is outdated, with the new one.
    #[must_use]
    pub fn transitions(&self, state: &State, now_ms: u64) -> Vec<(HostName, host::Liveness)> {
        let Some(since) = self.leading_since else {
            return Vec::new();
        };
        let transition = |name: &HostName, recorded: host::Liveness| {
            let last = self.last_heartbeat.get(name).copied();
            let silent_ms = now_ms.saturating_sub(last.unwrap_or(since).max(since));
            match recorded {
                host::Liveness::Up if silent_ms > self.limit_ms => Some(host::Liveness::Down),
                host::Liveness::Down if last.is_some() && silent_ms <= self.limit_ms => {
                    Some(host::Liveness::Up)
                }
                host::Liveness::Up | host::Liveness::Down => None,
            }
        };
        state
            .hosts()
            .iter()
            .filter_map(|(name, view)| {
                transition(name, view.host.liveness).map(|next| (name.clone(), next))
            })
            .collect()
    }

    /// Removes hosts that are no longer part of the cluster.
    pub fn forget_removed(&mut self, state: &State) {
        self.last_heartbeat
            .retain(|name, _| state.host(name).is_some());
        self.renewed.retain(|name, _| state.host(name).is_some());
        self.signals.retain(|name, _| state.host(name).is_some());
    }
}

fn record(map: &mut HashMap<HostName, u64>, host: &HostName, now_ms: u64) {
    match map.get_mut(host) {
        Some(at) => *at = now_ms,
        None => {
            map.insert(host.clone(), now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    use berth_domain::host::{HostReport, Liveness as Seen};
    use berth_domain::id::{Incarnation, ProviderId, TimeMs};
    use berth_domain::policy::SchedulingPolicy;
    use berth_domain::topology::{HostCell, HostTopology};
    use berth_domain::version::ServiceVersion;
    use berth_state::command::{Command, Envelope};
    use uuid::Uuid;

    fn name() -> HostName {
        HostName::new("h1").unwrap()
    }

    fn state(liveness: Seen) -> State {
        promising(liveness, 0, None)
    }

    fn promising(liveness: Seen, self_fence_ms: u64, policy: Option<u64>) -> State {
        let cell = HostCell {
            id: berth_domain::topology::CellId(0),
            socket: None,
            shared: "0".parse().unwrap(),
            dedicated: "".parse().unwrap(),
            cores: vec!["0".parse().unwrap()],
            memory_mib: 1,
            pages: Vec::new(),
        };
        let report = HostReport {
            networks: Vec::new(),
            agent_address: String::new(),
            incarnation: Incarnation(Uuid::nil()),
            service_version: ServiceVersion::CURRENT,
            driver: "sim".into(),
            migration_uri: String::new(),
            topology: Arc::new(HostTopology::new(vec![cell], vec![vec![10]]).unwrap()),
            memory_reserved_mib: 0,
            disk_gib: 0,
            storage_id: String::new(),
            traits: Default::default(),
            platform: Default::default(),
            self_fence_ms,
            regions: Vec::new(),
            cpu: None,
        };
        let register = Command::RegisterHost {
            host: name(),
            provider: ProviderId(Uuid::nil()),
            report,
        };
        let note = Command::SetLiveness {
            host: name(),
            liveness,
        };
        let policy = Command::SetPolicy(SchedulingPolicy {
            self_fence_ms: policy,
            ..SchedulingPolicy::default()
        });
        let mut state = State::new();
        for (index, command) in (1..).zip([register, note, policy]) {
            let envelope = Envelope {
                at: TimeMs(0),
                principal: String::new(),
                request: None,
                audit: None,
                command,
            };
            state.speculate(index, &envelope).unwrap();
        }
        state
    }

    #[test]
    fn a_follower_changes_no_host() {
        let liveness = Liveness::new(100);
        assert!(liveness.transitions(&state(Seen::Up), 1_000_000).is_empty());
    }

    #[test]
    fn a_new_leader_waits_a_full_limit() {
        let mut liveness = Liveness::new(100);
        liveness.lead(true, 5000);
        assert!(liveness.transitions(&state(Seen::Up), 5100).is_empty());
        let verdict = liveness.transitions(&state(Seen::Up), 5101);
        assert_eq!(verdict, [(name(), Seen::Down)]);
    }

    #[test]
    fn reports_keep_a_host_up_and_bring_it_back() {
        let mut liveness = Liveness::new(100);
        liveness.lead(true, 0);
        assert!(liveness.transitions(&state(Seen::Down), 50).is_empty());
        liveness.record_heartbeat(&name(), 60);
        assert!(liveness.transitions(&state(Seen::Up), 160).is_empty());
        assert_eq!(
            liveness.transitions(&state(Seen::Down), 160),
            [(name(), Seen::Up)]
        );
        assert_eq!(
            liveness.transitions(&state(Seen::Up), 161),
            [(name(), Seen::Down)]
        );
    }

    /// Goal: a lapsed lease is seen neither too early nor where nothing was promised, and what was
    /// forgotten for another reason does not shorten it.
    #[test]
    fn a_lease_lapses_after_what_was_promised_and_a_margin() {
        let after = lapsed_after_ms(10_000);
        let down = promising(Seen::Down, 10_000, Some(5_000));
        let run = vec![(name(), Incarnation(Uuid::nil()))];
        let mut liveness = Liveness::new(100);
        assert!(liveness.lapsed(&down, u64::MAX).is_empty(), "it follows");
        liveness.lead(true, 50);
        liveness.record_heartbeat(&name(), 1_000);
        liveness.forget(&name());
        assert!(liveness.lapsed(&down, 1_000 + after).is_empty());
        assert_eq!(liveness.lapsed(&down, 1_001 + after), run);
        for other in [
            promising(Seen::Up, 10_000, Some(5_000)),
            promising(Seen::Down, 0, Some(5_000)),
            promising(Seen::Down, 10_000, None),
        ] {
            assert!(liveness.lapsed(&other, u64::MAX).is_empty());
        }
        // A new leader does not know what the one before it granted.
        liveness.lead(false, 1_000 + after);
        liveness.lead(true, 1_000 + after);
        assert!(liveness.lapsed(&down, 1_000 + 2 * after).is_empty());
        assert_eq!(liveness.lapsed(&down, 1_001 + 2 * after), run);
    }

    /// Goal: signals grow old, the newest counts, and they are kept by the leader alone.
    #[test]
    fn signals_are_the_leaders_and_grow_old() {
        let measured = |age_ms| Measured {
            age_ms,
            signals: Arc::default(),
        };
        let age = |liveness: &Liveness, now_ms| liveness.signals(&name(), now_ms).map(|m| m.age_ms);
        let mut liveness = Liveness::new(100);
        liveness.measured(&name(), measured(1), 10);
        assert_eq!(age(&liveness, 10), None, "it follows");
        liveness.lead(true, 10);
        liveness.measured(&name(), measured(5), 20);
        assert_eq!(age(&liveness, 20), Some(5));
        assert_eq!(age(&liveness, 1_020), Some(1_005));
        liveness.measured(&name(), measured(2), 1_020);
        assert_eq!(age(&liveness, 1_020), Some(2));
        liveness.forget_removed(&state(Seen::Up));
        assert_eq!(age(&liveness, 1_020), Some(2), "the host is there");
        liveness.forget_removed(&State::new());
        assert_eq!(age(&liveness, 1_020), None, "the host is not");
        liveness.measured(&name(), measured(2), 1_030);
        liveness.forget(&name());
        assert_eq!(age(&liveness, 1_030), None, "it was fenced");
        liveness.measured(&name(), measured(2), 1_030);
        liveness.lead(false, 1_040);
        assert_eq!(age(&liveness, 1_040), None);
        liveness.lead(true, 1_050);
        assert_eq!(age(&liveness, 1_050), None, "it leads again");
    }

    #[test]
    fn heartbeats_of_an_earlier_leadership_are_forgotten() {
        let mut liveness = Liveness::new(100);
        liveness.lead(true, 0);
        liveness.record_heartbeat(&name(), 10);
        liveness.lead(false, 20);
        liveness.lead(true, 30);
        assert!(liveness.transitions(&state(Seen::Down), 40).is_empty());
    }
}
