//! Which microversion a client speaks: the header `OpenStack-API-Version: placement X.Y`.

use axum::http::HeaderMap;

use super::fault::quoted;

/// The header of requests and answers.
pub(super) const HEADER: &str = "openstack-api-version";
/// The service whose version counts; one header may name versions for several.
const SERVICE: &str = "placement";

/// A microversion; the major number is always 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Microversion(u64);

/// Why no microversion could be agreed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Disagreement {
    /// It is a version, but not one of ours.
    #[error("Invalid microversion: Unacceptable version header: {0}")]
    Unknown(String),
    /// It is no version at all.
    #[error("Invalid microversion: invalid version string: {0}")]
    Malformed(String),
}

impl Microversion {
    /// The version of clients that request none.
    pub(super) const MIN: Self = Self(0);
    /// The newest.
    pub(super) const MAX: Self = Self(39);
    /// The last one that does not know `in:` before traits.
    pub(super) const BEFORE_ANY_OF: Self = Self(38);

    /// Says whether it is 1.`minor` or newer.
    pub(super) fn has(self, minor: u64) -> bool {
        self.0 >= minor
    }

    /// Agrees on a version.
    pub(super) fn negotiate(headers: &HeaderMap) -> Result<Self, Disagreement> {
        match requested_version(headers) {
            None => Ok(Self::MIN),
            Some(text) if text == "latest" => Ok(Self::MAX),
            Some(text) => Self::parse(&text),
        }
    }

    fn parse(text: &str) -> Result<Self, Disagreement> {
        let numbers = text.split_once('.');
        let numbers = numbers.and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
        match numbers {
            None => Err(Disagreement::Malformed(quoted(text))),
            Some((1, minor)) if minor <= Self::MAX.0 => Ok(Self(minor)),
            Some(_) => Err(Disagreement::Unknown(quoted(text))),
        }
    }
}

impl std::fmt::Display for Microversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Returns the version requested of this service; the last one counts.
fn requested_version(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(HEADER).iter().rev();
    let items = values.filter_map(|value| value.to_str().ok());
    items.flat_map(|value| value.rsplit(',')).find_map(|item| {
        let (service, version) = item.trim().split_once(char::is_whitespace)?;
        let ours = service.eq_ignore_ascii_case(SERVICE);
        ours.then(|| version.trim().to_owned())
    })
}

/// Returns version 1.`minor`, for tests.
#[cfg(test)]
pub(super) fn agreed(minor: u64) -> Microversion {
    let mut headers = HeaderMap::new();
    let value = format!("placement 1.{minor}").parse().expect("a header");
    headers.insert(HEADER, value);
    Microversion::negotiate(&headers).expect("a version that is known")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(header: &str) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, header.parse().unwrap());
        match Microversion::negotiate(&headers) {
            Ok(version) => Ok(version.to_string()),
            Err(disagreement) => Err(disagreement.to_string()),
        }
    }

    #[test]
    fn versions_are_agreed_on_as_documented() {
        assert_eq!(
            Microversion::negotiate(&HeaderMap::new()),
            Ok(Microversion::MIN)
        );
        for (header, version) in [
            ("placement 1.0", "1.0"),
            ("placement 1.39", "1.39"),
            ("Placement latest", "1.39"),
            ("compute 2.1, placement 1.7", "1.7"),
            ("compute 2.1", "1.0"),
            ("nonsense", "1.0"),
        ] {
            assert_eq!(negotiate(header).as_deref(), Ok(version), "{header}");
        }
        for (header, part) in [
            ("placement 0.5", "Unacceptable version header: 0.5"),
            ("placement 1.40", "Unacceptable version header: 1.40"),
            ("placement 1.2.3", "invalid version string: 1.2.3"),
            ("placement pony.horse", "invalid version string: pony.horse"),
            ("placement 1", "invalid version string: 1"),
        ] {
            assert!(negotiate(header).unwrap_err().contains(part), "{header}");
        }
    }
}
