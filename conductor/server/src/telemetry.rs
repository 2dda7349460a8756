//! Log lines, on standard error: standard output is for data.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// The environment variable that goes before the configured filter.
pub const FILTER_VARIABLE: &str = "BERTH_LOG";

/// Begins to write log lines, unless this process does so already.
///
/// # Errors
///
/// When the filter is none.
pub fn start(format: LogFormat, filter: &str) -> Result<(), String> {
    let filter = std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| filter.to_owned());
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| format!("{filter:?} is no filter of log lines: {error}"))?;
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        // Colours are for people: a file or a collector of logs gets none.
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter);
    // An error means that lines are written already, as by the program that embeds this one.
    let _ = match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.try_init(),
    };
    Ok(())
}
