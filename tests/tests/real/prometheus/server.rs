//! A Prometheus that a test runs: its process, and queries to it.
//!
//! What it is not: a reader of metrics. What the programs serve is read strictly in `processes::scrape`.
//!
//! Invariant: it listens on loopback, and ends with its owner.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use berth_tests::processes::{Process, scrape};
use serde_json::Value;

/// The labels of a series.
pub(super) type Labels = BTreeMap<String, String>;

/// A Prometheus that runs.
pub(super) struct Prometheus {
    address: String,
    process: Process,
}

impl Prometheus {
    /// Starts one with this configuration; its files are in this directory.
    pub(super) fn start(folder: &Path, address: String, config: &str) -> Self {
        let file = folder.join("prometheus.yml");
        fs::write(&file, config).expect("a file in a directory of our own");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={address}"));
        let process = Process::start(command, &folder.join("prometheus.log"));
        Self { address, process }
    }

    /// Returns what it has printed.
    pub(super) fn log(&self) -> String {
        self.process.log()
    }

    /// Returns the series of an expression, as of now; the error of an expression that is refused.
    pub(super) fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let address = &self.address;
        let path = format!("/api/v1/query?query={}", percent_encoded(expression));
        // A response to this version of HTTP is not sent in chunks.
        let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
        let response = scrape::send(address, request.as_bytes())?;
        let answer: Value = serde_json::from_str(&response.body)
            .map_err(|error| format!("{error}: {response:?}"))?;
        if answer["status"] != "success" {
            return Err(format!("{expression}: {answer}"));
        }
        let result = answer["data"]["result"].as_array();
        result
            .cloned()
            .ok_or_else(|| format!("{expression}: no series: {answer}"))
    }

    /// Returns the value of the first series of an expression.
    pub(super) fn value(&self, expression: &str) -> Result<String, String> {
        let series = self.query(expression)?;
        let value = series.first().and_then(|first| first["value"][1].as_str());
        value
            .map(str::to_owned)
            .ok_or_else(|| format!("{expression} has no series"))
    }

    /// Returns the labels of the alerts that are firing, without the state.
    pub(super) fn firing(&self) -> Result<Vec<Labels>, String> {
        let series = self.query("ALERTS{alertstate=\"firing\"}")?;
        let labels = series.iter().map(labels_of);
        Ok(labels.collect())
    }
}

/// Returns the labels of a series of a result.
pub(super) fn labels_of(series: &Value) -> Labels {
    let labels = series["metric"].as_object().into_iter().flatten();
    labels
        .filter(|(name, _)| !matches!(name.as_str(), "__name__" | "alertstate"))
        .map(|(name, value)| {
            let value = value.as_str().unwrap_or_default();
            (name.clone(), value.to_owned())
        })
        .collect()
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
