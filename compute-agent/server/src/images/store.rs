//! The files of the cluster's images on this host, and how they come to be.
//!
//! ```text
//!   .debian-12@3f6c1d2e7b1a.h1.UUID.part ──complete, checked, synced──▶ debian-12@3f6c1d2e7b1a
//!   .checksums/debian-12@3f6c1d2e7b1a      the SHA-256 that was computed of it since
//! ```
//!
//! Not here: who may have which image, and where it comes from.
//!
//! Invariant: a file has its name only once all of it is on stable storage, has the checksum of the image,
//! and is what the image is declared to be. It is replaced only where it is not the image that the scheduler
//! granted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use berth_domain::image::{IMAGE_BYTES_MAX, ImageContent, ImageFile, Sha256};
use berth_domain::name::HostName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::vm::DiskFormat;
use berth_driver::Error;
use berth_driver::disks::{DiskReader, Piece, free_space};
use berth_driver::image::{self, Base, Declared, Size, Source, record};
use berth_proto::convert::image::IMAGE_ZEROS_MAX;
use ring::digest::{Context, SHA256};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::driver_call::refusal;

/// What the names of files that are not complete end with.
const PART: &str = "part";

/// Where the checksums are. No image has such a name.
const CHECKSUMS: &str = ".checksums";

/// What is left free on the file system of the images.
const RESERVED_BYTES: u64 = 64 << 20;

/// How many zeros are hashed at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A part of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImagePart {
    /// Bytes.
    Data(Vec<u8>),
    /// So many zeros.
    Zeros(u64),
}

/// The images in a directory. Hosts may share it.
#[derive(Clone, Debug)]
pub(crate) struct ImageStore {
    directory: PathBuf,
    host: HostName,
}

impl ImageStore {
    pub(crate) fn new(directory: PathBuf, host: HostName) -> Self {
        Self { directory, host }
    }

    /// Removes what an earlier run of this agent has not completed.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read, or a file not be removed.
    pub(crate) fn remove_parts(&self) -> Result<(), Refusal> {
        for name in names(&self.directory)? {
            if self.is_part(&name) {
                let path = self.directory.join(&name);
                remove(&path)?;
                tracing::info!(path = %path.display(), "an incomplete image is removed");
            }
        }
        Ok(())
    }

    /// Returns whether a file is one that an agent of this host was writing.
    fn is_part(&self, name: &str) -> bool {
        let image = || {
            let name = name
                .strip_prefix('.')?
                .strip_suffix(PART)?
                .strip_suffix('.')?;
            let (name, writer) = name.rsplit_once('.')?;
            Uuid::parse_str(writer).ok()?;
            let name = name.strip_suffix(self.host.as_str())?.strip_suffix('.')?;
            name.parse::<ImageFile>().ok()
        };
        image().is_some()
    }

    /// Returns whether an image is here, whole and with this checksum. Where that is not known of the file,
    /// as of one that was copied there by hand, all of it is read.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or the agent is stopping.
    pub(crate) fn has(
        &self,
        file: &ImageFile,
        content: &ImageContent,
        stopping: &CancellationToken,
    ) -> Result<bool, Refusal> {
        let path = self.path(file);
        let seen = fs::symlink_metadata(&path);
        let is_whole = seen.is_ok_and(|seen| seen.is_file() && seen.len() == content.length_bytes);
        if !is_whole || self.checksum(file) == Some(content.sha256) {
            return Ok(is_whole);
        }
        let has = sum_of(&path, stopping)? == content.sha256;
        if has {
            tracing::info!(image = %file, "a file is found to be the image");
            self.keep_checksum(file, content.sha256);
        }
        Ok(has)
    }

    /// Returns the checksum that was computed of a file.
    fn checksum(&self, file: &ImageFile) -> Option<Sha256> {
        let text = fs::read_to_string(self.checksum_path(file)).ok()?;
        text.trim().parse().ok()
    }

    fn checksum_path(&self, file: &ImageFile) -> PathBuf {
        self.directory.join(CHECKSUMS).join(file.to_string())
    }

    /// Puts the checksum of an image, which has its name, on stable storage. Without one it is computed again.
    fn keep_checksum(&self, file: &ImageFile, sum: Sha256) {
        let path = self.checksum_path(file);
        let written = fs::create_dir_all(self.directory.join(CHECKSUMS))
            .and_then(|()| berth_files::replace(&path, format!("{sum}\n").as_bytes()));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "a checksum is not stored");
        }
    }

    /// Forgets the checksum of a file that is not the image any more: from here on it is fetched again.
    pub(crate) fn forget(&self, file: &ImageFile) {
        if let Err(refusal) = remove(&self.checksum_path(file)) {
            tracing::warn!(image = %file, %refusal, "a checksum is not removed");
        }
    }

    /// Returns the images of which anything is here.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub(crate) fn files(&self) -> Result<Vec<ImageFile>, Refusal> {
        let checksums = self.directory.join(CHECKSUMS);
        let mut names = names(&self.directory)?;
        if checksums.exists() {
            names.append(&mut self::names(&checksums)?);
        }
        let mut files: Vec<ImageFile> = names.iter().filter_map(|name| name.parse().ok()).collect();
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    /// Removes an image. Without one there is no effect.
    ///
    /// # Errors
    ///
    /// When it cannot be removed.
    pub(crate) fn remove(&self, file: &ImageFile) -> Result<(), Refusal> {
        remove(&self.path(file))?;
        remove(&self.checksum_path(file))?;
        remove(&record::path(&self.directory, &file.to_string()))
    }

    /// Begins to write an image.
    ///
    /// # Errors
    ///
    /// When the file cannot be made.
    pub(crate) fn begin(
        &self,
        file: &ImageFile,
        expected: Expected,
    ) -> Result<ImageWriter, Refusal> {
        let (host, writer) = (&self.host, Uuid::new_v4());
        let path = self
            .directory
            .join(format!(".{file}.{host}.{writer}.{PART}"));
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path);
        Ok(ImageWriter {
            file: opened.map_err(|error| store_failed("created", &path, &error))?,
            expected,
            path,
            store: self.clone(),
            image: file.clone(),
            length: 0,
            sum: Sum::new(),
        })
    }

    /// Opens an image.
    ///
    /// # Errors
    ///
    /// `IMAGE_FILE_NOT_FOUND` when it is not here.
    pub(crate) fn open(
        &self,
        file: &ImageFile,
        content: &ImageContent,
        stopping: &CancellationToken,
    ) -> Result<ImageReader, Refusal> {
        if self.has(file, content, stopping)? {
            return ImageReader::open(&self.path(file));
        }
        // Also where the file is not what the cluster has.
        let (host, directory) = (&self.host, self.directory.display());
        let message = format!("host {host} does not have {file} in {directory}");
        Err(Refusal::new(
            Code::NotFound,
            "IMAGE_FILE_NOT_FOUND",
            message,
        ))
    }

    /// Opens another file of the directory, and returns whether Berth wrote it, and so the guest's bytes.
    ///
    /// # Errors
    ///
    /// When it is not one of its files, or is declared otherwise than Berth recorded.
    pub(crate) fn open_other(
        &self,
        name: &str,
        format: DiskFormat,
    ) -> Result<(ImageReader, Source), Refusal> {
        berth_domain::vm::check_image_name("file", name)
            .map_err(|faults| berth_domain::fault::refusal("image", &faults))?;
        let path = self.directory.join(name);
        let recorded = record::read(&self.directory, name).map_err(|error| refusal(&error))?;
        let source = match recorded {
            Some(recorded) if recorded != format => {
                let (recorded, format) = (recorded.as_str(), format.as_str());
                let why = format!("Berth wrote it as {recorded}, and it is declared {format}");
                return Err(refused(&path, &why, &format!("declare it as {recorded}")));
            }
            Some(_) => Source::Berth,
            None => Source::User,
        };
        Ok((ImageReader::open(&path)?, source))
    }

    fn path(&self, file: &ImageFile) -> PathBuf {
        self.directory.join(file.to_string())
    }
}

/// Returns the names of the files of a directory.
fn names(directory: &Path) -> Result<Vec<String>, Refusal> {
    let read = |error: &io::Error| store_failed("read", directory, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| read(&error))? {
        let entry = entry.map_err(|error| read(&error))?;
        names.extend(entry.file_name().into_string().ok());
    }
    Ok(names)
}

/// An image as it comes. Dropped before it is complete, nothing is left of it.
pub(crate) struct ImageWriter {
    file: File,
    expected: Expected,
    path: PathBuf,
    store: ImageStore,
    image: ImageFile,
    length: u64,
    sum: Sum,
}

/// What an image has to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The format of its file.
    pub(crate) format: DiskFormat,
    /// Who declares the format.
    pub(crate) source: Source,
    /// Its length; any if absent.
    pub(crate) length_bytes: Option<u64>,
    /// Its checksum; any if absent.
    pub(crate) sha256: Option<Sha256>,
    /// Whether a file of its name is replaced, which is not what it has to be.
    pub(crate) replaces: bool,
}

impl ImageWriter {
    /// Writes the next part.
    ///
    /// # Errors
    ///
    /// `IMAGE_TOO_LARGE`, `NO_ROOM_FOR_IMAGE`, or when it cannot be written.
    pub(crate) fn write(&mut self, part: &ImagePart) -> Result<(), Refusal> {
        let added = match part {
            ImagePart::Data(bytes) => bytes.len() as u64,
            ImagePart::Zeros(count) => *count,
        };
        let length = self.length.saturating_add(added);
        let max = self.expected.length_bytes.unwrap_or(IMAGE_BYTES_MAX);
        if length > max {
            let message = format!("the image has more than {max} bytes");
            return Err(precondition("IMAGE_TOO_LARGE", message));
        }
        match part {
            ImagePart::Data(bytes) => {
                self.examine_space(added)?;
                let written = self.file.write_all(bytes);
                written.map_err(|error| store_failed("written", &self.path, &error))?;
            }
            ImagePart::Zeros(_) => {
                let sought = io::Seek::seek(&mut self.file, io::SeekFrom::Start(length));
                sought.map_err(|error| store_failed("written", &self.path, &error))?;
            }
        }
        self.sum.add(part);
        self.length = length;
        Ok(())
    }

    fn examine_space(&self, needed: u64) -> Result<(), Refusal> {
        let directory = &self.store.directory;
        let free = free_space(directory).map_err(|error| refusal(&error))?;
        if free >= needed.saturating_add(RESERVED_BYTES) {
            return Ok(());
        }
        let (host, shown) = (&self.store.host, directory.display());
        let free_mib = free >> 20;
        let message = format!(
            "{shown} of host {host} has {free_mib} MiB free, too few for the rest of image {}",
            self.image.name()
        );
        Err(precondition("NO_ROOM_FOR_IMAGE", message)
            .with("host", host)
            .with("free_mib", free_mib)
            .with_hint(format!(
                "make room in {shown} of host {host}, remove images that are not used (`berth image list`), \
                 or add it at another host: --host"
            )))
    }

    /// Makes the image whole: from here on it has its name.
    ///
    /// # Errors
    ///
    /// `IMAGE_CHECKSUM` or `IMAGE_REFUSED` when it is not what it has to be, or when it cannot be put on
    /// stable storage. Nothing is left then.
    pub(crate) fn finish(mut self) -> Result<ImageContent, Refusal> {
        let sha256 = std::mem::replace(&mut self.sum, Sum::new()).finish();
        let length = self.length;
        self.examine_sum(sha256)?;
        if length == 0 {
            let message = format!("image {} is refused: it is empty", self.image.name());
            return Err(
                precondition("IMAGE_REFUSED", message).with_hint("look at where it comes from")
            );
        }
        let grown = self.file.set_len(length);
        grown.map_err(|error| store_failed("written", &self.path, &error))?;
        let virtual_bytes = self.inspect()?;
        let synced = self.file.sync_all();
        synced.map_err(|error| store_failed("synced", &self.path, &error))?;
        self.name(sha256)?;
        Ok(ImageContent {
            length_bytes: length,
            virtual_bytes,
            sha256,
        })
    }

    /// Returns the size of the disk in it, which is what it is declared to be.
    fn inspect(&self) -> Result<u64, Refusal> {
        let declared = Declared {
            format: self.expected.format,
            base: Base::None,
            size: Size::Any,
            source: self.expected.source,
        };
        image::virtual_bytes(&self.path, &declared).map_err(|error| {
            let Error::ImageRefused { why, hint, .. } = &error else {
                return refusal(&error);
            };
            // The name of its file says nothing to its user.
            let message = format!("image {} is refused: {why}", self.image.name());
            let hint = hint.replace("`--disk IMAGE:GIB:", "`--format ");
            precondition("IMAGE_REFUSED", message).with_hint(hint)
        })
    }

    /// Gives it its name, with what is recorded of it.
    fn name(&self, sha256: Sha256) -> Result<(), Refusal> {
        let directory = &self.store.directory;
        let whole = self.store.path(&self.image);
        if !self.expected.replaces && whole.exists() {
            return Err(self.exists());
        }
        // Before anything can use it in another format.
        let writer = Uuid::from_u128(self.image.number().into());
        record::write(
            directory,
            &self.image.to_string(),
            self.expected.format,
            writer,
        )
        .map_err(|error| refusal(&error))?;
        let named = match self.expected.replaces {
            true => fs::rename(&self.path, &whole),
            // A rename would replace what has the name.
            false => fs::hard_link(&self.path, &whole),
        };
        match named {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(self.exists()),
            Err(error) => return Err(store_failed("named", &whole, &error)),
        }
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        if let Err(error) = synced {
            // An agent that starts after a power cut may find it or not.
            remove(&whole)?;
            return Err(store_failed("synced", directory, &error));
        }
        self.store.keep_checksum(&self.image, sha256);
        Ok(())
    }

    fn exists(&self) -> Refusal {
        let (name, host) = (self.image.name(), &self.store.host);
        let message = format!("host {host} has image {name} already: it is not added again");
        Refusal::new(Code::AlreadyExists, "IMAGE_EXISTS", message)
    }

    fn examine_sum(&self, sha256: Sha256) -> Result<(), Refusal> {
        let name = self.image.name();
        let (length, expected) = (self.length, &self.expected);
        let differs = |message: String| {
            precondition("IMAGE_CHECKSUM", message)
                .with("sha256", sha256)
                .with_hint("compare the file with its publisher's checksum, and repeat the request")
        };
        match expected.length_bytes {
            Some(bytes) if bytes != length => {
                return Err(differs(format!(
                    "image {name} came with {length} bytes, and has {bytes}"
                )));
            }
            Some(_) | None => {}
        }
        match expected.sha256 {
            Some(sum) if sum != sha256 => Err(differs(format!(
                "image {name} came with the SHA-256 {sha256}, and is to have {sum}"
            ))),
            Some(_) | None => Ok(()),
        }
    }
}

impl Drop for ImageWriter {
    /// What did not become an image takes space. What cannot be removed now is removed when the agent
    /// starts.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The SHA-256 of an image that is read.
pub(crate) struct Sum(Context);

impl Sum {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn add(&mut self, part: &ImagePart) {
        match part {
            ImagePart::Data(bytes) => self.0.update(bytes),
            ImagePart::Zeros(count) => self.add_zeros(*count),
        }
    }

    fn add_zeros(&mut self, count: u64) {
        let mut left = count;
        while left > 0 {
            let next = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
            self.0.update(&ZEROS[..next]);
            left -= next as u64;
        }
    }

    pub(crate) fn finish(self) -> Sha256 {
        let digest = self.0.finish();
        Sha256(digest.as_ref().try_into().unwrap_or_default())
    }
}

/// An image, open.
#[derive(Debug)]
pub(crate) struct ImageReader {
    file: DiskReader,
    /// Of a hole that is longer than a part.
    zeros: u64,
}

impl ImageReader {
    fn open(path: &Path) -> Result<Self, Refusal> {
        let file = image::open(path).map_err(|error| failed("opened", path, &error))?;
        let is_file = file.metadata().is_ok_and(|known| known.is_file());
        if !is_file {
            return Err(refused(path, "it is no regular file", "name a file"));
        }
        let reader = DiskReader::of_file(path, file).map_err(|error| refusal(&error))?;
        Ok(Self {
            file: reader,
            zeros: 0,
        })
    }

    /// Returns the next part; nothing at the end.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<ImagePart>, Refusal> {
        if self.zeros == 0 {
            match self.file.next_piece().map_err(|error| refusal(&error))? {
                None => return Ok(None),
                Some(Piece::Data { bytes, .. }) => return Ok(Some(ImagePart::Data(bytes))),
                Some(Piece::Hole { length, .. }) => self.zeros = length,
            }
        }
        let zeros = self.zeros.min(IMAGE_ZEROS_MAX);
        self.zeros -= zeros;
        Ok(Some(ImagePart::Zeros(zeros)))
    }
}

/// Returns the SHA-256 of a file.
fn sum_of(path: &Path, stopping: &CancellationToken) -> Result<Sha256, Refusal> {
    let mut reader = ImageReader::open(path)?;
    let mut sum = Sum::new();
    while let Some(part) = reader.next()? {
        if stopping.is_cancelled() {
            return Err(super::stopping());
        }
        sum.add(&part);
    }
    Ok(sum.finish())
}

fn remove(path: &Path) -> Result<(), Refusal> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("removed", path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn precondition(reason: &str, message: String) -> Refusal {
    Refusal::new(Code::FailedPrecondition, reason, message)
}

fn refused(path: &Path, why: &str, hint: &str) -> Refusal {
    let message = format!("{} is refused: {why}", path.display());
    precondition("IMAGE_REFUSED", message).with_hint(hint)
}

/// Returns the refusal of a file that was named and is not there, or cannot be read.
fn failed(what: &str, path: &Path, error: &io::Error) -> Refusal {
    match error.kind() == ErrorKind::NotFound {
        true => precondition("IMAGE_FILE_NOT_FOUND", words(what, path, error)),
        false => store_failed(what, path, error),
    }
}

fn store_failed(what: &str, path: &Path, error: &io::Error) -> Refusal {
    let message = words(what, path, error);
    let is_full = matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    );
    match is_full {
        true => precondition("NO_ROOM_FOR_IMAGE", message).with_hint("make room there"),
        false => Refusal::new(Code::Internal, "IMAGE_STORE_FAILED", message),
    }
}

fn words(what: &str, path: &Path, error: &io::Error) -> String {
    format!("{} cannot be {what}: {error}", path.display())
}

#[cfg(test)]
mod tests;
