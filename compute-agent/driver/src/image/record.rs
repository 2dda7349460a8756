//! The formats of the images that Berth wrote, beside them in the directory of images.
//!
//! ```text
//!   images/golden.qcow2            a copy of a guest's disk, plain bytes
//!   images/.formats/golden.qcow2   "raw"
//! ```
//!
//! The guest chose the bytes of such an image, and its user the name. Neither states the format.
//!
//! Invariant: an image that Berth published has a record before anything can use it in another format than
//! the one it was written in. A record says nothing of an image that an operator put there later under the
//! same name; a contradiction is reported with the file to delete.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use berth_domain::vm::DiskFormat;
use uuid::Uuid;

use crate::error::Error;

/// Where they are. No image of a user's has such a name: theirs do not begin with a dot.
pub(super) const DIRECTORY: &str = ".formats";

/// Returns the file with the record of an image.
#[must_use]
pub fn path(image_dir: &Path, name: &str) -> PathBuf {
    image_dir.join(DIRECTORY).join(name)
}

/// Returns the format in which Berth wrote an image; nothing for one that it did not write.
///
/// # Errors
///
/// When the record cannot be read.
pub fn read(image_dir: &Path, name: &str) -> Result<Option<DiskFormat>, Error> {
    let file = path(image_dir, name);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let message = format!("{} cannot be read: {error}", file.display());
            return Err(Error::refused(message));
        }
    };
    let formats = [DiskFormat::Qcow2, DiskFormat::Raw];
    let format = formats.into_iter().find(|f| text.trim() == f.as_str());
    match format {
        Some(format) => Ok(Some(format)),
        None => Err(super::refused(
            &file,
            "it states no format",
            "write qcow2 or raw into it, the format in which the image is stored".to_owned(),
        )),
    }
}

/// Records the format in which an image was written, on stable storage. `writer` names what writes it, as an
/// operation: no two of them write at a time.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(image_dir: &Path, name: &str, format: DiskFormat, writer: Uuid) -> Result<(), Error> {
    let directory = image_dir.join(DIRECTORY);
    // The directory may be shared with other hosts, which publish other images.
    let aside = directory.join(format!(".{writer}"));
    let file = directory.join(name);
    let written = fs::create_dir_all(&directory).and_then(|()| {
        let mut new = File::create(&aside)?;
        writeln!(new, "{}", format.as_str())?;
        new.sync_all()?;
        fs::rename(&aside, &file)?;
        File::open(&directory)?.sync_all()
    });
    written
        .map_err(|error| Error::refused(format!("{} cannot be written: {error}", file.display())))
}
