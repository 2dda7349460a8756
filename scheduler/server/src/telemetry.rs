//! Log lines: where they go and what they look like.
//!
//! Not metrics. Lines go to standard error, so that standard output stays for data.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// The environment variable that says which log lines are written, before the configuration does.
pub const FILTER_VARIABLE: &str = "BERTH_LOG";

/// Begins to write log lines. A second call in one process has no effect.
///
/// # Errors
///
/// When the filter cannot be understood.
pub fn start(format: LogFormat, filter: &str) -> Result<(), String> {
    let filter = std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| filter.to_owned());
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| format!("log filter {filter:?} cannot be understood: {error}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colours are for people: a file or a collector of logs gets none.
        .with_ansi(std::io::stderr().is_terminal());
    // Fails only when something else in this process writes log lines already.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
