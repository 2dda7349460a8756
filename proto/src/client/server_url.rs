//! URLs of servers, as `http://m1:7100`: what may be dialled.
//!
//! Not here: who listens there, and how addresses are typed.

use std::net::{Ipv4Addr, Ipv6Addr};

use tonic::codegen::http::uri::Authority;

/// A text is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address:?} is not an address like http://127.0.0.1:7100")]
pub struct InvalidAddress {
    /// The text.
    pub address: String,
}

/// Returns whether a text is the URL of a server, as `http://m1:7100`.
#[must_use]
pub fn is_address(address: &str) -> bool {
    check_address(address).is_ok()
}

/// Checks that a text is the URL of a server.
///
/// # Errors
///
/// When it is not.
pub(super) fn check_address(address: &str) -> Result<(), InvalidAddress> {
    let uri = address.parse::<tonic::transport::Uri>();
    let good = uri.is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(is_dialable)
            && uri.path_and_query().is_none_or(|path| path.as_str() == "/")
    });
    if good {
        Ok(())
    } else {
        Err(InvalidAddress {
            address: address.to_owned(),
        })
    }
}

/// Returns whether an authority is a host, with a port or without: to `Uri` a port beyond the range is none,
/// and the one of the scheme would be dialled instead.
fn is_dialable(authority: &Authority) -> bool {
    let host = authority.host();
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    is_host(host)
        && match authority.as_str().strip_prefix(host) {
            Some("") => true,
            Some(behind) => behind.strip_prefix(':').is_some_and(is_port),
            // A user stands before it.
            None => false,
        }
}

/// Returns whether a text is a literal address or the name of a host: `Uri` takes other characters too, as
/// those between addresses of a list.
fn is_host(text: &str) -> bool {
    if let Some(literal) = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
    {
        let address = literal.split('%').next().unwrap_or_default();
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let labels = text.strip_suffix('.').unwrap_or(text).split('.');
    let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    if labels.clone().next_back().is_some_and(is_number) {
        return text.parse::<Ipv4Addr>().is_ok();
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 254 && labels.clone().all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a text that is no address is refused as such, and not dialled.
    #[test]
    fn only_addresses_are_taken() {
        for bad in [
            "",
            "127.0.0.1:7100",
            "http://",
            "ftp://a:1",
            "a b",
            "http:///x",
            "http://m1:7100/x",
            "http://m1/x:7100",
            "http://m1?x",
            "http://m1:7100/?x",
            "http://-x:7100",
            "http://x-:7100",
            "http://a.-b:7100",
            "http://a:99999",
            "http://a:0",
            "http://a:",
            "http://u@a:1",
            "http://[::1]:65536",
            "http://*",
            "http://*:7100",
            "http://127.0.5.5;127.0.5.4",
            "http://127.0.5.5;127.0.5.4:7100",
            "http://a,b:1",
            "http://a$b",
            "http://a!",
            "http://é:1",
            "http://a..b",
            "http://.a",
            "http://256.0.0.1",
            "http://1.2.3",
            "http://7100",
            "http://[::g]",
            "http://[127.0.0.1]",
        ] {
            assert!(!is_address(bad), "{bad:?}");
        }
        let long = format!("http://{}", "a".repeat(64));
        assert!(!is_address(&long));
        for good in [
            "http://a",
            "http://a.",
            "https://a.b:65535",
            "http://under_score-1.example:1",
            "http://1a.b",
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://[::1]",
        ] {
            assert!(is_address(good), "{good:?}");
        }
    }
}
