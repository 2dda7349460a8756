//! `AdmissionReview`, as an API server sends and reads it: `admission.k8s.io/v1` and `v1beta1`.
//!
//! Invariant: the answer is of the version of the question and carries its uid.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Error;
use super::patch::Operation;
use crate::kubernetes::object::{Object, Pod};

const KIND: &str = "AdmissionReview";
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

/// A question.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review<'a> {
    #[serde(borrow, default)]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    api_version: Option<Text<'a>>,
    #[serde(borrow, default)]
    request: Option<Request<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request<'a> {
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    operation: Option<Text<'a>>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// A text that is copied only if something in it is written with a backslash.
#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// What is answered.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It may be made as it is.
    Allowed {
        /// Why nothing is done to it.
        why: &'static str,
    },
    /// It may be made with this done to it.
    Patched {
        /// What.
        operations: Vec<Operation>,
    },
    /// It may not be made.
    Denied {
        /// How, in HTTP's terms.
        code: StatusCode,
        /// Why.
        why: String,
    },
}

impl Verdict {
    pub(super) fn denied(code: StatusCode, why: impl Into<String>) -> Self {
        Self::Denied {
            code,
            why: why.into(),
        }
    }
}

fn text<'t>(text: &'t Option<Text<'_>>) -> &'t str {
    text.as_ref().map_or("", |Text(text)| text)
}

impl<'a> Review<'a> {
    /// Reads a question.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Error> {
        let read = serde_json::from_slice::<Object<Self>>(body);
        let Object(review) = read.map_err(Error::Malformed)?;
        let (kind, version) = (text(&review.kind), text(&review.api_version));
        if kind != KIND || !VERSIONS.contains(&version) {
            let shown = |text: &str| text.chars().take(64).collect();
            return Err(Error::Kind {
                kind: shown(kind),
                version: shown(version),
            });
        }
        match review.request {
            Some(_) => Ok(review),
            None => Err(Error::NoRequest),
        }
    }

    fn request(&self) -> &Request<'a> {
        self.request
            .as_ref()
            .expect("it was looked at when it was read")
    }

    /// Returns whether something is being made.
    pub(super) fn is_creation(&self) -> bool {
        // Old requests in tests leave it out.
        matches!(text(&self.request().operation), "CREATE" | "")
    }

    /// Returns the namespace that the object is made in.
    pub(super) fn namespace(&self) -> &str {
        text(&self.request().namespace)
    }

    /// Returns the pod; the fault is a sentence.
    pub(super) fn pod(&self) -> Result<Pod, String> {
        let object = self
            .request()
            .object
            .ok_or("there is no pod in the request")?;
        let Object(pod) = serde_json::from_str::<Object<Pod>>(object.get())
            .map_err(|error| format!("the object is no pod: {error}"))?;
        match pod.kind.as_str() {
            "Pod" | "" => Ok(pod),
            other => {
                let other: String = other.chars().take(64).collect();
                Err(format!(
                    "the object is of kind {other:?}; this webhook is for pods"
                ))
            }
        }
    }

    /// Returns the answer.
    pub(super) fn answer(&self, verdict: &Verdict) -> Vec<u8> {
        let uid = text(&self.request().uid);
        let response = match verdict {
            Verdict::Allowed { why } => Response::plain(uid, true, StatusCode::OK, why),
            Verdict::Denied { code, why } => Response::plain(uid, false, *code, why),
            Verdict::Patched { operations } => Response::patched(uid, operations),
        };
        let answer = Answer {
            kind: KIND,
            api_version: text(&self.api_version),
            response,
        };
        serde_json::to_vec(&answer).expect("texts and numbers are JSON")
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    kind: &'static str,
    api_version: &'a str,
    response: Response<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    /// In base64, as Go writes bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Status<'a> {
    metadata: Empty,
    message: &'a str,
    code: u16,
}

#[derive(Debug, Serialize)]
struct Empty {}

impl<'a> Response<'a> {
    fn plain(uid: &'a str, allowed: bool, code: StatusCode, message: &'a str) -> Self {
        let status = Status {
            metadata: Empty {},
            message,
            code: code.as_u16(),
        };
        Self {
            uid,
            allowed,
            status: Some(status),
            patch: None,
            patch_type: None,
        }
    }

    fn patched(uid: &'a str, operations: &[Operation]) -> Self {
        let patch = serde_json::to_vec(operations).expect("a patch is JSON");
        Self {
            uid,
            allowed: true,
            status: None,
            patch: Some(STANDARD.encode(patch)),
            patch_type: Some("JSONPatch"),
        }
    }
}
