//! The serial console of a VM: the end of what its guest wrote, as text.
//!
//! Not a terminal: what moves a cursor or colours is left out. Nothing can be typed.

use berth_process::terminal;
use maud::{Markup, html};

use crate::frame::{Frame, Section, View};
use crate::text::{bytes, encoded, plain};

/// After how many milliseconds the view is loaded again.
const AGAIN_MS: u64 = 5_000;
/// The most lines that are shown.
const LINES_MAX: usize = 500;
/// The most characters of a line.
const LINE_MAX: usize = 1_000;

/// What was read of a console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Console {
    /// The last bytes that the guest wrote.
    pub tail: Vec<u8>,
    /// How many bytes were read, from the beginning of its log on this host.
    pub read: u64,
    /// Whether the guest wrote more than that.
    pub has_more: bool,
}

/// Returns the view.
#[must_use]
pub fn render(frame: &Frame, vm: &str, console: &Console) -> String {
    let text = String::from_utf8_lossy(&console.tail);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LINES_MAX)..];
    let is_cut = (console.tail.len() as u64) < console.read || shown.len() < lines.len();
    let view = View {
        section: Section::Vms,
        title: format!("Console of VM {}", plain(vm)),
        fixed: html! {
            p { a href=(format!("/vms/{}", encoded(vm))) { "The VM" } }
        },
        live: html! {
            div data-again=(AGAIN_MS) {
                (notes(console, is_cut))
                @if shown.is_empty() { p { "The guest has written nothing." } } @else {
                    pre class="console" tabindex="0" role="log" aria-label="What the guest wrote" {
                        @for one in shown { (line(one)) "\n" }
                    }
                }
            }
        },
    };
    frame.document(&view)
}

fn notes(console: &Console, is_cut: bool) -> Markup {
    html! {
        @if is_cut {
            p class="note" {
                "Earlier lines are left out: " code { "berth vm console" } " prints everything."
            }
        }
        @if console.has_more {
            p class="note" {
                "It wrote more than the " (bytes(console.read)) " that were read: this is not the end."
            }
        }
    }
}

/// Returns the end of a line without what would hide or move something. A sequence that does not end hides no other
/// line, and never all of its own.
fn line(text: &str) -> String {
    // The last of what was written over the same line.
    let text = text.trim_end_matches('\r');
    let text = text.rsplit('\r').next().unwrap_or_default();
    let stripped = anstream::adapter::strip_str(text).to_string();
    let stripped = match stripped.trim().is_empty() {
        true => text,
        false => &stripped,
    };
    let surplus = stripped.chars().count().saturating_sub(LINE_MAX);
    let begin = stripped.char_indices().nth(surplus).map_or(0, |(at, _)| at);
    let before = if surplus == 0 { "" } else { "…" };
    format!("{before}{}", terminal::escape(&stripped[begin..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sequence_hides_what_was_written() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("a\rb\r", "b"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("before \u{1b}]0;title never ended", "before "),
            ("\u{1b}]0;title\u{7}after", "after"),
        ] {
            assert_eq!(line(text), expected, "{text:?}");
        }
        for begin in ["\u{1b}P", "\u{1b}]", "\u{1b}X", "\u{1b}^", "\u{1b}_"] {
            let shown = line(&format!("{begin}{}", "panic ".repeat(500)));
            assert!(shown.ends_with("panic "), "{begin:?}: {shown}");
        }
        let long = format!("{}END", "x".repeat(60_000));
        let shown = line(&long);
        assert!(shown.starts_with('…') && shown.ends_with("END"), "{shown}");
        assert_eq!(shown.chars().count(), LINE_MAX + 1);
    }
}
