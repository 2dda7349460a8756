//! The output of commands: tables for people, JSON for programs, errors with a hint.
//!
//! Invariant: standard output carries data and nothing else; progress, hints and errors go to
//! standard error.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use berth_domain::refusal::Refusal;
use berth_proto::status::name_of;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::json;

/// The audience of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tables and pictures
    Table,
    /// One JSON value
    Json,
}

/// Prints to standard output. A reader that has closed the pipe, as `head` does, ends the program
/// quietly.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if written.is_err() {
        std::process::exit(0);
    }
}

/// Returns a sentence that reports whether a resource was created or existed before.
#[must_use]
pub fn created(kind: &str, name: &str, existed: bool) -> String {
    let how = if existed {
        "was there already"
    } else {
        "is created"
    };
    format!("{kind} {name} {how}")
}

/// Returns where a resource class or trait comes from.
#[must_use]
pub fn origin(standard: bool) -> &'static str {
    if standard { "standard" } else { "custom" }
}

/// Prints to standard error, where progress and hints belong.
pub fn message(text: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("failed to write JSON")?;
    print(&format!("{text}\n"));
    Ok(())
}

/// Prints a value as JSON on one line, as one of many.
pub fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(value).context("failed to write JSON")?;
    print(&format!("{text}\n"));
    Ok(())
}

/// Prints rows below a head, or a sentence if there are no rows.
pub fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>, none: &str) {
    if rows.is_empty() {
        message(none);
        return;
    }
    print(&rendered(head, rows));
}

/// Prints names, and which of them are standard.
pub fn names(
    what: &str,
    names: impl Iterator<Item = (String, bool)>,
    as_json: bool,
    none: &str,
) -> anyhow::Result<()> {
    if as_json {
        let all: Vec<_> = names
            .map(|(name, standard)| json!({"name": name, "standard": standard}))
            .collect();
        return json(&all);
    }
    let rows = names
        .map(|(name, standard)| [name, origin(standard).to_owned()])
        .collect();
    table([what, "origin"], rows, none);
    Ok(())
}

/// Returns rows below a head, a line each.
#[must_use]
pub fn rendered<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> String {
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
    format!("{}\n", text.join("\n"))
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

/// Renders a refusal for programs: one line of JSON.
pub fn refusal_json(refusal: &Refusal) -> String {
    let mut error = json!({
        "code": name_of(refusal.code),
        "reason": refusal.reason,
        "message": refusal.message,
        "metadata": refusal.metadata,
        "hint": refusal.hint,
    });
    // Only a placement has them.
    if !refusal.causes.is_empty() {
        error["causes"] = json!(refusal.causes);
    }
    if !refusal.hosts.is_empty() {
        error["hosts"] = json!(refusal.hosts);
    }
    json!({ "error": error }).to_string()
}

/// Renders a refusal for people: the message, the nearest hosts, the hint.
pub fn refusal(refusal: &Refusal) -> String {
    let mut lines = vec![format!("error: {} ({})", refusal.message, refusal.reason)];
    // A message about the only host that was requested needs no line for that host.
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

#[cfg(test)]
mod tests {
    use berth_domain::refusal::Code;

    use super::*;

    /// Goal: a program reads why it was refused without parsing sentences.
    #[test]
    fn refusals_are_json_for_programs() {
        let no =
            Refusal::new(Code::NotFound, "VM_NOT_FOUND", "vm a\n does not exist").with("vm", "a");
        assert_eq!(
            refusal_json(&no),
            r#"{"error":{"code":"NOT_FOUND","hint":null,"message":"vm a\n does not exist","metadata":{"vm":"a"},"reason":"VM_NOT_FOUND"}}"#
        );
        let mut no = no.with_hint("make it");
        no.causes.insert("DOWN".to_owned(), 2);
        let read: serde_json::Value = serde_json::from_str(&refusal_json(&no)).unwrap();
        assert_eq!(read["error"]["hint"], "make it");
        assert_eq!(read["error"]["causes"]["DOWN"], 2);
    }
}
