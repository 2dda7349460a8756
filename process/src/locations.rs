//! Where in a configuration file each key is, so that a fault can name the line.
//!
//! Invariant: only keys of the file have a line; a key that a flag replaced has the flag's name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Line(usize),
    Flag(&'static str),
}

/// Where each key of a configuration was set: in a line of the file, or by a flag.
///
/// Keys are written as in faults: `libvirt.uri`, `pci.device_spec[0].vendor_id`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLocations {
    file: Option<PathBuf>,
    locations: BTreeMap<String, Location>,
}

impl KeyLocations {
    /// Reads where the keys of a file are; a text that is not TOML has none.
    #[must_use]
    pub fn read(text: &str, file: Option<&Path>) -> Self {
        let mut locations = Self {
            file: file.map(Path::to_owned),
            locations: BTreeMap::new(),
        };
        if let Ok(table) = DeTable::parse(text) {
            let lines = Lines::new(text);
            locations.table("", table.get_ref(), &lines);
        }
        locations
    }

    fn table(&mut self, prefix: &str, table: &DeTable<'_>, lines: &Lines) {
        for (key, value) in table {
            let path = format!("{prefix}{}", key.get_ref());
            self.value(path, key.span().start, value, lines);
        }
    }

    fn value(&mut self, path: String, start: usize, value: &Spanned<DeValue<'_>>, lines: &Lines) {
        if let Some(table) = value.get_ref().as_table() {
            self.table(&format!("{path}."), table, lines);
        }
        for (index, element) in value.get_ref().as_array().into_iter().flatten().enumerate() {
            let path = format!("{path}[{index}]");
            self.value(path, element.span().start, element, lines);
        }
        self.locations.insert(path, Location::Line(lines.at(start)));
    }

    /// Records that a flag set this key.
    pub fn set_by_flag(&mut self, key: &str, flag: &'static str) {
        self.locations.insert(key.to_owned(), Location::Flag(flag));
    }

    /// Returns whether the file or a flag set this key.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.locations.contains_key(key)
    }

    /// Returns a fault, preceded by where its keys were set. A key that is not set, as `a[0].b`, is
    /// located by the nearest enclosing one, as `a[0]`.
    #[must_use]
    pub fn locate<'a>(&self, keys: impl IntoIterator<Item = &'a str>, fault: &str) -> String {
        let mut lines = Vec::new();
        let mut flags = Vec::new();
        for location in keys.into_iter().filter_map(|key| self.nearest(key)) {
            match location {
                Location::Line(line) => lines.push(line),
                Location::Flag(flag) => flags.push(flag.to_owned()),
            }
        }
        lines.sort_unstable();
        lines.dedup();
        let mut heads = flags;
        heads.extend(self.lines(&lines));
        if heads.is_empty() {
            return fault.to_owned();
        }
        format!("{}: {fault}", heads.join(", "))
    }

    /// Returns a fault that begins with its key, preceded by where that key was set.
    #[must_use]
    pub fn locate_by_text(&self, fault: &str) -> String {
        let ends = |c: char| !(c.is_ascii_alphanumeric() || "_.[]-".contains(c));
        let key = fault.split(ends).next().unwrap_or_default();
        self.locate([key], fault)
    }

    fn lines(&self, lines: &[usize]) -> Option<String> {
        let numbers: Vec<_> = lines.iter().map(ToString::to_string).collect();
        let numbers = numbers.join(" and ");
        let head = match (&self.file, lines.len()) {
            (_, 0) => return None,
            (Some(file), _) => Cow::from(format!("{}:", file.display())),
            (None, 1) => Cow::from("line "),
            (None, _) => Cow::from("lines "),
        };
        Some(format!("{head}{numbers}"))
    }

    fn nearest(&self, key: &str) -> Option<Location> {
        let mut key = key;
        loop {
            if let Some(location) = self.locations.get(key) {
                return Some(*location);
            }
            key = &key[..key.rfind(['.', '['])?];
        }
    }
}

/// Where the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        Self(std::iter::once(0).chain(ends).collect())
    }

    /// Returns the line, counted from 1, that holds this byte.
    fn at(&self, byte: usize) -> usize {
        self.0.partition_point(|begin| *begin <= byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
a = 1
b = [
  { c = 1 },
  { c = 2,
    d = 3 },
]

[[t.u]]
v = 1
[[t.u]]
v = 2
";

    #[test]
    fn every_key_has_its_line() {
        let locations = KeyLocations::read(TEXT, Some(Path::new("x.toml")));
        for (key, line) in [
            ("a", 1),
            ("b", 2),
            ("b[0]", 3),
            ("b[1].c", 4),
            ("b[1].d", 5),
            ("b[1].e", 4),
            ("t.u[0].v", 9),
            ("t.u[1].v", 11),
        ] {
            let expected = format!("x.toml:{line}: {key} is wrong");
            let located = locations.locate_by_text(&format!("{key} is wrong"));
            assert_eq!(located, expected);
        }
        assert_eq!(locations.locate_by_text("z is wrong"), "z is wrong");
        assert_eq!(locations.locate(["a", "b"], "no"), "x.toml:1 and 2: no");
    }

    #[test]
    fn a_flag_goes_before_the_file() {
        let mut locations = KeyLocations::read(TEXT, None);
        assert_eq!(locations.locate(["a"], "no"), "line 1: no");
        locations.set_by_flag("a", "--a");
        assert_eq!(locations.locate(["a", "b"], "no"), "--a, line 2: no");
        assert!(locations.contains("a") && !locations.contains("z"));
    }
}
