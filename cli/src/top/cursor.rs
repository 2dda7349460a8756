//! Which row of a list is selected, and which rows are visible.
//!
//! Invariant: the selection follows its row while rows come, go and are sorted otherwise; where the row is
//! gone, the one that took its position is selected.

use std::ops::Range;

/// How a selection moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// By so many rows, backwards if negative.
    By(isize),
    /// To the first row.
    First,
    /// To the last row.
    Last,
}

/// The selected row of a list, by its key.
#[derive(Clone, Debug)]
pub struct Cursor<K> {
    selected: Option<K>,
    position: usize,
}

impl<K> Default for Cursor<K> {
    fn default() -> Self {
        Self {
            selected: None,
            position: 0,
        }
    }
}

impl<K: Clone + PartialEq> Cursor<K> {
    /// Selects a row by its key.
    pub fn select(&mut self, key: K) {
        self.selected = Some(key);
    }

    /// Returns the position of the selected row among these; nothing if there are none.
    #[must_use]
    pub fn position(&self, keys: &[K]) -> Option<usize> {
        let last = keys.len().checked_sub(1)?;
        let selected = self.selected.as_ref();
        let at = selected.and_then(|key| keys.iter().position(|other| other == key));
        Some(at.unwrap_or(self.position.min(last)))
    }

    /// Returns the key of the selected row among these.
    #[must_use]
    pub fn key(&self, keys: &[K]) -> Option<K> {
        self.position(keys).map(|at| keys[at].clone())
    }

    /// Moves the selection.
    pub fn step(&mut self, keys: &[K], motion: Motion) {
        let Some(at) = self.position(keys) else {
            return;
        };
        let last = keys.len() - 1;
        self.position = moved(at, last, motion);
        self.selected = Some(keys[self.position].clone());
    }
}

/// Returns a position after a motion, between 0 and `last`.
#[must_use]
pub fn moved(at: usize, last: usize, motion: Motion) -> usize {
    match motion {
        Motion::By(rows) => at.saturating_add_signed(rows).min(last),
        Motion::First => 0,
        Motion::Last => last,
    }
}

/// Returns the rows of a list that are visible in so many lines, the selected one among them.
#[must_use]
pub fn window(selected: usize, rows: usize, lines: usize) -> Range<usize> {
    let first = selected.saturating_sub(lines / 2);
    let first = first.min(rows.saturating_sub(lines));
    first..rows.min(first + lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_follows_its_row() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.position(&[] as &[char]), None);
        cursor.step(&['a', 'b', 'c'], Motion::By(1));
        assert_eq!(cursor.key(&['a', 'b', 'c']), Some('b'));
        assert_eq!(cursor.position(&['c', 'x', 'y', 'b']), Some(3));
        assert_eq!(cursor.key(&['a', 'c']), Some('c'), "its neighbour");
        assert_eq!(cursor.key(&['a']), Some('a'));
        cursor.step(&['a', 'c'], Motion::Last);
        cursor.step(&['a', 'c'], Motion::By(isize::MAX));
        assert_eq!(cursor.key(&['a', 'c']), Some('c'));
        cursor.step(&['a', 'c'], Motion::By(isize::MIN));
        assert_eq!(cursor.key(&['a', 'c']), Some('a'));
    }

    /// Goal: the selected row is always visible, and no line is wasted.
    #[test]
    fn the_window_holds_the_selection() {
        for rows in 0..12 {
            for lines in 1..6 {
                for selected in 0..rows {
                    let window = window(selected, rows, lines);
                    assert!(window.contains(&selected), "{selected} {rows} {lines}");
                    assert_eq!(window.len(), rows.min(lines));
                }
            }
        }
        assert_eq!(window(0, 0, 5), 0..0);
    }
}
