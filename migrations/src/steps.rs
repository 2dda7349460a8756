//! The steps, oldest first. New ones are added at the end and never changed once released.

use std::fs;
use std::io;
use std::path::Path;

use crate::{CHECKPOINTS, LOG, Step, TABLE, WITNESS, WITNESS_BYTES};

/// All steps.
pub(crate) const ALL: &[Step] = &[
    Step {
        id: 1,
        name: "folders for log, checkpoints and table",
        run: folders,
    },
    Step {
        id: 2,
        name: "witness beside the log",
        run: witness,
    },
];

fn folders(directory: &Path) -> io::Result<()> {
    for name in [LOG, CHECKPOINTS, TABLE] {
        fs::create_dir_all(directory.join(name))?;
    }
    berth_files::sync_directory(directory)
}

/// Makes the file that the witness's records go into. The bytes are written, not only reserved:
/// a later write then changes no block map, and its synchronisation costs one write.
///
/// A witness that exists is left alone, so that a lost ledger does not blank it.
fn witness(directory: &Path) -> io::Result<()> {
    let path = directory.join(WITNESS);
    if path.exists() {
        return Ok(());
    }
    berth_files::replace(&path, &[0; WITNESS_BYTES])
}
