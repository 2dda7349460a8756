//! The configuration of extender and webhook: the table `[kubernetes]`.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use berth_process::Keys;
use berth_process::configuration::{Bounded, check_bounds};
use berth_process::flags::{replace, replace_some};

/// The resource that PMEM-CSI's webhook gives to pods for which the extender has to be called.
const RESOURCE_DEFAULT: &str = "pmem-csi.intel.com/scheduler";
/// Where a pod finds what it needs to talk to the API server.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The configuration of extender and webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where they listen, for HTTPS. Absent: not at all.
    pub listen: Option<String>,
    /// The certificate that they show, with those between it and the authority. It is read again
    /// when it changes, as is the key.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The resource that the webhook gives to pods for which the extender has to be called.
    pub resource: String,
    /// The API server, as `https://10.96.0.1:443`. Absent: from the environment that Kubernetes sets.
    pub api_server: Option<String>,
    /// The token that the API server is shown. It is read again every minute.
    pub token_file: PathBuf,
    /// The authorities that the API server's certificate may come from.
    pub ca_file: PathBuf,
    /// Connections at a time.
    pub connections_max: u64,
    /// The longest body that is read. Four of this length may be worked on at a time.
    pub body_bytes_max: u64,
    /// How long a client may take for a handshake, to send a body and to read a response.
    pub client_timeout_ms: u64,
    /// How long a connection may be silent between requests. Kubernetes' clients close it after 90
    /// seconds; if we did first, we could cut a request off.
    pub idle_ms: u64,
    /// How long an answer may take to compute. Less than the five seconds that a Kubernetes
    /// scheduler waits, so that it gets the reason if there is none.
    pub answer_timeout_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        let account = PathBuf::from(SERVICE_ACCOUNT);
        Self {
            listen: None,
            certificate: "/certs/tls.crt".into(),
            key: "/certs/tls.key".into(),
            resource: RESOURCE_DEFAULT.to_owned(),
            api_server: None,
            token_file: account.join("token"),
            ca_file: account.join("ca.crt"),
            connections_max: 256,
            body_bytes_max: 32 << 20,
            client_timeout_ms: 10_000,
            idle_ms: 100_000,
            answer_timeout_ms: 4_500,
        }
    }
}

impl Options {
    /// Takes its keys out of the table of a configuration file.
    pub fn read(&mut self, keys: &mut Keys) {
        keys.take_some("listen", &mut self.listen);
        keys.take("certificate", &mut self.certificate);
        keys.take("key", &mut self.key);
        keys.take("resource", &mut self.resource);
        keys.take_some("api_server", &mut self.api_server);
        keys.take("token_file", &mut self.token_file);
        keys.take("ca_file", &mut self.ca_file);
        keys.take("connections_max", &mut self.connections_max);
        keys.take("body_bytes_max", &mut self.body_bytes_max);
        keys.take("patience_ms", &mut self.client_timeout_ms);
        keys.take("idle_ms", &mut self.idle_ms);
        keys.take("answer_timeout_ms", &mut self.answer_timeout_ms);
    }

    /// Adds everything that is wrong with it, with `kubernetes.` before each key.
    pub fn check(&self, faults: &mut Vec<String>) {
        if let Some(listen) = &self.listen
            && self.address().is_none()
        {
            faults.push(format!(
                "kubernetes.listen = {listen:?} is no address to listen on, as \"0.0.0.0:8000\""
            ));
        }
        let (prefix, name) = self.resource.split_once('/').unwrap_or_default();
        if !super::object::is_name(prefix) || name.is_empty() || !name.bytes().all(is_resource_byte)
        {
            faults.push(format!(
                "kubernetes.resource = {:?} is not of the form domain/name",
                self.resource
            ));
        }
        if let Some(server) = &self.api_server
            && !is_https(server)
        {
            faults.push(format!(
                "kubernetes.api_server = {server:?} is not of the form https://host:port"
            ));
        }
        check_bounds(self.bounded(), faults);
    }

    fn bounded(&self) -> [Bounded; 5] {
        [
            (
                "kubernetes.connections_max",
                self.connections_max,
                1,
                10_000,
            ),
            (
                "kubernetes.body_bytes_max",
                self.body_bytes_max,
                1 << 10,
                1 << 30,
            ),
            (
                "kubernetes.patience_ms",
                self.client_timeout_ms,
                10,
                600_000,
            ),
            ("kubernetes.idle_ms", self.idle_ms, 10, 3_600_000),
            (
                "kubernetes.answer_timeout_ms",
                self.answer_timeout_ms,
                10,
                600_000,
            ),
        ]
    }

    /// Returns the address to listen on, if there is one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.as_ref()?.to_socket_addrs().ok()?.next()
    }

    /// Returns how long a connection may be silent between requests.
    #[must_use]
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// Returns how long a handshake or a body may take to come.
    #[must_use]
    pub fn client_timeout(&self) -> Duration {
        Duration::from_millis(self.client_timeout_ms)
    }

    /// Returns how long an answer may take to compute.
    #[must_use]
    pub fn answer_timeout(&self) -> Duration {
        Duration::from_millis(self.answer_timeout_ms)
    }

    /// Returns the longest body that is read.
    #[must_use]
    pub fn body_max(&self) -> usize {
        usize::try_from(self.body_bytes_max).unwrap_or(usize::MAX)
    }
}

fn is_resource_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Returns whether a text is `https://host:port`, or the same without a port.
fn is_https(text: &str) -> bool {
    let uri = text.parse::<http::Uri>();
    uri.is_ok_and(|uri| {
        uri.scheme_str() == Some("https")
            && uri.host().is_some_and(|host| !host.is_empty())
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
    })
}

/// The flags that override the table.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "kubernetes")]
pub struct Flags {
    /// Serve the scheduler extender and the admission webhook for Kubernetes on this address, over HTTPS
    #[arg(long, value_name = "HOST:PORT")]
    pub kubernetes_listen: Option<String>,
    /// Present the certificate in this PEM file to Kubernetes
    #[arg(long, value_name = "FILE")]
    pub kubernetes_certificate: Option<PathBuf>,
    /// Read the private key of the certificate for Kubernetes from this PEM file
    #[arg(long, value_name = "FILE")]
    pub kubernetes_key: Option<PathBuf>,
}

impl Flags {
    /// Overrides the values of the file by the flags that are set.
    pub fn apply(self, options: &mut Options) {
        replace_some(&mut options.listen, self.kubernetes_listen);
        replace(&mut options.certificate, self.kubernetes_certificate);
        replace(&mut options.key, self.kubernetes_key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_sound_and_off() {
        let mut faults = Vec::new();
        Options::default().check(&mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(Options::default().address(), None);
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let options = Options {
            listen: Some("8000".into()),
            resource: "scheduler".into(),
            api_server: Some("http://10.0.0.1".into()),
            connections_max: 0,
            ..Options::default()
        };
        let mut faults = Vec::new();
        options.check(&mut faults);
        assert_eq!(faults.len(), 4, "{faults:?}");
        for (fault, key) in
            faults
                .iter()
                .zip(["listen", "resource", "api_server", "connections_max"])
        {
            assert!(
                fault.starts_with(&format!("kubernetes.{key} = ")),
                "{fault}"
            );
        }
    }
}
