//! When the leader last heard from each member.
//!
//! Raft forgets with each election timeout who was active, so one look says little. Not here: what
//! follows from silence; see `dead_members`.
//!
//! Invariant: a member counts as heard when this member began to lead, or when it was added.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_replication::runtime::Status;

/// When each member was heard last, as long as this member leads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contacts(Arc<Mutex<Option<Heard>>>);

#[derive(Debug, Default)]
struct Heard {
    last: HashMap<u64, Instant>,
}

impl Contacts {
    /// Takes a look at who is active.
    pub(crate) fn look(&self, status: &Status, now: Instant) {
        let mut heard = self.lock();
        if !status.role.deciding {
            *heard = None;
            return;
        }
        let heard = heard.get_or_insert_with(Heard::default);
        let membership = &status.membership;
        heard.last.retain(|id, _| membership.get(*id).is_some());
        for member in &membership.members {
            heard.last.entry(member.id).or_insert(now);
        }
        let active = status.progress.iter().filter(|member| member.active);
        for id in active.map(|member| member.id).chain([status.id]) {
            heard.last.insert(id, now);
        }
    }

    /// Returns for how long nothing was heard from a member; nothing unless this member leads.
    pub(crate) fn silent(&self, id: u64, now: Instant) -> Option<Duration> {
        let heard = self.lock();
        let heard = heard.as_ref()?;
        let last = heard.last.get(&id)?;
        Some(now.saturating_duration_since(*last))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use berth_replication::MemberStatus;
    use berth_replication::effects::{Position, Role};
    use berth_store::{Member, Membership};

    use super::*;

    /// Returns the status of a group of two, and of three once another one was added.
    fn grown(status: Status) -> Status {
        let mut membership = status.membership.as_ref().clone();
        membership.members.push(Member {
            id: 3,
            ..Member::default()
        });
        Status {
            membership: Arc::new(membership),
            ..status
        }
    }

    fn status(deciding: bool, active: bool) -> Status {
        let member = |id| Member {
            id,
            ..Member::default()
        };
        let progress = |id, active| MemberStatus {
            id,
            matched: 0,
            active,
        };
        Status {
            id: 1,
            role: Role {
                deciding,
                ..Role::default()
            },
            position: Position::default(),
            committed: 0,
            first_index: 0,
            last_index: 0,
            membership: Arc::new(Membership {
                members: vec![member(1), member(2)],
                ..Membership::default()
            }),
            progress: vec![progress(1, true), progress(2, active)],
            queued: 0,
            pending: 0,
            retained: Vec::new(),
            disk_silent: Duration::ZERO,
        }
    }

    #[test]
    fn silence_counts_from_the_last_contact_and_from_the_election() {
        let contacts = Contacts::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let silent = |seconds: u64| {
            let silent = contacts.silent(2, at(seconds));
            silent.map(|silent| silent.as_secs())
        };
        contacts.look(&status(false, true), at(0));
        assert_eq!(silent(0), None, "it does not lead");
        contacts.look(&status(true, false), at(10));
        assert_eq!(silent(15), Some(5));
        contacts.look(&status(true, true), at(20));
        contacts.look(&status(true, false), at(30));
        assert_eq!(silent(30), Some(10));
        assert_eq!(contacts.silent(1, at(30)), Some(Duration::ZERO));
        // One that is added, and was never heard.
        assert_eq!(contacts.silent(3, at(34)), None);
        contacts.look(&grown(status(true, false)), at(35));
        let silent_of_new = contacts.silent(3, at(37));
        assert_eq!(silent_of_new, Some(Duration::from_secs(2)));
        contacts.look(&status(false, false), at(40));
        contacts.look(&status(true, false), at(50));
        assert_eq!(silent(50), Some(0), "another time of leading");
    }
}
