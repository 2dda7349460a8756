//! The order of rows, as `--sort` requests it.
//!
//! Cells are compared as numbers where all of a column begin with one (`7 of 8`, `1.5 GiB`), else as names:
//! digits in them as the number that they are, so that `h2` stands before `h10`. What is absent stands last, in both
//! directions; rows that are alike stay in their order.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::str::FromStr;

use serde_json::Value;

use super::fields;

/// The value of `--sort`: a column, and in which direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// The name of the column, as it was typed.
    pub column: String,
    /// Whether the largest stands first.
    pub is_descending: bool,
}

impl FromStr for SortKey {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let descending = text.strip_prefix('-');
        Ok(Self {
            column: descending.unwrap_or(text).to_owned(),
            is_descending: descending.is_some(),
        })
    }
}

/// Units of bytes, as tables show them.
const UNITS: [(&str, f64); 4] = [
    ("KiB", 1024.0),
    ("MiB", 1024.0 * 1024.0),
    ("GiB", 1024.0 * 1024.0 * 1024.0),
    ("TiB", 1024.0 * 1024.0 * 1024.0 * 1024.0),
];

/// What a row is ordered by.
#[derive(Clone, Debug)]
enum Cell {
    Number(f64),
    Text(String),
    Absent,
}

impl Cell {
    fn of_text(text: &str) -> Self {
        match text {
            "" | "-" => Self::Absent,
            text => Self::Text(text.to_owned()),
        }
    }

    fn of_value(value: &Value) -> Self {
        match value.as_f64() {
            Some(number) => Self::Number(number),
            None => Self::of_text(&fields::cell(value)),
        }
    }

    /// Returns the number with which it begins, in bytes if a unit of those is behind it.
    fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => {
                let mut words = text.split(' ');
                let first = words.next().unwrap_or(text);
                let is_number = first.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                let number: f64 = first.parse().ok().filter(|_| is_number)?;
                let second = words.next();
                let unit = UNITS.iter().find(|(unit, _)| second == Some(*unit));
                Some(number * unit.map_or(1.0, |(_, bytes)| *bytes))
            }
            Self::Absent => None,
        }
    }
}

/// Sorts rows by the texts of a column.
pub(super) fn sort_rows<R>(rows: &mut Vec<R>, key: &SortKey, cell: impl Fn(&R) -> &str) {
    let cells = rows.iter().map(|row| Cell::of_text(cell(row))).collect();
    sort(rows, cells, key);
}

/// Sorts values by a field.
pub(super) fn sort_values(values: &mut Vec<Value>, key: &SortKey, path: &str) {
    let cell = |value: &Value| match fields::get(value, path) {
        Ok(value) => Cell::of_value(&value),
        Err(fields::Unknown) => Cell::Absent,
    };
    let cells = values.iter().map(cell).collect();
    sort(values, cells, key);
}

fn sort<R>(rows: &mut Vec<R>, cells: Vec<Cell>, key: &SortKey) {
    let is_absent = |cell: &Cell| matches!(cell, Cell::Absent);
    let is_numeric = cells
        .iter()
        .all(|cell| is_absent(cell) || cell.number().is_some());
    let compare = |one: &Cell, other: &Cell| {
        let absent = is_absent(one).cmp(&is_absent(other));
        if absent.is_ne() {
            return absent;
        }
        let numbers = match (one.number(), other.number()) {
            (Some(one), Some(other)) if is_numeric => one.total_cmp(&other),
            _ => Ordering::Equal,
        };
        let order = numbers.then_with(|| compare_names(&text(one), &text(other)));
        match key.is_descending {
            true => order.reverse(),
            false => order,
        }
    };
    let mut keyed: Vec<(Cell, R)> = cells.into_iter().zip(rows.drain(..)).collect();
    keyed.sort_by(|(one, _), (other, _)| compare(one, other));
    rows.extend(keyed.into_iter().map(|(_, row)| row));
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => text.clone(),
        Cell::Absent => String::new(),
    }
}

/// Compares names: letters by their code, digits beside each other as one number.
fn compare_names(one: &str, other: &str) -> Ordering {
    let (one_parts, other_parts) = (parts(one), parts(other));
    let pairs = one_parts.iter().zip(&other_parts);
    let mut orders = pairs.map(|(one, other)| match (is_digits(one), is_digits(other)) {
        (true, true) => {
            let (one, other) = (one.trim_start_matches('0'), other.trim_start_matches('0'));
            one.len().cmp(&other.len()).then_with(|| one.cmp(other))
        }
        (true, false) | (false, true) | (false, false) => one.cmp(other),
    });
    let first = orders.find(|order| order.is_ne());
    let lengths = one_parts.len().cmp(&other_parts.len());
    // `01` and `1` are the same number and other names.
    first.unwrap_or(lengths).then_with(|| one.cmp(other))
}

fn is_digits(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns a name as digits and what stands between them.
fn parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit);
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn sorted(cells: &[&str], key: &str) -> Vec<String> {
        let mut rows: Vec<String> = cells.iter().map(ToString::to_string).collect();
        let key = key.parse().expect("any text is a key");
        sort_rows(&mut rows, &key, |row| row);
        rows
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let names = ["h10", "h2", "a", "h02", "h2-10", "h2-9", "-", "h", "b7x"];
        let up = ["a", "b7x", "h", "h02", "h2", "h2-9", "h2-10", "h10", "-"];
        assert_eq!(sorted(&names, "x"), up);
        let down = ["h10", "h2-10", "h2-9", "h2", "h02", "h", "b7x", "a", "-"];
        assert_eq!(sorted(&names, "-x"), down);
    }

    #[test]
    fn columns_of_numbers_are_sorted_as_numbers() {
        let cells = ["10 of 16", "9 of 16", "-", "100 of 200", "1.5", "1.25"];
        let up = ["1.25", "1.5", "9 of 16", "10 of 16", "100 of 200", "-"];
        assert_eq!(sorted(&cells, "x"), up);
        let sizes = ["2 GiB", "512 B", "1.5 TiB", "3.0 MiB"];
        assert_eq!(
            sorted(&sizes, "x"),
            ["512 B", "3.0 MiB", "2 GiB", "1.5 TiB"]
        );
        let times = ["2026-11-30T00:00:00Z", "2026-02-01T00:00:00Z"];
        assert_eq!(sorted(&times, "x"), [times[1], times[0]]);
    }

    #[test]
    fn values_are_sorted_by_a_field() {
        let all = [
            json!({"a": 10, "b": "x2"}),
            json!({"a": 9, "b": "x10"}),
            json!({"b": null}),
        ];
        let order = |key: &str| -> Vec<Value> {
            let key: SortKey = key.parse().expect("any text is a key");
            let mut values = all.to_vec();
            sort_values(&mut values, &key, &key.column);
            values.iter().map(|value| value["a"].clone()).collect()
        };
        assert_eq!(order("a"), [json!(9), json!(10), json!(null)]);
        assert_eq!(order("-a"), [json!(10), json!(9), json!(null)]);
        assert_eq!(order("-b"), [json!(9), json!(10), json!(null)]);
    }

    proptest! {
        /// Goal: the order of names is one: sorting panics at comparisons that contradict each other, and
        /// what is sorted stays so.
        #[test]
        fn any_cells_have_an_order(cells in proptest::collection::vec("[-a0-9. é]{0,6}", 0..40)) {
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            let once = sorted(&cells, "x");
            let refs: Vec<&str> = once.iter().map(String::as_str).collect();
            prop_assert_eq!(&sorted(&refs, "x"), &once);
        }
    }
}
