//! Log lines, on standard error: standard output is for data. Not metrics.
//!
//! | module | what |
//! |---|---|
//! | [`filter`] | which lines a filter lets pass |
//! | [`level`] | the filter that is in force, and changes of it at run time |
//!
//! Invariant: an event is one line, whatever its fields hold: names, addresses and reasons come from
//! other machines, and an operator reads them on a terminal or in the journal. The fields are
//! escaped by `Fields`, and JSON escapes them in its own way.

pub mod filter;
pub mod level;
#[cfg(test)]
mod lines;

use std::error::Error;
use std::io::IsTerminal as _;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing_log::AsLog as _;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, reload};

use self::level::Level;
use crate::keys::Keys;
use crate::recent;
use crate::terminal::escape;

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
        let (filtering, handle) = reload::Layer::new(filter::configured(&filter)?);
        let lines = fmt::layer()
            .with_writer(std::io::stderr)
            // Colours are for people: a file or a collector of logs gets none.
            .with_ansi(std::io::stderr().is_terminal());
        let recent = fmt::layer()
            .with_writer(recent::Writer)
            .with_ansi(false)
            .fmt_fields(PlainFields);
        let registry = tracing_subscriber::registry().with(filtering).with(recent);
        // An error means that lines are written already, as by the program that embeds this one.
        let started = match self.format {
            LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
            LogFormat::Text => registry.with(lines.fmt_fields(Fields)).try_init(),
        };
        if started.is_ok() {
            level::begin(Level::new(&filter, move |filter| {
                handle.reload(filter)?;
                // Libraries that use the crate `log` compare with a level of their own first.
                tracing_log::log::set_max_level(LevelFilter::current().as_log());
                Ok(())
            }));
        }
        Ok(())
    }
}

/// Formats the fields of events and spans as text: `message key=value`, everything escaped.
///
/// The library's own formatter escapes ESC in messages, but neither newlines nor the characters that
/// change the direction of text, and nothing in the other fields.
#[derive(Clone, Copy, Debug)]
struct Fields;

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(
        &self,
        writer: Writer<'writer>,
        fields: R,
    ) -> std::fmt::Result {
        let mut visitor = FieldVisitor {
            writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut visitor);
        visitor.result
    }
}

/// As [`Fields`], of the lines in memory: the fields of a span are kept once for each formatter, and with
/// its colours.
#[derive(Clone, Copy, Debug)]
struct PlainFields;

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(
        &self,
        writer: Writer<'writer>,
        fields: R,
    ) -> std::fmt::Result {
        Fields.format_fields(writer, fields)
    }
}

struct FieldVisitor<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    /// The first failure; nothing is written after it.
    result: std::fmt::Result,
}

impl FieldVisitor<'_> {
    fn write(&mut self, name: &str, value: &str) -> std::fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        let value = escape(value);
        match name {
            "message" => self.writer.write_str(&value),
            name if self.writer.has_ansi_escapes() => {
                // The name in italics.
                write!(self.writer, "\x1b[3m{name}\x1b[0m={value}")
            }
            name => write!(self.writer, "{name}={value}"),
        }
    }
}

impl Visit for FieldVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Lines of libraries that use the crate `log` have their file and line in such fields.
        if self.result.is_ok() && !field.name().starts_with("log.") {
            let name = field.name().trim_start_matches("r#");
            self.result = self.write(name, &format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let chain = crate::run::error_chain(error);
        self.record_debug(field, &format_args!("{chain}"));
    }
}

#[cfg(test)]
mod tests {
    use super::lines::Lines;
    use super::*;

    const HOSTILE: &str = "h1\x1b[2J\n2026-01-01 ERROR forged\u{202e}\u{200b}\u{9b}31m\x7f";
    const ESCAPED: &str = r"h1\u{1b}[2J\n2026-01-01 ERROR forged\u{202e}\u{200b}\u{9b}31m\u{7f}";

    fn log_hostile_fields() {
        #[derive(Debug, thiserror::Error)]
        #[error("{HOSTILE}")]
        struct Failed;
        let span = tracing::info_span!("call", host = %HOSTILE);
        let _entered = span.enter();
        tracing::info!(host = %HOSTILE, quoted = HOSTILE, debug = ?HOSTILE, "agent {HOSTILE}");
        let error: &(dyn Error + 'static) = &Failed;
        tracing::warn!(error, "failed");
    }

    /// Goal: no field of an event can forge a line, or reach the terminal as a command. Method: each
    /// kind of field holds what does so, with and without colours.
    #[test]
    fn an_event_is_one_line_whatever_its_fields_hold() {
        for ansi in [false, true] {
            let lines = Lines::default();
            let subscriber = tracing_subscriber::fmt()
                .with_writer(lines.clone())
                .with_ansi(ansi)
                .fmt_fields(Fields)
                .finish();
            tracing::subscriber::with_default(subscriber, log_hostile_fields);
            let text = lines.take();
            assert_eq!(text.lines().count(), 2, "{text}");
            assert!(text.contains(&format!("agent {ESCAPED}")), "{text}");
            let plain = text
                .replace("\x1b[3m", "")
                .replace("\x1b[0m", "")
                .replace("\x1b[1m", "")
                .replace("\x1b[2m", "")
                .replace("\x1b[32m", "")
                .replace("\x1b[33m", "");
            let hidden = plain
                .chars()
                .find(|c| *c != '\n' && crate::terminal::is_hidden(*c));
            assert_eq!(hidden, None, "{plain:?}");
            for expected in ["host=", "quoted=", "debug=", "error="] {
                assert!(plain.contains(expected), "{plain}");
            }
        }
    }

    /// Goal: the same of lines for programs, where each stays one JSON object with the exact text.
    #[test]
    fn an_event_is_one_json_object_with_the_exact_text() {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(lines.clone())
            .json()
            .flatten_event(true)
            .finish();
        tracing::subscriber::with_default(subscriber, log_hostile_fields);
        let text = lines.take();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(r"h1\u001b[2J\n2026"), "{text}");
        assert!(!text.contains('\x1b'), "{text:?}");
    }
}
