//! From a request to a response: the order of all checks.
//!
//! ```text
//!   request id ▸ caller (401) ▸ microversion (406, 400) ▸ body without a type (400)
//!     ▸ path (404) ▸ method (405) ▸ since when (404) ▸ media types (406, 415)
//!     ▸ policy (403) ▸ body and query ▸ the state's response
//! ```
//!
//! It is the order of OpenStack's service; clients see it in which error is returned first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, TRANSFER_ENCODING, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use berth_process::access;
use berth_tls::Role;
use berth_tls::identity::now;
use http_body_util::LengthLimitError;
use uuid::Uuid;

use super::accept::{Accept, JSON};
use super::budget::{Budget, Share};
use super::call::{Call, base};
use super::caller::{Authority, Caller};
use super::cors::Cors;
use super::fault::{Fault, code, quoted};
use super::microversion::{self, Disagreement, Microversion};
use super::policy::{self, Profile, Who};
use super::query::Query;
use super::reply::Reply;
use super::requests::Requests;
use super::route::{Carries, Endpoint, Route};
use super::{Options, endpoints};
use crate::backend::Backend;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-openstack-request-id");
const VERSION: HeaderName = HeaderName::from_static(microversion::HEADER);
/// How many bytes of long bodies may be on their way in, in bodies of the greatest length.
const COMING_MAX: usize = 16;
/// How many bytes of long bodies may be worked on, in bodies of the greatest length. JSON that is
/// taken apart can be 80 times as large.
const WORKED_ON_MAX: usize = 2;
/// How many bytes of long answers may be on their way out.
const ANSWERS_BYTES_MAX: usize = 1 << 30;
/// The origin that the CORS profile lets in; the one of OpenStack's test suite.
const CORS_ORIGIN: &str = "http://valid.example.com";

/// The REST API and its limits.
pub(super) struct Api {
    backend: Arc<dyn Backend>,
    authority: Authority,
    profile: Profile,
    cors: Option<Cors>,
    body_bytes_max: usize,
    timeout: Duration,
    coming: Budget,
    worked_on: Budget,
    answers: Budget,
    requests: Arc<Requests>,
}

impl Api {
    /// Returns an API of the state.
    pub(super) fn new(backend: Arc<dyn Backend>, options: Options) -> Self {
        let authority = match options.tokens {
            Some(tokens) => Authority::Tokens(tokens),
            None => Authority::Believing,
        };
        let cors = (options.profile == Profile::Cors).then(|| Cors::new(CORS_ORIGIN));
        Self {
            backend,
            authority,
            profile: options.profile,
            cors,
            body_bytes_max: options.body_bytes_max,
            timeout: options.timeout,
            coming: Budget::new(COMING_MAX * options.body_bytes_max),
            worked_on: Budget::new(WORKED_ON_MAX * options.body_bytes_max),
            answers: Budget::new(ANSWERS_BYTES_MAX),
            requests: options.requests,
        }
    }

    /// Answers a request.
    pub(super) async fn answer(self: Arc<Self>, request: Request) -> Response<Body> {
        let begun = Instant::now();
        let request_id = format!("req-{}", Uuid::new_v4());
        let (parts, body) = request.into_parts();
        let mut response = self.versioned(&parts, body, &request_id).await;
        if let Some(cors) = &self.cors {
            response = cors.apply(&parts.method, &parts.headers, response);
        }
        let value = HeaderValue::try_from(request_id).expect("a UUID is plain text");
        response.headers_mut().insert(REQUEST_ID, value);
        let route = Route::parse(parts.uri.path());
        let status = response.status();
        self.requests.count(route.as_ref(), status, begun.elapsed());
        tracing::debug!(
            method = %parts.method,
            path = parts.uri.path(),
            status = status.as_u16(),
            "placement request"
        );
        response
    }

    /// Identifies the caller and negotiates the version; errors up to then carry no version.
    async fn versioned(&self, parts: &Parts, body: Body, request_id: &str) -> Response<Body> {
        let accept = Accept::of(&parts.headers);
        let unversioned = |fault: Fault| fault.answer(&accept, None, request_id);
        let is_root = matches!(parts.uri.path(), "" | "/");
        if let Err(fault) = certified(parts) {
            return unversioned(fault);
        }
        let caller = match self.authority.caller(&parts.headers) {
            Some(caller) => caller,
            None if is_root => Caller::default(),
            None => return unversioned(Fault::unauthorized()),
        };
        let version = match Microversion::negotiate(&parts.headers) {
            Ok(version) => version,
            Err(unknown @ Disagreement::Unknown(_)) => {
                return unversioned(Fault::unknown_version(unknown.to_string()));
            }
            Err(malformed @ Disagreement::Malformed(_)) => {
                return unversioned(Fault::bad_request(malformed.to_string()));
            }
        };
        let checked = self.checked(parts, &accept, caller, version, body).await;
        let answered = checked.and_then(|reply| {
            let answered = reply.answer(version, &self.answers);
            answered.map_err(|busy| match looks(&parts.method) {
                true => busy,
                false => unheld(),
            })
        });
        let mut response = match answered {
            Ok(response) => response,
            Err(fault) => fault.answer(&accept, Some(version), request_id),
        };
        let value = HeaderValue::try_from(format!("placement {version}"));
        let headers = response.headers_mut();
        headers.insert(VERSION, value.expect("numbers are plain text"));
        headers.insert(VARY, HeaderValue::from_static(microversion::HEADER));
        response
    }

    async fn checked(
        &self,
        parts: &Parts,
        accept: &Accept,
        caller: Caller,
        version: Microversion,
        body: Body,
    ) -> Result<Reply, Fault> {
        let headers = &parts.headers;
        check_body_has_type(headers)?;
        let (route, endpoint) = find(parts, version)?;
        check_media_types(endpoint, accept, headers)?;
        let query = Query::parse(parts.uri.query());
        let project = query
            .as_ref()
            .ok()
            .and_then(|query| query.get("project_id"));
        let project = project.filter(|_| endpoint.who == Who::AdminServiceOrReader);
        policy::check(self.profile, endpoint.who, endpoint.rule, &caller, project)?;
        let query = query?;
        let (body, _share) = self.read(headers, body).await?;
        let call = Call {
            backend: &*self.backend,
            version,
            caller,
            query,
            body,
            media_type: media_type(headers).map(str::to_owned),
            base: base(headers, access::caller(&parts.extensions).is_some()),
            through: access::caller(&parts.extensions).map(|through| through.principal()),
        };
        endpoints::answer(&call, &route, endpoint.method).await
    }

    /// Reads a body, up to the length that is allowed, and gets leave to work on it.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<(Bytes, Option<Share>), Fault> {
        let max = self.body_bytes_max;
        let too_large = || {
            let detail = format!("the body is longer than the {max} bytes that are read");
            Fault::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        };
        if content_length(headers).is_some_and(|length| length > max as u64) {
            return Err(too_large());
        }
        let busy = |()| {
            let detail = "too many long bodies at once; repeat the request";
            Fault::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        };
        let length = match headers.contains_key(TRANSFER_ENCODING) {
            // The length is unknown.
            true => Some(max as u64),
            false => content_length(headers),
        };
        let length = usize::try_from(length.unwrap_or(0)).unwrap_or(max);
        let coming = self.coming.wait(length, self.timeout).await.map_err(busy)?;
        let read = axum::body::to_bytes(body, max);
        let bytes = match tokio::time::timeout(self.timeout, read).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) if is_too_long(&error) => return Err(too_large()),
            // Or the connection broke: then no client reads this.
            Ok(Err(_)) => return Err(Fault::bad_request("the body's chunks are malformed")),
            Err(_) => {
                return Err(Fault::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "the body did not arrive in time",
                ));
            }
        };
        let share = self.worked_on.wait(bytes.len(), self.timeout).await;
        drop(coming);
        Ok((bytes, share.map_err(busy)?))
    }
}

/// Checks the certificate that was shown, where connections are encrypted: it lets operators in, and
/// readers who only look. Their OpenStack identity is checked by their token.
fn certified(parts: &Parts) -> Result<(), Fault> {
    let Some(identity) = access::caller(&parts.extensions) else {
        return Ok(());
    };
    if identity.has_expired(now()) {
        let detail = "the certificate has run out: renew it (berth certs renew) and connect again";
        return Err(Fault::new(StatusCode::FORBIDDEN, detail));
    }
    if let Err(why) = access::still_trusted(&parts.extensions) {
        let detail = format!("the certificate is not trusted any more: {why}");
        return Err(Fault::new(StatusCode::FORBIDDEN, detail));
    }
    match identity.role {
        Role::Operator => Ok(()),
        Role::Reader if looks(&parts.method) => Ok(()),
        Role::Reader | Role::Scheduler | Role::Conductor | Role::Agent | Role::CsiController => {
            let detail = format!(
                "{} may not do this: that is for operators, and readers may look",
                identity.principal()
            );
            Err(Fault::new(StatusCode::FORBIDDEN, detail))
        }
    }
}

/// Returns whether a method changes nothing.
fn looks(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The answer to a write that was carried out is too long to be held now.
fn unheld() -> Fault {
    let detail = "the write was carried out, and too many long answers are on their way: read what \
                  it changed instead of repeating it";
    Fault::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_code(code::OUTCOME_UNKNOWN)
}

/// Says whether a body was not read to its end because it is too long.
fn is_too_long(error: &axum::Error) -> bool {
    let cause = std::error::Error::source(error);
    cause.is_some_and(|cause| cause.is::<LengthLimitError>())
}

/// Finds what a request is for.
fn find(parts: &Parts, version: Microversion) -> Result<(Route, &'static Endpoint), Fault> {
    let route = Route::parse(parts.uri.path()).ok_or_else(|| Fault::not_found(""))?;
    let endpoints = route.endpoints();
    let allow: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.method).collect();
    let method = parts.method.as_str();
    let not_allowed = || Fault::method_not_allowed(method, &allow);
    let endpoint = endpoints.iter().find(|endpoint| endpoint.method == method);
    let endpoint = endpoint.ok_or_else(not_allowed)?;
    if version.has(endpoint.since) {
        return Ok((route, endpoint));
    }
    // The path of inventories was there before this method was.
    let is_late = matches!(route, Route::Inventories(_)) && parts.method == Method::DELETE;
    Err(match is_late {
        true => not_allowed(),
        false => Fault::not_found(""),
    })
}

/// Checks that a body, if any, has a media type.
fn check_body_has_type(headers: &HeaderMap) -> Result<(), Fault> {
    let Some(length) = headers.get(CONTENT_LENGTH) else {
        return Ok(());
    };
    if !length.is_empty() && content_length(headers).is_none() {
        return Err(Fault::bad_request(
            "content-length header must be an integer",
        ));
    }
    match content_length(headers) {
        Some(1..) if media_type(headers).is_none() => Err(Fault::bad_request(
            "content-type header required when content-length > 0",
        )),
        _ => Ok(()),
    }
}

fn check_media_types(
    endpoint: &Endpoint,
    accept: &Accept,
    headers: &HeaderMap,
) -> Result<(), Fault> {
    match endpoint.carries {
        Carries::Answer if accept.quality(JSON) == 0 => Err(Fault::new(
            StatusCode::NOT_ACCEPTABLE,
            "Only application/json is provided",
        )),
        Carries::Body => check_is_json(media_type(headers)),
        Carries::Answer | Carries::Nothing => Ok(()),
    }
}

/// Checks that the media type of a body is JSON.
pub(super) fn check_is_json(media_type: Option<&str>) -> Result<(), Fault> {
    if media_type == Some(JSON) {
        return Ok(());
    }
    let given = quoted(media_type.unwrap_or("None"));
    Err(Fault::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("The media type {given} is not supported, use application/json"),
    ))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Returns the type of a body without its parameters.
fn media_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let bare = text.split(';').next().unwrap_or(text).trim();
    Some(bare).filter(|bare| !bare.is_empty())
}
