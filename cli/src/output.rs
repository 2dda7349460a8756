//! What the command prints: tables for people, JSON for programs, errors with a hint.
//!
//! Invariant: standard output carries data and nothing else; progress, hints and errors go to
//! standard error.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use berth_domain::refusal::Refusal;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// For whom the output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tables and pictures
    Table,
    /// One JSON value
    Json,
}

/// Prints to standard output. A reader that has gone away, as `head` does, ends the program
/// quietly.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if written.is_err() {
        std::process::exit(0);
    }
}

/// Prints to standard error, where progress and hints belong.
pub fn tell(text: &str) {
    // Nobody listens: nothing is lost.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("failed to write JSON")?;
    print(&format!("{text}\n"));
    Ok(())
}

/// Prints rows below a head, or a sentence when there is none.
pub fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>, none: &str) {
    if rows.is_empty() {
        tell(none);
        return;
    }
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(head.map(str::to_uppercase));
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for row in rows {
        table.add_row(row);
    }
    // Columns keep their place: only what the preset puts before the first one is cut.
    let text = table.to_string();
    let text: Vec<&str> = text
        .lines()
        .map(|l| l.strip_prefix(' ').unwrap_or(l).trim_end())
        .collect();
    print(&format!("{}\n", text.join("\n")));
}

/// Prints names with values, one a line.
pub fn fields(fields: &[(&str, String)]) {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name:<width$}  {value}").trim_end().to_owned())
        .collect();
    print(&format!("{}\n", lines.join("\n")));
}

/// Returns what a refusal says, for people: the sentence, the hosts that came nearest, the hint.
pub fn refusal(refusal: &Refusal) -> String {
    let mut lines = vec![format!("error: {} ({})", refusal.message, refusal.reason)];
    // A sentence about the only host that was asked has said it all.
    let all_said = matches!(&refusal.hosts[..], [host] if refusal.message.contains(&host.message));
    if !all_said {
        for (cause, hosts) in &refusal.causes {
            lines.push(format!("  {hosts} x {cause}"));
        }
        for host in &refusal.hosts {
            lines.push(format!("  {}: {}", host.host, host.message));
        }
    }
    if let Some(hint) = &refusal.hint {
        lines.push(format!("hint: {hint}"));
    }
    lines.join("\n")
}
