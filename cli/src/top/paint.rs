//! Styles, and texts as they may be drawn: escaped, and in ASCII where the terminal has no more.
//!
//! Invariant: [`finish`] leaves no cell that holds a hidden character, whatever was drawn before; without
//! colour no cell has one, and what a colour says is said by a mark, a word or a modifier as well.

use std::borrow::Cow;

use berth_process::terminal::{escape, is_hidden};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// What a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// It shows colours, and the user has not turned them off.
    pub color: bool,
    /// Its locale is UTF-8.
    pub unicode: bool,
}

/// What a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary.
    Plain,
    /// A heading.
    Heading,
    /// As it should be.
    Good,
    /// To be looked at.
    Warning,
    /// Wrong.
    Bad,
    /// Of less importance.
    Faint,
    /// The selected row.
    Selected,
    /// A claim, by the number of its letter.
    Owner(usize),
}

/// The colours of claims: those that are legible on dark and on light backgrounds.
const OWNERS: [Color; 6] = [
    Color::Cyan,
    Color::Green,
    Color::Yellow,
    Color::Magenta,
    Color::Blue,
    Color::Red,
];

/// Returns the style of a tone. Colours are taken away later, where there are none.
#[must_use]
pub fn style(tone: Tone) -> Style {
    let plain = Style::new();
    match tone {
        Tone::Plain => plain,
        Tone::Heading => plain.add_modifier(Modifier::BOLD),
        Tone::Good => plain.fg(Color::Green),
        Tone::Warning => plain.fg(Color::Yellow),
        Tone::Bad => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
        Tone::Faint => plain.add_modifier(Modifier::DIM),
        Tone::Selected => plain.add_modifier(Modifier::REVERSED),
        Tone::Owner(letter) => plain.fg(OWNERS[letter % OWNERS.len()]),
    }
}

/// Returns a text with a tone, escaped.
#[must_use]
pub fn span(text: &str, tone: Tone) -> Span<'static> {
    Span::styled(escape(text).into_owned(), style(tone))
}

/// Returns a line of one text, escaped.
#[must_use]
pub fn line(text: &str, tone: Tone) -> Line<'static> {
    Line::from(span(text, tone))
}

/// Checks each cell, and takes away what the terminal does not show. `is_old` dims all of them.
pub fn finish(buffer: &mut Buffer, terminal: Terminal) {
    for cell in &mut buffer.content {
        if cell.symbol().chars().any(is_hidden) {
            cell.set_symbol("?");
        }
        if !terminal.unicode && !cell.symbol().is_ascii() {
            let ascii = to_ascii(cell.symbol()).into_owned();
            cell.set_symbol(&ascii);
        }
        if !terminal.color {
            (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
        }
    }
}

/// Returns a character that stands for another one in ASCII.
fn to_ascii(symbol: &str) -> Cow<'_, str> {
    Cow::Borrowed(match symbol {
        "█" => "#",
        "▒" => "%",
        "░" | "·" => ".",
        "─" => "-",
        "│" => "|",
        "┌" | "┐" | "└" | "┘" | "├" | "┤" => "+",
        "→" => ">",
        "…" => "~",
        _ => "?",
    })
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;

    fn drawn(text: &str, terminal: Terminal) -> (String, Buffer) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 60, 1));
        buffer.set_line(0, 0, &line(text, Tone::Bad), 60);
        finish(&mut buffer, terminal);
        let symbols = buffer.content.iter().map(|cell| cell.symbol());
        (symbols.collect::<String>().trim_end().to_owned(), buffer)
    }

    const FULL: Terminal = Terminal {
        color: true,
        unicode: true,
    };
    const BARE: Terminal = Terminal {
        color: false,
        unicode: false,
    };

    #[test]
    fn nothing_hidden_is_drawn() {
        let (text, _) = drawn("a\u{1b}[2J\u{202e}b\nc", FULL);
        assert_eq!(text, r"a\u{1b}[2J\u{202e}b\nc");
    }

    /// Goal: the last check holds by itself, also where a text was not escaped before.
    #[test]
    fn a_cell_with_a_hidden_character_is_replaced() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 2, 1));
        buffer.content[0].set_symbol("\u{1b}[2J");
        buffer.content[1].set_symbol("e\u{200b}");
        finish(&mut buffer, FULL);
        assert!(buffer.content.iter().all(|cell| cell.symbol() == "?"));
    }

    #[test]
    fn a_bare_terminal_gets_ascii_without_colour() {
        let (text, buffer) = drawn("█▒░· größe", BARE);
        assert_eq!(text, "#%.. gr??e");
        for cell in &buffer.content {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        }
        assert!(buffer.content[0].modifier.contains(Modifier::BOLD));
        let (_, colored) = drawn("x", FULL);
        assert_eq!(colored.content[0].fg, Color::Red);
    }
}
