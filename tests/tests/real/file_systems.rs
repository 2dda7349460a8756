//! File systems of volumes, as the system's own programs make them.

use std::fs::File;
use std::io::Read as _;

use berth_pmem::volume::filesystem::{Contents, FileSystem, Programs, detect};

/// Goal: what the programs make is recognised. Method: files in the place of devices.
pub(crate) fn what_programs_make_is_found() {
    let programs = Programs::default();
    for kind in [FileSystem::Ext4, FileSystem::Xfs] {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(320 << 20).unwrap();
        assert_eq!(detect(file.path()), Ok(Contents::Nothing));
        programs.format(file.path(), kind).unwrap();
        assert_eq!(detect(file.path()), Ok(Contents::FileSystem(kind)));
        let begin = || {
            let mut begin = Vec::new();
            let file = File::open(file.path()).unwrap();
            file.take(1 << 20).read_to_end(&mut begin).unwrap();
            begin
        };
        let before = begin();
        programs.format(file.path(), kind).unwrap();
        let other = match kind {
            FileSystem::Ext4 => FileSystem::Xfs,
            FileSystem::Xfs => FileSystem::Ext4,
        };
        let said = programs.format(file.path(), other).unwrap_err().to_string();
        assert!(
            said.ends_with(&format!("it is not empty: it holds {kind}")),
            "{said}"
        );
        assert!(begin() == before);
    }
}
