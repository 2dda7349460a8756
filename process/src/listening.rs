//! Where a server listens, what others dial to reach it, where those who watch it read its metrics, and
//! the option that it needs to listen beyond loopback.
//!
//! Invariant: without that option only this machine can reach a server that neither encrypts nor
//! authenticates.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use tokio::net::TcpListener;

use crate::encryption::Encryption;
use crate::keys::Keys;
use crate::run::Remedy;

/// Where metrics could be served.
const METRICS_EXAMPLE: &str = "127.0.0.1:7180";

/// Where a server listens, and what others dial to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The address to listen on.
    pub address: String,
    /// What others dial, as `host:port`; the listening address if absent.
    pub advertise: Option<String>,
    /// Whether `address` may be anything but loopback although nothing is encrypted or
    /// authenticated.
    pub insecure: bool,
    /// The certificates by which it is encrypted.
    pub encryption: Encryption,
    /// Where metrics and health are served over HTTP; nowhere if absent.
    pub metrics: Option<String>,
}

impl Listening {
    /// Returns the default: this address and nothing else.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            advertise: None,
            insecure: false,
            encryption: Encryption::default(),
            metrics: None,
        }
    }

    /// Takes its keys out of a file.
    pub fn read(&mut self, keys: &mut Keys) {
        keys.take("listen", &mut self.address);
        keys.take_some("advertise", &mut self.advertise);
        keys.take("insecure_listen", &mut self.insecure);
        keys.take_some("metrics_listen", &mut self.metrics);
        self.encryption.read(keys);
    }

    /// Returns the address to listen on; `example` is one that would do.
    pub fn check(&self, example: &str, faults: &mut Vec<String>) -> Option<SocketAddr> {
        self.encryption.check(faults);
        let open = self.is_open();
        let address = check_listen("listen", &self.address, open, example, faults);
        if address.is_some_and(|a| a.ip().is_unspecified()) && self.advertise.is_none() {
            faults.push(format!(
                "listen = {:?} names no address that others can dial: set advertise",
                self.address
            ));
        }
        check_metrics(self.metrics.as_deref(), open, faults);
        if let Some(advertise) = &self.advertise {
            check_host_port("advertise", advertise, faults);
            if is_unspecified(advertise) {
                faults.push(format!(
                    "advertise = {advertise:?} names no address that others can dial: name this machine"
                ));
            }
        }
        address
    }

    /// Returns where metrics and health are served, if they are; nothing for an address that the check of
    /// the configuration refuses.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        check_metrics(self.metrics.as_deref(), self.is_open(), &mut Vec::new())
    }

    /// Returns whether it may listen on any address.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.insecure || self.encryption.is_configured()
    }

    /// Returns what others dial, now that it listens on `address`: the host as it was written. A name is
    /// resolved again with each connection, so that it may get another address, and a certificate names
    /// it so.
    #[must_use]
    pub fn advertised(&self, address: SocketAddr) -> String {
        let written = self.address.rsplit_once(':').map(|(host, _)| host);
        match (&self.advertise, written) {
            (Some(advertise), _) => advertise.clone(),
            (None, Some(host)) => format!("{host}:{}", address.port()),
            (None, None) => address.to_string(),
        }
    }
}

/// Returns where metrics and health are to be served, if anywhere.
pub fn check_metrics(
    metrics: Option<&str>,
    insecure: bool,
    faults: &mut Vec<String>,
) -> Option<SocketAddr> {
    check_listen(
        "metrics_listen",
        metrics?,
        insecure,
        METRICS_EXAMPLE,
        faults,
    )
}

/// Returns the address that the value of a key names, if it may be listened on.
pub fn check_listen(
    key: &str,
    text: &str,
    insecure: bool,
    example: &str,
    faults: &mut Vec<String>,
) -> Option<SocketAddr> {
    let address = match resolve(text) {
        Ok(address) => address,
        Err(why) => {
            faults.push(match is_host_port(text) {
                true => format!("{key} = {text:?}: the name cannot be resolved: {why}"),
                false => format!("{key} = {text:?} is not an address to listen on, as {example}"),
            });
            return None;
        }
    };
    if !address.ip().is_loopback() && !insecure {
        faults.push(format!(
            "{key} = {text:?} is not loopback and connections are not encrypted: configure certificates \
             ([tls], see berth certs --help), or add --insecure-listen if every client that can reach it \
             is trusted"
        ));
    }
    Some(address)
}

/// Returns the first address of a name with a port.
fn resolve(text: &str) -> io::Result<SocketAddr> {
    let first = text.to_socket_addrs()?.next();
    first.ok_or_else(|| io::Error::other("it has no address"))
}

/// Adds a fault if the value of a key could not be an address that others dial.
pub fn check_host_port(key: &str, text: &str, faults: &mut Vec<String>) {
    if !is_host_port(text) {
        faults.push(format!("{key} = {text:?} is not of the form host:port"));
    }
}

/// Returns whether a text could be an address that others dial.
#[must_use]
pub fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        // Names, numbers, and IPv6 in brackets, with a zone.
        let is_of_host = |c: char| c.is_ascii_alphanumeric() || ".-_:[]%".contains(c);
        is_port && !host.is_empty() && host.chars().all(is_of_host)
    })
}

/// Returns whether a text is the address of every interface, as `0.0.0.0:7100`, which no other machine can dial.
#[must_use]
pub fn is_unspecified(text: &str) -> bool {
    let address = text.parse::<SocketAddr>();
    address.is_ok_and(|address| address.ip().is_unspecified())
}

/// Returns whether a text could be the URL of a gRPC server, as `http://h1:7300`.
#[must_use]
pub fn is_server_url(text: &str) -> bool {
    let bare = text.strip_prefix("https://");
    let bare = bare.or_else(|| text.strip_prefix("http://"));
    bare.is_some_and(is_host_port)
}

/// An address is in use or not local.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

impl ListenError {
    /// Returns whether another process listens there.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }

    /// Returns what to do, for a program that listens for its clients and for readers of its metrics.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        let (code, text) = match self.is_in_use() {
            true => (
                "address-in-use",
                "Stop the process that listens there (`ss -ltnp` lists it), or start with another \
                 `--listen` or `--metrics-listen`",
            ),
            false => (
                "address-unusable",
                "Start with `--listen` and `--metrics-listen` set to addresses of this machine (`ip \
                 address`) and ports above 1023",
            ),
        };
        Remedy {
            code,
            text,
            document: "docs/stops.md",
        }
    }
}

/// Listens; returns the bound address, with the port that the kernel chose for port 0.
///
/// # Errors
///
/// When the address is in use or not local.
pub async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ListenError> {
    let failed = |source| ListenError { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "127.0.0.1:7100";

    fn check(listening: &Listening) -> Vec<String> {
        let mut faults = Vec::new();
        listening.check(EXAMPLE, &mut faults);
        faults
    }

    #[test]
    fn other_addresses_than_loopback_need_a_word() {
        let mut listening = Listening {
            advertise: Some("h1:7100".into()),
            ..Listening::new("0.0.0.0:7100")
        };
        assert_eq!(check(&listening).len(), 1);
        listening.insecure = true;
        assert!(check(&listening).is_empty());
        listening.advertise = None;
        let faults = check(&listening);
        assert!(faults[0].ends_with("set advertise"), "{faults:?}");
        for everywhere in ["0.0.0.0:7100", "[::]:7100"] {
            listening.advertise = Some(everywhere.into());
            let faults = check(&listening);
            assert!(faults[0].ends_with("name this machine"), "{faults:?}");
        }
        assert!(check(&Listening::new("[::1]:0")).is_empty());
        assert_eq!(check(&Listening::new("nowhere")).len(), 1);
    }

    #[test]
    fn others_dial_a_host_and_a_port() {
        for good in ["h1:7100", "127.0.0.1:1", "[::1]:7100"] {
            assert!(is_host_port(good), "{good}");
        }
        for bad in [
            "h1",
            "h1:",
            ":1",
            "h1:0",
            "http://h1:1",
            "h 1:1",
            "h1:x",
            "h1\u{1b}[2J:1",
            "h1\nh2:1",
            "h\u{202e}1:1",
            "h1:1\n",
            "größe:1",
        ] {
            assert!(!is_host_port(bad), "{bad}");
        }
    }

    #[test]
    fn servers_register_with_a_url() {
        for good in ["http://h1:7300", "https://[::1]:7300", "http://10.0.0.1:1"] {
            assert!(is_server_url(good), "{good}");
        }
        for bad in [
            "",
            "h1:7300",
            "http://",
            "http://h1",
            "http://h1:1/x",
            "ftp://h1:1",
            "http://h1:1\n",
        ] {
            assert!(!is_server_url(bad), "{bad}");
        }
    }

    /// Goal: others dial the name, which may get another address, and which a certificate names.
    #[test]
    fn a_host_is_dialled_as_it_was_written() {
        let bound = SocketAddr::from(([127, 0, 0, 1], 7100));
        let advertised = |listen: &str| Listening::new(listen).advertised(bound);
        assert_eq!(advertised("127.0.0.1:0"), "127.0.0.1:7100");
        assert_eq!(advertised("[::1]:0"), "[::1]:7100");
        let mut listening = Listening::new("localhost:0");
        assert_eq!(listening.advertised(bound), "localhost:7100");
        listening.advertise = Some("m1:7000".into());
        assert_eq!(listening.advertised(bound), "m1:7000");
    }
}
