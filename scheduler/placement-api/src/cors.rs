//! Cross-origin resource sharing: which scripts in browsers may call.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response};

use super::microversion;

/// Seconds for which a browser may cache a preflight response.
const MAX_AGE: &str = "3600";
/// Headers that every script may send.
const SIMPLE: [&str; 8] = [
    "accept",
    "accept-language",
    "cache-control",
    "content-language",
    "content-type",
    "expires",
    "last-modified",
    "pragma",
];
const METHODS: [&str; 8] = [
    "OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "PATCH",
];

/// Which origins may call.
#[derive(Clone, Debug)]
pub(super) struct Cors {
    origin: HeaderValue,
}

impl Cors {
    /// Returns the rule that lets scripts of this origin call.
    pub(super) fn new(origin: &'static str) -> Self {
        Self {
            origin: HeaderValue::from_static(origin),
        }
    }

    /// Adds the CORS headers to a response, and responds to preflight requests.
    pub(super) fn apply(
        &self,
        method: &Method,
        request_headers: &HeaderMap,
        response: Response<Body>,
    ) -> Response<Body> {
        let mut response = match *method == Method::OPTIONS && !response.status().is_success() {
            true => Response::new(Body::empty()),
            false => response,
        };
        if request_headers.get(ORIGIN) != Some(&self.origin) {
            return response;
        }
        let allowed = match *method {
            Method::OPTIONS => preflight(request_headers),
            _ => Some(Vec::new()),
        };
        let Some(allowed) = allowed else {
            return response;
        };
        let headers = response.headers_mut();
        headers.append(VARY, HeaderValue::from_static("Origin"));
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.clone());
        headers.insert(
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            HeaderValue::from_static("true"),
        );
        for (name, value) in allowed {
            headers.insert(name, value);
        }
        response
    }
}

/// Returns the headers that allow a call after a preflight request; `None` if it is not allowed.
fn preflight(request_headers: &HeaderMap) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let method = request_headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
    if !METHODS.contains(&method.to_str().ok()?) {
        return None;
    }
    let max_age = (ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    let mut allowed = vec![(ACCESS_CONTROL_ALLOW_METHODS, method.clone()), max_age];
    if let Some(headers) = request_headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        let mut names = headers.to_str().ok()?.split(',').map(str::trim);
        let known = |name: &str| {
            let name = name.to_ascii_lowercase();
            name.is_empty() || name == microversion::HEADER || SIMPLE.contains(&&*name)
        };
        if !names.all(known) {
            return None;
        }
        allowed.push((ACCESS_CONTROL_ALLOW_HEADERS, headers.clone()));
    }
    Some(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    fn respond(method: Method, headers: &[(&'static str, &'static str)]) -> Response<Body> {
        let mut request_headers = HeaderMap::new();
        for (name, value) in headers {
            request_headers.insert(*name, value.parse().unwrap());
        }
        let mut response = Response::new(Body::from("no"));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        Cors::new("http://valid.example.com").apply(&method, &request_headers, response)
    }

    #[test]
    fn only_the_named_origin_is_let_in() {
        let good = ("origin", "http://valid.example.com");
        let method = ("access-control-request-method", "GET");
        let header = |name| ("access-control-request-headers", name);
        for (headers, let_in) in [
            (vec![good, method, header("openstack-api-version")], true),
            (vec![good, method], true),
            (vec![good, method, header("x-other")], false),
            (vec![good], false),
            (
                vec![("origin", "http://invalid.example.com"), method],
                false,
            ),
        ] {
            let response = respond(Method::OPTIONS, &headers);
            assert_eq!(response.status(), StatusCode::OK);
            let allow_origin = response.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(allow_origin.is_some(), let_in, "{headers:?}");
        }
        let plain = respond(Method::GET, &[good]);
        assert_eq!(plain.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert!(plain.headers().contains_key(ACCESS_CONTROL_ALLOW_ORIGIN));
    }
}
