//! Numbered, idempotent changes of a member's directory, run when it is opened.
//!
//! These are *local* changes: where files lie and how they are laid out. What commands mean is
//! replicated and changed elsewhere, by a committed command.
//!
//! Each step has a number that is never given again and a name. The ledger, a file in the
//! directory, holds the steps that were done. A step may be interrupted and run again, so it must
//! be idempotent; it is entered into the ledger only when it is durable.
//!
//! Invariant: a directory that went through every version equals one that was made by the newest
//! (fold equals fresh), and running everything twice changes nothing.

pub mod ledger;
mod steps;

use std::io;
use std::path::{Path, PathBuf};

pub use ledger::Ledger;

/// The folder of the Raft log.
pub const LOG: &str = "log";
/// The folder of checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
/// The folder of the table.
pub const TABLE: &str = "table";
/// The file that says how far the log was synchronised.
pub const WITNESS: &str = "WITNESS";
/// The size of that file.
pub const WITNESS_BYTES: usize = 32 << 10;

/// One change.
pub struct Step {
    /// Its number; steps run in this order.
    pub id: u32,
    /// What it does, in a few words.
    pub name: &'static str,
    /// Does it, durably, however often it is called.
    pub run: fn(&Path) -> io::Result<()>,
}

/// Why a directory could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The ledger names a step that this program does not know.
    #[error(
        "{path} was used by a newer program: it has format {actual}, this program knows up to \
         {known}"
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// The newest step in the ledger.
        actual: u32,
        /// The newest step that is known.
        known: u32,
    },
    /// The ledger cannot be understood.
    #[error("the ledger of migrations in {path} is damaged")]
    Damaged {
        /// The directory.
        path: PathBuf,
    },
    /// A step failed.
    #[error("migration {id} ({name}) failed in {path}")]
    Step {
        /// The directory.
        path: PathBuf,
        /// Which step.
        id: u32,
        /// What it does.
        name: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The ledger could not be read or written.
    #[error("the ledger of migrations in {path} could not be used")]
    Ledger {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Brings a directory up to date and returns the numbers of the steps that this took.
pub fn run(directory: &Path) -> Result<Vec<u32>, Error> {
    run_steps(directory, steps::ALL)
}

fn run_steps(directory: &Path, steps: &[Step]) -> Result<Vec<u32>, Error> {
    let mut ledger = Ledger::read(directory)?;
    let known = steps.last().map_or(0, |step| step.id);
    if ledger.format() > known {
        return Err(Error::Newer {
            path: directory.into(),
            actual: ledger.format(),
            known,
        });
    }
    let mut done = Vec::new();
    let format = ledger.format();
    for step in steps.iter().filter(|step| step.id > format) {
        (step.run)(directory).map_err(|source| Error::Step {
            path: directory.into(),
            id: step.id,
            name: step.name,
            source,
        })?;
        ledger.enter(directory, step)?;
        tracing::info!(id = step.id, name = step.name, "migrated");
        done.push(step.id);
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    /// What lies in a directory: folders, and files with their content.
    fn picture(directory: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(directory).expect("list") {
            let path = entry.expect("entry").path();
            let content = path.is_file().then(|| fs::read(&path).expect("read"));
            let name = path.strip_prefix(directory).expect("inside").to_owned();
            found.insert(name, content);
        }
        found
    }

    #[test]
    fn fold_equals_fresh() {
        let folded = tempfile::tempdir().expect("temporary folder");
        for count in 1..=steps::ALL.len() {
            run_steps(folded.path(), &steps::ALL[..count]).expect("run");
        }
        let fresh = tempfile::tempdir().expect("temporary folder");
        run(fresh.path()).expect("run");
        assert_eq!(picture(folded.path()), picture(fresh.path()));
    }

    #[test]
    fn applying_twice_changes_nothing() {
        let directory = tempfile::tempdir().expect("temporary folder");
        assert!(!run(directory.path()).expect("run").is_empty());
        let before = picture(directory.path());
        assert_eq!(run(directory.path()).expect("run"), []);
        // As after a crash between a step and its entry in the ledger.
        for step in steps::ALL {
            (step.run)(directory.path()).expect("again");
        }
        assert_eq!(picture(directory.path()), before);
    }

    #[test]
    fn numbers_grow() {
        assert!(steps::ALL.is_sorted_by(|a, b| a.id < b.id));
    }

    #[test]
    fn a_newer_directory_is_refused() {
        let directory = tempfile::tempdir().expect("temporary folder");
        run(directory.path()).expect("run");
        assert!(matches!(
            run_steps(directory.path(), &[]),
            Err(Error::Newer { known: 0, .. })
        ));
    }

    #[test]
    fn a_damaged_ledger_is_refused() {
        let directory = tempfile::tempdir().expect("temporary folder");
        fs::write(directory.path().join(ledger::FILE), "nonsense\n").expect("write");
        assert!(matches!(run(directory.path()), Err(Error::Damaged { .. })));
    }
}
