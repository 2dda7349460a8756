//! The output of commands: tables for people, values for programs, errors with a hint.
//!
//! ```text
//!   value, item     what a command shows, as one value: `yaml`, `fields` and `order` make the other forms
//!   list            rows of a table that `--sort` orders, with columns that are wide
//!   table, fields   what else a command shows to people
//!   note, message   what stands beside it, on standard error
//! ```
//!
//! It is the only module that writes to standard output and standard error. What it writes for
//! people is [`Lines`], which are escaped when they are made: names, addresses, reasons and hints
//! come from clients, hosts and servers. JSON is exact: control characters are escaped in its own way,
//! and every other character is data. [`raw`] is for the console of a guest alone, and [`screen`] for
//! `berth top`, which draws the whole screen and checks each of its cells.
//!
//! Invariant: standard output carries data and nothing else; progress, hints and errors go to
//! standard error. No text of others adds a line, or reaches the terminal as a command.

mod choice;
mod collected;
mod fields;
mod format;
mod layout;
mod order;
mod yaml;

use std::fmt;
use std::io::{self, IsTerminal as _, StdoutLock, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use berth_domain::refusal::Refusal;
use berth_process::terminal::{escape, escape_json};
use berth_proto::status::name_of;
use serde::Serialize;
use serde_json::{Value, json};

pub use self::choice::{Choice, Subject, typed};
use self::choice::{choice, column};
pub use self::collected::Collected;
pub use self::format::{Format, Output, OutputParser};
pub use self::order::SortKey;

const NO_JSON: &str = "failed to write JSON";

/// Lines for people, each of them escaped.
///
/// Made of one text, it is one line, whatever the text holds. A page of several lines is written
/// with `writeln!`, where each call is one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<String>);

impl Lines {
    /// Returns a page without lines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line.
    pub fn push(&mut self, line: &str) {
        self.0.push(escape(line).into_owned());
    }

    /// Adds the lines of another page.
    pub fn extend(&mut self, lines: Self) {
        self.0.extend(lines.0);
    }

    /// Returns the lines.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Adds the lines of another page, each behind so many spaces.
    pub fn extend_indented(&mut self, lines: Self, spaces: usize) {
        let indent = " ".repeat(spaces);
        self.0
            .extend(lines.0.iter().map(|line| format!("{indent}{line}")));
    }

    /// Adds one line: what `writeln!` calls, with a newline at the end.
    pub fn write_fmt(&mut self, line: fmt::Arguments<'_>) {
        let line = line.to_string();
        self.push(line.strip_suffix('\n').unwrap_or(&line));
    }
}

impl From<&str> for Lines {
    fn from(line: &str) -> Self {
        Self(vec![escape(line).into_owned()])
    }
}

impl From<&String> for Lines {
    fn from(line: &String) -> Self {
        line.as_str().into()
    }
}

impl From<String> for Lines {
    fn from(line: String) -> Self {
        line.as_str().into()
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Prints to standard output. A reader that has closed the pipe, as `head` does, ends the program
/// quietly.
pub fn print(lines: impl Into<Lines>) {
    write_or_exit(&lines.into().to_string());
}

fn write_or_exit(text: &str) {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("error: standard output cannot be written: {error}");
            std::process::exit(1);
        }
    }
}

/// Prints bytes of a guest's console, which are for the terminal as they are.
///
/// # Errors
///
/// The reader has closed the pipe.
pub fn raw(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Prints a script, of which every character is the program's own.
pub fn script(text: &str) {
    write_or_exit(text);
}

/// Prints a line for a program that reads it from standard output, as it is.
pub fn program_line(line: &str) {
    write_or_exit(&format!("{line}\n"));
}

/// Prints a line for a program that reads it from standard error, as it is.
pub fn program_message(line: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Returns standard output for a stream of JSON lines.
pub fn json_lines() -> StdoutLock<'static> {
    io::stdout().lock()
}

/// Returns standard output for bytes that are no text; nothing if it is a terminal.
#[must_use]
pub fn bytes() -> Option<io::Stdout> {
    let stdout = io::stdout();
    (!stdout.is_terminal()).then_some(stdout)
}

/// Returns standard output for a program that draws the whole screen; nothing if it is no terminal.
/// What is drawn there is escaped by [`crate::top`].
#[must_use]
pub fn screen() -> Option<io::Stdout> {
    let stdout = io::stdout();
    stdout.is_terminal().then_some(stdout)
}

/// Whether people read standard error on a terminal, where a line can be drawn again.
#[must_use]
pub fn can_redraw() -> bool {
    io::stderr().is_terminal()
}

/// Draws the last line of the terminal again; empty, it erases the line.
pub fn redraw(line: &str) {
    // A line that is broken is erased in part only. The last column is left, where some terminals break it.
    let size = ratatui::crossterm::terminal::size().ok();
    let columns = size
        .map(|(columns, _)| usize::from(columns))
        .filter(|columns| *columns > 0);
    let max = columns.map_or(usize::MAX, |columns| columns - 1);
    let line: String = escape(line).chars().take(max).collect();
    let mut err = io::stderr().lock();
    // A failed write to the terminal loses nothing.
    let _ = write!(err, "\r\x1b[2K{line}").and_then(|()| err.flush());
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

/// Returns the same for programs.
#[must_use]
pub fn creation(existed: bool) -> &'static str {
    if existed { "existed" } else { "created" }
}

/// How many names are in a sentence.
const NAMED_MAX: usize = 8;

/// Returns some names for a sentence, as `a, b and 3 more`.
#[must_use]
pub fn some(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).cloned();
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns a value as the text of a cell: `-` where there is none.
#[must_use]
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns where a resource class or trait comes from.
#[must_use]
pub fn origin(standard: bool) -> &'static str {
    if standard { "standard" } else { "custom" }
}

/// Prints to standard error, where progress and hints belong.
pub fn message(lines: impl Into<Lines>) {
    // A closed standard error is no reason to fail.
    let _ = write!(io::stderr().lock(), "{}", lines.into());
}

/// Prints what is no part of the output to standard error: a line for people, a value for programs. Documents
/// of YAML begin with `---`, as lines of progress may stand before them.
pub fn note(format: Format, lines: impl Into<Lines>, value: &Value) {
    match format {
        Format::Table | Format::Wide | Format::Name | Format::Custom => message(lines),
        Format::Json => program_message(&escape_json(&value.to_string())),
        Format::Yaml => program_message(&format!("---\n{}", yaml::document(value).trim_end())),
    }
}

/// Prints the value of a command in the requested format.
///
/// # Errors
///
/// It has none of the fields that were requested.
pub fn value(value: &impl Serialize) -> anyhow::Result<()> {
    let choice = choice();
    let format = choice.output.format;
    let is_sorted = choice.sort.is_some();
    if collected::is_begun() {
        collected::push(to_value(value)?);
        return Ok(());
    }
    if !is_sorted && matches!(format, Format::Table | Format::Wide | Format::Json) {
        // The fields stand in the order of the record.
        return pretty(value);
    }
    let mut value = to_value(value)?;
    if let Value::Array(values) = &mut value {
        choice.sort(values)?;
    }
    match format {
        Format::Table | Format::Wide | Format::Json => return pretty(&value),
        Format::Yaml => write_or_exit(&yaml::document(&value)),
        Format::Name => {
            let mut names = Lines::new();
            let all = elements(value);
            let all = all.iter().filter_map(|value| choice.name_of(value));
            all.for_each(|name| names.push(&name));
            print(names);
        }
        Format::Custom => {
            let rows = choice.rows(&elements(value))?;
            match rows.is_empty() {
                true => message("there is nothing to show"),
                false => print(laid_out(&choice.output.fields, rows, !choice.no_headers)),
            }
        }
    }
    Ok(())
}

fn pretty(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context(NO_JSON)?;
    program_line(&escape_json(&text));
    Ok(())
}

fn to_value(value: &impl Serialize) -> anyhow::Result<Value> {
    serde_json::to_value(value).context(NO_JSON)
}

/// Returns the values of a list, or the one that there is.
fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        Value::Null => Vec::new(),
        one @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![one]
        }
    }
}

/// Prints one value of a stream: a line of JSON, a document of YAML, a row.
///
/// # Errors
///
/// None that is to be expected.
pub fn item(value: &impl Serialize) -> anyhow::Result<()> {
    let choice = choice();
    match choice.output.format {
        Format::Table | Format::Wide | Format::Json => {
            let text = serde_json::to_string(value).context(NO_JSON)?;
            program_line(&escape_json(&text));
        }
        Format::Yaml => {
            write_or_exit(&format!("---\n{}", yaml::document(&to_value(value)?)));
        }
        Format::Name => choice.name_of(&to_value(value)?).iter().for_each(print),
        // What the next ones have is not known yet, so that no field is unknown.
        Format::Custom => {
            let rows = vec![choice.row(&to_value(value)?)];
            print(laid_out(&choice.output.fields, rows, choice.begins()));
        }
    }
    Ok(())
}

/// The columns of a list: those that are always shown, and those that `wide` adds.
#[derive(Clone, Copy, Debug)]
pub struct Columns<const N: usize, const W: usize> {
    /// Those that are always shown.
    pub usual: [&'static str; N],
    /// Those that `wide` adds.
    pub wide: [&'static str; W],
}

impl<const N: usize, const W: usize> Columns<N, W> {
    /// Returns all of them.
    #[must_use]
    pub fn all(&self) -> Vec<&'static str> {
        self.usual.iter().chain(&self.wide).copied().collect()
    }
}

/// Prints a list in its requested order, or a sentence if there are no rows. A row has its usual columns, and
/// its wide ones.
///
/// # Errors
///
/// There is no column that it is to be ordered by.
pub fn list<const N: usize, const W: usize>(
    columns: &Columns<N, W>,
    rows: Vec<([String; N], [String; W])>,
    none: &str,
) -> anyhow::Result<()> {
    let choice = choice();
    let names = columns.all();
    let joined = rows
        .into_iter()
        .map(|(usual, wide)| usual.into_iter().chain(wide).collect());
    let mut rows: Vec<Vec<String>> = joined.collect();
    if let Some(key) = &choice.sort {
        let at = column(&names, &key.column)?;
        order::sort_rows(&mut rows, key, |row| &row[at]);
    }
    let shown = match choice.output.format == Format::Wide {
        true => names.len(),
        false => N,
    };
    rows.iter_mut().for_each(|row| row.truncate(shown));
    match rows.is_empty() {
        true => message(none),
        false => print(laid_out(&names[..shown], rows, !choice.no_headers)),
    }
    Ok(())
}

/// Prints rows below a head, or a sentence if there are no rows.
pub fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>, none: &str) {
    if rows.is_empty() {
        message(none);
        return;
    }
    print(rendered(head, rows));
}

/// Prints names, and which of them are standard.
///
/// # Errors
///
/// Those of [`list`] and [`value`].
pub fn names(
    columns: &Columns<2, 0>,
    names: impl Iterator<Item = (String, bool)>,
    for_programs: bool,
    none: &str,
) -> anyhow::Result<()> {
    if for_programs {
        let all: Vec<_> = names
            .map(|(name, standard)| json!({"name": name, "standard": standard}))
            .collect();
        return value(&all);
    }
    let rows = names.map(|(name, standard)| ([name, origin(standard).to_owned()], []));
    list(columns, rows.collect(), none)
}

/// Returns rows below a head: a line each, where the terminal is wide enough.
#[must_use]
pub fn rendered<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> Lines {
    let rows = rows.into_iter().map(Vec::from).collect();
    laid_out(&head, rows, !choice().no_headers)
}

/// Returns rows below a head, which is left out without `has_header`.
fn laid_out(head: &[impl AsRef<str>], rows: Vec<Vec<String>>, has_header: bool) -> Lines {
    let cells = |row: Vec<String>| row.iter().map(|cell| escape(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(cells).collect();
    let head = head.iter().map(|name| escape(name.as_ref()).to_uppercase());
    let head: Vec<String> = head.collect();
    Lines(layout::table(&head, &rows, width(), has_header))
}

/// Returns the width of the terminal on which standard output is shown; nothing for a pipe, or for a terminal
/// that does not state its width.
fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (columns, _) = ratatui::crossterm::terminal::size().ok()?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// Prints names with values, one a line.
pub fn fields(fields: &[(&str, String)]) {
    let values: Vec<_> = fields.iter().map(|(_, value)| escape(value)).collect();
    let names = fields.iter().map(|(name, _)| *name);
    let pairs: Vec<(&str, &str)> = names.zip(values.iter().map(|value| &**value)).collect();
    print(Lines(layout::fields(&pairs, width())));
}

/// Prints a refusal to standard error, in the requested format.
pub fn refused(format: Format, refused: &Refusal) {
    note(format, refusal(refused), &refusal_value(refused));
}

/// Returns a refusal for programs.
#[must_use]
pub fn refusal_value(refusal: &Refusal) -> Value {
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
    if let Some(change) = &refusal.change {
        error["change"] = crate::change::to_json(change);
    }
    json!({ "error": error })
}

/// Renders a refusal for people: the message, the nearest hosts, the hint.
pub fn refusal(refusal: &Refusal) -> Lines {
    let mut lines = Lines::new();
    writeln!(lines, "error: {} ({})", refusal.message, refusal.reason);
    // A message about the only host that was requested needs no line for that host.
    let all_said = matches!(&refusal.hosts[..], [host] if refusal.message.contains(&host.message));
    if !all_said {
        for (cause, hosts) in &refusal.causes {
            writeln!(lines, "  {hosts} x {cause}");
        }
        for host in &refusal.hosts {
            writeln!(lines, "  {}: {}", host.host, host.message);
        }
    }
    if let Some(hint) = &refusal.hint {
        writeln!(lines, "hint: {hint}");
    }
    lines
}

/// Returns the time as people write durations.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
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
            refusal_value(&no).to_string(),
            r#"{"error":{"code":"NOT_FOUND","hint":null,"message":"vm a\n does not exist","metadata":{"vm":"a"},"reason":"VM_NOT_FOUND"}}"#
        );
        let mut no = no.with_hint("make it");
        no.causes.insert("DOWN".to_owned(), 2);
        let read = refusal_value(&no);
        assert_eq!(read["error"]["hint"], "make it");
        assert_eq!(read["error"]["causes"]["DOWN"], 2);
    }
}
