//! The cluster that a request is for, in its metadata: after a restore, schedulers of the old cluster may run
//! beside the new one, and a conductor that registered with the one may have gone over to the other.
//!
//! ```text
//!   request    x-berth-cluster: 0b9f5d0e-...    the id of the cluster that the caller works with
//! ```
//!
//! A scheduler of another cluster refuses the request. A conductor passes it on with everything that it has
//! schedulers do for the request. Without the header, whichever cluster answers is meant.
//!
//! Invariant: what is refused for its cluster was not carried out. Where a part of it was, before the cluster
//! was recovered, the outcome is unknown.

use std::task::{Context, Poll};

use berth_domain::refusal::{Code, Refusal};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{self, HeaderMap, HeaderValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::status;

/// The key of the cluster that a request is for.
pub const CLUSTER: &str = "x-berth-cluster";
/// The reason of the refusal of a request that is for another cluster.
pub const OTHER_CLUSTER: &str = "OTHER_CLUSTER";

/// The cluster that the calls over a channel are for.
#[derive(Clone, Debug, Default)]
pub struct ForCluster(Option<HeaderValue>);

impl ForCluster {
    /// Returns calls that are for the cluster of this id; for any, where the text cannot be an id.
    #[must_use]
    pub fn of(cluster_id: &str) -> Self {
        let is_id = !cluster_id.is_empty() && cluster_id.is_ascii();
        Self(cluster_id.parse().ok().filter(|_| is_id))
    }

    /// Returns the calls of a request that was received: for the same cluster.
    #[must_use]
    pub fn of_request<T>(request: &Request<T>) -> Self {
        Self(request.metadata().as_ref().get(CLUSTER).cloned())
    }

    /// Returns whether calls are for one cluster.
    #[must_use]
    pub fn is_one(&self) -> bool {
        self.0.is_some()
    }

    /// Adds it to a request.
    pub fn add_to<T>(&self, request: &mut Request<T>) {
        self.add(request.metadata_mut().as_mut());
    }

    fn add(&self, headers: &mut HeaderMap) {
        if let Some(cluster) = &self.0 {
            headers.insert(CLUSTER, cluster.clone());
        }
    }

    /// Returns a channel whose calls are for it.
    #[must_use]
    pub fn over(&self, channel: Channel) -> MemberChannel {
        MemberChannel {
            channel,
            cluster: self.clone(),
        }
    }
}

/// A channel whose calls may be for one cluster only.
#[derive(Clone, Debug)]
pub struct MemberChannel {
    channel: Channel,
    cluster: ForCluster,
}

/// Calls over it are for any cluster.
impl From<Channel> for MemberChannel {
    fn from(channel: Channel) -> Self {
        ForCluster::default().over(channel)
    }
}

impl Service<http::Request<Body>> for MemberChannel {
    type Response = http::Response<Body>;
    type Error = <Channel as Service<http::Request<Body>>>::Error;
    type Future = <Channel as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        self.cluster.add(request.headers_mut());
        self.channel.call(request)
    }
}

/// Refuses a request that is for another cluster than this one.
///
/// # Errors
///
/// With the ids of both.
pub fn check(headers: &HeaderMap, own: &str) -> Result<(), Status> {
    let Some(requested) = headers.get(CLUSTER) else {
        return Ok(());
    };
    // A member that has not joined yet refuses by itself what it cannot answer.
    if own.is_empty() || requested.as_bytes() == own.as_bytes() {
        return Ok(());
    }
    let requested = String::from_utf8_lossy(requested.as_bytes()).into_owned();
    let message =
        format!("the request is for cluster {requested}, and this is a scheduler of cluster {own}");
    let refusal = Refusal::new(Code::FailedPrecondition, OTHER_CLUSTER, message);
    Err(status::to_status(
        &refusal
            .with("requested_cluster_id", requested)
            .with("cluster_id", own)
            .with_hint(
                "name the schedulers of the cluster that is in use: after a restore conductors have gone over to \
                 the new one",
            ),
    ))
}

/// Returns whether a request was refused as it is for another cluster.
#[must_use]
pub fn is_other(status: &Status) -> bool {
    status::refusal_of(status).is_some_and(|refusal| refusal.reason == OTHER_CLUSTER)
}

/// Returns the refusal of a request of which a part was carried out before: that its outcome is unknown, where
/// the rest was refused as it is for another cluster.
#[must_use]
pub fn after_change(refusal: Refusal) -> Refusal {
    if refusal.reason != OTHER_CLUSTER {
        return refusal;
    }
    let message = format!(
        "the cluster was recovered after a part of the request was carried out: {}",
        refusal.message
    );
    let unknown = Refusal {
        code: Code::Unavailable,
        reason: status::OUTCOME_UNKNOWN.to_owned(),
        message,
        ..refusal
    };
    unknown.with_hint(
        "look at what has become of it in the cluster that is in use: `berth cluster recovery status`, \
         `berth operation list`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0b9f5d0e-5d0c-4bd0-8a3e-3a6f4b1f7c52";
    const OTHER: &str = "5c4f5ba0-73a4-4a5b-9b6e-8d7a61f0be3c";

    fn headers(of: &ForCluster) -> HeaderMap {
        let mut request = Request::new(());
        of.add_to(&mut request);
        request.into_parts().0.into_headers()
    }

    /// Goal: exactly what is for another cluster is refused, with both ids.
    #[test]
    fn a_request_for_another_cluster_is_refused() {
        for (requested, own, is_refused) in [
            ("", ONE, false),
            (ONE, ONE, false),
            (ONE, OTHER, true),
            (ONE, "", false),
            ("?", ONE, true),
        ] {
            let refused = check(&headers(&ForCluster::of(requested)), own);
            assert_eq!(refused.is_err(), is_refused, "{requested:?} at {own:?}");
            if let Err(status) = refused {
                assert!(is_other(&status), "{status:?}");
                let message = status.message();
                assert!(
                    message.contains(requested) && message.contains(own),
                    "{message}"
                );
            }
        }
        assert!(!is_other(&Status::failed_precondition("another")));
    }

    #[test]
    fn it_is_passed_on_as_it_came() {
        let mut request = Request::new(());
        assert!(!ForCluster::of_request(&request).is_one());
        ForCluster::of(ONE).add_to(&mut request);
        let passed = ForCluster::of_request(&request);
        assert!(passed.is_one());
        assert!(check(&headers(&passed), ONE).is_ok());
        assert!(check(&headers(&passed), OTHER).is_err());
    }

    /// Goal: "not carried out" is not said of what was carried out in part.
    #[test]
    fn after_a_change_the_outcome_is_unknown() {
        let refused = check(&headers(&ForCluster::of(ONE)), OTHER);
        let refused = status::from_status(&refused.expect_err("another cluster"));
        let unknown = after_change(refused.clone());
        assert_eq!(unknown.reason, status::OUTCOME_UNKNOWN);
        assert_eq!(unknown.code, Code::Unavailable);
        assert!(unknown.message.contains(&refused.message), "{unknown:?}");
        let other = Refusal::new(Code::NotFound, "VM_NOT_FOUND", "vm a");
        assert_eq!(after_change(other.clone()), other);
    }

    #[test]
    fn what_is_no_id_is_not_sent() {
        for bad in ["", "\n", "\u{e9}"] {
            assert!(!ForCluster::of(bad).is_one(), "{bad:?}");
        }
    }
}
