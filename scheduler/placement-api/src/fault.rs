//! Every "no" of this face: a status, a sentence and OpenStack's code, as JSON, HTML or text.
//!
//! Invariant: a fault reveals nothing beyond what the caller sent or may read, and its length is
//! bounded: what it quotes is cut.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use super::accept::{Accept, HTML, JSON};
use super::microversion::Microversion;

/// The longest text of a caller that is quoted, in characters.
const QUOTED_MAX: usize = 512;

/// OpenStack's codes, which clients branch on.
pub(super) mod code {
    /// What has no code of its own.
    pub(crate) const UNDEFINED: &str = "placement.undefined_code";
    /// An inventory is in use.
    pub(crate) const INVENTORY_IN_USE: &str = "placement.inventory.inuse";
    /// Another request was faster.
    pub(crate) const CONCURRENT_UPDATE: &str = "placement.concurrent_update";
    /// The name is taken.
    pub(crate) const DUPLICATE_NAME: &str = "placement.duplicate_name";
    /// A provider has allocations.
    pub(crate) const PROVIDER_IN_USE: &str = "placement.resource_provider.inuse";
    /// A provider has children.
    pub(crate) const CANNOT_DELETE_PARENT: &str =
        "placement.resource_provider.cannot_delete_parent";
    /// A provider that a body names does not exist.
    pub(crate) const PROVIDER_NOT_FOUND: &str = "placement.resource_provider.not_found";
    /// A query key that may stand once stands twice.
    pub(crate) const DUPLICATE_KEY: &str = "placement.query.duplicate_key";
    /// A query value is wrong.
    pub(crate) const BAD_VALUE: &str = "placement.query.bad_value";
    /// A query value is missing.
    pub(crate) const MISSING_VALUE: &str = "placement.query.missing_value";
    /// The write may have been carried out, or may be later.
    pub(crate) const OUTCOME_UNKNOWN: &str = "berth.outcome_unknown";
    /// A host of Berth reports this provider, or a claim is this consumer.
    pub(crate) const READ_ONLY: &str = "berth.read_only";
}

/// A "no".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    status: StatusCode,
    pub(super) detail: String,
    code: &'static str,
    /// What else may be done here, for the header `Allow`.
    allow: Option<String>,
    /// Whether the supported versions are included.
    tell_versions: bool,
}

impl Fault {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            code: code::UNDEFINED,
            allow: None,
            tell_versions: false,
        }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// The method is not among those that the resource knows.
    pub(super) fn method_not_allowed(method: &str, allow: &[&str]) -> Self {
        let detail = format!(
            "The method {} is not allowed for this resource.",
            quoted(method)
        );
        Self {
            allow: Some(allow.join(", ")),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        }
    }

    /// The requested version is not supported.
    pub(super) fn unknown_version(detail: impl Into<String>) -> Self {
        Self {
            tell_versions: true,
            ..Self::new(StatusCode::NOT_ACCEPTABLE, detail)
        }
    }

    /// The caller is not authenticated.
    pub(super) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "send a token that this server knows in the header X-Auth-Token",
        )
    }

    /// Returns the fault with a code of OpenStack's.
    #[must_use]
    pub(super) fn with_code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Returns the status.
    #[cfg(test)]
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the answer in the form that the client takes.
    ///
    /// `version` is absent where none has been agreed on yet.
    pub(super) fn answer(
        &self,
        accept: &Accept,
        version: Option<Microversion>,
        request_id: &str,
    ) -> Response<Body> {
        let (json, html) = (accept.quality(JSON), accept.quality(HTML));
        let (media_type, body) = if html > 0 && html >= json {
            ("text/html; charset=UTF-8", self.html())
        } else if json > 0 {
            (JSON, self.json(version, request_id))
        } else {
            ("text/plain; charset=UTF-8", self.text())
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        let allow = self.allow.as_ref().map(HeaderValue::try_from);
        if let Some(Ok(allow)) = allow {
            headers.insert(ALLOW, allow);
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn title(&self) -> &'static str {
        match self.status {
            // The name of HTTP/1.1's first edition, which OpenStack's clients know.
            StatusCode::PAYLOAD_TOO_LARGE => "Request Entity Too Large",
            status => status.canonical_reason().unwrap_or("Error"),
        }
    }

    /// Returns what the status means, and what was wrong in this case.
    fn sentences(&self) -> String {
        let meaning = match self.status {
            StatusCode::NOT_FOUND => "The resource could not be found.",
            StatusCode::CONFLICT => "There was a conflict when trying to complete your request.",
            StatusCode::FORBIDDEN => "Access was denied to this resource.",
            StatusCode::UNAUTHORIZED => "It is not known who asks.",
            StatusCode::SERVICE_UNAVAILABLE => "The server cannot answer right now.",
            StatusCode::INTERNAL_SERVER_ERROR => "The server has erred.",
            // The detail suffices.
            _ => "",
        };
        match (meaning, &*self.detail) {
            ("", detail) => detail.to_owned(),
            (meaning, "") => meaning.to_owned(),
            (meaning, detail) => format!("{meaning}\n\n{detail}"),
        }
    }

    fn json(&self, version: Option<Microversion>, request_id: &str) -> String {
        if self.status == StatusCode::UNAUTHORIZED {
            // OpenStack's authentication stands before the service and has a form of its own.
            let code = format!("{} {}", self.status.as_u16(), self.title());
            let body = json!({"message": self.sentences(), "code": code, "title": self.title()});
            return body.to_string();
        }
        let mut error = json!({
            "status": self.status.as_u16(),
            "title": self.title(),
            "detail": self.sentences(),
            "request_id": request_id,
        });
        if version.is_some_and(|version| version.has(23)) {
            error["code"] = self.code.into();
        }
        if self.tell_versions {
            error["min_version"] = Microversion::MIN.to_string().into();
            error["max_version"] = Microversion::MAX.to_string().into();
        }
        json!({"errors": [error]}).to_string()
    }

    fn html(&self) -> String {
        let (status, title) = (self.status.as_u16(), self.title());
        let sentences = escaped(&self.sentences()).replace('\n', "<br />\n");
        format!(
            "<html>\n <head>\n  <title>{status} {title}</title>\n </head>\n <body>\n  \
             <h1>{status} {title}</h1>\n  {sentences}\n </body>\n</html>\n"
        )
    }

    fn text(&self) -> String {
        let (status, title) = (self.status.as_u16(), self.title());
        format!("{status} {title}\n\n{}\n", self.sentences())
    }
}

/// Returns a text of the caller's, cut.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#x27;"),
            other => {
                // Writing into a string does not fail.
                let _ = out.write_char(other);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_shows_what_was_sent_without_running_it() {
        let fault = Fault::not_found("no <script>alert('x')</script> & \"more\"");
        let html = fault.html();
        assert!(
            html.contains("&lt;script&gt;alert(&#x27;x&#x27;)"),
            "{html}"
        );
        assert!(html.contains("The resource could not be found."), "{html}");
    }

    #[test]
    fn the_code_is_included_from_1_23_on() {
        let fault = Fault::conflict("x").with_code(code::DUPLICATE_NAME);
        let new = fault.json(Some(Microversion::MAX), "req-1");
        assert!(
            new.contains(code::DUPLICATE_NAME) && new.contains("req-1"),
            "{new}"
        );
        let old = fault.json(Some(Microversion::MIN), "req-1");
        assert!(!old.contains("code"), "{old}");
    }

    #[test]
    fn quotes_are_cut_between_characters() {
        assert_eq!(quoted("short"), "short");
        assert_eq!(quoted(&"☃".repeat(600)).chars().count(), QUOTED_MAX + 3);
    }
}
