//! The configuration of a scheduler: one struct, read from TOML, overridden by flags.
//!
//! Invariant: unknown keys are refused, and a configuration with several faults is refused with
//! all of them at once. The sample under `deploy/` holds every key with its default.

mod backups;
pub(crate) mod settings;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use berth_domain::version::ServiceVersion;
use berth_placement_api::Profile;
use berth_process::configuration::{self, Configuration, Faults, check_bounds};
use berth_process::listening::{self, Listening, is_host_port};
use berth_process::{Keys, Log, Traces};

pub use backups::Backups;

/// The default address of a scheduler.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7100";

/// Where a REST API could listen; the port is Placement's own in OpenStack's development set-up.
const PLACEMENT_LISTEN_EXAMPLE: &str = "127.0.0.1:8778";
/// Where the page could be served.
const PAGE_LISTEN_EXAMPLE: &str = "127.0.0.1:7190";
/// How many further names the page may be served for.
const PAGE_HOSTS_MAX: usize = 64;

/// How the member is created if its directory is empty; a restart needs neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The directory must hold a member.
    #[default]
    Restart,
    /// Makes a new cluster with this member alone.
    Bootstrap,
    /// Asks one of these running members to let it join. Where there is a member already, it looks there
    /// for members that have other addresses than the recorded ones.
    Join(Vec<String>),
}

impl Start {
    /// Returns the addresses of other members that were given.
    #[must_use]
    pub fn peers(&self) -> &[String] {
        match self {
            Self::Restart | Self::Bootstrap => &[],
            Self::Join(peers) => peers,
        }
    }
}

/// The configuration of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The directory of the member. No default: losing it loses the member.
    pub data_dir: PathBuf,
    /// Where it listens, for clients, conductors, agents and the other members, and what they dial.
    pub listening: Listening,
    /// The address of OpenStack Placement's REST API; if absent, it is not served.
    pub placement_listen: Option<String>,
    /// What callers of the REST API may do; absent, `default` if there are tokens.
    pub placement_profile: Option<Profile>,
    /// The file with the tokens of the REST API's callers; if absent, they are not authenticated, for
    /// which the profile must be set.
    pub placement_tokens: Option<PathBuf>,
    /// How many connections the REST API has at once; who comes then waits.
    pub placement_connections_max: usize,
    /// The address of the page of the cluster; if absent, it is not served.
    pub page_listen: Option<String>,
    /// The names that the page is served for besides its address and those of loopback, as a browser sends
    /// them in `Host`.
    pub page_hosts: Vec<String>,
    /// Whether browsers may log in to the page by a link instead of presenting a certificate. It needs
    /// certificates of its own.
    pub page_login: bool,
    /// The cluster that the directory must belong to, if it matters.
    pub cluster_id: Option<String>,
    /// How to begin in an empty directory.
    pub start: Start,
    /// Which log lines are written, and how.
    pub log: Log,
    /// Where traces are sent.
    pub traces: Traces,
    /// After how long without a report a host counts as down.
    pub liveness_limit_ms: u64,
    /// The greatest request that is read.
    pub request_bytes_max: usize,
    /// Timeout of a request, after which the client gets the error that its outcome is unknown.
    pub request_timeout_ms: u64,
    /// How many requests of one connection may be open at once.
    pub requests_per_connection_max: usize,
    /// How many changes are kept for watches; who is further behind lists again.
    pub watch_history_max: usize,
    /// How many bytes of changes are kept for watches, of events and of providers each.
    pub watch_history_bytes_max: usize,
    /// How many requests that last are served at once: watches, and waiting for operations.
    pub watches_max: usize,
    /// The interval of Raft's clock.
    pub raft_tick_ms: u64,
    /// A leader reports to its followers every so many ticks.
    pub raft_heartbeat_ticks: u64,
    /// Election timeout in ticks: a follower without heartbeats for it (up to twice) starts an election.
    pub raft_election_ticks: u64,
    /// A checkpoint is written every so many log entries.
    pub checkpoint_entries: u64,
    /// The invariants of the state are checked every so many milliseconds; 0: never.
    pub invariant_check_interval_ms: u64,
    /// When backups are made.
    pub backups: Backups,
    /// The newest cluster version that this member applies: an older one makes it behave as an
    /// older program, which stops at what it does not know.
    pub service_version: u32,
}

impl Config {
    /// Returns the defaults for a member in this directory.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listening: Listening::new(LISTEN_DEFAULT),
            placement_listen: None,
            placement_profile: None,
            placement_tokens: None,
            placement_connections_max: 512,
            page_listen: None,
            page_hosts: Vec::new(),
            page_login: false,
            cluster_id: None,
            start: Start::Restart,
            log: Log::default(),
            traces: Traces::default(),
            liveness_limit_ms: 15_000,
            request_bytes_max: 4 << 20,
            request_timeout_ms: 10_000,
            requests_per_connection_max: 1024,
            watch_history_max: 65_536,
            watch_history_bytes_max: 64 << 20,
            watches_max: 1024,
            raft_tick_ms: 50,
            raft_heartbeat_ticks: 2,
            raft_election_ticks: 20,
            checkpoint_entries: 200_000,
            invariant_check_interval_ms: 60_000,
            backups: Backups::default(),
            service_version: ServiceVersion::CURRENT.0,
        }
    }

    /// Returns the configuration in this file, as overridden by `flags`.
    ///
    /// # Errors
    ///
    /// All faults of the file and of the whole: the file cannot be read, unknown keys, values of
    /// a wrong type or out of range.
    pub fn load(file: Option<&Path>, flags: impl FnOnce(&mut Self)) -> Result<Self, Faults> {
        configuration::load(Self::new(""), file, flags)
    }

    /// Returns the addresses to listen on, if nothing in the configuration is wrong.
    ///
    /// # Errors
    ///
    /// All faults.
    pub fn validate(&self) -> Result<Addresses, Faults> {
        let mut faults = Vec::new();
        if self.data_dir.as_os_str().is_empty() {
            faults.push("data_dir is missing: set the directory of the member's data".into());
        }
        let grpc = self.listening.check(LISTEN_DEFAULT, &mut faults);
        let placement = self.check_placement(&mut faults);
        let page = self.check_page(&mut faults);
        if let Start::Join(members) = &self.start {
            for member in members {
                if !is_host_port(member) {
                    faults.push(format!("join {member:?} is not of the form host:port"));
                }
            }
        }
        if let Some(cluster) = &self.cluster_id
            && cluster.parse::<uuid::Uuid>().is_err()
        {
            faults.push(format!("cluster_id {cluster:?} is not a UUID"));
        }
        check_bounds(self.bounded(), &mut faults);
        self.traces.check(&mut faults);
        check_bounds(self.backups.bounded(), &mut faults);
        self.backups.check(&mut faults);
        if self.raft_election_ticks < self.raft_heartbeat_ticks.saturating_mul(3) {
            faults.push(format!(
                "raft_election_ticks = {} must be at least three times raft_heartbeat_ticks = {}, \
                 or one lost report deposes a healthy leader",
                self.raft_election_ticks, self.raft_heartbeat_ticks
            ));
        }
        match grpc {
            Some(grpc) if faults.is_empty() => Ok(Addresses {
                grpc,
                metrics: self.listening.metrics_address(),
                placement,
                page,
            }),
            Some(_) | None => Err(Faults(faults)),
        }
    }

    /// Returns the address of the REST API, if it is served.
    fn check_placement(&self, faults: &mut Vec<String>) -> Option<SocketAddr> {
        let Some(listen) = &self.placement_listen else {
            if self.placement_profile.is_some() || self.placement_tokens.is_some() {
                faults.push(
                    "placement_profile and placement_tokens need placement_listen: set the \
                     address of the REST API"
                        .into(),
                );
            }
            return None;
        };
        if self.placement_profile.is_none() && self.placement_tokens.is_none() {
            faults.push(
                "placement_listen needs placement_tokens: name a file with the callers' tokens; \
                 or set placement_profile to accept every caller unauthenticated, in tests"
                    .into(),
            );
        }
        listening::check_listen(
            "placement_listen",
            listen,
            self.listening.is_open(),
            PLACEMENT_LISTEN_EXAMPLE,
            faults,
        )
    }

    /// Returns the address of the page, if it is served.
    fn check_page(&self, faults: &mut Vec<String>) -> Option<SocketAddr> {
        if self.page_hosts.len() > PAGE_HOSTS_MAX {
            let count = self.page_hosts.len();
            faults.push(format!(
                "page_hosts has {count} names; at most {PAGE_HOSTS_MAX} are allowed"
            ));
        }
        for name in &self.page_hosts {
            if !is_host_port(&format!("{name}:1")) || name.contains([':', '[', ']']) {
                faults.push(format!(
                    "page_hosts: {name:?} is not the name of a host, without scheme and port"
                ));
            }
        }
        let listen = self.page_listen.as_deref();
        if listen.is_none() && !self.page_hosts.is_empty() {
            faults.push("page_hosts needs page_listen: set the address of the page".into());
        }
        if self.page_login && listen.is_none() {
            faults.push("page_login needs page_listen: set the address of the page".into());
        }
        if self.page_login && !self.listening.encryption.is_configured() {
            faults.push(
                "page_login needs certificates: without them every caller may use the page; set [tls]"
                    .into(),
            );
        }
        let open = self.listening.is_open();
        listening::check_listen("page_listen", listen?, open, PAGE_LISTEN_EXAMPLE, faults)
    }

    fn bounded(&self) -> [configuration::Bounded; 14] {
        let version = u64::from(self.service_version);
        let (oldest, current) = (ServiceVersion::OLDEST.0, ServiceVersion::CURRENT.0);
        let bytes = self.request_bytes_max as u64;
        let requests = self.requests_per_connection_max as u64;
        let connections = self.placement_connections_max as u64;
        let history = self.watch_history_max as u64;
        let history_bytes = self.watch_history_bytes_max as u64;
        let watches = self.watches_max as u64;
        let invariants = self.invariant_check_interval_ms;
        [
            ("liveness_limit_ms", self.liveness_limit_ms, 100, 3_600_000),
            ("request_bytes_max", bytes, 64 << 10, 64 << 20),
            ("request_timeout_ms", self.request_timeout_ms, 100, 600_000),
            ("requests_per_connection_max", requests, 1, 1 << 20),
            ("placement_connections_max", connections, 1, 1 << 20),
            ("watch_history_max", history, 16, 1 << 24),
            ("watch_history_bytes_max", history_bytes, 64 << 10, 16 << 30),
            ("watches_max", watches, 1, 1 << 20),
            ("raft_tick_ms", self.raft_tick_ms, 1, 10_000),
            ("raft_heartbeat_ticks", self.raft_heartbeat_ticks, 1, 1000),
            ("raft_election_ticks", self.raft_election_ticks, 3, 10_000),
            ("checkpoint_entries", self.checkpoint_entries, 100, 1 << 32),
            ("invariant_check_interval_ms", invariants, 0, 86_400_000),
            ("service_version", version, oldest.into(), current.into()),
        ]
    }
}

/// Where a member listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For gRPC.
    pub grpc: SocketAddr,
    /// For metrics and health, if they are served.
    pub metrics: Option<SocketAddr>,
    /// For the REST API, if it is served.
    pub placement: Option<SocketAddr>,
    /// For the page, if it is served.
    pub page: Option<SocketAddr>,
}

impl Configuration for Config {
    fn read(&mut self, keys: &mut Keys) {
        keys.take("data_dir", &mut self.data_dir);
        self.listening.read(keys);
        keys.take_some("placement_listen", &mut self.placement_listen);
        keys.take_some("placement_profile", &mut self.placement_profile);
        keys.take_some("placement_tokens", &mut self.placement_tokens);
        keys.take(
            "placement_connections_max",
            &mut self.placement_connections_max,
        );
        keys.take_some("page_listen", &mut self.page_listen);
        keys.take_each("page_hosts", &mut self.page_hosts);
        keys.take("page_login", &mut self.page_login);
        keys.take_some("cluster_id", &mut self.cluster_id);
        self.log.read(keys);
        self.traces.read(keys);
        keys.take("liveness_limit_ms", &mut self.liveness_limit_ms);
        keys.take("request_bytes_max", &mut self.request_bytes_max);
        keys.take("request_timeout_ms", &mut self.request_timeout_ms);
        keys.take(
            "requests_per_connection_max",
            &mut self.requests_per_connection_max,
        );
        keys.take("watch_history_max", &mut self.watch_history_max);
        keys.take("watch_history_bytes_max", &mut self.watch_history_bytes_max);
        keys.take("watches_max", &mut self.watches_max);
        keys.take("raft_tick_ms", &mut self.raft_tick_ms);
        keys.take("raft_heartbeat_ticks", &mut self.raft_heartbeat_ticks);
        keys.take("raft_election_ticks", &mut self.raft_election_ticks);
        keys.take("checkpoint_entries", &mut self.checkpoint_entries);
        keys.take(
            "invariant_check_interval_ms",
            &mut self.invariant_check_interval_ms,
        );
        self.backups.read(keys);
        keys.take("service_version", &mut self.service_version);
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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/scheduler.toml");
        let sample = Config::load(Some(&path), |_| ()).expect("the sample is valid");
        assert_eq!(sample, Config::new("/var/lib/berth/scheduler"));
        let text = std::fs::read_to_string(path).expect("the sample is read");
        for key in [
            "data_dir",
            "listen",
            "advertise",
            "insecure_listen",
            "metrics_listen",
            "placement_listen",
            "placement_profile",
            "placement_tokens",
            "placement_connections_max",
            "page_listen",
            "page_hosts",
            "page_login",
            "cluster_id",
            "log_format",
            "log_filter",
            "liveness_limit_ms",
            "request_bytes_max",
            "request_timeout_ms",
            "requests_per_connection_max",
            "watch_history_max",
            "watch_history_bytes_max",
            "watches_max",
            "raft_tick_ms",
            "raft_heartbeat_ticks",
            "raft_election_ticks",
            "checkpoint_entries",
            "invariant_check_interval_ms",
            "directory",
            "interval_s",
            "full_every",
            "keep",
            "service_version",
            "ca",
            "cert",
            "key",
        ] {
            let lines = text
                .lines()
                .filter(|l| l.trim_start_matches("# ").starts_with(&format!("{key} =")));
            assert_eq!(lines.count(), 1, "{key}");
        }
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let text = "listne = 1\nraft_tick_ms = \"x\"\nlog_format = \"xml\"\n";
        let (_, faults) = configuration::parse(Config::new(""), text);
        assert_eq!(faults.len(), 3, "{faults:?}");
        let text = Faults(faults).to_string();
        assert!(text.contains("unknown key listne"), "{text}");
        assert!(text.contains("raft_tick_ms"), "{text}");

        let config = Config {
            listening: Listening {
                advertise: Some("http://x".into()),
                ..Listening::new("0.0.0.0:1")
            },
            raft_election_ticks: 3,
            cluster_id: Some("x".into()),
            ..Config::new("")
        };
        let faults = config.validate().expect_err("faults");
        assert_eq!(faults.0.len(), 5, "{faults}");
    }
}
