//! Texts of others on an operator's terminal: what could move the cursor, forge a line or hide a
//! part of the text is written as its escape.
//!
//! Names, addresses, reasons and hints come from clients, hosts and servers. As they are, ESC [ 2 J
//! clears the screen, a newline adds a row to a table, and U+202E shows "txt.exe" as "exe.txt".
//! Everything that a program prints for people therefore passes through [`escape`]: the output of
//! `berth` in its `output` module, log lines in [`mod@crate::log`], the last lines of a server in
//! [`mod@crate::run`].
//!
//! Not for programs: JSON has escapes of its own for control characters, of which [`escape_json`] adds
//! those that it does not demand, and carries every other character as it is.
//!
//! Invariant: what [`escape`] returns has no control character, no line break of any kind, no
//! character that changes the direction of text and none that is invisible. What needs no escape
//! stays as it is, so escaping twice is escaping once.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns a text as one line that shows what it holds: `a\nb` for two lines, `\u{1b}` for ESC.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find(is_hidden) else {
        return Cow::Borrowed(text);
    };
    let (plain, rest) = text.split_at(first);
    let mut escaped = String::with_capacity(text.len() + 16);
    escaped.push_str(plain);
    for character in rest.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            hidden if is_hidden(hidden) => {
                write!(escaped, "{}", hidden.escape_unicode()).expect("a string takes all");
            }
            plain => escaped.push(plain),
        }
    }
    Cow::Owned(escaped)
}

/// Returns a text of several lines with each of them escaped. Those after the first begin with two
/// spaces, so that none of them passes for a line of another kind, as `hint: …`.
#[must_use]
pub fn escape_lines(text: &str) -> String {
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(escape).collect();
    let indented = lines.iter().enumerate().map(|(number, line)| {
        let is_safe = number == 0 || line.is_empty() || line.starts_with(' ');
        if is_safe {
            line.to_string()
        } else {
            format!("  {line}")
        }
    });
    indented.collect::<Vec<_>>().join("\n")
}

/// Escapes the control characters that JSON may hold as they are: DEL and C1, which terminals act on.
/// They are in strings alone, so the value stays the same.
#[must_use]
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let is_control = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !json.contains(is_control) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        match is_control(character) {
            true => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    Cow::Owned(text)
}

/// Whether a character acts on a terminal or on the text around it instead of being seen.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    // C0, DEL and C1.
    character.is_control()
        || matches!(character,
            // Line and paragraph separators.
            '\u{2028}'..='\u{2029}'
            // Direction of text: marks, embeddings, overrides, isolates.
            | '\u{061c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            // Unicode's `Default_Ignorable_Code_Point`: shown as nothing.
            | '\u{00ad}' | '\u{034f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
            // Interlinear annotations, and a space that looks like nothing at all.
            | '\u{fff9}'..='\u{fffb}' | '\u{2800}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_stays() {
        for text in [
            "",
            "vm a is created",
            "größer · █ ░ … 漢字 עברית",
            "a\\nb",
            "\"x\"",
        ] {
            assert!(matches!(escape(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn what_acts_is_shown() {
        let clears = "h1:1\u{1b}[2J\nh2\tUP\r";
        assert_eq!(escape(clears), r"h1:1\u{1b}[2J\nh2\tUP\r");
        assert_eq!(escape("\u{9b}2J\u{7f}"), r"\u{9b}2J\u{7f}");
        assert_eq!(escape("a\u{202e}b\u{200b}"), r"a\u{202e}b\u{200b}");
    }

    /// Goal: no character is left out by mistake. Method: all of them, and the facts that the
    /// standard library has of each.
    #[test]
    fn every_character_is_escaped_or_seen() {
        for character in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let text = character.to_string();
            let escaped = escape(&text);
            assert_eq!(escape(&escaped), escaped, "{character:?}");
            assert_eq!(is_hidden(character), escaped != text, "{character:?}");
            if character.is_control() || "\u{2028}\u{2029}".contains(character) {
                assert!(is_hidden(character), "{character:?}");
            }
            if is_hidden(character) {
                assert!(escaped.bytes().all(|b| b.is_ascii_graphic()), "{escaped}");
            }
        }
        // What Rust itself writes as it is inside of quotes is seen, but for the Hangul fillers,
        // variation selectors and the like, which it takes for letters.
        for seen in ["a", "ß", "漢", "€", "🦀", "é"] {
            assert!(!seen.chars().any(is_hidden), "{seen}");
        }
    }

    #[test]
    fn a_line_cannot_pass_for_one_of_another_kind() {
        let text = "the peer refused: x\nhint: run this\n  at line 3\n\u{1b}[2J";
        let expected = "the peer refused: x\n  hint: run this\n  at line 3\n  \\u{1b}[2J";
        assert_eq!(escape_lines(text), expected);
    }
}
