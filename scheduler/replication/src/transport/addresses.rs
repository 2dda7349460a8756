//! Where members are reached: the address that the membership records, and the one that a member has
//! stated itself since.
//!
//! A member that starts at another address than the recorded one says so in the hello of its streams.
//! The others try that address first and the recorded one after it, so that a wrong statement cuts off
//! no member. Not here: the record, which is the membership's.
//!
//! Invariant: what a member has stated counts only as long as the record is the one that it was stated
//! beside; a record that was changed since is newer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_store::{Member, Membership};
use tonic::codegen::http::uri::Authority;

/// How many members that are not in the membership are remembered. A member that is behind meets a
/// few; any client that reaches the port of an unencrypted member can state more.
const UNKNOWN_MAX: usize = 64;

/// The longest name of a host, a colon and a port.
const ADDRESS_BYTES_MAX: usize = 253 + 1 + 5;

/// The addresses of the other members, for all parts of a member.
#[derive(Clone, Debug, Default)]
pub struct Addresses(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Counts the changes.
    generation: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    stated: HashMap<u64, Stated>,
    /// The address at which the stream to a member was opened last.
    reached: HashMap<u64, String>,
}

/// What a member stated.
#[derive(Debug, PartialEq, Eq)]
struct Stated {
    address: String,
    /// What was recorded then.
    beside: String,
}

impl Addresses {
    /// Returns what a member states, if that is another address than the recorded one.
    #[must_use]
    pub fn stated(&self, member: &Member) -> Option<String> {
        let known = self.lock();
        let stated = known.stated.get(&member.id)?;
        let is_other = stated.beside == member.address && stated.address != member.address;
        is_other.then(|| stated.address.clone())
    }

    /// Returns where a member was reached last if that is one of its addresses, else where it is recorded.
    #[must_use]
    pub fn present(&self, member: &Member) -> String {
        let candidates = self.candidates(member);
        let reached = self.lock().reached.get(&member.id).cloned();
        let reached = reached.filter(|reached| candidates.contains(reached));
        reached.unwrap_or_else(|| match member.address.is_empty() {
            true => candidates.into_iter().next().unwrap_or_default(),
            false => member.address.clone(),
        })
    }

    /// Remembers what a member states, if it can be dialled. Of others, one of which may become a member,
    /// only so many are remembered.
    pub fn state(&self, member: u64, address: &str, membership: &Membership) {
        if !is_dialable(address) {
            return;
        }
        let recorded = membership.get(member);
        let beside = recorded.map_or_else(String::new, |member| member.address.clone());
        let stated = Stated {
            address: address.to_owned(),
            beside,
        };
        let mut known = self.lock();
        if known.stated.get(&member) == Some(&stated) {
            return;
        }
        let is_unknown = |id: &u64| membership.get(*id).is_none();
        let unknown = known.stated.keys().copied().filter(is_unknown).count();
        if recorded.is_none() && unknown >= UNKNOWN_MAX {
            return;
        }
        known.stated.insert(member, stated);
        drop(known);
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the addresses at which a member is tried, the first one first.
    #[must_use]
    pub fn candidates(&self, member: &Member) -> Vec<String> {
        let recorded = Some(&member.address).filter(|address| !address.is_empty());
        self.stated(member)
            .into_iter()
            .chain(recorded.cloned())
            .collect()
    }

    /// Returns a number that changes with what is stated.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Remembers where a stream to a member was opened.
    pub(super) fn reach(&self, member: u64, address: &str) {
        let mut known = self.lock();
        if known.reached.get(&member).is_none_or(|at| at != address) {
            known.reached.insert(member, address.to_owned());
        }
    }

    /// Forgets who was removed.
    pub(super) fn retain(&self, membership: &Membership) {
        let is_kept = |id: &u64| membership.get(*id).is_some() || *id >= membership.next_id;
        let mut known = self.lock();
        known.stated.retain(|id, _| is_kept(id));
        known.reached.retain(|id, _| is_kept(id));
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a text is a host and a port. Any client that reaches the port of an unencrypted member
/// can state anything.
fn is_dialable(address: &str) -> bool {
    let authority = address.parse::<Authority>().ok();
    address.len() <= ADDRESS_BYTES_MAX
        && !address.contains('@')
        && authority.is_some_and(|a| !a.host().is_empty() && a.port_u16().is_some_and(|p| p > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(address: &str) -> Membership {
        Membership::single(Member {
            id: 2,
            address: address.to_owned(),
            ..Member::default()
        })
    }

    /// Goal: a statement is tried first, never alone, and ends with the record beside which it was made.
    #[test]
    fn what_a_member_states_counts_until_the_record_changes() {
        let addresses = Addresses::default();
        let old = membership("old:1");
        let member = &old.members[0];
        assert_eq!(addresses.candidates(member), ["old:1"]);
        addresses.state(2, "old:1", &old);
        assert_eq!(addresses.candidates(member), ["old:1"]);
        assert_eq!(addresses.stated(member), None);

        let before = addresses.generation();
        addresses.state(2, "new:1", &old);
        assert_ne!(addresses.generation(), before);
        assert_eq!(addresses.candidates(member), ["new:1", "old:1"]);
        assert_eq!(addresses.stated(member).as_deref(), Some("new:1"));
        let same = addresses.generation();
        addresses.state(2, "new:1", &old);
        assert_eq!(addresses.generation(), same, "nothing new was stated");

        // An operator records a third address.
        let third = membership("third:1");
        assert_eq!(addresses.candidates(&third.members[0]), ["third:1"]);
        // It states once more where it is.
        addresses.state(2, "new:1", &third);
        let candidates = addresses.candidates(&third.members[0]);
        assert_eq!(candidates, ["new:1", "third:1"]);
        let recorded = membership("new:1");
        assert_eq!(addresses.candidates(&recorded.members[0]), ["new:1"]);
    }

    #[test]
    fn a_member_is_present_where_it_was_reached() {
        let addresses = Addresses::default();
        let membership = membership("old:1");
        let member = &membership.members[0];
        assert_eq!(addresses.present(member), "old:1");
        addresses.state(2, "new:1", &membership);
        assert_eq!(addresses.present(member), "old:1", "it was never reached");
        addresses.reach(2, "new:1");
        assert_eq!(addresses.present(member), "new:1");
        addresses.reach(2, "elsewhere:1");
        assert_eq!(addresses.present(member), "old:1");
        let unknown = Member {
            id: 3,
            ..Member::default()
        };
        addresses.state(3, "third:1", &membership);
        assert_eq!(addresses.present(&unknown), "third:1");
    }

    #[test]
    fn what_cannot_be_dialled_is_not_remembered() {
        let addresses = Addresses::default();
        let membership = membership("old:1");
        let long = format!("{}:1", "h".repeat(300));
        for bad in [
            "",
            "h",
            "h:",
            ":1",
            "h:0",
            "h:65536",
            "http://h:1",
            "unix:/etc/passwd",
            "h:1/x?y",
            "user@h:1",
            "h 1:1",
            "h\u{1b}[2J:1",
            &long,
        ] {
            addresses.state(2, bad, &membership);
            assert_eq!(addresses.stated(&membership.members[0]), None, "{bad:?}");
        }
        for good in ["h:1", "10.0.0.1:7100", "[::1]:7100"] {
            addresses.state(2, good, &membership);
            let stated = addresses.stated(&membership.members[0]);
            assert_eq!(stated.as_deref(), Some(good));
        }
    }

    #[test]
    fn few_unknown_members_are_remembered() {
        let addresses = Addresses::default();
        let membership = membership("old:1");
        for id in 3..1000 {
            addresses.state(id, "unknown:1", &membership);
        }
        assert_eq!(addresses.lock().stated.len(), UNKNOWN_MAX);
        addresses.state(2, "new:1", &membership);
        assert_eq!(addresses.lock().stated.len(), UNKNOWN_MAX + 1);
        let later = Membership {
            next_id: 1000,
            ..membership
        };
        addresses.retain(&later);
        assert_eq!(addresses.lock().stated.len(), 1);
    }
}
