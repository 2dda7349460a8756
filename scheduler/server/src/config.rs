//! What a scheduler is told when it starts: one struct, read from TOML, overridden by flags.
//!
//! Invariant: unknown keys are refused, and a configuration with several faults is refused with
//! all of them at once. The sample under `deploy/` holds every key with its default.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Where a scheduler listens unless told otherwise.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7100";

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// How the member comes into being if its directory is empty; a restart needs neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The directory must hold a member.
    #[default]
    Restart,
    /// Makes a new cluster with this member alone.
    Bootstrap,
    /// Asks one of these running members to let it join.
    Join(Vec<String>),
}

/// What a scheduler is told when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The directory of the member. No default: losing it loses the member.
    pub data_dir: PathBuf,
    /// The address to listen on, for clients, conductors, agents and the other members.
    pub listen: String,
    /// What others dial to reach this member, as `host:port`; the listening address if absent.
    pub advertise: Option<String>,
    /// Whether `listen` may be anything but loopback although nothing is encrypted or
    /// authenticated yet.
    pub insecure_listen: bool,
    /// The cluster that the directory must belong to, if it matters.
    pub cluster_id: Option<String>,
    /// How to begin in an empty directory.
    pub start: Start,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Which log lines are written, as `info,berth_replication=debug`.
    pub log_filter: String,
    /// After how long without a report a host counts as down.
    pub liveness_limit_ms: u64,
    /// The greatest request that is read.
    pub request_bytes_max: usize,
    /// How long a request may take before the client is told that its outcome is unknown.
    pub request_timeout_ms: u64,
    /// How many requests of one connection are worked on at once.
    pub requests_per_connection_max: usize,
    /// How many changes are kept for watches; who is further behind lists again.
    pub watch_history_max: usize,
    /// The interval of Raft's clock.
    pub raft_tick_ms: u64,
    /// A leader reports to its followers every so many ticks.
    pub raft_heartbeat_ticks: u64,
    /// A follower that heard nothing for so many ticks (up to twice as many) stands for election.
    pub raft_election_ticks: u64,
    /// A checkpoint is written every so many log entries.
    pub checkpoint_entries: u64,
}

impl Config {
    /// Returns the defaults for a member in this directory.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen: LISTEN_DEFAULT.into(),
            advertise: None,
            insecure_listen: false,
            cluster_id: None,
            start: Start::Restart,
            log_format: LogFormat::Text,
            log_filter: "info".into(),
            liveness_limit_ms: 15_000,
            request_bytes_max: 4 << 20,
            request_timeout_ms: 10_000,
            requests_per_connection_max: 1024,
            watch_history_max: 16_384,
            raft_tick_ms: 50,
            raft_heartbeat_ticks: 2,
            raft_election_ticks: 20,
            checkpoint_entries: 200_000,
        }
    }

    /// Returns the configuration in this file, as overridden by `flags`.
    ///
    /// # Errors
    ///
    /// All faults of the file and of the whole: the file cannot be read, unknown keys, values of
    /// a wrong type or out of range.
    pub fn load(file: Option<&Path>, flags: impl FnOnce(&mut Self)) -> Result<Self, Faults> {
        let (mut config, mut faults) = match file.map(|path| (path, std::fs::read_to_string(path)))
        {
            None => (Self::new(""), Vec::new()),
            Some((_, Ok(text))) => Self::parse(&text),
            Some((path, Err(error))) => {
                return Err(Faults(vec![format!(
                    "{} cannot be read: {error}",
                    path.display()
                )]));
            }
        };
        flags(&mut config);
        if let Err(more) = config.validate() {
            faults.extend(more.0);
        }
        match faults.is_empty() {
            true => Ok(config),
            false => Err(Faults(faults)),
        }
    }

    /// Returns what the text of a configuration file says, and what is wrong with it.
    fn parse(text: &str) -> (Self, Vec<String>) {
        let mut config = Self::new("");
        let table: Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                let error: toml::de::Error = error;
                return (config, vec![error.to_string().trim().to_owned()]);
            }
        };
        let mut reader = Reader {
            table,
            known: Vec::new(),
            faults: Vec::new(),
        };
        reader.take("data_dir", &mut config.data_dir);
        reader.take("listen", &mut config.listen);
        reader.take_option("advertise", &mut config.advertise);
        reader.take("insecure_listen", &mut config.insecure_listen);
        reader.take_option("cluster_id", &mut config.cluster_id);
        reader.take("log_format", &mut config.log_format);
        reader.take("log_filter", &mut config.log_filter);
        reader.take("liveness_limit_ms", &mut config.liveness_limit_ms);
        reader.take("request_bytes_max", &mut config.request_bytes_max);
        reader.take("request_timeout_ms", &mut config.request_timeout_ms);
        reader.take(
            "requests_per_connection_max",
            &mut config.requests_per_connection_max,
        );
        reader.take("watch_history_max", &mut config.watch_history_max);
        reader.take("raft_tick_ms", &mut config.raft_tick_ms);
        reader.take("raft_heartbeat_ticks", &mut config.raft_heartbeat_ticks);
        reader.take("raft_election_ticks", &mut config.raft_election_ticks);
        reader.take("checkpoint_entries", &mut config.checkpoint_entries);
        (config, reader.finish())
    }

    /// Returns the address to listen on, if nothing in the configuration is wrong.
    ///
    /// # Errors
    ///
    /// All faults.
    pub fn validate(&self) -> Result<SocketAddr, Faults> {
        let mut faults = Vec::new();
        if self.data_dir.as_os_str().is_empty() {
            faults.push("data_dir is missing: say where the member keeps its data".into());
        }
        let listen = self.listen_address(&mut faults);
        if let Some(advertise) = &self.advertise {
            check_host_port("advertise", advertise, &mut faults);
        }
        if let Start::Join(members) = &self.start {
            for member in members {
                check_host_port("join", member, &mut faults);
            }
        }
        if let Some(cluster) = &self.cluster_id
            && cluster.parse::<uuid::Uuid>().is_err()
        {
            faults.push(format!("cluster_id {cluster:?} is not a UUID"));
        }
        for (key, value, least, most) in self.ranges() {
            if !(least..=most).contains(&value) {
                faults.push(format!("{key} = {value} is not within {least} to {most}"));
            }
        }
        if self.raft_election_ticks < self.raft_heartbeat_ticks.saturating_mul(3) {
            faults.push(format!(
                "raft_election_ticks = {} must be at least three times raft_heartbeat_ticks = {}, \
                 or one lost report deposes a healthy leader",
                self.raft_election_ticks, self.raft_heartbeat_ticks
            ));
        }
        match listen {
            Some(listen) if faults.is_empty() => Ok(listen),
            Some(_) | None => Err(Faults(faults)),
        }
    }

    fn ranges(&self) -> [(&'static str, u64, u64, u64); 9] {
        let bytes = self.request_bytes_max as u64;
        let requests = self.requests_per_connection_max as u64;
        let history = self.watch_history_max as u64;
        [
            ("liveness_limit_ms", self.liveness_limit_ms, 100, 3_600_000),
            ("request_bytes_max", bytes, 64 << 10, 64 << 20),
            ("request_timeout_ms", self.request_timeout_ms, 100, 600_000),
            ("requests_per_connection_max", requests, 1, 1 << 20),
            ("watch_history_max", history, 16, 1 << 24),
            ("raft_tick_ms", self.raft_tick_ms, 1, 10_000),
            ("raft_heartbeat_ticks", self.raft_heartbeat_ticks, 1, 1000),
            ("raft_election_ticks", self.raft_election_ticks, 3, 10_000),
            ("checkpoint_entries", self.checkpoint_entries, 100, 1 << 32),
        ]
    }

    fn listen_address(&self, faults: &mut Vec<String>) -> Option<SocketAddr> {
        let address = match self.listen.to_socket_addrs().map(|mut all| all.next()) {
            Ok(Some(address)) => address,
            Ok(None) | Err(_) => {
                faults.push(format!(
                    "listen = {:?} is not an address to listen on, as {LISTEN_DEFAULT}",
                    self.listen
                ));
                return None;
            }
        };
        if !is_loopback(address.ip()) && !self.insecure_listen {
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
}

fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

fn check_host_port(key: &str, text: &str, faults: &mut Vec<String>) {
    if !is_host_port(text) {
        faults.push(format!("{key} {text:?} is not of the form host:port"));
    }
}

/// Says whether a text could be an address that others dial.
pub(crate) fn is_host_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|p| p > 0)
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

/// Takes keys out of a table and remembers what was wrong.
struct Reader {
    table: Table,
    known: Vec<&'static str>,
    faults: Vec<String>,
}

impl Reader {
    fn take<T: DeserializeOwned>(&mut self, key: &'static str, into: &mut T) {
        self.known.push(key);
        let Some(value) = self.table.remove(key) else {
            return;
        };
        let shown = value.to_string();
        match Value::try_into(value) {
            Ok(value) => *into = value,
            Err(error) => {
                let message = error.to_string();
                let message = message.trim();
                self.faults
                    .push(format!("{key} = {shown} is wrong: {message}"));
            }
        }
    }

    fn take_option<T: DeserializeOwned>(&mut self, key: &'static str, into: &mut Option<T>) {
        self.take(key, into);
    }

    fn finish(mut self) -> Vec<String> {
        for key in self.table.keys() {
            self.faults.push(format!(
                "unknown key {key}; the keys are {}",
                self.known.join(", ")
            ));
        }
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the sample is a working configuration and shows the true defaults, each key once.
    #[test]
    fn the_sample_holds_every_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/scheduler.toml");
        let sample = Config::load(Some(&path), |_| ()).expect("the sample is valid");
        assert_eq!(sample, Config::new("/var/lib/berth/scheduler"));
        let text = std::fs::read_to_string(path).expect("the sample is read");
        for key in [
            "data_dir",
            "listen",
            "advertise",
            "insecure_listen",
            "cluster_id",
            "log_format",
            "log_filter",
            "liveness_limit_ms",
            "request_bytes_max",
            "request_timeout_ms",
            "requests_per_connection_max",
            "watch_history_max",
            "raft_tick_ms",
            "raft_heartbeat_ticks",
            "raft_election_ticks",
            "checkpoint_entries",
        ] {
            let lines = text
                .lines()
                .filter(|l| l.trim_start_matches("# ").starts_with(&format!("{key} =")));
            assert_eq!(lines.count(), 1, "{key}");
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let (_, faults) = Config::parse("listne = 1\nraft_tick_ms = \"x\"\nlog_format = \"xml\"\n");
        assert_eq!(faults.len(), 3, "{faults:?}");
        let text = Faults(faults).to_string();
        assert!(text.contains("unknown key listne"), "{text}");
        assert!(text.contains("raft_tick_ms"), "{text}");

        let config = Config {
            listen: "0.0.0.0:1".into(),
            advertise: Some("http://x".into()),
            raft_election_ticks: 3,
            cluster_id: Some("x".into()),
            ..Config::new("")
        };
        let faults = config.validate().expect_err("faults");
        assert_eq!(faults.0.len(), 5, "{faults}");
    }

    #[test]
    fn other_addresses_than_loopback_need_a_word() {
        let mut config = Config {
            listen: "0.0.0.0:7100".into(),
            advertise: Some("h1:7100".into()),
            ..Config::new("/d")
        };
        assert!(config.validate().is_err());
        config.insecure_listen = true;
        assert!(config.validate().is_ok());
    }
}
