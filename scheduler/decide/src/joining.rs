//! A new member on its way into the cluster: which peer it queries next, and when it stops trying.
//!
//! Not here: the calls, the time limit and the pause between attempts; those are the driver's.

use berth_domain::refusal::{Code, Refusal};

/// Another change of the membership is under way.
pub const CHANGE_PENDING: &str = "MEMBERSHIP_CHANGE_PENDING";

/// The members that a new one queries in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    known: Vec<String>,
    next: usize,
}

impl Peers {
    /// Begins with those that the operator named.
    #[must_use]
    pub fn new(named: &[String]) -> Self {
        Self {
            known: named.to_vec(),
            next: 0,
        }
    }

    /// Returns the peer to query now; `None` if none was named.
    pub fn take_next(&mut self) -> Option<String> {
        let at = self.next.checked_rem(self.known.len())?;
        self.next += 1;
        self.known.get(at).cloned()
    }

    /// Takes note of the leader that a peer named. Returns whether it was unknown: then it is the
    /// next, and there is no need to wait.
    pub fn learn(&mut self, leader: Option<String>) -> bool {
        match leader {
            Some(leader) if !self.known.contains(&leader) => {
                self.known
                    .insert(self.next % (self.known.len() + 1), leader);
                self.next %= self.known.len();
                true
            }
            Some(_) | None => false,
        }
    }
}

/// Returns whether a join that was refused like this may succeed later: elections, losses and other
/// changes of the membership pass.
#[must_use]
pub fn is_transient(refusal: &Refusal) -> bool {
    refusal.reason == CHANGE_PENDING
        || match refusal.code {
            Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled => true,
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::ResourceExhausted
            | Code::OutOfRange
            | Code::PermissionDenied
            | Code::Unimplemented
            | Code::Internal => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a leader that is not among the named peers is queried next, once, and every peer gets
    /// its turn again afterwards. Method: all numbers of peers up to five, and each moment in two
    /// rounds at which the leader is learned.
    #[test]
    fn a_leader_that_is_learned_is_the_next() {
        for count in 1..=5 {
            let named: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
            for queried in 1..=2 * count {
                let mut peers = Peers::new(&named);
                for _ in 0..queried {
                    peers.take_next();
                }
                assert!(peers.learn(Some("leader".into())));
                assert!(!peers.learn(Some("leader".into())));
                assert!(!peers.learn(None));
                assert_eq!(peers.take_next().as_deref(), Some("leader"));
                let mut round: Vec<_> = (0..=count).filter_map(|_| peers.take_next()).collect();
                round.sort();
                round.dedup();
                assert_eq!(round.len(), count + 1);
            }
        }
        assert_eq!(Peers::new(&[]).take_next(), None);
    }
}
