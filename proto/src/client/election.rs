//! What a call knows of an election that it waits for: the lost leader, and the members that can
//! report a new leader.
//!
//! Invariant: a member is believed once. Two that name each other must not make a busy loop.

use std::collections::BTreeSet;

use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

use super::is_unanswered;
use crate::cluster::v1::WaitLeaderRequest;
use crate::cluster::v1::cluster_service_client::ClusterServiceClient;
use crate::convert::field;

/// How often a member is queried in one pause: it waits for seconds each time, unless it is broken.
const MEMBERS_MAX: usize = 64;

/// What the attempts of one call have shown.
#[derive(Debug, Default)]
pub(super) struct Election {
    /// The address that did not answer last.
    lost: Option<String>,
    /// The address of a member that has answered that it does not lead.
    witness: Option<String>,
    /// Whom witnesses have named.
    named: BTreeSet<String>,
}

impl Election {
    /// An attempt failed, of which it makes sense to try again.
    pub(super) fn note(&mut self, address: &str, status: &Status) {
        if !is_unanswered(status) {
            self.witness = Some(address.to_owned());
            return;
        }
        self.lost = Some(address.to_owned());
        if self.witness.as_deref() == Some(address) {
            self.witness = None;
        }
    }

    /// Returns the member to query for a leader, and the lost leader. None as long as none was
    /// lost: a member that is there is tried again.
    pub(super) fn question(&self) -> Option<(&str, &str)> {
        Some((self.witness.as_deref()?, self.lost.as_deref()?))
    }

    /// Returns whether a leader is named for the first time.
    pub(super) fn is_news(&mut self, leader: &str) -> bool {
        self.named.insert(leader.to_owned())
    }
}

/// Queries a member until it knows of a leader other than the one that is lost. Nothing
/// when it does not know one by `until`, as a member that is too old.
pub(super) async fn leader_after(witness: Channel, lost: &str, until: Instant) -> Option<String> {
    let mut witness = ClusterServiceClient::new(witness);
    let ask = async {
        for _ in 0..MEMBERS_MAX {
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let request = WaitLeaderRequest {
                other_than: lost.to_owned(),
                timeout: Some(field::duration(left_ms)),
            };
            let answer = witness.wait_leader(request).await.ok()?;
            let leader = answer.into_inner().leader_address;
            // A member does not wait for as long as one likes.
            if !leader.is_empty() || left_ms == 0 {
                return Some(leader);
            }
        }
        None
    };
    let members = tokio::time::timeout_at(until, ask).await.ok()??;
    (!members.is_empty()).then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;

    #[test]
    fn it_takes_a_loss_and_a_witness_to_ask() {
        let follower = status::to_status(&status::not_leader(Some("http://a:1")));
        let silence = Status::unavailable("connection refused");
        let mut election = Election::default();
        assert_eq!(election.question(), None);
        election.note("http://b:1", &follower);
        assert_eq!(election.question(), None, "nobody is lost");
        election.note("http://a:1", &silence);
        assert_eq!(election.question(), Some(("http://b:1", "http://a:1")));
        election.note("http://b:1", &silence);
        assert_eq!(election.question(), None, "the witness is gone too");
        election.note("http://c:1", &follower);
        assert_eq!(election.question(), Some(("http://c:1", "http://b:1")));

        assert!(election.is_news("http://c:1"));
        assert!(!election.is_news("http://c:1"), "it was tried");
    }
}
