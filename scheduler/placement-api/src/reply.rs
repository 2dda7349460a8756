//! Answers that are not a "no".

use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LAST_MODIFIED, LOCATION};
use axum::http::{HeaderValue, Response, StatusCode};
use berth_domain::id::TimeMs;
use serde::Serialize;

use super::accept::JSON;
use super::budget::Budget;
use super::fault::Fault;
use super::microversion::Microversion;

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    body: Option<Vec<u8>>,
    location: Option<String>,
    modified: Option<TimeMs>,
    no_cache: bool,
}

impl Reply {
    /// An answer without a body.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            body: None,
            location: None,
            modified: None,
            no_cache: false,
        }
    }

    /// Success without a body.
    pub(super) fn done() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    /// An answer with a body.
    pub(super) fn json(body: &impl Serialize) -> Result<Self, Fault> {
        let body = serde_json::to_vec(body).map_err(|error| {
            let detail = format!("the answer could not be written: {error}");
            Fault::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
        })?;
        Ok(Self {
            body: Some(body),
            ..Self::empty(StatusCode::OK)
        })
    }

    #[must_use]
    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Says where what was made can be found.
    #[must_use]
    pub(super) fn at(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }

    /// Sets the time of the last change; sent from 1.15 on.
    #[must_use]
    pub(super) fn modified(mut self, at: TimeMs) -> Self {
        self.modified = Some(at);
        self.never_modified()
    }

    /// Says that it must not be cached, without a time of the last change: from 1.15 on, as
    /// OpenStack answers where there is nothing that could have changed.
    #[must_use]
    pub(super) fn never_modified(mut self) -> Self {
        self.no_cache = true;
        self
    }

    /// Returns the answer as HTTP. A long one counts in `answers` until it is sent.
    pub(super) fn answer(
        self,
        version: Microversion,
        answers: &Budget,
    ) -> Result<Response<Body>, Fault> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if self.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        }
        let location = self.location.map(HeaderValue::try_from);
        if let Some(Ok(location)) = location {
            headers.insert(LOCATION, location);
        }
        if let Some(at) = self.modified.filter(|_| version.has(15)) {
            let at = UNIX_EPOCH + Duration::from_millis(at.0.min(LATEST_MS));
            let at = HeaderValue::try_from(httpdate::fmt_http_date(at));
            headers.insert(LAST_MODIFIED, at.expect("a date is plain text"));
        }
        if self.no_cache && version.has(15) {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
        if let Some(body) = self.body {
            let body = answers.hold(body).ok_or_else(|| {
                let detail = "too many long answers are on their way; repeat the request";
                Fault::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            })?;
            *response.body_mut() = Body::from(body);
        }
        Ok(response)
    }
}

/// The end of the year 9999, after which dates cannot be written.
const LATEST_MS: u64 = 253_402_300_799_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_sent_from_1_15_on() {
        let reply = || Reply::done().modified(TimeMs(784_111_777_000));
        let answers = Budget::new(1);
        let answer = |reply: Reply, version| reply.answer(version, &answers).unwrap();
        let new = answer(reply(), Microversion::MAX);
        assert_eq!(
            new.headers()[LAST_MODIFIED],
            "Sun, 06 Nov 1994 08:49:37 GMT"
        );
        assert_eq!(new.headers()[CACHE_CONTROL], "no-cache");
        assert!(answer(reply(), Microversion::MIN).headers().is_empty());
        let never = answer(Reply::done().never_modified(), Microversion::MAX);
        assert_eq!(never.headers().get(LAST_MODIFIED), None);
        assert_eq!(never.headers()[CACHE_CONTROL], "no-cache");
        let never = answer(Reply::done().never_modified(), Microversion::MIN);
        assert!(never.headers().is_empty());
        let never = Reply::done().modified(TimeMs(u64::MAX));
        assert_eq!(
            answer(never, Microversion::MAX).status(),
            StatusCode::NO_CONTENT
        );
    }
}
