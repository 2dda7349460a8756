//! Whether and where a server sends traces, by its configuration: the table `[traces]`.
//!
//! Not here: spans ([`berth_traces`]), and which spans there are (the programs).
//!
//! Invariant: off until an endpoint is configured; a value that cannot work is a fault of the
//! configuration, and a collector that does not answer is not.

use std::net::IpAddr;
use std::path::PathBuf;

use berth_traces::{Running, Service, Settings};
use tonic::transport::Uri;

use crate::configuration::{Faults, check_bounds};
use crate::keys::Keys;

/// Whether and where traces are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Traces {
    /// The URL of a collector that speaks OTLP over gRPC; without one no traces are recorded.
    pub endpoint: Option<String>,
    /// The part of the operations and other traces that is recorded, from 0 to 1. The same in all
    /// programs, or some spans of an operation are missing.
    pub sample_ratio: f64,
    /// Spans that wait to be sent at most; further ones are dropped.
    pub queue_max: u64,
    /// A PEM file of the authorities that sign the collector's certificate; those that the system trusts
    /// if absent.
    pub collector_ca: Option<PathBuf>,
    /// Allows an endpoint beyond loopback without encryption.
    pub insecure: bool,
}

/// Ratios are compared as numbers, and none is NaN: a fault prevents it.
impl Eq for Traces {}

impl Default for Traces {
    fn default() -> Self {
        Self {
            endpoint: None,
            sample_ratio: 1.0,
            queue_max: 2_048,
            collector_ca: None,
            insecure: false,
        }
    }
}

impl Traces {
    /// Takes its keys out of a file.
    pub fn read(&mut self, keys: &mut Keys) {
        keys.table("traces", |keys| {
            keys.take_some("endpoint", &mut self.endpoint);
            keys.take("sample_ratio", &mut self.sample_ratio);
            keys.take("queue_max", &mut self.queue_max);
            keys.take_some("collector_ca", &mut self.collector_ca);
            keys.take("insecure", &mut self.insecure);
        });
    }

    /// Adds what is wrong.
    pub fn check(&self, faults: &mut Vec<String>) {
        let ratio = self.sample_ratio;
        if !(0.0..=1.0).contains(&ratio) {
            faults.push(format!(
                "traces.sample_ratio = {ratio:?} is not within 0 to 1: set the part of the operations that \
                 is recorded, as 0.1"
            ));
        }
        check_bounds([("traces.queue_max", self.queue_max, 64, 1 << 20)], faults);
        match &self.endpoint {
            Some(endpoint) => {
                faults.extend(self.check_endpoint(endpoint));
                faults.extend(self.check_authorities());
            }
            None if self.collector_ca.is_some() => {
                faults.push(
                    "traces.collector_ca needs traces.endpoint: set the URL of the collector, or leave it out".into(),
                );
            }
            None => {}
        }
    }

    /// Returns what is wrong with the file of authorities: before the program has begun anything.
    fn check_authorities(&self) -> Option<String> {
        let path = self.collector_ca.as_ref().filter(|_| self.is_encrypted())?;
        let fault = berth_tls::material::authorities(path).err()?;
        Some(format!(
            "traces.collector_ca = {path:?} cannot be used: {fault}: set a PEM file of those that sign the \
             collector's certificate"
        ))
    }

    fn is_encrypted(&self) -> bool {
        let endpoint = self.endpoint.as_deref().unwrap_or_default();
        endpoint.starts_with("https:")
    }

    /// Returns what is wrong with the endpoint.
    fn check_endpoint(&self, endpoint: &str) -> Option<String> {
        let uri = endpoint.parse::<Uri>().ok();
        let authority = uri.as_ref().and_then(Uri::authority);
        if authority.is_some_and(|authority| authority.as_str().contains('@')) {
            // It is not repeated: what is wrong is a secret.
            return Some(
                "traces.endpoint has a user or a password in it: set what the collector needs in the \
                 environment variable OTEL_EXPORTER_OTLP_HEADERS"
                    .to_owned(),
            );
        }
        let query = uri.as_ref().and_then(Uri::query);
        let scheme = uri.as_ref().and_then(|uri| uri.scheme_str());
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let path = uri.as_ref().map_or("", Uri::path);
        let is_url = matches!(scheme, Some("http" | "https")) && !host.is_empty();
        if !is_url || !matches!(path, "" | "/") || query.is_some() {
            return Some(format!(
                "traces.endpoint = {endpoint:?} is not the URL of a collector for OTLP over gRPC, as \
                 http://127.0.0.1:4317"
            ));
        }
        let is_plain = scheme == Some("http");
        if is_plain && self.collector_ca.is_some() {
            return Some(format!(
                "traces.collector_ca has no effect with traces.endpoint = {endpoint:?}: use https"
            ));
        }
        (is_plain && !self.insecure && !is_loopback(host)).then(|| {
            format!(
                "traces.endpoint = {endpoint:?} is not loopback and the connection is not encrypted: use \
                 https, a collector on this machine, or, in a trusted network, set traces.insecure = true"
            )
        })
    }

    /// Begins to record traces, if a collector is configured.
    ///
    /// # Errors
    ///
    /// When the file of authorities cannot be used.
    pub fn start(&self, name: &'static str, instance: &str) -> Result<Option<Running>, Faults> {
        let Some(endpoint) = self.endpoint.clone() else {
            return Ok(None);
        };
        let settings = Settings {
            endpoint,
            sample_ratio: self.sample_ratio,
            queue_max: usize::try_from(self.queue_max).unwrap_or(usize::MAX),
            ca: self.collector_ca.clone(),
        };
        let service = Service {
            name,
            instance: instance.to_owned(),
            version: env!("CARGO_PKG_VERSION"),
        };
        berth_traces::start(&settings, &service).map_err(|fault| Faults(vec![fault]))
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>();
    bare == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Sends the last spans of a program that stops.
pub async fn stop(running: Option<Running>) {
    if let Some(running) = running {
        running.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let mut keys = Keys::parse(text, None).unwrap();
        let mut traces = Traces::default();
        traces.read(&mut keys);
        let mut faults = keys.end();
        traces.check(&mut faults);
        faults
    }

    #[test]
    fn settings_that_can_work_have_no_faults() {
        for good in [
            "",
            "[traces]\nendpoint = \"http://127.0.0.1:4317\"\nsample_ratio = 0.25",
            "[traces]\nendpoint = \"http://localhost:4317/\"\nsample_ratio = 0.0",
            "[traces]\nendpoint = \"http://[::1]:4317\"\nqueue_max = 64",
            "[traces]\nendpoint = \"https://collector.example:4317\"",
            "[traces]\nendpoint = \"http://10.0.0.7:4317\"\ninsecure = true",
        ] {
            assert_eq!(faults(good), Vec::<String>::new(), "{good}");
        }
    }

    /// Goal: a file of authorities is read before the program begins.
    #[test]
    fn authorities_are_read_with_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let pair = berth_tls::authority::init(folder.path(), "collector", 7).unwrap();
        let with = |path: &std::path::Path| {
            let https = "[traces]\nendpoint = \"https://collector.example:4317\"";
            faults(&format!("{https}\ncollector_ca = {path:?}"))
        };
        assert_eq!(with(&pair.cert), Vec::<String>::new());
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        for wrong in [empty, folder.path().join("missing"), pair.key] {
            let faults = with(&wrong);
            assert_eq!(faults.len(), 1, "{wrong:?}: {faults:?}");
            assert!(
                faults[0].starts_with("traces.collector_ca = "),
                "{faults:?}"
            );
        }
    }

    /// Goal: what cannot work states what is wrong, where, and what to do.
    #[test]
    fn settings_that_cannot_work_are_faults() {
        let check = |text: &str, parts: &[&str]| {
            let faults = faults(&format!("[traces]\n{text}"));
            assert_eq!(faults.len(), 1, "{text}: {faults:?}");
            for part in parts {
                assert!(faults[0].contains(part), "{text}: {part}: {faults:?}");
            }
        };
        check(
            "sample_ratio = 1.5",
            &["traces.sample_ratio = 1.5", "0 to 1"],
        );
        check("sample_ratio = -0.1", &["traces.sample_ratio = -0.1"]);
        check("sample_ratio = nan", &["traces.sample_ratio = NaN"]);
        check(
            "sample_ratio = \"all\"",
            &["sample_ratio = \"all\" is wrong"],
        );
        check("queue_max = 0", &["traces.queue_max = 0", "64 to 1048576"]);
        check(
            "collector_ca = \"x\"",
            &["traces.collector_ca needs traces.endpoint"],
        );
        check("collector = \"x\"", &["unknown key traces.collector"]);
        for bad in [
            "",
            "127.0.0.1:4317",
            "grpc://127.0.0.1:4317",
            "http://",
            "http://127.0.0.1:4318/v1/traces",
            "http://127.0.0.1:4317?key=1",
        ] {
            let text = format!("endpoint = {bad:?}");
            check(&text, &["traces.endpoint = ", "http://127.0.0.1:4317"]);
        }
        for open in ["http://10.0.0.7:4317", "http://collector.example:4317"] {
            let text = format!("endpoint = {open:?}");
            check(&text, &["is not loopback", "traces.insecure = true"]);
        }
        for secret in [
            "http://u:secret@127.0.0.1:4317",
            "https://secret@collector:4317",
        ] {
            let text = format!("endpoint = {secret:?}");
            check(
                &text,
                &["has a user or a password", "OTEL_EXPORTER_OTLP_HEADERS"],
            );
            let faults = faults(&format!("[traces]\n{text}"));
            assert!(!faults[0].contains("secret"), "{faults:?}");
        }
        let plain = "endpoint = \"http://127.0.0.1:4317\"\ncollector_ca = \"x\"";
        check(plain, &["traces.collector_ca has no effect", "use https"]);
    }
}
