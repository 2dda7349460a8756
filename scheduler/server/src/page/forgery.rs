//! Which requests that change something are of this page's own forms: other web sites can have a browser send
//! requests too, with the certificate of the person who uses it.
//!
//! Two proofs are required, of which each suffices: the headers by which a browser names the origin of a
//! request, and the token of the form, which other sites cannot read.
//!
//! Invariant: a token is of this process and of one caller.

use berth_domain::refusal::{Code, Refusal};
use ring::hmac;
use ring::rand::SystemRandom;
use tonic::codegen::http::HeaderMap;
use tonic::codegen::http::header::{HOST, HeaderName, ORIGIN};

/// The key of this process's tokens.
pub(super) struct Seals(hmac::Key);

impl Seals {
    /// Returns a new one; nothing where there is no randomness.
    pub(super) fn new() -> Option<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        key.ok().map(Self)
    }

    /// Returns the token of the forms of a caller.
    pub(super) fn token(&self, caller: &str) -> String {
        hex(hmac::sign(&self.0, caller.as_bytes()).as_ref())
    }

    /// Checks that a token is of a form of this caller's.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub(super) fn check(&self, caller: &str, token: &str) -> Result<(), Refusal> {
        let expected = hmac::sign(&self.0, caller.as_bytes());
        // Both are hashed, so that comparing them takes as long whatever they have in common.
        let sent = hmac::sign(&self.0, token.as_bytes());
        let verified = hmac::verify(&self.0, hex(expected.as_ref()).as_bytes(), sent.as_ref());
        verified.map_err(|_| {
            let message = "the form is not of this member, or is of before it was started";
            Refusal::new(Code::FailedPrecondition, "FORM_OUTDATED", message)
                .with_hint("load the view again, and send the form that it shows then")
        })
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that a request was sent by a page of the same origin, as its browser states.
///
/// # Errors
///
/// When it was not, or no browser states it.
pub(super) fn check_origin(headers: &HeaderMap, is_encrypted: bool) -> Result<(), Refusal> {
    const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    let one = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        let value = values.next().map(|value| value.as_bytes());
        value.filter(|_| values.next().is_none())
    };
    let scheme = if is_encrypted { "https" } else { "http" };
    let own = one(HOST).map(|host| [scheme.as_bytes(), b"://", host].concat());
    let is_own =
        own.is_some_and(|own| one(ORIGIN).is_some_and(|origin| origin.eq_ignore_ascii_case(&own)));
    let is_same_site = !headers.contains_key(FETCH_SITE) || one(FETCH_SITE) == Some(b"same-origin");
    if is_own && is_same_site {
        return Ok(());
    }
    let message =
        "the request was not sent by this page: its header `Origin` is not the page's own";
    Err(
        Refusal::new(Code::PermissionDenied, "OTHER_ORIGIN", message)
            .with_hint("programs use the gRPC API or `berth`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    /// Goal: only what this page sent to itself passes, whatever else a browser or a site may send.
    #[test]
    fn requests_of_other_origins_are_refused() {
        let own = ("host", "m1:7190");
        for (pairs, is_encrypted, passes) in [
            (vec![own, ("origin", "https://m1:7190")], true, true),
            (vec![own, ("origin", "http://m1:7190")], false, true),
            (vec![own, ("origin", "HTTPS://M1:7190")], true, true),
            (
                vec![
                    own,
                    ("origin", "https://m1:7190"),
                    ("sec-fetch-site", "same-origin"),
                ],
                true,
                true,
            ),
            (vec![own, ("origin", "http://m1:7190")], true, false),
            (vec![own, ("origin", "https://m1:7190")], false, false),
            (vec![own, ("origin", "https://m1")], true, false),
            (vec![own, ("origin", "https://m1:7191")], true, false),
            (
                vec![own, ("origin", "https://m1:7190.evil.example")],
                true,
                false,
            ),
            (vec![own, ("origin", "https://evil.example")], true, false),
            (vec![own, ("origin", "null")], true, false),
            (vec![own, ("origin", "")], true, false),
            (vec![own], true, false),
            (vec![("origin", "https://m1:7190")], true, false),
            (
                vec![
                    own,
                    ("origin", "https://m1:7190"),
                    ("origin", "https://evil.example"),
                ],
                true,
                false,
            ),
            (
                vec![
                    own,
                    ("origin", "https://m1:7190"),
                    ("sec-fetch-site", "cross-site"),
                ],
                true,
                false,
            ),
            (
                vec![
                    own,
                    ("origin", "https://m1:7190"),
                    ("sec-fetch-site", "same-site"),
                ],
                true,
                false,
            ),
            (
                vec![
                    own,
                    ("origin", "https://m1:7190"),
                    ("sec-fetch-site", "none"),
                ],
                true,
                false,
            ),
        ] {
            let checked = check_origin(&headers(&pairs), is_encrypted);
            assert_eq!(checked.is_ok(), passes, "{pairs:?}");
        }
    }

    /// Goal: a token is worth something to its caller and its process alone.
    #[test]
    fn tokens_are_of_one_caller_and_process() {
        let seals = Seals::new().expect("randomness");
        let token = seals.token("ann");
        assert!(seals.check("ann", &token).is_ok());
        for other in ["", "bob", "ann ", "an"] {
            assert!(seals.check(other, &token).is_err(), "{other}");
        }
        let shorter = &token[1..];
        let longer = format!("{token}0");
        let upper = token.to_uppercase();
        for wrong in ["", "0", shorter, &longer, &upper] {
            assert!(seals.check("ann", wrong).is_err(), "{wrong}");
        }
        let another = Seals::new().expect("randomness");
        assert!(another.check("ann", &token).is_err());
    }
}
