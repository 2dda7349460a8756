//! The files of `-f`: each of them, those of a directory, or standard input.
//!
//! Not here: what is in them (`document`).
//!
//! Invariant: what is read is bounded, whatever the path leads to.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::document::Source;
use crate::usage::Usage;

/// The most bytes of a file.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most bytes of all files.
const ALL_BYTES_MAX: usize = 8 << 20;
/// The most files of a directory.
const FILES_MAX: usize = 1000;
/// The names of files that a directory takes.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads these files, in order.
///
/// # Errors
///
/// One cannot be read, is too long, or is no text.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Source>, Usage> {
    let mut sources: Vec<Source> = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            sources.push(of(std::io::stdin().lock(), "standard input".to_owned())?);
            continue;
        }
        for file in files(path)? {
            let name = file.display().to_string();
            let opened = File::open(&file).map_err(|error| wrong(&file, &error))?;
            sources.push(of(opened, name)?);
        }
        let bytes: usize = sources.iter().map(|source| source.text.len()).sum();
        if bytes > ALL_BYTES_MAX {
            let message = format!("the files have more than {ALL_BYTES_MAX} bytes together");
            return Err(Usage(message));
        }
    }
    Ok(sources)
}

fn wrong(path: &Path, error: &std::io::Error) -> Usage {
    Usage(format!("{}: {error}", path.display()))
}

/// Returns the files that a path stands for, those of a directory in the order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>, Usage> {
    let metadata = fs::metadata(path).map_err(|error| wrong(path, &error))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| wrong(path, &error))? {
        let file = entry.map_err(|error| wrong(path, &error))?.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        if !ending.is_some_and(|ending| ENDINGS.contains(&ending)) {
            continue;
        }
        // One that is left out would be taken for one that declares nothing.
        let metadata = fs::metadata(&file).map_err(|error| wrong(&file, &error))?;
        if metadata.is_file() {
            files.push(file);
        } else if !metadata.is_dir() {
            return Err(Usage(format!("{}: it is no file", file.display())));
        }
        if files.len() > FILES_MAX {
            let message = format!("{}: it has more than {FILES_MAX} files", path.display());
            return Err(Usage(message));
        }
    }
    if files.is_empty() {
        let message = format!("{}: it has no *.yaml, *.yml or *.json", path.display());
        return Err(Usage(message));
    }
    files.sort();
    Ok(files)
}

fn of(reader: impl Read, name: String) -> Result<Source, Usage> {
    let mut bytes = Vec::new();
    let read = reader.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Usage(format!("{name}: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("{name}: it has more than {FILE_BYTES_MAX} bytes");
        return Err(Usage(message));
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| Usage(format!("{name}: it is no text in UTF-8")))?;
    Ok(Source { name, text })
}
