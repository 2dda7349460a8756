//! The steps, oldest first. New ones are added at the end and never changed once released.

use std::fs;
use std::io;
use std::path::Path;

use crate::{CHECKPOINTS, LOG, Step, TABLE};

/// All steps.
pub(crate) const ALL: &[Step] = &[Step {
    id: 1,
    name: "folders for log, checkpoints and table",
    run: folders,
}];

fn folders(directory: &Path) -> io::Result<()> {
    for name in [LOG, CHECKPOINTS, TABLE] {
        fs::create_dir_all(directory.join(name))?;
    }
    fs::File::open(directory)?.sync_all()
}
