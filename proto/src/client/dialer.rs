//! The one place where connections are made: their settings, and how both ends are known.
//!
//! Invariant: with certificates nothing goes out in plain text, whatever the address; a dialer of this
//! process's own server reaches no other.

use std::time::Duration;

use berth_tls::{Connector, Expected, Inside, Tls};
use tonic::transport::{Channel, Endpoint};

use super::server_url::{InvalidAddress, check_address};
use super::{CONNECT_TIMEOUT, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT};

/// Makes connections. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    tls: Option<Tls>,
    /// Where all connections lead, if they stay in this process.
    inside: Option<Inside>,
}

impl Dialer {
    /// Returns a dialer with these certificates; without, everything is plain text.
    #[must_use]
    pub fn new(tls: Option<Tls>) -> Self {
        Self { tls, inside: None }
    }

    /// Returns a dialer that reaches a server of this process, whatever the address.
    #[must_use]
    pub fn inside(inside: Inside) -> Self {
        Self {
            tls: None,
            inside: Some(inside),
        }
    }

    /// Returns a channel to a socket of this machine, as `unix:///run/berth/csi.sock`. Its folder says who
    /// may connect, and neither end shows a certificate.
    ///
    /// # Errors
    ///
    /// When the text is not of that form.
    pub fn socket(address: &str) -> Result<Channel, InvalidAddress> {
        let invalid = || InvalidAddress {
            address: address.to_owned(),
        };
        if !address.starts_with("unix:/") {
            return Err(invalid());
        }
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|_| invalid())?;
        Ok(endpoint.connect_timeout(CONNECT_TIMEOUT).connect_lazy())
    }

    /// Returns the certificates.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Counts how often the certificates were exchanged: connections of an older generation show
    /// certificates that may be about to run out, and are to be recreated.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.tls.as_ref().map_or(0, Tls::generation)
    }

    /// Waits until the certificates are other ones than those of this generation.
    pub async fn outdated(&self, generation: u64) {
        if let Some(tls) = &self.tls {
            let mut generations = tls.generations();
            let newer = generations.wait_for(|newest| *newest != generation).await;
            if newer.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Returns the URL of an address without a scheme.
    #[must_use]
    pub fn url(&self, address: &str) -> String {
        match self.tls {
            Some(_) => format!("https://{address}"),
            None => format!("http://{address}"),
        }
    }

    /// Returns a connector to the expected server, with a time limit.
    #[must_use]
    pub fn connector(&self, expected: Expected, timeout: Duration) -> Connector {
        match &self.inside {
            Some(inside) => Connector::inside(inside.clone(), timeout),
            None => Connector::new(self.tls.clone(), expected, timeout),
        }
    }

    /// Returns a channel that connects when it is first used, and again after it was cut.
    ///
    /// # Errors
    ///
    /// When the address is not a URL with a host.
    pub fn channel(&self, address: &str, expected: Expected) -> Result<Channel, InvalidAddress> {
        check_address(address)?;
        let invalid = |_| InvalidAddress {
            address: address.to_owned(),
        };
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(invalid)?;
        Ok(endpoint
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .connect_with_connector_lazy(self.connector(expected, CONNECT_TIMEOUT)))
    }
}
