//! Reads that one member answers from its own state, with or without a leader.
//!
//! Invariant: no call is repeated at a member that has answered, and each member gets a limited time.

use std::future::Future;
use std::time::Duration;

use berth_domain::refusal::Refusal;
use tonic::{Response, Status};

use super::{Follow, SchedulerChannel, Silent};
use crate::consistency::{Consistency, ReadChannel, Staleness};
use crate::status;

/// How long one member may take to answer before the next one is called.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(4);

/// How long one member may take that has to make an earlier state, which is a start of it.
const REVISION_TIMEOUT: Duration = Duration::from_secs(120);

/// What one member answered from its own state.
#[derive(Debug)]
pub struct OwnAnswer<T> {
    /// Its answer.
    pub answer: Result<T, Status>,
    /// Its address.
    pub address: String,
    /// What the answer is worth; absent if the member does not support stale reads, and has answered as
    /// it always does.
    pub staleness: Option<Staleness>,
}

impl SchedulerChannel {
    /// Makes a call at one member after the other, until one answers from its own state. The member that
    /// answered is called first the next time.
    ///
    /// # Errors
    ///
    /// When no member answers.
    pub async fn read_own<T, F, Fut>(&self, call: F) -> Result<OwnAnswer<T>, Refusal>
    where
        F: Fn(ReadChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        self.read_at_one(Consistency::Stale, MEMBER_TIMEOUT, call)
            .await
    }

    /// Makes a call at one member after the other, until one answers from its state at a revision, which it
    /// may have to make first.
    ///
    /// # Errors
    ///
    /// When no member answers.
    pub async fn read_revision<T, F, Fut>(
        &self,
        revision: u64,
        call: F,
    ) -> Result<OwnAnswer<T>, Refusal>
    where
        F: Fn(ReadChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        self.read_at_one(Consistency::Revision(revision), REVISION_TIMEOUT, call)
            .await
    }

    async fn read_at_one<T, F, Fut>(
        &self,
        consistency: Consistency,
        timeout: Duration,
        call: F,
    ) -> Result<OwnAnswer<T>, Refusal>
    where
        F: Fn(ReadChannel) -> Fut,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let mut silent = Silent::default();
        let (mut last, mut other) = (None, None);
        for address in self.endpoints_from_current() {
            let channel = self.member_channel_to(&address);
            let channel = channel.map_err(|status| status::from_status(&status))?;
            let call = call(consistency.over(channel));
            let Ok(answer) = tokio::time::timeout(timeout, call).await else {
                last = Some(Status::unavailable("no answer in time"));
                continue;
            };
            let (answer, staleness) = match answer {
                Ok(response) => {
                    let staleness = Staleness::read(response.metadata());
                    (Ok(response.into_inner()), staleness)
                }
                Err(status) => {
                    match self.follow(&status) {
                        Follow::Elsewhere(_) | Follow::OtherCluster => {
                            silent.note(&address, &status);
                            last = Some(status);
                            continue;
                        }
                        // Another one may be a scheduler.
                        Follow::OtherKind => {
                            other.get_or_insert((status, address));
                            continue;
                        }
                        Follow::Answered => {}
                    }
                    let staleness = Staleness::read(status.metadata());
                    (Err(status), staleness)
                }
            };
            self.lock().current.clone_from(&address);
            return Ok(OwnAnswer {
                answer,
                address,
                staleness,
            });
        }
        match other {
            Some((status, address)) => Ok(OwnAnswer {
                answer: Err(status),
                address,
                staleness: None,
            }),
            None => Err(self.exhausted(last, &silent)),
        }
    }

    /// Returns all endpoints, the current one first.
    fn endpoints_from_current(&self) -> Vec<String> {
        let mut endpoints = self.endpoints();
        let current = self.current();
        if let Some(position) = endpoints.iter().position(|one| *one == current) {
            endpoints.rotate_left(position);
        } else {
            endpoints.insert(0, current);
        }
        endpoints
    }
}

#[cfg(test)]
mod tests {
    use super::super::UNREACHABLE;
    use super::*;
    use crate::cluster::v1::GetClusterStatusRequest;
    use crate::cluster::v1::cluster_service_client::ClusterServiceClient;

    /// Goal: every member is called once, beginning with the one that answered last.
    #[test]
    fn the_member_that_answered_last_is_first() {
        let all = ["http://a:1", "http://b:1", "http://c:1"];
        let channel = SchedulerChannel::new(all).expect("addresses");
        assert_eq!(channel.endpoints_from_current(), all);
        channel.lock().current = "http://b:1".to_owned();
        let rotated = ["http://b:1", "http://c:1", "http://a:1"];
        assert_eq!(channel.endpoints_from_current(), rotated);
        // The leader that a member named, and that was not learnt.
        channel.lock().current = "http://d:1".to_owned();
        let named = ["http://d:1", "http://a:1", "http://b:1", "http://c:1"];
        assert_eq!(channel.endpoints_from_current(), named);
    }

    #[tokio::test]
    async fn without_any_member_the_endpoints_are_named() {
        let channel = SchedulerChannel::new(["http://127.0.0.1:1", "http://127.0.0.1:2"]);
        let channel = channel.expect("addresses");
        let answered = channel.read_own(|channel| async move {
            let request = GetClusterStatusRequest {};
            let mut client = ClusterServiceClient::new(channel);
            client.get_cluster_status(request).await
        });
        let refusal = answered.await.expect_err("nothing listens there");
        assert_eq!(refusal.reason, UNREACHABLE);
        for address in ["http://127.0.0.1:1", "http://127.0.0.1:2"] {
            assert!(refusal.message.contains(address), "{refusal:?}");
        }
    }
}
