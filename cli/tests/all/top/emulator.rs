//! A terminal as far as `berth top` uses one: positions, erasing, texts, and the modes that it sets.
//!
//! Not here: colours. Invariant: a sequence that it does not know changes nothing on the screen.

/// What is on the screen, and how the terminal is set.
pub(super) struct Emulator {
    rows: usize,
    columns: usize,
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// Bytes of a sequence, or of a character, that is not complete.
    open: Vec<u8>,
    pub(super) is_alternate: bool,
    pub(super) is_cursor_hidden: bool,
    /// What was written while the program did not have the whole screen.
    pub(super) outside: String,
    /// The numbers of every sequence that sets a style.
    pub(super) styles: Vec<String>,
}

impl Emulator {
    pub(super) fn new() -> Self {
        let mut emulator = Self {
            rows: 0,
            columns: 0,
            cells: Vec::new(),
            at: (0, 0),
            open: Vec::new(),
            is_alternate: false,
            is_cursor_hidden: false,
            outside: String::new(),
            styles: Vec::new(),
        };
        emulator.resize(24, 80);
        emulator
    }

    pub(super) fn resize(&mut self, rows: usize, columns: usize) {
        (self.rows, self.columns) = (rows, columns);
        self.erase();
    }

    fn erase(&mut self) {
        self.cells = vec![vec![' '; self.columns]; self.rows];
    }

    /// Returns what is on the screen.
    pub(super) fn text(&self) -> String {
        let rows = self.cells.iter();
        let rows = rows.map(|row| row.iter().collect::<String>());
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
        let open = std::mem::take(&mut self.open);
        let valid = match std::str::from_utf8(&open) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&open[..error.valid_up_to()]).expect("it is valid"),
        };
        let mut rest = valid;
        while let Some(character) = rest.chars().next() {
            if character == '\u{1b}' {
                let Some((length, sequence)) = sequence(rest) else {
                    break;
                };
                self.control(sequence);
                rest = &rest[length..];
            } else {
                self.put(character);
                rest = &rest[character.len_utf8()..];
            }
        }
        let taken = valid.len() - rest.len();
        self.open = open[taken..].to_vec();
    }

    fn put(&mut self, character: char) {
        if !self.is_alternate {
            self.outside.push(character);
        }
        match character {
            '\r' => self.at.1 = 0,
            '\n' => self.at.0 += 1,
            _ => {
                let (row, column) = self.at;
                if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = character;
                }
                self.at.1 += 1;
            }
        }
    }

    fn control(&mut self, sequence: &str) {
        let (numbers, last) = sequence.split_at(sequence.len() - 1);
        match (numbers, last) {
            ("?1049", "h") => self.is_alternate = true,
            ("?1049", "l") => self.is_alternate = false,
            ("?25", "l") => self.is_cursor_hidden = true,
            ("?25", "h") => self.is_cursor_hidden = false,
            (_, "J") => self.erase(),
            (_, "m") => self.styles.push(numbers.to_owned()),
            (_, "H") => {
                let mut numbers = numbers.split(';').map(|n| n.parse().unwrap_or(1_usize));
                let mut next = || numbers.next().unwrap_or(1).saturating_sub(1);
                self.at = (next(), next());
            }
            _ => {}
        }
    }
}

/// Returns the length of a sequence that is complete, and what is behind its beginning.
fn sequence(text: &str) -> Option<(usize, &str)> {
    let Some(inside) = text.strip_prefix("\u{1b}[") else {
        // One of two characters.
        return (text.len() > 1).then(|| (2, &text[1..2]));
    };
    let end = inside.find(|c: char| c.is_ascii_alphabetic())?;
    Some((2 + end + 1, &inside[..=end]))
}
