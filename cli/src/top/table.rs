//! Rows below a head, cut to the width of the screen.
//!
//! Invariant: a row is one line, each column begins where its head does, and a text that is too long for
//! its column ends in `…`.

use ratatui::text::{Line, Span};

use super::paint::{Tone, span, style};

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its head.
    pub head: &'static str,
    /// Its width.
    pub width: usize,
    /// Whether numbers are in it, which end where the column ends.
    pub is_number: bool,
}

impl Column {
    /// Returns a column of texts.
    #[must_use]
    pub const fn text(head: &'static str, width: usize) -> Self {
        Self {
            head,
            width,
            is_number: false,
        }
    }

    /// Returns a column of numbers.
    #[must_use]
    pub const fn number(head: &'static str, width: usize) -> Self {
        Self {
            head,
            width,
            is_number: true,
        }
    }
}

/// A cell: its text and what that means.
pub type Cell = (String, Tone);

/// Returns the columns that fit into a width, the last one as wide as it may be.
#[must_use]
pub fn fit(columns: &[Column], width: usize) -> Vec<Column> {
    let mut fitting = Vec::new();
    let mut left = width;
    for column in columns {
        let needed = column.width + usize::from(!fitting.is_empty());
        if needed > left {
            break;
        }
        left -= needed;
        fitting.push(*column);
    }
    if let Some(last) = fitting.last_mut()
        && !last.is_number
    {
        last.width += left;
    }
    fitting
}

/// Returns the head.
#[must_use]
pub fn head(columns: &[Column]) -> Line<'static> {
    let cells = columns.iter().map(|c| (c.head.to_owned(), Tone::Heading));
    row(columns, cells.collect(), false)
}

/// Returns a row. The selected one has a mark of its own, for terminals without reverse video.
#[must_use]
pub fn row(columns: &[Column], cells: Vec<Cell>, is_selected: bool) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (at, (column, (text, tone))) in columns.iter().zip(cells).enumerate() {
        if at > 0 {
            spans.push(Span::raw(" "));
        }
        let shown = span(&text, tone);
        let text = cut(&shown.content, column.width);
        let pad = " ".repeat(column.width.saturating_sub(width(&text)));
        let padded = match column.is_number {
            true => format!("{pad}{text}"),
            false => format!("{text}{pad}"),
        };
        spans.push(Span::styled(padded, shown.style));
    }
    let line = Line::from(spans);
    match is_selected {
        true => line.style(style(Tone::Selected)),
        false => line,
    }
}

/// Returns how many columns a text takes on the screen.
#[must_use]
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text that is too wide.
#[must_use]
pub fn cut(text: &str, max: usize) -> String {
    if width(text) <= max {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut taken = 0;
    for character in text.chars() {
        let next = width(character.encode_utf8(&mut [0; 4]));
        if taken + next + 1 > max {
            break;
        }
        taken += next;
        cut.push(character);
    }
    if max > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_are_left_out() {
        let columns = [
            Column::text("A", 4),
            Column::number("B", 5),
            Column::text("C", 3),
        ];
        let widths =
            |width| -> Vec<usize> { fit(&columns, width).iter().map(|c| c.width).collect() };
        assert_eq!(widths(3), [0; 0]);
        assert_eq!(widths(9), [9]);
        assert_eq!(widths(10), [4, 5]);
        assert_eq!(widths(20), [4, 5, 9]);
    }

    #[test]
    fn long_texts_are_cut_by_their_width_on_the_screen() {
        for (text, max, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("漢字漢字", 5, "漢字…"),
            ("漢字漢字", 4, "漢…"),
            ("ab", 1, "…"),
            ("ab", 0, ""),
        ] {
            assert_eq!(cut(text, max), expected, "{text} {max}");
        }
        let columns = [Column::text("A", 4), Column::number("B", 3)];
        let cells = vec![
            ("abcdef".to_owned(), Tone::Plain),
            ("7".to_owned(), Tone::Bad),
        ];
        assert_eq!(row(&columns, cells, false).to_string(), "abc…   7");
    }
}
