//! A large file that is synchronised while it is written.
//!
//! Synchronised all at once at its end, it would hold up whatever else synchronises files of the same
//! disk, such as a log.

use std::fs::File;
use std::io::{self, Write};

/// After how many bytes the file is synchronised: while a disk writes them, a log waits that
/// synchronises a record.
const UNSYNCHRONISED_MAX: usize = 1 << 20;

/// A file that is written from its beginning to its end.
#[derive(Debug)]
pub struct SteadyFile {
    file: File,
    /// How many bytes were written since the last synchronisation.
    unsynchronised: usize,
}

impl SteadyFile {
    /// Writes into a file that is open.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self {
            file,
            unsynchronised: 0,
        }
    }

    /// Makes all that was written durable, with the file's size.
    ///
    /// # Errors
    ///
    /// That of the operating system.
    pub fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

impl Write for SteadyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.unsynchronised += count;
        if self.unsynchronised >= UNSYNCHRONISED_MAX {
            self.file.sync_data()?;
            self.unsynchronised = 0;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
