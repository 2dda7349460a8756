//! The configuration of a conductor: one struct, read from TOML, overridden by flags.
//!
//! Invariant: unknown keys are refused, and all faults are reported at once. The sample under
//! `deploy/` holds every key with its default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use berth_domain::name::ServiceName;
use berth_domain::version::ServiceVersion;
use berth_process::configuration::{self, Bounded, Configuration, Faults, check_bounds};
use berth_process::schedulers::{self, SCHEDULER_DEFAULT};
use berth_process::{Keys, Listening, Log, Traces};
use berth_tls::{Role, Tls};

/// The address that a conductor listens on by default.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7200";

/// The configuration of a conductor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What it is called in the cluster. Two conductors must not share a name: each would take
    /// the other's operations for its own. Absent: made from its address, which is its own too.
    pub name: Option<String>,
    /// Where it listens, for users, and what they dial.
    pub listening: Listening,
    /// The schedulers, as `host:port`. Further ones are learnt from them, but at the first start one
    /// of these must run.
    pub schedulers: Vec<String>,
    /// Where the learnt schedulers are stored over restarts; in memory only if absent.
    pub data_dir: Option<PathBuf>,
    /// The service version that it behaves like.
    pub service_version: u32,
    /// For how long an operation is held at a time. Another conductor takes over as soon as it
    /// has run out; it is prolonged every third of it.
    pub lease_ttl_ms: u64,
    /// How often it searches for operations without a conductor.
    pub takeover_interval_ms: u64,
    /// How many calls to schedulers and agents are in progress at once.
    pub calls_max: u64,
    /// How many operations it carries out at once; what waits for a silent host counts.
    pub operations_max: u64,
    /// How long an agent may take to answer a question.
    pub call_timeout_ms: u64,
    /// How long an agent may take to start, stop or prepare a guest.
    pub slow_call_timeout_ms: u64,
    /// The program, with its arguments, that turns a host off for `berth host fence`; `{host}` in them
    /// stands for the host's name. Empty: hosts are fenced by an operator's word alone.
    pub fence_command: Vec<String>,
    /// How long it may take.
    pub fence_timeout_ms: u64,
    /// Which log lines are written, and how.
    pub log: Log,
    /// Where traces are sent.
    pub traces: Traces,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            listening: Listening::new(LISTEN_DEFAULT),
            schedulers: vec![SCHEDULER_DEFAULT.into()],
            data_dir: None,
            service_version: ServiceVersion::CURRENT.0,
            lease_ttl_ms: 10_000,
            takeover_interval_ms: 2_000,
            calls_max: 256,
            operations_max: 10_000,
            call_timeout_ms: 10_000,
            slow_call_timeout_ms: 120_000,
            fence_command: Vec::new(),
            fence_timeout_ms: 60_000,
            log: Log::default(),
            traces: Traces::default(),
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

    /// Returns the address to listen on, if nothing in the configuration is wrong.
    ///
    /// # Errors
    ///
    /// All faults.
    pub fn validate(&self) -> Result<SocketAddr, Faults> {
        let mut faults = Vec::new();
        if let Some(name) = &self.name
            && let Err(error) = ServiceName::new(name)
        {
            faults.push(error.to_string());
        }
        let listen = self.listening.check(LISTEN_DEFAULT, &mut faults);
        schedulers::check(&self.schedulers, &mut faults);
        check_bounds(self.bounded(), &mut faults);
        self.traces.check(&mut faults);
        match listen {
            Some(listen) if faults.is_empty() => Ok(listen),
            Some(_) | None => Err(Faults(faults)),
        }
    }

    /// Opens the certificates, if it has any, of a conductor that others dial as `advertise`.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn open_certificates(&self, advertise: &str) -> Result<Option<Tls>, Faults> {
        let encryption = &self.listening.encryption;
        encryption.open(Role::Conductor, advertise, |identity| match &self.name {
            Some(name) if *name != identity.name => Err(format!(
                "the certificate is that of conductor {}, and this one is called {name}: leave the \
                 name out, or issue a certificate with --name {name}",
                identity.name
            )),
            Some(_) | None => Ok(()),
        })
    }

    fn bounded(&self) -> [Bounded; 8] {
        let version = u64::from(self.service_version);
        let (oldest, current) = (ServiceVersion::OLDEST.0, ServiceVersion::CURRENT.0);
        [
            ("service_version", version, oldest.into(), current.into()),
            ("lease_ttl_ms", self.lease_ttl_ms, 1_000, 600_000),
            (
                "takeover_interval_ms",
                self.takeover_interval_ms,
                50,
                600_000,
            ),
            ("calls_max", self.calls_max, 1, 100_000),
            ("operations_max", self.operations_max, 1, 10_000),
            ("call_timeout_ms", self.call_timeout_ms, 100, 600_000),
            (
                "slow_call_timeout_ms",
                self.slow_call_timeout_ms,
                100,
                3_600_000,
            ),
            ("fence_timeout_ms", self.fence_timeout_ms, 100, 600_000),
        ]
    }
}

impl Configuration for Config {
    fn read(&mut self, keys: &mut Keys) {
        keys.take_some("name", &mut self.name);
        self.listening.read(keys);
        keys.take("schedulers", &mut self.schedulers);
        keys.take_some("data_dir", &mut self.data_dir);
        keys.take("service_version", &mut self.service_version);
        keys.take("lease_ttl_ms", &mut self.lease_ttl_ms);
        keys.take("takeover_interval_ms", &mut self.takeover_interval_ms);
        keys.take("calls_max", &mut self.calls_max);
        keys.take("operations_max", &mut self.operations_max);
        keys.take("call_timeout_ms", &mut self.call_timeout_ms);
        keys.take("slow_call_timeout_ms", &mut self.slow_call_timeout_ms);
        keys.take("fence_command", &mut self.fence_command);
        keys.take("fence_timeout_ms", &mut self.fence_timeout_ms);
        self.log.read(keys);
        self.traces.read(keys);
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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/conductor.toml");
        let sample = Config::load(Some(&path), |_| ()).unwrap();
        assert_eq!(sample.schedulers.len(), 3, "the members of the sample");
        let expected = Config {
            schedulers: sample.schedulers.clone(),
            data_dir: Some("/var/lib/berth/conductor".into()),
            ..Config::default()
        };
        assert_eq!(sample, expected);
        let text = std::fs::read_to_string(path).unwrap();
        let (_, faults) = configuration::parse(Config::default(), "x = 1\n[tls]\nx = 1\n");
        assert_eq!(faults.len(), 2, "{faults:?}");
        for fault in faults {
            for key in fault.rsplit_once("are ").unwrap().1.split(", ") {
                let begins = [format!("{key} ="), format!("[{key}]")];
                let lines = text.lines().map(|l| l.trim_start_matches("# "));
                let matching = lines.filter(|line| begins.iter().any(|b| line.starts_with(b)));
                assert_eq!(matching.count(), 1, "{key}");
            }
        }
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let text = "listne = 1\ncalls_max = \"x\"\nlog_format = \"xml\"\nservice_version = 1\n";
        let (config, faults) = configuration::parse(Config::default(), text);
        assert_eq!(config.service_version, 1);
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(Faults(faults).to_string().contains("unknown key listne"));

        let config = Config {
            name: Some("-".into()),
            listening: Listening::new("0.0.0.0:1"),
            schedulers: vec!["h1".into(), "http://h2:7100".into()],
            service_version: 99,
            calls_max: 0,
            ..Config::default()
        };
        let faults = config.validate().unwrap_err();
        assert_eq!(faults.0.len(), 6, "{faults}");
        let none = Config {
            schedulers: Vec::new(),
            ..Config::default()
        };
        assert_eq!(none.validate().unwrap_err().0.len(), 1);
    }
}
