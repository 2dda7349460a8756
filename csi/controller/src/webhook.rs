//! The admission webhook: marks pods for which the scheduler extender has to be called.
//!
//! Kubernetes' scheduler calls an extender only for pods that request a resource which the extender
//! manages. So a pod that has a volume of this driver which waits for a node gets that resource, once.
//!
//! | pod | answer |
//! |---|---|
//! | has the label `pmem-csi.intel.com/webhook: ignore` | let through |
//! | has no containers | denied |
//! | has an inline volume of our driver | marked |
//! | has a claim of a class of our driver that waits for a node | marked |
//! | anything else; also where claim or class do not exist yet | let through |
//!
//! Invariant: the patch adds what is missing and touches nothing else.

mod patch;
mod review;

use std::time::Duration;

use http::StatusCode;

use crate::kubernetes::lookup::Lookup;
use crate::kubernetes::need;
use crate::kubernetes::object::Pod;
use berth_process::error_chain;
use review::{Review, Verdict};

/// The label, and its value, of pods that are let through as they are.
const OPT_OUT: (&str, &str) = ("pmem-csi.intel.com/webhook", "ignore");

/// Why a review cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is not a review.
    #[error("the body is not an AdmissionReview")]
    Malformed(#[source] serde_json::Error),
    /// It is of another kind, or of a version that is not known.
    #[error(
        "the body is {kind:?} of {version:?}, not an AdmissionReview of admission.k8s.io/v1 or \
         admission.k8s.io/v1beta1"
    )]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        version: String,
    },
    /// It contains no request.
    #[error("the AdmissionReview has no request")]
    NoRequest,
}

impl Error {
    /// Returns the message with those of all causes.
    #[must_use]
    pub fn chain(&self) -> String {
        error_chain(self)
    }
}

/// The admission webhook.
#[derive(Debug)]
pub struct Webhook {
    driver: String,
    resource: String,
}

impl Webhook {
    /// Returns a webhook that gives this resource to pods with volumes of this driver.
    #[must_use]
    pub fn new(driver: String, resource: String) -> Self {
        Self { driver, resource }
    }

    /// Answers a review: JSON in, JSON out.
    ///
    /// # Errors
    ///
    /// When it is none. What is wrong with the pod in it is part of the answer.
    pub async fn mutate(
        &self,
        body: &[u8],
        lookup: &Lookup,
        timeout: Duration,
    ) -> Result<Vec<u8>, Error> {
        let review = Review::parse(body)?;
        let verdict = tokio::time::timeout(timeout, self.review_pod(&review, lookup)).await;
        let verdict = verdict.unwrap_or_else(|_| Verdict::Denied {
            code: StatusCode::GATEWAY_TIMEOUT,
            why: format!("no answer within {} ms", timeout.as_millis()),
        });
        Ok(review.answer(&verdict))
    }

    async fn review_pod(&self, review: &Review<'_>, lookup: &Lookup) -> Verdict {
        let allowed = |why| Verdict::Allowed { why };
        if !review.is_creation() {
            return allowed("only pods that are made are marked");
        }
        let pod = match review.pod() {
            Ok(pod) => pod,
            Err(why) => return Verdict::denied(StatusCode::BAD_REQUEST, why),
        };
        if is_opted_out(&pod) {
            return allowed("the pod's label opts out");
        }
        if pod.spec.containers.is_empty() {
            return Verdict::denied(StatusCode::FORBIDDEN, "pod has no containers");
        }
        if pod.spec.volumes.is_empty() {
            return allowed("no volumes");
        }
        // A pod that is made from a template has no namespace of its own.
        let namespace = match pod.metadata.namespace.as_str() {
            "" => review.namespace(),
            own => own,
        };
        let concerns = need::concerns(&pod, namespace, &self.driver, lookup).await;
        match concerns {
            Ok(true) => match patch::marking(&pod, &self.resource) {
                operations if operations.is_empty() => allowed("the pod is marked already"),
                operations => Verdict::Patched { operations },
            },
            Ok(false) => allowed("no relevant PMEM volumes"),
            Err(error) => {
                let why = error_chain(&error);
                tracing::warn!(
                    why,
                    "a pod is denied because nothing is known of its volumes"
                );
                Verdict::denied(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
        }
    }
}

fn is_opted_out(pod: &Pod) -> bool {
    let (label, value) = OPT_OUT;
    pod.metadata.labels.get(label).is_some_and(|v| v == value)
}
