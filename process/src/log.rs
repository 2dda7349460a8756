//! Log lines, on standard error: standard output is for data. Not metrics.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::keys::Keys;

/// The environment variable that overrides the configured filter.
pub const FILTER_VARIABLE: &str = "BERTH_LOG";

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
        let filter = EnvFilter::try_new(&filter)
            .map_err(|error| format!("{filter:?} is not a log filter: {error}"))?;
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
