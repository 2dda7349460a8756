//! How rows and fields are laid out for a width: as columns, as columns whose cells are wrapped, or each row
//! as fields.
//!
//! ```text
//!   columns    all that a pipe or a wide terminal shows
//!   wrapped    cells are broken between words; the widest columns give way first
//!   fields     where not even the longest words of the columns fit beside each other
//! ```
//!
//! Not here: the terminal, and escaping: cells are what is shown.
//!
//! Invariant: no word is split, be it an id or a word of the head. A line is longer than the width only
//! where it is a single word.

use ratatui::text::Span;

/// What stands between columns, and between those of a terminal that is too narrow for it.
const GAP: usize = 2;
const GAP_MIN: usize = 1;
/// How far the value of a field is indented where it does not fit beside its name.
const INDENT: usize = 2;

/// Returns how wide a text is on a terminal.
fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns the width of the longest word.
fn longest_word(text: &str) -> usize {
    text.split(' ').map(width_of).max().unwrap_or(0)
}

/// Returns rows below a head as lines of this width; as long as they are without one. Without a header the head
/// is left out, but where rows become fields, which need their names.
pub(super) fn table(
    head: &[String],
    rows: &[Vec<String>],
    width: Option<usize>,
    has_header: bool,
) -> Vec<String> {
    let header = has_header.then_some(head);
    let all = || header.into_iter().chain(rows.iter().map(Vec::as_slice));
    let widest = |of: fn(&str) -> usize| -> Vec<usize> {
        let column = |at: usize| all().map(|row| of(&row[at])).max().unwrap_or(0);
        (0..head.len()).map(column).collect()
    };
    let Some(width) = width else {
        let widths = widest(width_of);
        return all().flat_map(|row| line(row, &widths, GAP)).collect();
    };
    let (least, natural) = (widest(longest_word), widest(width_of));
    let fitting = [GAP, GAP_MIN]
        .into_iter()
        .find_map(|gap| Some((shrunk(&least, natural.clone(), gap, width)?, gap)));
    match fitting {
        Some((widths, gap)) => all().flat_map(|row| line(row, &widths, gap)).collect(),
        None => records(head, rows, width),
    }
}

/// Returns the widths of columns that fit beside each other, the widest ones shrunk; nothing if they do not.
fn shrunk(least: &[usize], mut widths: Vec<usize>, gap: usize, width: usize) -> Option<Vec<usize>> {
    let gaps = gap * widths.len().saturating_sub(1);
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + gaps;
    if total(least) > width {
        return None;
    }
    // Each turn takes a place from the widest that can give one, so it ends.
    while total(&widths) > width {
        let can_shrink = (0..widths.len()).filter(|at| widths[*at] > least[*at]);
        let widest = can_shrink.max_by_key(|at| widths[*at])?;
        widths[widest] -= 1;
    }
    Some(widths)
}

/// Returns a row as lines: as many as the cell that is wrapped most needs.
fn line(row: &[String], widths: &[usize], gap: usize) -> Vec<String> {
    let cells = row.iter().zip(widths);
    let cells: Vec<Vec<String>> = cells.map(|(cell, width)| wrap(cell, *width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines = Vec::new();
    for at in 0..height {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let part = cell.get(at).map_or("", String::as_str);
            text.push_str(part);
            let pad = (width + gap).saturating_sub(width_of(part));
            text.extend(std::iter::repeat_n(' ', pad));
        }
        lines.push(text.trim_end().to_owned());
    }
    lines
}

/// Returns each row as fields, with an empty line between rows.
fn records(head: &[String], rows: &[Vec<String>], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let pairs = head.iter().zip(row);
        let pairs: Vec<(&str, &str)> = pairs.map(|(name, value)| (&**name, &**value)).collect();
        lines.extend(fields(&pairs, Some(width)));
    }
    lines
}

/// Returns names with values, each beginning a line.
pub(super) fn fields(pairs: &[(&str, &str)], width: Option<usize>) -> Vec<String> {
    let names = pairs.iter().map(|(name, _)| width_of(name)).max();
    let names = names.unwrap_or(0) + GAP;
    let mut lines = Vec::new();
    for (name, value) in pairs {
        let pad = " ".repeat(names.saturating_sub(width_of(name)));
        let left = width.map(|width| width.saturating_sub(names));
        let is_beside = left.is_none_or(|left| longest_word(value) <= left);
        let (indent, left) = match (is_beside, width) {
            (true, _) | (_, None) => (names, left),
            (false, Some(width)) => (INDENT, Some(width.saturating_sub(INDENT))),
        };
        let mut parts = left.map_or_else(|| vec![(*value).to_owned()], |left| wrap(value, left));
        let first = match is_beside && !parts.is_empty() {
            true => parts.remove(0),
            false => String::new(),
        };
        lines.push(format!("{name}{pad}{first}").trim_end().to_owned());
        let indent = " ".repeat(indent);
        lines.extend(
            parts
                .iter()
                .map(|part| format!("{indent}{part}").trim_end().to_owned()),
        );
    }
    lines
}

/// Breaks a text between words; one that fits stays as it is.
fn wrap(text: &str, width: usize) -> Vec<String> {
    if width_of(text) <= width {
        return vec![text.to_owned()];
    }
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && width_of(&line) + 1 + width_of(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f";

    fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
        cells.map(str::to_owned).into()
    }

    fn sample() -> (Vec<String>, Vec<Vec<String>>) {
        let head = row(["MIGRATION", "VM", "SOURCE -> DESTINATION", "WHY"]);
        let one = |vm: &str, why: &str| row([ID, vm, "host-a -> host-b", why]);
        (head, vec![one("a", "-"), one("db-1", "NO_VALID_HOST")])
    }

    fn shown(width: Option<usize>) -> String {
        let (head, rows) = sample();
        table(&head, &rows, width, true).join("\n")
    }

    /// Goal: without a header a column is as wide as its cells; fields keep their names.
    #[test]
    fn a_header_can_be_left_out() {
        let (head, rows) = sample();
        let without = |width| table(&head, &rows, width, false).join("\n");
        let columns = "\
0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f  a     host-a -> host-b  -
0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f  db-1  host-a -> host-b  NO_VALID_HOST";
        assert_eq!(without(None), columns);
        assert_eq!(without(Some(40)), shown(Some(40)));
    }

    #[test]
    fn a_wide_terminal_and_a_pipe_show_columns() {
        let columns = "\
MIGRATION                             VM    SOURCE -> DESTINATION  WHY
0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f  a     host-a -> host-b       -
0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f  db-1  host-a -> host-b       NO_VALID_HOST";
        for width in [None, Some(120), Some(80)] {
            assert_eq!(shown(width), columns, "{width:?}");
        }
    }

    #[test]
    fn cells_are_wrapped_between_words_where_that_suffices() {
        let wrapped = "\
MIGRATION                             VM    SOURCE ->    WHY
                                            DESTINATION
0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f  a     host-a ->    -
                                            host-b
0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f  db-1  host-a ->    NO_VALID_HOST
                                            host-b";
        assert_eq!(shown(Some(70)), wrapped);
    }

    /// Goal: hosts are shown as columns on the usual terminal.
    #[test]
    fn columns_stand_closer_where_they_fit_only_so() {
        let head = row(["HOST", "NUMA NODES", "MEMORY VIOLATION"]);
        let rows = [row(["host-a", "2", "none"])];
        let close = "HOST   NUMA  MEMORY\n       NODES VIOLATION\nhost-a 2     none";
        assert_eq!(table(&head, &rows, Some(22), true).join("\n"), close);
    }

    #[test]
    fn rows_become_fields_where_columns_do_not_fit() {
        let fields = "\
MIGRATION
  0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f
VM                     a
SOURCE -> DESTINATION  host-a -> host-b
WHY                    -

MIGRATION
  0199e0a6-4c1d-7d52-8f0e-3b6c9a1d2e4f
VM                     db-1
SOURCE -> DESTINATION  host-a -> host-b
WHY                    NO_VALID_HOST";
        assert_eq!(shown(Some(40)), fields);
    }

    proptest! {
        /// Goal: no word is split at any width, and no line is longer than it but for a single word.
        #[test]
        fn words_are_whole_at_every_width(
            cells in proptest::collection::vec("[a-zé-]{0,12}( [a-z0-9→]{1,20}){0,4}", 12),
            width in 1_usize..130,
        ) {
            let mut rows = cells.chunks_exact(3).map(<[String]>::to_vec);
            let head = rows.next().unwrap_or_default();
            let rows: Vec<Vec<String>> = rows.collect();
            let lines = table(&head, &rows, Some(width), true);
            let text = lines.join("\n");
            let words: Vec<&str> = text.split_whitespace().collect();
            for word in cells.iter().flat_map(|cell| cell.split_whitespace()) {
                prop_assert!(words.contains(&word), "{word} is split:\n{text}");
            }
            for line in &lines {
                let is_word = line.split_whitespace().count() <= 1;
                let names = head.iter().map(|name| width_of(name)).max().unwrap_or(0);
                // The name of a field is not wrapped.
                let is_narrow = width <= names;
                prop_assert!(is_word || is_narrow || width_of(line) <= width, "{line:?} in\n{text}");
            }
        }
    }
}
