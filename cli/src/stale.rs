//! Reads that one scheduler answers from its own state: requested with `--stale`, or because there is no
//! leader.
//!
//! Not here: which commands read so (`reading`).
//!
//! ```text
//!   Reading::Leader         every read through the leader
//!   Reading::LeaderOrStale  through the leader; if there is none, as Stale
//!   Reading::Stale          the first scheduler that answers
//!   Reading::Revision       the same, from its state at a revision
//! ```
//!
//! Invariant: standard error states what such an answer is worth before anything of it is printed, once per
//! scheduler; standard output is the same as that of any other read.

use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use berth_proto::client::{NO_LEADER, UNREACHABLE};
use berth_proto::consistency::Staleness;
use serde_json::json;

use crate::output::{self, Format};

/// How long a read waits for a leader before the schedulers are read one by one, if it may be stale.
pub(crate) const LEADER_PATIENCE: Duration = Duration::from_secs(4);

/// How a command reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Through the leader.
    #[default]
    Leader,
    /// Through the leader; from one scheduler if there is no leader.
    LeaderOrStale,
    /// From one scheduler.
    Stale,
    /// From one scheduler, at an earlier revision.
    Revision(u64),
}

/// Returns whether a refusal was made because no leader answered.
pub(crate) fn is_without_leader(refusal: &Refusal) -> bool {
    refusal.reason == NO_LEADER || refusal.reason == UNREACHABLE
}

/// Returns the refusal of a command that would change something.
pub(crate) fn not_a_read() -> Refusal {
    let message = "--stale is for commands that only read: a stale answer comes from one scheduler, \
                   which can change nothing";
    Refusal::new(Code::InvalidArgument, "STALE_NOT_A_READ", message)
        .with_hint("repeat the command without --stale; nothing was changed")
}

/// Returns the refusal of a scheduler that answers without looking at the revision.
pub(crate) fn without_revisions(address: &str) -> Refusal {
    let message = format!("the scheduler at {address} does not support --at");
    Refusal::new(Code::Unimplemented, "REVISION_UNSUPPORTED", message)
        .with_hint("upgrade it, name another one, or read backups with --backup")
}

/// One scheduler that answers alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its address.
    pub address: String,
    /// What its answers are worth; absent if it does not support stale reads.
    pub staleness: Option<Staleness>,
    /// Whether they are of an earlier revision, which was requested.
    pub is_earlier: bool,
}

impl Source {
    /// Returns whether it knows a leader.
    pub(crate) fn has_leader(&self) -> bool {
        // An older scheduler has answered through the leader, or not at all.
        self.staleness
            .is_none_or(|staleness| staleness.leader.is_some())
    }

    /// Returns whether what was reported of another answer holds of this one: it is of the same scheduler,
    /// and the one knows a leader as the other does.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.address == other.address && self.has_leader() == other.has_leader()
    }

    /// Reports on standard error what the answers are worth.
    pub(crate) fn report(&self, format: Format) {
        output::note(format, self.sentence(), &self.to_json());
    }

    fn sentence(&self) -> String {
        let Self {
            address,
            staleness,
            is_earlier,
        } = self;
        if let (true, Some(known)) = (is_earlier, staleness) {
            let Staleness {
                member, revision, ..
            } = known;
            return format!(
                "the state at revision {revision}, which member {member} at {address} has made again; \
                 later changes are missing, and whether hosts are up is unknown"
            );
        }
        let Some(known) = staleness else {
            return format!(
                "the scheduler at {address} does not support --stale: it has answered through the leader"
            );
        };
        let Staleness {
            member, revision, ..
        } = known;
        let (what, unknown) = match known.leader {
            Some(leader) => (format!("stale read (the leader is member {leader})"), ""),
            None => (
                "no leader".to_owned(),
                ", and whether hosts are up is unknown",
            ),
        };
        let age = match known.age {
            Some(age) => format!("{:.1} s after a leader last confirmed it", seconds(age)),
            None => "which no leader has confirmed since it started".to_owned(),
        };
        format!(
            "{what}: member {member} at {address} answered from its own state at revision {revision}, \
             {age}; later changes may be missing{unknown}"
        )
    }

    fn to_json(&self) -> serde_json::Value {
        let known = self.staleness.as_ref();
        json!({"stale": {
            "address": self.address,
            "supported": known.is_some(),
            "member_id": known.map(|known| known.member),
            "revision": known.map(|known| known.revision),
            "age_ms": known.and_then(|known| known.age).map(|age| age.as_millis() as u64),
            "leader_id": known.and_then(|known| known.leader),
        }})
    }
}

fn seconds(age: Duration) -> f64 {
    age.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(age: Option<Duration>, leader: Option<u64>) -> Source {
        Source {
            address: "http://b:7100".to_owned(),
            staleness: Some(Staleness {
                member: 2,
                revision: 812,
                age,
                leader,
            }),
            is_earlier: false,
        }
    }

    #[test]
    fn the_sentence_states_member_revision_and_age() {
        let age = Some(Duration::from_millis(4_210));
        assert_eq!(
            source(age, None).sentence(),
            "no leader: member 2 at http://b:7100 answered from its own state at revision 812, 4.2 s after \
             a leader last confirmed it; later changes may be missing, and whether hosts are up is unknown"
        );
        let led = source(Some(Duration::ZERO), Some(3)).sentence();
        assert!(
            led.starts_with("stale read (the leader is member 3): "),
            "{led}"
        );
        assert!(!led.contains("unknown"), "{led}");
        let never = source(None, None).sentence();
        assert!(
            never.contains("which no leader has confirmed since it started"),
            "{never}"
        );
        let old = Source {
            staleness: None,
            ..source(None, None)
        };
        assert!(old.sentence().contains("does not support --stale"));
    }

    /// Goal: pages of one scheduler are reported once, another scheduler or the loss of the leader again.
    #[test]
    fn what_was_reported_holds_of_one_scheduler() {
        let alone = source(Some(Duration::ZERO), None);
        assert!(alone.is_like(&source(Some(Duration::from_secs(9)), None)));
        assert!(!alone.is_like(&source(Some(Duration::ZERO), Some(3))));
        let other = Source {
            address: "http://c:7100".to_owned(),
            ..alone.clone()
        };
        assert!(!alone.is_like(&other));
    }

    #[test]
    fn programs_read_the_same() {
        let json = source(Some(Duration::from_millis(4_210)), None).to_json();
        let expected = json!({"stale": {"address": "http://b:7100", "supported": true, "member_id": 2,
            "revision": 812, "age_ms": 4210, "leader_id": null}});
        assert_eq!(json, expected);
        let never = source(None, Some(3)).to_json();
        assert_eq!(never["stale"]["age_ms"], json!(null));
        assert_eq!(never["stale"]["leader_id"], json!(3));
        let old = Source {
            staleness: None,
            ..source(None, None)
        };
        assert_eq!(old.to_json()["stale"]["supported"], json!(false));
        assert!(old.has_leader());
    }
}
