//! For which names the page is served: the `Host` of a request has to be one of them.
//!
//! A web site may point its own name at 127.0.0.1 once its page is open, and its script then reads what is
//! served there as its own. The browser still sends that site's name as the `Host`, by which the request is
//! refused.
//!
//! Invariant: a name is served because it is a loopback name, an address that is listened on, or
//! configured; never because a client names it.

use std::net::{IpAddr, SocketAddr};

/// The names that are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// What is listened on.
    address: IpAddr,
    /// Further names, in lower case.
    configured: Vec<String>,
}

impl Names {
    /// Returns those of a listener: loopback names where it listens there, its address, and these.
    #[must_use]
    pub fn new(address: SocketAddr, configured: impl IntoIterator<Item = String>) -> Self {
        let configured = configured.into_iter();
        Self {
            address: address.ip(),
            configured: configured.map(|name| name.to_ascii_lowercase()).collect(),
        }
    }

    /// Returns whether a request with this `Host` is answered.
    #[must_use]
    pub fn serves(&self, host: Option<&[u8]>) -> bool {
        let host = host.and_then(|host| std::str::from_utf8(host).ok());
        let Some(name) = host.and_then(name_of) else {
            return false;
        };
        let name = name.to_ascii_lowercase();
        if self.configured.contains(&name) {
            return true;
        }
        let listens_locally = self.address.is_loopback() || self.address.is_unspecified();
        match name.parse::<IpAddr>() {
            // An address is no name that could be pointed elsewhere.
            Ok(address) if self.address.is_unspecified() => !address.is_unspecified(),
            Ok(address) => address == self.address || (listens_locally && address.is_loopback()),
            Err(_) => listens_locally && name == "localhost",
        }
    }
}

/// Returns the host without its port and without brackets.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port,
        None if port.is_empty() => return Some(name),
        None => return None,
    };
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_port.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(address: &str) -> Names {
        let address = address.parse().expect("an address");
        Names::new(address, ["m1.Example".to_owned()])
    }

    #[track_caller]
    fn check(names: &Names, served: &[&str], refused: &[&str]) {
        for host in served {
            assert!(names.serves(Some(host.as_bytes())), "{host}");
        }
        for host in refused {
            assert!(!names.serves(Some(host.as_bytes())), "{host}");
        }
        assert!(!names.serves(None));
        assert!(!names.serves(Some(b"\xff")));
    }

    /// Goal: a name of another site is refused, whatever it resolves to.
    #[test]
    fn foreign_names_are_refused() {
        let foreign = [
            "",
            "evil.example",
            "evil.example:7190",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:",
            "127.0.0.1:x",
            "[::1",
            "[::1]x",
            "2130706433",
            "0.0.0.0:7190",
            "localhost:7190@evil.example",
        ];
        let local = [
            "localhost",
            "LOCALHOST:7190",
            "127.0.0.1:7190",
            "127.0.0.2",
            "[::1]:7190",
            "m1.example:7190",
        ];
        check(&names("127.0.0.1:7190"), &local, &foreign);
        check(&names("[::1]:7190"), &local, &foreign);
        check(&names("0.0.0.0:7190"), &local, &foreign);
    }

    /// Goal: beyond loopback the address itself is served, and no other one.
    #[test]
    fn an_address_beyond_loopback() {
        check(
            &names("10.0.0.7:7190"),
            &["10.0.0.7:7190", "m1.example"],
            &["localhost", "127.0.0.1", "10.0.0.8", "evil.example"],
        );
        check(&names("0.0.0.0:7190"), &["10.0.0.8"], &["evil.example"]);
    }
}
