//! Whether the hypervisor of another host can be reached from this one.
//!
//! What it is not: the connection of a transfer, which this host's libvirtd opens itself. The agent dials
//! from the same machine, with the same files of certificates, and so meets the same faults.
//!
//! Invariant: bounded in time. libvirt's own client waits for as long as the kernel does. And no URI of
//! another host has libvirt run a program here.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Connection;
use crate::error::Error;

/// How long a connection may take to be accepted.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the other daemon may take for handshake and greeting.
const OPEN_MAX: Duration = Duration::from_secs(20);

/// The ports on which libvirtd listens for a transport, unless a URI has another one.
const PORTS: [(&str, u16); 2] = [("tls", 16514), ("tcp", 16509)];

/// Connects to the hypervisor at `uri`, and hangs up.
///
/// # Errors
///
/// [`Error::Refused`] with the reason.
pub(super) fn check(uri: &str) -> Result<(), Error> {
    check_uri(uri)?;
    knock(uri)?;
    let (sender, receiver) = mpsc::channel();
    let target = uri.to_owned();
    // It may outlive this call by as long as libvirt waits; nothing waits for it then.
    thread::spawn(move || {
        let opened = Connection::open(&target).map(drop);
        // The receiver is gone if that took too long.
        let _ = sender.send(opened.map_err(|error| error.to_string()));
    });
    match receiver.recv_timeout(OPEN_MAX) {
        Ok(opened) => opened.map_err(Error::refused),
        Err(_) => Err(Error::refused(format!(
            "{uri} accepted the connection and did not answer within {} s",
            OPEN_MAX.as_secs()
        ))),
    }
}

/// Refuses the URI of a peer that has parameters. It comes from the other host, and libvirt runs what the
/// parameters `command` of `ext` and `ssh`, and `netcat`, name: as root, in the agent or in libvirtd.
///
/// # Errors
///
/// [`Error::Refused`] with the URI.
pub(super) fn check_uri(uri: &str) -> Result<(), Error> {
    match has_parameters(uri) {
        true => Err(Error::refused(format!(
            "{uri} has parameters, which could name a program: set libvirt.migration_uri of the other \
             host to a URI without them"
        ))),
        false => Ok(()),
    }
}

/// Returns whether a URI has more than a place. libvirt takes the part behind a number sign for no
/// parameter, but no URI of a peer needs one.
pub fn has_parameters(uri: &str) -> bool {
    uri.contains(['?', '#'])
}

/// Connects to the port of the daemon: a host that answers nothing is found out in bounded time.
/// Transports that open no connection of that kind, as ssh, are left to libvirt.
fn knock(uri: &str) -> Result<(), Error> {
    let Some((host, port)) = target(uri) else {
        return Ok(());
    };
    let failed = |why: String| Error::refused(format!("{host}:{port} cannot be reached: {why}"));
    let addresses = (host.as_str(), port)
        .to_socket_addrs()
        .map_err(|error| failed(error.to_string()))?;
    let mut last = "its name has no address".to_owned();
    for address in addresses.take(4) {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(_) => return Ok(()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(failed(last))
}

/// Returns host and port of a URI with transport tls or tcp.
fn target(uri: &str) -> Option<(String, u16)> {
    let (scheme, rest) = uri.split_once("://")?;
    let (_, transport) = scheme.split_once('+')?;
    let (_, default) = PORTS.into_iter().find(|(name, _)| *name == transport)?;
    let host = uri_host(uri)?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let end = authority.rsplit(']').next()?;
    let port = end.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    Some((host, port.unwrap_or(default)))
}

/// Returns the host that a libvirt URI names: `h2` of `qemu+tls://root@h2:16514/system`, without the
/// brackets of an IPv6 address.
pub fn uri_host(uri: &str) -> Option<String> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?.0,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn hosts_and_ports_are_taken_out_of_uris() {
        let check = |uri: &str, expected: Option<(&str, u16)>| {
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(target(uri), expected, "{uri}");
        };
        check("qemu+tls://h2/system", Some(("h2", 16514)));
        check("qemu+tcp://h2/system", Some(("h2", 16509)));
        check("qemu+tls://root@h2:4000/system?x=1", Some(("h2", 4000)));
        check("qemu+tls://[fd00::2]/system", Some(("fd00::2", 16514)));
        check("qemu+tls://[fd00::2]:17/system", Some(("fd00::2", 17)));
        check("qemu+ssh://h2/system", None);
        check("qemu:///system", None);
        check("test:///default", None);
        check("qemu+tls:///system", None);
        check("", None);
    }

    /// Goal: another host cannot have a program run here. It is refused before libvirt reads it.
    #[test]
    fn the_uri_of_a_peer_names_no_program() {
        let program = "/usr/sbin/poweroff";
        for uri in [
            format!("qemu+ext:///system?command={program}"),
            format!("qemu+ssh://h2/system?command={program}"),
            format!("qemu+ssh://h2/system?netcat={program}"),
            format!("qemu+tls://h2/system?x=1&command={program}"),
            format!("test+ext:///default?command={program}"),
            "qemu+tls://h2/system#x?command=y".to_owned(),
        ] {
            let refused = check(&uri).unwrap_err().to_string();
            assert!(refused.contains("has parameters"), "{uri}: {refused}");
        }
        for uri in [
            "qemu+tls://h2/system",
            "qemu+tcp://[fd00::2]:17/system",
            "qemu+ssh://h2/system",
        ] {
            assert_eq!(check_uri(uri), Ok(()), "{uri}");
        }
    }

    /// A port that is free again: nothing listens on it.
    #[test]
    fn a_host_on_which_nothing_listens_is_named_with_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let refused = check(&format!("qemu+tcp://127.0.0.1:{port}/system")).unwrap_err();
        let text = refused.to_string();
        assert!(
            text.starts_with(&format!("127.0.0.1:{port} cannot be reached")),
            "{text}"
        );
    }
}
