//! The ledger: which steps a directory has behind it.
//!
//! A text file with one line per step, `<number> <name>`, replaced whole and durably with each
//! entry.

use std::fs;
use std::io;
use std::path::Path;

use crate::{Error, Step};

/// The ledger's file name.
pub const FILE: &str = "FORMAT";

/// The steps that a directory has behind it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    lines: Vec<(u32, String)>,
}

impl Ledger {
    /// Reads the ledger; a directory without one has nothing behind it.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let text = match fs::read_to_string(directory.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Error::Damaged {
                    path: directory.into(),
                });
            }
            Err(source) => {
                return Err(Error::Ledger {
                    path: directory.into(),
                    source,
                });
            }
        };
        let damaged = || Error::Damaged {
            path: directory.into(),
        };
        let mut lines = Vec::new();
        for line in text.lines() {
            let (id, name) = line.split_once(' ').ok_or_else(damaged)?;
            lines.push((id.parse().map_err(|_| damaged())?, name.to_owned()));
        }
        if !lines.is_sorted_by(|a: &(u32, String), b| a.0 < b.0) {
            return Err(damaged());
        }
        Ok(Self { lines })
    }

    /// Returns the number of the newest step.
    pub fn format(&self) -> u32 {
        self.lines.last().map_or(0, |line| line.0)
    }

    pub(crate) fn enter(&mut self, directory: &Path, step: &Step) -> Result<(), Error> {
        self.lines.push((step.id, step.name.to_owned()));
        self.write(directory).map_err(|source| Error::Ledger {
            path: directory.into(),
            source,
        })
    }

    fn write(&self, directory: &Path) -> io::Result<()> {
        let lines = self.lines.iter();
        let text: String = lines.map(|(id, name)| format!("{id} {name}\n")).collect();
        berth_files::replace(&directory.join(FILE), text.as_bytes())
    }
}
