//! The table `[backup]` of the configuration: scheduled backups of the member's own state.

use std::path::PathBuf;

use berth_process::Keys;
use berth_process::configuration::Bounded;

/// When backups are made, and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backups {
    /// The directory of the files; if absent, no backups are scheduled.
    pub directory: Option<PathBuf>,
    /// The time between two backups, in seconds.
    pub interval_s: u64,
    /// Every so many backups one is full; the others are increments.
    pub full_every: u64,
    /// How many full backups are kept, each with its increments.
    pub keep: u64,
}

impl Default for Backups {
    fn default() -> Self {
        Self {
            directory: None,
            interval_s: 3_600,
            full_every: 24,
            keep: 7,
        }
    }
}

impl Backups {
    /// Takes its keys out of a file.
    pub(super) fn read(&mut self, keys: &mut Keys) {
        keys.table("backup", |keys| {
            keys.take_some("directory", &mut self.directory);
            keys.take("interval_s", &mut self.interval_s);
            keys.take("full_every", &mut self.full_every);
            keys.take("keep", &mut self.keep);
        });
    }

    /// Returns the values that have bounds.
    pub(super) fn bounded(&self) -> [Bounded; 3] {
        [
            ("backup.interval_s", self.interval_s, 1, 31_536_000),
            ("backup.full_every", self.full_every, 1, 10_000),
            ("backup.keep", self.keep, 1, 10_000),
        ]
    }

    /// Adds a fault where the directory is none that stays the same.
    pub(super) fn check(&self, faults: &mut Vec<String>) {
        if let Some(directory) = &self.directory
            && !directory.is_absolute()
        {
            faults.push(format!(
                "backup.directory {directory:?} is not absolute: write the whole path"
            ));
        }
    }
}
