//! The configuration of an operator: one struct, read from TOML, overridden by flags.
//!
//! Invariant: unknown keys are refused, and all faults are reported at once. The sample under `deploy/`
//! holds every key with its default.

use std::path::Path;

use berth_process::configuration::{self, Configuration, Faults, check_bounds};
use berth_process::listening::check_listen;
use berth_process::{Encryption, Keys, Log, schedulers};

/// The configuration of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The schedulers, as `host:port`, of resources that name none.
    pub schedulers: Vec<String>,
    /// The namespace of all objects; that of the operator's pod if absent.
    pub namespace: Option<String>,
    /// The image of resources that name none; that of the operator's pod if absent.
    pub image: Option<String>,
    /// For how long the lease of the active operator is valid after a renewal.
    pub lease_ms: u64,
    /// How long the API server may take for a response.
    pub request_timeout_ms: u64,
    /// How often a deployment is compared that nothing is reported of.
    pub resync_ms: u64,
    /// How often the schedulers are read.
    pub poll_ms: u64,
    /// For how many days certificates are valid; they are renewed after two thirds of that.
    pub certificate_days: u64,
    /// Where metrics are served; nowhere if absent.
    pub metrics_listen: Option<String>,
    /// Which certificates it presents to schedulers.
    pub encryption: Encryption,
    /// Which log lines are written, and how.
    pub log: Log,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            schedulers: Vec::new(),
            namespace: None,
            image: None,
            lease_ms: 15_000,
            request_timeout_ms: 10_000,
            resync_ms: 300_000,
            poll_ms: 5_000,
            certificate_days: 365,
            metrics_listen: None,
            encryption: Encryption::default(),
            log: Log {
                // It reports each failed request once more, and what it is about is reported here.
                filter: "info,kube_client=off".to_owned(),
                ..Log::default()
            },
        }
    }
}

impl Config {
    /// Returns the configuration in this file, as overridden by `flags`.
    ///
    /// # Errors
    ///
    /// All faults: a file that cannot be read, unknown keys, values of a wrong type or out of range.
    pub fn load(file: Option<&Path>, flags: impl FnOnce(&mut Self)) -> Result<Self, Faults> {
        configuration::load(Self::default(), file, flags)
    }
}

impl Configuration for Config {
    fn read(&mut self, keys: &mut Keys) {
        keys.take("schedulers", &mut self.schedulers);
        keys.take_some("namespace", &mut self.namespace);
        keys.take_some("image", &mut self.image);
        keys.take("lease_ms", &mut self.lease_ms);
        keys.take("request_timeout_ms", &mut self.request_timeout_ms);
        keys.take("resync_ms", &mut self.resync_ms);
        keys.take("poll_ms", &mut self.poll_ms);
        keys.take("certificate_days", &mut self.certificate_days);
        keys.take_some("metrics_listen", &mut self.metrics_listen);
        self.encryption.read(keys);
        self.log.read(keys);
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        // Without any, only resources that name their own are deployed.
        if !self.schedulers.is_empty() {
            schedulers::check(&self.schedulers, &mut faults);
        }
        check_bounds(
            [
                ("lease_ms", self.lease_ms, 1_000, 600_000),
                ("request_timeout_ms", self.request_timeout_ms, 100, 600_000),
                ("resync_ms", self.resync_ms, 1_000, 86_400_000),
                ("poll_ms", self.poll_ms, 100, 600_000),
                ("certificate_days", self.certificate_days, 1, 3_650),
            ],
            &mut faults,
        );
        if let Some(address) = &self.metrics_listen {
            // Counts are no secret, and a collector is on another machine.
            check_listen(
                "metrics_listen",
                address,
                true,
                "127.0.0.1:7400",
                &mut faults,
            );
        }
        self.encryption.check(&mut faults);
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the sample is a working configuration and shows the true defaults, each key once.
    #[test]
    fn the_sample_holds_every_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/csi-operator.toml");
        let sample = Config::load(Some(&path), |_| ()).expect("a configuration");
        assert_eq!(sample.schedulers.len(), 3, "the members of the sample");
        let expected = Config {
            schedulers: sample.schedulers.clone(),
            ..Config::default()
        };
        assert_eq!(sample, expected);
        let text = std::fs::read_to_string(path).expect("the sample");
        let (_, faults) = configuration::parse(Config::default(), "x = 1\n[tls]\nx = 1\n");
        assert_eq!(faults.len(), 2, "{faults:?}");
        for fault in faults {
            let (_, known) = fault.rsplit_once("are ").expect("the known keys");
            for key in known.split(", ") {
                let lines = text.lines().map(|line| line.trim_start_matches("# "));
                let is_it = |line: &&str| {
                    line.starts_with(&format!("{key} =")) || *line == format!("[{key}]")
                };
                assert_eq!(lines.filter(is_it).count(), 1, "{key}");
            }
        }
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let config = Config {
            schedulers: vec!["s1".to_owned()],
            lease_ms: 0,
            resync_ms: 0,
            certificate_days: 0,
            metrics_listen: Some("nowhere".to_owned()),
            ..Config::default()
        };
        assert_eq!(config.faults().len(), 5, "{:?}", config.faults());
        assert!(Config::default().faults().is_empty());
    }
}
