//! Texts of others in HTML, names in links, and amounts as people read them.
//!
//! Invariant: what [`Shown`] and [`Wrapped`] render has no hidden character, and at most so many characters;
//! `maud` escapes it.

use std::borrow::Cow;
use std::fmt::Write as _;

use berth_process::terminal;
use maud::{Escaper, Render};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The most characters of a name.
const NAME_MAX: usize = 120;
/// The most characters of a sentence, as of a refusal.
const SENTENCE_MAX: usize = 2_000;

/// What stands in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A name, on one line.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl Render for Shown<'_> {
    fn render_to(&self, out: &mut String) {
        write_escaped(self.0, NAME_MAX, out);
    }
}

/// A sentence, which may be long.
pub(crate) struct Wrapped<'a>(pub(crate) &'a str);

impl Render for Wrapped<'_> {
    fn render_to(&self, out: &mut String) {
        write_escaped(self.0, SENTENCE_MAX, out);
    }
}

fn write_escaped(text: &str, max: usize, out: &mut String) {
    // Writing into a string does not fail.
    let _ = Escaper::new(out).write_str(&limited(text, max));
}

/// Returns a text with its hidden characters as escapes, cut where it is too long.
fn limited(text: &str, max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", terminal::escape(&text[..end])).into(),
        None => terminal::escape(text),
    }
}

/// Returns a name as plain text, for titles and labels that `maud` escapes.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    limited(text, NAME_MAX)
}

/// Returns the last part of a resource name, as `h1` of `hosts/h1`.
pub(crate) fn short(name: &str) -> &str {
    name.split_once('/').map_or(name, |(_, short)| short)
}

/// Returns a name as a part of a path or a query.
pub(crate) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}

/// Returns the path of a host's view.
pub(crate) fn host_path(name: &str) -> String {
    format!("/hosts/{}", encoded(short(name)))
}

/// Returns the path of a VM's view.
pub(crate) fn vm_path(name: &str) -> String {
    format!("/vms/{}", encoded(short(name)))
}

/// Returns a number with its noun.
pub(crate) fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", grouped(number)),
    }
}

/// Returns a number with its digits in groups.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Returns an amount of memory in MiB as people read it.
pub(crate) fn mib(mib: u64) -> String {
    bytes(mib.saturating_mul(1 << 20))
}

/// Returns a size of pages in KiB.
pub(crate) fn kib(kib: u64) -> String {
    bytes(kib.saturating_mul(1 << 10))
}

/// Returns an amount in bytes with the largest unit in which it is 1 or more.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut scale: u64 = 1;
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale <<= 10;
        unit += 1;
    }
    let tenths = u128::from(bytes % scale) * 10 / u128::from(scale);
    match tenths {
        0 => format!("{} {}", bytes / scale, UNITS[unit]),
        _ => format!("{}.{tenths} {}", bytes / scale, UNITS[unit]),
    }
}

/// Returns a duration in milliseconds as people read it.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=9 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Returns how much of a whole is taken, in percent; nothing of nothing is 0.
pub(crate) fn percent(used: u64, all: u64) -> u64 {
    let percent = u128::from(used) * 100 / u128::from(all.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// Returns texts in one line, between commas.
pub(crate) fn joined<T: std::fmt::Display>(parts: impl IntoIterator<Item = T>) -> String {
    let mut out = String::new();
    for part in parts {
        let comma = if out.is_empty() { "" } else { ", " };
        // Writing into a string does not fail.
        let _ = write!(out, "{comma}{part}");
    }
    out
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn names_are_visible_short_and_escaped() {
        let check = |name: &str, expected: &str| {
            assert_eq!(html! { (Shown(name)) }.into_string(), expected);
        };
        check("h1", "h1");
        check("<script>\"&", "&lt;script&gt;&quot;&amp;");
        check("a\nb\u{1b}[2J\0", "a\\nb\\u{1b}[2J\\u{0}");
        check("txt\u{202e}exe", "txt\\u{202e}exe");
        check(&"x".repeat(10_000), &format!("{}…", "x".repeat(NAME_MAX)));
        check(&"ä".repeat(NAME_MAX), &"ä".repeat(NAME_MAX));
        assert_eq!(
            encoded("a/b?c#d %\"'<é"),
            "a%2Fb%3Fc%23d%20%25%22%27%3C%C3%A9"
        );
        assert_eq!(host_path("hosts/h1"), "/hosts/h1");
        assert_eq!(vm_path("vms/../x"), "/vms/..%2Fx");
    }

    #[test]
    fn amounts_are_read_by_people() {
        assert_eq!(mib(1536), "1.5 GiB");
        assert_eq!(mib(64), "64 MiB");
        assert_eq!(kib(2048), "2 MiB");
        assert_eq!(kib(1 << 20), "1 GiB");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(u64::MAX), "15.9 EiB");
        assert_eq!(duration(950), "0.9 s");
        assert_eq!(duration(61_000), "61 s");
        assert_eq!(duration(3_600_000), "60 min");
        assert_eq!(percent(0, 0), 0);
        assert_eq!(percent(3, 2), 150);
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(count(1, "host"), "1 host");
        assert_eq!(joined(["a", "b"]), "a, b");
    }
}
