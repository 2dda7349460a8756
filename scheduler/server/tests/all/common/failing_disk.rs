//! A disk that fails, by `tests/attacks/failing-disk.c`: tests may run as root, which no permission
//! stops, and on a file system that others use.
//!
//! Not here: a disk that is full by itself, for which a test mounts one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// Returns the library, which is compiled once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("failing-disk.so");
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/attacks/failing-disk.c");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&path, &source])
            .status();
        assert!(status.expect("a C compiler").success());
        (folder, path)
    });
    path
}

/// Lets calls of a program fail below a directory, while the file of faults exists.
pub fn preload(command: &mut Command, below: &Path, faults: &Path) {
    command
        .env("LD_PRELOAD", library())
        .env("FAILING_DISK_BELOW", below)
        .env("FAILING_DISK_WHILE", faults);
}

/// Begins a fault: a call, the number of its error, and a part of the paths.
pub fn begin(faults: &Path, call: &str, number: i32, path: &str) {
    let part = faults.with_extension("part");
    fs::write(&part, format!("{call} {number} {path}\n")).expect("a file");
    fs::rename(part, faults).expect("a file");
}
