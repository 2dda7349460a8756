//! Log lines, on standard error: standard output is for data. Not metrics.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::keys::Keys;

/// The environment variable that overrides the configured filter.
pub const FILTER_VARIABLE: &str = "BERTH_LOG";

/// Log lines of libraries that a program of ours replaces by its own. raft-engine warns of a cut
/// "Corruption" each time that a process was killed, since its files end in blank space then; the
/// store compares the log with its witness and reports what was found.
const REPLACED: &str = "raft_engine::file_pipe_log::pipe_builder=error";
/// The library; a filter that names it gets its lines as they are.
const REPLACED_OF: &str = "raft_engine";

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Human-readable lines.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Which log lines are written, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How log lines are written.
    pub format: LogFormat,
    /// Which log lines are written, as `info,berth_proto=debug`.
    pub filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            filter: "info".into(),
        }
    }
}

impl Log {
    /// Takes its keys out of a file.
    pub fn read(&mut self, keys: &mut Keys) {
        keys.take("log_format", &mut self.format);
        keys.take("log_filter", &mut self.filter);
    }

    /// Begins to write log lines, unless this process does so already.
    ///
    /// # Errors
    ///
    /// When the filter is none.
    pub fn start(&self) -> Result<(), String> {
        let filter = std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| self.filter.clone());
        let quiet = match filter.contains(REPLACED_OF) {
            true => filter.clone(),
            false => format!("{filter},{REPLACED}"),
        };
        let wrong = |error| format!("{filter:?} is not a log filter: {error}");
        // An empty filter, and one that is wrong, are judged as they were written.
        let given = EnvFilter::try_new(&filter).map_err(wrong)?;
        let filter = EnvFilter::try_new(&quiet).unwrap_or(given);
        let lines = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            // Colours are for people: a file or a collector of logs gets none.
            .with_ansi(std::io::stderr().is_terminal())
            .with_env_filter(filter);
        // An error means that lines are written already, as by the program that embeds this one.
        let _ = match self.format {
            LogFormat::Json => lines.json().flatten_event(true).try_init(),
            LogFormat::Text => lines.try_init(),
        };
        Ok(())
    }
}
