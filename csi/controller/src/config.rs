//! The configuration of a controller: one struct, read from TOML, overridden by flags.
//!
//! Invariant: unknown keys are refused, and all faults are reported at once. The sample under
//! `deploy/` holds every key with its default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use berth_process::configuration::{self, Configuration, Faults, check_bounds};
use berth_process::listening::check_listen;
use berth_process::schedulers::{self, SCHEDULER_DEFAULT};
use berth_process::{Encryption, Keys, Log, socket};
use berth_proto::convert::csi::{DRIVER_NAME_DEFAULT, is_driver_name};

use crate::kubernetes;

/// The socket that a controller listens on by default.
pub const ENDPOINT_DEFAULT: &str = "unix:///run/berth/csi-controller/csi.sock";

/// Where metrics could be served.
const METRICS_EXAMPLE: &str = "127.0.0.1:7480";

/// The configuration of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The socket that it serves on, for a provisioner in the same pod.
    pub csi_endpoint: String,
    /// The name of the driver; the agents are configured with the same.
    pub driver_name: String,
    /// The schedulers, as `host:port`. Further ones are learnt from them, but at the first start one
    /// of these must run.
    pub schedulers: Vec<String>,
    /// Where the learnt schedulers are stored over restarts; in memory only if absent.
    pub data_dir: Option<PathBuf>,
    /// How long an agent may take to make a volume before the caller has to repeat the call.
    pub create_timeout_ms: u64,
    /// How long an agent may take to report whether a volume is in use, before its host counts as down.
    pub usage_timeout_ms: u64,
    /// Whether ControllerPublishVolume and ControllerUnpublishVolume are offered. Nothing has to be
    /// attached, and Kubernetes waits for an attacher where they are: only for callers that want them.
    pub controller_publish: bool,
    /// Where metrics and health are served over HTTP; nowhere if absent.
    pub metrics_listen: Option<String>,
    /// The scheduler extender and the webhook.
    pub kubernetes: kubernetes::Options,
    /// Which certificates it shows schedulers and agents.
    pub encryption: Encryption,
    /// Which log lines are written, and how.
    pub log: Log,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            csi_endpoint: ENDPOINT_DEFAULT.to_owned(),
            driver_name: DRIVER_NAME_DEFAULT.to_owned(),
            schedulers: vec![SCHEDULER_DEFAULT.to_owned()],
            data_dir: None,
            create_timeout_ms: 60_000,
            usage_timeout_ms: 5_000,
            controller_publish: false,
            metrics_listen: None,
            kubernetes: kubernetes::Options::default(),
            encryption: Encryption::default(),
            log: Log::default(),
        }
    }
}

impl Config {
    /// Returns the configuration in this file, as overridden by `flags`.
    ///
    /// # Errors
    ///
    /// All faults: a file that cannot be read, unknown keys, values of a wrong type or out of
    /// range.
    pub fn load(file: Option<&Path>, flags: impl FnOnce(&mut Self)) -> Result<Self, Faults> {
        configuration::load(Self::default(), file, flags)
    }

    /// Returns the socket to listen on, if nothing in the configuration is wrong.
    ///
    /// # Errors
    ///
    /// All faults.
    pub fn validate(&self) -> Result<PathBuf, Faults> {
        let mut faults = Vec::new();
        let path = socket::path(&self.csi_endpoint);
        let path = path.map_err(|why| faults.push(format!("csi_endpoint = {why}")));
        if !is_driver_name(&self.driver_name) {
            faults.push(format!(
                "driver_name = {:?} is not a domain name of at most 63 characters",
                self.driver_name
            ));
        }
        schedulers::check(&self.schedulers, &mut faults);
        check_bounds(
            [
                ("create_timeout_ms", self.create_timeout_ms, 100, 3_600_000),
                ("ask_timeout_ms", self.usage_timeout_ms, 100, 600_000),
            ],
            &mut faults,
        );
        self.check_metrics(&mut faults);
        self.kubernetes.check(&mut faults);
        self.encryption.check(&mut faults);
        match path {
            Ok(path) if faults.is_empty() => Ok(path),
            Ok(_) | Err(()) => Err(Faults(faults)),
        }
    }

    /// Returns where metrics and health are served, if they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.check_metrics(&mut Vec::new())
    }

    fn check_metrics(&self, faults: &mut Vec<String>) -> Option<SocketAddr> {
        let listen = self.metrics_listen.as_deref()?;
        let address = check_listen("metrics_listen", listen, true, METRICS_EXAMPLE, faults)?;
        // It has no option to listen without certificates: its own socket is on this machine.
        if !address.ip().is_loopback() && !self.encryption.is_configured() {
            faults.push(format!(
                "metrics_listen = {listen:?} is not loopback and connections are not encrypted: \
                 configure certificates ([tls], see berth certs --help)"
            ));
        }
        Some(address)
    }
}

impl Configuration for Config {
    fn read(&mut self, keys: &mut Keys) {
        keys.take("csi_endpoint", &mut self.csi_endpoint);
        keys.take("driver_name", &mut self.driver_name);
        keys.take("schedulers", &mut self.schedulers);
        keys.take_some("data_dir", &mut self.data_dir);
        keys.take("create_timeout_ms", &mut self.create_timeout_ms);
        keys.take("ask_timeout_ms", &mut self.usage_timeout_ms);
        keys.take("controller_publish", &mut self.controller_publish);
        keys.take_some("metrics_listen", &mut self.metrics_listen);
        keys.table("kubernetes", |keys| self.kubernetes.read(keys));
        self.encryption.read(keys);
        self.log.read(keys);
    }

    fn faults(&self) -> Vec<String> {
        self.validate()
            .err()
            .map_or_else(Vec::new, |faults| faults.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the sample is a working configuration and shows the true defaults, each key once.
    #[test]
    fn the_sample_holds_every_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/csi-controller.toml");
        let sample = Config::load(Some(&path), |_| ()).unwrap();
        assert_eq!(sample.schedulers.len(), 3, "the members of the sample");
        let expected = Config {
            schedulers: sample.schedulers.clone(),
            data_dir: Some("/var/lib/berth/csi-controller".into()),
            ..Config::default()
        };
        assert_eq!(sample, expected);
        let text = std::fs::read_to_string(path).unwrap();
        let unknown = "x = 1\n[kubernetes]\nx = 1\n[tls]\nx = 1\n";
        let (_, faults) = configuration::parse(Config::default(), unknown);
        assert_eq!(faults.len(), 3, "{faults:?}");
        let known = faults
            .iter()
            .map(|fault| fault.rsplit_once("are ").unwrap().1);
        let known: Vec<&str> = known.flat_map(|keys| keys.split(", ")).collect();
        for key in &known {
            let lines = text.lines().map(|line| line.trim_start_matches("# "));
            let is_it =
                |line: &&str| line.starts_with(&format!("{key} =")) || *line == format!("[{key}]");
            // Two tables may have a key of the same name.
            let tables = known.iter().filter(|other| *other == key).count();
            assert_eq!(lines.filter(is_it).count(), tables, "{key}");
        }
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let config = Config {
            csi_endpoint: "tcp://0.0.0.0:1".to_owned(),
            driver_name: "a/b".to_owned(),
            schedulers: Vec::new(),
            create_timeout_ms: 0,
            metrics_listen: Some("0.0.0.0:7480".to_owned()),
            ..Config::default()
        };
        let faults = config.validate().unwrap_err();
        assert_eq!(faults.0.len(), 5, "{faults}");
    }
}
