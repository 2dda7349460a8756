//! Proof that a host is dead: without it nothing that may still run there is started elsewhere.
//!
//! It decides which proof is accepted. It fences no host itself: that is for the conductor's fence
//! command, for an operator, or for the agent that stops its own guests.
//!
//! Invariant: a proof is about one run of a host's agent, and ends for good when the host
//! reports again, be it by that run or a later one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::{Host, Liveness};
use crate::id::{Incarnation, TimeMs};
use crate::name::HostName;
use crate::refusal::{Code, Refusal};

/// How much of what a fence command printed is kept, in bytes.
pub const OUTPUT_MAX: usize = 4096;

/// What the clocks of an agent and of a leader may differ by: one part in so many.
const DRIFT: u64 = 100;

/// What is waited for beyond that.
const MARGIN_MS: u64 = 1_000;

/// Returns after how long without a report, by a leader's own clock, nothing runs any more on a
/// host whose agent has promised that so long after its last answered report nothing would, by its
/// own clock ([`HostReport::self_fence_ms`](crate::host::HostReport::self_fence_ms)).
///
/// The agent counts from when it sent the report and the leader from when it had taken it, which is
/// later; so only the rates of the two clocks matter, and never what time they show.
#[must_use]
pub fn lapsed_after_ms(promised_ms: u64) -> u64 {
    promised_ms
        .saturating_add(promised_ms / DRIFT)
        .saturating_add(MARGIN_MS)
}

/// The method by which a host was fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Method {
    /// The configured fence command succeeded.
    FenceCommand,
    /// An operator confirmed that it is off.
    Operator,
    /// Its agent, which counts a lease, has stopped its guests by itself.
    SelfFenced,
}

impl Method {
    /// All of them, for tables.
    pub const ALL: [Self; 3] = [Self::FenceCommand, Self::Operator, Self::SelfFenced];

    /// Returns the word for it, as requests and audit entries have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FenceCommand => "FENCE_COMMAND",
            Self::Operator => "OPERATOR",
            Self::SelfFenced => "SELF_FENCED",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FenceCommand => "the fence command",
            Self::Operator => "an operator",
            Self::SelfFenced => "its own agent",
        })
    }
}

/// The record that a host was fenced.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fenced {
    /// The method.
    #[serde(rename = "how")]
    pub method: Method,
    /// The principal, as `unverified:127.0.0.1`.
    pub by: String,
    /// When, in replicated time.
    pub at: TimeMs,
    /// The run of the host's agent that was known then.
    pub incarnation: Incarnation,
    /// What the fence command printed, the first [`OUTPUT_MAX`] bytes of it.
    pub output: String,
    /// Whether the host has reported since then: it is no proof any more, but the host stays closed
    /// until it is known that none of the guests that it lost runs.
    #[serde(rename = "heard_since")]
    pub reported_since: bool,
}

/// What allows to start the guests of a host elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The host that is dead.
    pub host: HostName,
    /// Why that is believed.
    pub fenced: Fenced,
    /// How long ago it was fenced.
    pub age_ms: u64,
}

/// Checks whether the guests of a host may be started elsewhere at `now`.
///
/// # Errors
///
/// When its agent reports, or when there is no proof that its guests are dead; the hint states how
/// that is done.
pub fn may_evacuate(host: &Host, now: TimeMs) -> Result<Proof, Refusal> {
    let name = &host.name;
    let refuse = |reason, message: String| {
        Refusal::new(Code::FailedPrecondition, reason, message).with("host", name)
    };
    match host.liveness {
        Liveness::Up => {
            return Err(refuse(
                "HOST_IS_ALIVE",
                format!("the agent of host {name} is heard of, so its vms may run"),
            )
            .with_hint(format!(
                "migrate its vms away; where it is broken all the same: berth host fence {name}"
            )));
        }
        Liveness::Down => {}
    }
    let how_to = || {
        format!(
            "berth host fence {name} runs the fence command; where you have seen yourself that it \
             is off: berth host fence {name} --confirm-off"
        )
    };
    let Some(fenced) = &host.fenced else {
        let (of_itself, by_itself) = match host.report.self_fence_ms {
            0 => (
                "its agent has not promised to stop them by itself",
                "not promised",
            ),
            _ => (
                "its agent stops them by itself, but may not have yet",
                "promised",
            ),
        };
        let message =
            format!("nothing shows that host {name} is dead, so its vms may run; {of_itself}");
        return Err(refuse("HOST_NOT_FENCED", message)
            .with("self_fence", by_itself)
            .with_hint(how_to()));
    };
    if fenced.reported_since {
        return Err(refuse(
            "HOST_NOT_FENCED",
            format!("host {name} came back after it was fenced, and its vms may run again"),
        )
        .with_hint(how_to()));
    }
    Ok(Proof {
        host: name.clone(),
        fenced: fenced.clone(),
        age_ms: now.0.saturating_sub(fenced.at.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use uuid::Uuid;

    use crate::host::HostReport;
    use crate::id::{Generation, ProviderId};
    use crate::topology::{CellId, HostCell, HostTopology};
    use crate::version::ServiceVersion;

    fn host(liveness: Liveness, fenced: Option<bool>) -> Host {
        let cell = HostCell {
            id: CellId(0),
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
            self_fence_ms: 0,
            regions: Vec::new(),
            cpu: None,
        };
        Host {
            name: HostName::new("h1").unwrap(),
            provider: ProviderId(Uuid::nil()),
            report,
            liveness,
            cordoned: false,
            cordoned_by: None,
            shape_refused: None,
            generation: Generation(1),
            created_at: TimeMs(0),
            unknown: Vec::new(),
            compared: 0,
            hit: Default::default(),
            failed_volumes: Vec::new(),
            unreported: false,
            orphans: Default::default(),
            registered_version: crate::version::ServiceVersion::OLDEST,
            fenced: fenced.map(|reported_since| Fenced {
                method: Method::Operator,
                by: "unverified:127.0.0.1".to_owned(),
                at: TimeMs(1_000),
                incarnation: Incarnation(Uuid::nil()),
                output: String::new(),
                reported_since,
            }),
        }
    }

    /// Goal: only a host that is silent and was fenced since it reported last is given up.
    /// Method: all combinations.
    #[test]
    fn only_a_dead_host_is_evacuated() {
        use Liveness::{Down, Up};
        let table = [
            (Up, None, Err("HOST_IS_ALIVE")),
            (Up, Some(false), Err("HOST_IS_ALIVE")),
            (Up, Some(true), Err("HOST_IS_ALIVE")),
            (Down, None, Err("HOST_NOT_FENCED")),
            (Down, Some(true), Err("HOST_NOT_FENCED")),
            (Down, Some(false), Ok(5_000)),
        ];
        for (liveness, fenced, expected) in table {
            let verdict = may_evacuate(&host(liveness, fenced), TimeMs(6_000));
            let result = verdict.as_ref().map(|proof| proof.age_ms);
            let result = result.map_err(|refusal| &*refusal.reason);
            assert_eq!(result, expected, "{liveness:?} {fenced:?}");
            if let Err(refusal) = verdict {
                assert!(refusal.hint.unwrap().contains("berth host fence h1"));
            }
        }
    }

    #[test]
    fn a_fenced_host_is_closed_also_when_it_is_back() {
        let mut host = host(Liveness::Down, Some(false));
        host.record_liveness(Liveness::Down);
        assert!(may_evacuate(&host, TimeMs(6_000)).is_ok());
        host.record_liveness(Liveness::Up);
        assert!(!host.is_open());
        host.record_liveness(Liveness::Down);
        assert!(may_evacuate(&host, TimeMs(6_000)).is_err());
    }

    /// Goal: the wait covers a clock of the agent that is slower by a hundredth, however long it
    /// is.
    #[test]
    fn a_lease_has_lapsed_later_than_a_slow_agent_has_stopped() {
        for promised in [0, 1, 99, 5_000, 60_000, 3_600_000] {
            let slow = promised + promised / 100;
            assert!(lapsed_after_ms(promised) >= slow + 1_000);
        }
        assert_eq!(lapsed_after_ms(u64::MAX), u64::MAX);
    }
}
