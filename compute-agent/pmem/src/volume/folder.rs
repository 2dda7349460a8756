//! The folder with the files of the volumes: `<id>.json`, one each.
//!
//! A file is written beside its path, synced, renamed, and the folder is synced: after a loss of
//! power there is the old one or the new one, whole. What is no file of a volume, or is torn, is moved
//! aside under `.torn` and is in no way. What the system does not let us read, and what a newer
//! program has written, is an error, and then nothing is moved.
//!
//! Invariant: nothing in here is ever thrown away unread, but for what was being written.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use berth_domain::name::VolumeId;
use berth_files::PART;

use super::manager::{Error, volume_id};
use super::record::{FILE_BYTES_MAX, Record};

/// The most files that are looked at, and the most of one name that are moved aside.
const FILES_MAX: usize = 65_536;

/// Why a file is no record.
enum Odd {
    /// It is something else, or torn.
    Torn(String),
    /// It may be one.
    Unread(Error),
}

/// Where the records are.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct FolderContents {
    pub(crate) records: Vec<Record>,
    /// What was moved aside: the file as it is called now, and why.
    pub(crate) torn: Vec<(PathBuf, String)>,
}

impl Folder {
    /// Makes the folder unless it is there.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        berth_files::make_private(path).map_err(io_error("make the folder", path))?;
        Ok(Self(path.to_owned()))
    }

    fn file(&self, id: &VolumeId) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }

    /// Reads all of it, and moves aside what is no record.
    pub(crate) fn read(&self) -> Result<FolderContents, Error> {
        let mut found = FolderContents::default();
        let (mut torn, mut parts) = (Vec::new(), Vec::new());
        let entries = fs::read_dir(&self.0).map_err(io_error("read the folder", &self.0))?;
        for entry in entries.take(FILES_MAX) {
            let entry = entry.map_err(io_error("read the folder", &self.0))?;
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(".torn") {
                continue;
            }
            if name.ends_with(PART) {
                parts.push(path);
                continue;
            }
            match read_record(&path, &name) {
                Ok(record) => found.records.push(record),
                Err(Odd::Torn(why)) => torn.push((path, why)),
                Err(Odd::Unread(error)) => return Err(error),
            }
        }
        // Only after all was read.
        for path in parts {
            // It was being written when the program ended; the one before it counts.
            fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
        for (path, why) in torn {
            found.torn.push((self.move_aside(&path)?, why));
        }
        found.records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    fn move_aside(&self, path: &Path) -> Result<PathBuf, Error> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let names = (0..FILES_MAX).map(|number| match number {
            0 => format!("{name}.torn"),
            number => format!("{name}.{number}.torn"),
        });
        let mut places = names.map(|name| self.0.join(name));
        // No other process writes here, so that a name that is free stays so.
        let aside = places.find(|place| !place.exists());
        let aside = aside.ok_or_else(|| Error::Io {
            what: "move aside",
            path: path.to_owned(),
            why: "too many files of that name were already; remove those ending in .torn"
                .to_owned(),
        })?;
        fs::rename(path, &aside).map_err(io_error("move aside", path))?;
        self.sync()?;
        Ok(aside)
    }

    /// Writes a record; when this returns it is there after a loss of power too.
    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let path = self.file(&record.id);
        berth_files::replace(&path, &record.write()).map_err(io_error("write", &path))
    }

    /// Removes a record; none there: no effect.
    pub(crate) fn remove(&self, id: &VolumeId) -> Result<(), Error> {
        let path = self.file(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(io_error("remove", &path)(error)),
            Ok(()) => self.sync(),
        }
    }

    fn sync(&self) -> Result<(), Error> {
        berth_files::sync_directory(&self.0).map_err(io_error("sync the folder", &self.0))
    }
}

/// Reads a file that is called so.
fn read_record(path: &Path, name: &str) -> Result<Record, Odd> {
    let torn = |why: &str| Odd::Torn(why.to_owned());
    let unread = |error: io::Error| Odd::Unread(io_error("read", path)(error));
    let id = name.strip_suffix(".json").and_then(volume_id);
    let id = id.ok_or_else(|| torn("it does not bear the name of a volume"))?;
    let metadata = fs::symlink_metadata(path).map_err(unread)?;
    if !metadata.is_file() {
        return Err(torn("it is no file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unread)?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(unread)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Odd::Torn(format!(
            "it is larger than {FILE_BYTES_MAX} bytes"
        )));
    }
    if let Some(format) = Record::newer_format(&bytes) {
        return Err(Odd::Unread(Error::Io {
            what: "read",
            path: path.to_owned(),
            why: format!("its format is {format}, of a newer program; start that one"),
        }));
    }
    let record = Record::read(&bytes).map_err(Odd::Torn)?;
    match record.id == id {
        true => Ok(record),
        false => Err(Odd::Torn(format!("it is of volume {}", record.id))),
    }
}

pub(crate) fn io_error<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl Fn(io::Error) -> Error + use<'a> {
    move |error| Error::Io {
        what,
        path: path.to_owned(),
        why: error.to_string(),
    }
}
