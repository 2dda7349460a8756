//! Addresses of schedulers, as the command line has them and as they are dialled.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use berth_proto::client::Dialer;

/// The port of a scheduler whose address names none, as in the examples of the documents.
const SCHEDULER_PORT: u16 = 7100;

/// Returns an address as it is given on the command line.
#[must_use]
pub(crate) fn without_scheme(address: &str) -> &str {
    address.rsplit("://").next().unwrap_or(address)
}

/// Returns the address with a scheme.
pub(crate) fn url(dialer: &Dialer, address: &str) -> String {
    let address = address.trim();
    match address.split_once("://") {
        Some((scheme, host)) => format!("{scheme}://{}", with_port(host)),
        None => dialer.url(&with_port(address)),
    }
}

/// Returns why an address of the command line is none.
pub(crate) fn invalid(address: &str) -> String {
    let what = match address.trim() {
        "" => "an empty address".to_owned(),
        address => format!("{address:?}"),
    };
    format!(
        "{what} of --scheduler, or of BERTH_SCHEDULER, is not HOST, HOST:PORT or http://HOST:PORT, with a \
         port from 1 to 65535"
    )
}

/// Returns an address with a port: the schedulers' usual one, if it has none.
fn with_port(address: &str) -> Cow<'_, str> {
    if address.parse::<Ipv6Addr>().is_ok() {
        return format!("[{address}]:{SCHEDULER_PORT}").into();
    }
    let behind_literal = address.rsplit(']').next().unwrap_or_default();
    match behind_literal.contains(':') || address.is_empty() {
        true => address.into(),
        false => format!("{address}:{SCHEDULER_PORT}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an address without a port is one of a scheduler, and no other changes.
    #[test]
    fn a_missing_port_is_the_schedulers() {
        let dialer = Dialer::new(None);
        for (address, expected) in [
            ("m1", "http://m1:7100"),
            (" 10.0.0.1 ", "http://10.0.0.1:7100"),
            ("::1", "http://[::1]:7100"),
            ("[::1]", "http://[::1]:7100"),
            ("[::1]:7200", "http://[::1]:7200"),
            ("m1:7200", "http://m1:7200"),
            ("http://m1", "http://m1:7100"),
            ("https://[::1]", "https://[::1]:7100"),
            ("http://m1:7200", "http://m1:7200"),
            ("http://", "http://"),
        ] {
            assert_eq!(url(&dialer, address), expected, "{address}");
        }
    }
}
