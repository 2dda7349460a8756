//! What a conductor is told when it starts: one struct, read from TOML, overridden by flags.
//!
//! Invariant: unknown keys are refused, and all faults are told at once. The sample under
//! `deploy/` holds every key with its default.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use berth_domain::name::ServiceName;
use berth_domain::version::ServiceVersion;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Where a conductor listens unless told otherwise.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7200";
/// The scheduler that is called unless told otherwise.
pub const SCHEDULER_DEFAULT: &str = "127.0.0.1:7100";

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What a conductor is told when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What it is called in the cluster. Two conductors must not share a name: each would take
    /// the other's operations for its own. Absent: made from its address, which is its own too.
    pub name: Option<String>,
    /// The address to listen on, for users.
    pub listen: String,
    /// What others dial to reach it, as `host:port`; the listening address if absent.
    pub advertise: Option<String>,
    /// Whether `listen` may be anything but loopback although nothing is encrypted or
    /// authenticated yet.
    pub insecure_listen: bool,
    /// The schedulers, as `host:port`. One is enough to find the others, but only while it runs.
    pub schedulers: Vec<String>,
    /// The service version that it behaves like.
    pub service_version: u32,
    /// For how long an operation is held at a time. Another conductor takes over as soon as it
    /// has run out; it is prolonged every third of it.
    pub lease_ttl_ms: u64,
    /// How often it looks for operations that nobody carries out.
    pub takeover_interval_ms: u64,
    /// How many calls to schedulers and agents are under way at once.
    pub calls_max: u64,
    /// How many operations it carries out at once; what waits for a silent host counts.
    pub operations_max: u64,
    /// How long an agent may take to answer a question.
    pub call_timeout_ms: u64,
    /// How long an agent may take to start, stop or prepare a guest.
    pub slow_call_timeout_ms: u64,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Which log lines are written, as `info,berth_conductor=debug`.
    pub log_filter: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: None,
            listen: LISTEN_DEFAULT.into(),
            advertise: None,
            insecure_listen: false,
            schedulers: vec![SCHEDULER_DEFAULT.into()],
            service_version: ServiceVersion::CURRENT.0,
            lease_ttl_ms: 10_000,
            takeover_interval_ms: 2_000,
            calls_max: 256,
            operations_max: 10_000,
            call_timeout_ms: 10_000,
            slow_call_timeout_ms: 120_000,
            log_format: LogFormat::Text,
            log_filter: "info".into(),
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
        let (mut config, mut faults) = match file {
            None => (Self::default(), Vec::new()),
            Some(path) => match std::fs::read_to_string(path) {
                Ok(text) => Self::parse(&text),
                Err(error) => {
                    let fault = format!("{} cannot be read: {error}", path.display());
                    return Err(Faults(vec![fault]));
                }
            },
        };
        flags(&mut config);
        if let Err(more) = config.validate() {
            faults.extend(more.0);
        }
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(Faults(faults))
        }
    }

    /// Returns what a configuration file says, and what is wrong with it.
    fn parse(text: &str) -> (Self, Vec<String>) {
        let mut config = Self::default();
        let table = match text.parse::<Table>() {
            Ok(table) => table,
            Err(error) => return (config, vec![error.to_string().trim().to_owned()]),
        };
        let mut keys = Keys {
            table,
            known: Vec::new(),
            faults: Vec::new(),
        };
        keys.take_some("name", &mut config.name);
        keys.take("listen", &mut config.listen);
        keys.take_some("advertise", &mut config.advertise);
        keys.take("insecure_listen", &mut config.insecure_listen);
        keys.take("schedulers", &mut config.schedulers);
        keys.take("service_version", &mut config.service_version);
        keys.take("lease_ttl_ms", &mut config.lease_ttl_ms);
        keys.take("takeover_interval_ms", &mut config.takeover_interval_ms);
        keys.take("calls_max", &mut config.calls_max);
        keys.take("operations_max", &mut config.operations_max);
        keys.take("call_timeout_ms", &mut config.call_timeout_ms);
        keys.take("slow_call_timeout_ms", &mut config.slow_call_timeout_ms);
        keys.take("log_format", &mut config.log_format);
        keys.take("log_filter", &mut config.log_filter);
        (config, keys.end())
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
        let listen = self.validate_listen(&mut faults);
        if let Some(advertise) = &self.advertise
            && !is_host_port(advertise)
        {
            faults.push(format!(
                "advertise = {advertise:?} is not of the form host:port"
            ));
        }
        if self.schedulers.is_empty() {
            faults.push("schedulers is empty: name at least one as host:port".into());
        }
        for scheduler in &self.schedulers {
            if !is_host_port(bare(scheduler)) {
                faults.push(format!(
                    "scheduler {scheduler:?} is not of the form host:port"
                ));
            }
        }
        for (key, value, least, most) in self.ranges() {
            if !(least..=most).contains(&value) {
                faults.push(format!("{key} = {value} is not within {least} to {most}"));
            }
        }
        match listen {
            Some(listen) if faults.is_empty() => Ok(listen),
            Some(_) | None => Err(Faults(faults)),
        }
    }

    fn ranges(&self) -> [(&'static str, u64, u64, u64); 7] {
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
        ]
    }

    fn validate_listen(&self, faults: &mut Vec<String>) -> Option<SocketAddr> {
        let resolved = self.listen.to_socket_addrs();
        let Some(address) = resolved.ok().and_then(|mut all| all.next()) else {
            faults.push(format!(
                "listen = {:?} is not an address to listen on, as {LISTEN_DEFAULT}",
                self.listen
            ));
            return None;
        };
        if !address.ip().is_loopback() && !self.insecure_listen {
            faults.push(format!(
                "listen = {:?} is not loopback and connections are not encrypted: add \
                 --insecure-listen if everybody who can reach it is trusted",
                self.listen
            ));
        }
        if address.ip().is_unspecified() && self.advertise.is_none() {
            faults.push(format!(
                "listen = {:?} names no address that others can dial: set advertise",
                self.listen
            ));
        }
        Some(address)
    }

    /// Returns the schedulers as URLs.
    #[must_use]
    pub fn scheduler_urls(&self) -> Vec<String> {
        let url = |address: &String| format!("http://{}", bare(address));
        self.schedulers.iter().map(url).collect()
    }
}

/// Schedulers may be written as URLs as well: that is how others show them.
fn bare(address: &str) -> &str {
    address.strip_prefix("http://").unwrap_or(address)
}

fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        is_port && !host.is_empty() && !host.contains(['/', ' '])
    })
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<String>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is wrong")?;
        for fault in &self.0 {
            write!(f, "\n  {}", fault.replace('\n', "\n  "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The keys of a file: what is taken out of it is known, what is left over is a fault.
struct Keys {
    table: Table,
    known: Vec<&'static str>,
    faults: Vec<String>,
}

impl Keys {
    fn read<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<T> {
        self.known.push(key);
        let value = self.table.remove(key)?;
        let shown = value.to_string();
        let read: Result<T, toml::de::Error> = Value::try_into(value);
        read.map_err(|error| {
            let why = error.to_string();
            self.faults
                .push(format!("{key} = {shown} is wrong: {}", why.trim()));
        })
        .ok()
    }

    fn take<T: DeserializeOwned>(&mut self, key: &'static str, into: &mut T) {
        if let Some(value) = self.read(key) {
            *into = value;
        }
    }

    fn take_some<T: DeserializeOwned>(&mut self, key: &'static str, into: &mut Option<T>) {
        if let Some(value) = self.read(key) {
            *into = Some(value);
        }
    }

    fn end(mut self) -> Vec<String> {
        let known = self.known.join(", ");
        let unknown = self.table.keys();
        self.faults
            .extend(unknown.map(|key| format!("unknown key {key}; the keys are {known}")));
        self.faults
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
        assert_eq!(sample, Config::default());
        let text = std::fs::read_to_string(path).unwrap();
        let mut keys = Keys {
            table: Table::new(),
            known: Vec::new(),
            faults: Vec::new(),
        };
        let (_, faults) = Config::parse("x = 1");
        let known = faults[0].rsplit_once("are ").unwrap().1.to_owned();
        assert!(keys.read::<String>("name").is_none());
        for key in known.split(", ") {
            let lines = text
                .lines()
                .filter(|l| l.trim_start_matches("# ").starts_with(&format!("{key} =")));
            assert_eq!(lines.count(), 1, "{key}");
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let text = "listne = 1\ncalls_max = \"x\"\nlog_format = \"xml\"\nservice_version = 1\n";
        let (config, faults) = Config::parse(text);
        assert_eq!(config.service_version, 1);
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(Faults(faults).to_string().contains("unknown key listne"));

        let config = Config {
            name: Some("-".into()),
            listen: "0.0.0.0:1".into(),
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

    #[test]
    fn other_addresses_than_loopback_need_a_word() {
        let mut config = Config {
            listen: "0.0.0.0:7200".into(),
            advertise: Some("h1:7200".into()),
            ..Config::default()
        };
        assert!(config.validate().is_err());
        config.insecure_listen = true;
        assert!(config.validate().is_ok());
    }

    #[test]
    fn schedulers_become_urls() {
        let config = Config {
            schedulers: vec!["h1:7100".into(), "http://h2:7100".into()],
            ..Config::default()
        };
        assert_eq!(
            config.scheduler_urls(),
            ["http://h1:7100", "http://h2:7100"]
        );
    }
}
