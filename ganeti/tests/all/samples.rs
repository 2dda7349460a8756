//! The sample files of `testdata`.

use std::path::Path;

/// Returns the sample files with their names.
pub(crate) fn samples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "data") {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, text));
        }
    }
    found.sort();
    assert!(found.len() > 8, "the samples are there");
    found
}
