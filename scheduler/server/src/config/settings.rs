//! The configuration as it is in force, as keys and values, for support.
//!
//! Not here: reading a configuration.
//!
//! Invariant: every field of the configuration is named, so that a new one is shown, or left out by a
//! decision. No value is a secret: keys and tokens are in files, which are named and not read.

use std::path::PathBuf;

use berth_process::{Encryption, Listening, Log, Traces};
use clap::ValueEnum;

use super::{Backups, Config, Start};

/// A key and its value; absent where nothing is set.
type Setting = (&'static str, Option<String>);

/// Returns the keys that have a value, in the order of the sample file.
pub(crate) fn settings(config: &Config) -> Vec<(&'static str, String)> {
    let settings = all(config).into_iter();
    settings
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

fn all(config: &Config) -> Vec<Setting> {
    let Config {
        data_dir,
        listening,
        placement_listen,
        placement_profile,
        placement_tokens,
        placement_connections_max,
        page_listen,
        page_hosts,
        page_login,
        cluster_id,
        start,
        log,
        traces,
        liveness_limit_ms,
        request_bytes_max,
        request_timeout_ms,
        requests_per_connection_max,
        watch_history_max,
        watch_history_bytes_max,
        watches_max,
        raft_tick_ms,
        raft_heartbeat_ticks,
        raft_election_ticks,
        checkpoint_entries,
        invariant_check_interval_ms,
        backups,
        service_version,
    } = config;
    let mut all = vec![("data_dir", Some(data_dir.display().to_string()))];
    all.extend(of_listening(listening));
    all.extend([
        ("placement_listen", placement_listen.clone()),
        (
            "placement_profile",
            placement_profile.as_ref().and_then(name),
        ),
        ("placement_tokens", path(placement_tokens.as_ref())),
        number("placement_connections_max", placement_connections_max),
        ("page_listen", page_listen.clone()),
        (
            "page_hosts",
            (!page_hosts.is_empty()).then(|| page_hosts.join(",")),
        ),
        ("page_login", page_login.then(|| "true".to_owned())),
        ("cluster_id", cluster_id.clone()),
        ("start", Some(of_start(start))),
    ]);
    all.extend(of_log(log));
    all.extend([
        number("liveness_limit_ms", liveness_limit_ms),
        number("request_bytes_max", request_bytes_max),
        number("request_timeout_ms", request_timeout_ms),
        number("requests_per_connection_max", requests_per_connection_max),
        number("watch_history_max", watch_history_max),
        number("watch_history_bytes_max", watch_history_bytes_max),
        number("watches_max", watches_max),
        number("raft_tick_ms", raft_tick_ms),
        number("raft_heartbeat_ticks", raft_heartbeat_ticks),
        number("raft_election_ticks", raft_election_ticks),
        number("checkpoint_entries", checkpoint_entries),
        number("invariant_check_interval_ms", invariant_check_interval_ms),
        number("service_version", service_version),
    ]);
    all.extend(of_backups(backups));
    all.extend(of_traces(traces));
    all
}

fn of_listening(listening: &Listening) -> Vec<Setting> {
    let Listening {
        address,
        advertise,
        insecure,
        encryption,
        metrics,
    } = listening;
    let Encryption { ca, cert, key } = encryption;
    vec![
        ("listen", Some(address.clone())),
        ("advertise", advertise.clone()),
        number("insecure_listen", insecure),
        ("metrics_listen", metrics.clone()),
        ("tls.ca", path(ca.as_ref())),
        ("tls.cert", path(cert.as_ref())),
        ("tls.key", path(key.as_ref())),
    ]
}

fn of_log(log: &Log) -> [Setting; 2] {
    let Log { format, filter } = log;
    [
        ("log_format", name(format)),
        ("log_filter", Some(filter.clone())),
    ]
}

fn of_backups(backups: &Backups) -> [Setting; 4] {
    let Backups {
        directory,
        interval_s,
        full_every,
        keep,
    } = backups;
    [
        ("backup.directory", path(directory.as_ref())),
        number("backup.interval_s", interval_s),
        number("backup.full_every", full_every),
        number("backup.keep", keep),
    ]
}

fn of_traces(traces: &Traces) -> [Setting; 5] {
    let Traces {
        endpoint,
        sample_ratio,
        queue_max,
        collector_ca,
        insecure,
    } = traces;
    [
        ("traces.endpoint", endpoint.clone()),
        number("traces.sample_ratio", sample_ratio),
        number("traces.queue_max", queue_max),
        ("traces.collector_ca", path(collector_ca.as_ref())),
        number("traces.insecure", insecure),
    ]
}

fn of_start(start: &Start) -> String {
    match start {
        Start::Restart => "restart".to_owned(),
        Start::Bootstrap => "bootstrap".to_owned(),
        Start::Join(peers) => format!("join {}", peers.join(",")),
    }
}

fn number(key: &'static str, value: &impl ToString) -> Setting {
    (key, Some(value.to_string()))
}

fn path(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

fn name(value: &impl ValueEnum) -> Option<String> {
    let value = value.to_possible_value()?;
    Some(value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is in the sample file is shown under the same key, and what is not set is left out.
    #[test]
    fn keys_are_those_of_the_file() {
        let settings = settings(&Config::new("/data"));
        let value = |key: &str| {
            let setting = settings.iter().find(|(known, _)| *known == key);
            setting.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("data_dir"), Some("/data"));
        assert_eq!(value("raft_tick_ms"), Some("50"));
        assert_eq!(value("log_format"), Some("text"));
        assert_eq!(value("backup.keep"), Some("7"));
        assert_eq!(value("tls.key"), None);
        let sample = include_str!("../../../../deploy/scheduler.toml");
        for (key, _) in settings.iter().filter(|(key, _)| *key != "start") {
            let last = key.rsplit('.').next().expect("a key");
            assert!(sample.contains(&format!("{last} =")), "{key}");
        }
    }
}
