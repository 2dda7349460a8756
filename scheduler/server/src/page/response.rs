//! Responses, with the headers that all have.

use std::convert::Infallible;

use berth_domain::refusal::{Code, Refusal};
use berth_page::assets::Asset;
use berth_page::failure;
use berth_page::headers::{HEADERS, HTML};
use berth_proto::status::from_status;
use bytes::Bytes;
use http_body_util::{Either, Full, StreamBody};
use tonic::Status;
use tonic::codegen::http::header::{ALLOW, CONTENT_TYPE, HeaderName, LOCATION, RETRY_AFTER};
use tonic::codegen::http::{HeaderValue, Response, StatusCode};

use super::stream::Events;

/// The body of a response: a whole, or a stream of events.
pub(super) type Content = Either<Full<Bytes>, StreamBody<Events>>;

/// An event as a part of a body.
pub(super) type Part = Result<hyper::body::Frame<Bytes>, Infallible>;

fn response(status: StatusCode, content_type: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn whole(text: impl Into<Bytes>) -> Content {
    Either::Left(Full::new(text.into()))
}

/// Returns a document.
pub(super) fn html(status: StatusCode, html: String) -> Response<Content> {
    response(status, HTML, whole(html))
}

/// Returns a file of the program.
pub(super) fn asset(asset: Asset) -> Response<Content> {
    let text = whole(asset.text().as_bytes().to_vec());
    response(StatusCode::OK, asset.content_type(), text)
}

/// Returns a stream of events.
pub(super) fn events(events: Events) -> Response<Content> {
    response(
        StatusCode::OK,
        EVENTS,
        Either::Right(StreamBody::new(events)),
    )
}

/// Returns the head of a stream alone.
pub(super) fn no_events() -> Response<Content> {
    response(StatusCode::OK, EVENTS, whole(Bytes::new()))
}

const EVENTS: &str = "text/event-stream";

/// Returns why there is no view.
pub(super) fn failure(
    status: StatusCode,
    what: &str,
    why: &str,
    hint: Option<&str>,
) -> Response<Content> {
    html(status, failure::render(what, why, hint))
}

/// Refuses a method; these are answered.
pub(super) fn method_not_allowed(allowed: &'static str) -> Response<Content> {
    let why = format!("only {allowed} is answered here");
    let mut response = failure(StatusCode::METHOD_NOT_ALLOWED, "Not allowed", &why, None);
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// Leads to another view, after an action was carried out.
pub(super) fn see_other(path: &str) -> Response<Content> {
    let mut response = html(StatusCode::SEE_OTHER, String::new());
    // A path has no other characters than a header may have.
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

/// Returns what a service refused.
pub(super) fn refusal(status: &Status) -> Response<Content> {
    let Refusal {
        code,
        message,
        hint,
        ..
    } = from_status(status);
    // The certificate of an open connection ended: the browser may have another one.
    let is_unauthenticated = status.code() == tonic::Code::Unauthenticated;
    let (status, what) = match code {
        _ if is_unauthenticated => (StatusCode::UNAUTHORIZED, "Not authenticated"),
        Code::InvalidArgument | Code::OutOfRange => {
            (StatusCode::BAD_REQUEST, "Not a valid request")
        }
        Code::NotFound => (StatusCode::NOT_FOUND, "Not found"),
        Code::PermissionDenied => (StatusCode::FORBIDDEN, "Not allowed"),
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => {
            (StatusCode::CONFLICT, "Not possible now")
        }
        Code::Unavailable | Code::ResourceExhausted | Code::Cancelled | Code::Unimplemented => {
            (StatusCode::SERVICE_UNAVAILABLE, "Not available now")
        }
        Code::DeadlineExceeded => (StatusCode::GATEWAY_TIMEOUT, "No answer in time"),
        Code::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "It failed"),
    };
    let mut response = failure(status, what, &message, hint.as_deref());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = HeaderValue::from_static("5");
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}
