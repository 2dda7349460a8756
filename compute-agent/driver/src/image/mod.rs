//! Inspects the file of an image or a disk before a program opens it.
//!
//! ```text
//!   declared: format, base, size ─┐
//!   first bytes, length ──────────┴─▶ check ─▶ may be opened, or a fault
//! ```
//!
//! | module | what |
//! |---|---|
//! | `qcow2` | the header of a qcow2 image, pure |
//! | `magic` | the format that a file seems to have, for messages, pure |
//! | [`record`] | the formats of images that Berth wrote |
//!
//! The format is never determined from the file: a guest can write the header of any format to its disk. It
//! is declared by the user, or by what Berth wrote, and the file has to agree. The checks are those of
//! OpenStack's `format_inspector`; more of them in one place, since Berth has two formats only.
//!
//! Invariant: a file that passes as qcow2 makes QEMU open no file but its declared base. One that is declared
//! raw is opened as raw, whatever is in it, and so makes it open none.

mod magic;
mod qcow2;
pub mod record;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use berth_domain::vm::DiskFormat;
use rustix::fs::OFlags;

pub use magic::{Known, recognize};
pub use qcow2::{Backing, Fault as HeaderFault, Header};

use crate::error::Error;

/// How much of a file is read: all that a header can be spread over.
const HEAD_MAX: u64 = qcow2::CLUSTER_MAX as u64;

/// How much of a name in an image is shown.
const SHOWN_MAX: usize = 80;

/// What a file is declared to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared<'a> {
    /// Its format.
    pub format: DiskFormat,
    /// What lies below it.
    pub base: Base<'a>,
    /// How large the disk in it is.
    pub size: Size,
    /// Who says so.
    pub source: Source,
}

/// What lies below an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base<'a> {
    /// Nothing.
    None,
    /// This file, in this format.
    File(&'a Path, DiskFormat),
    /// A file of another host. Its name is replaced before a program opens what lies below.
    Replaced,
}

/// How large the disk in an image may be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// As large as this.
    Exactly(u64),
    /// No larger than this.
    AtMost(u64),
    /// Of any size.
    Any,
}

/// Who declares the format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user. A file that is declared raw and seems to be of another format is a mistake.
    User,
    /// Berth, which wrote the file. What a guest wrote may look like any format.
    Berth,
}

/// Why a file is not what it is declared to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It has another format.
    #[error("it is declared {}, and it seems to be {}", .declared.as_str(), .seen.map_or("raw", Known::name))]
    Format {
        /// The declared one.
        declared: DiskFormat,
        /// What it looks like.
        seen: Option<Known>,
    },
    /// Its header is refused.
    #[error(transparent)]
    Header(#[from] qcow2::Fault),
    /// It lies over another file than the declared one.
    #[error("it lies over {seen}, and is to lie over {declared}")]
    Base {
        /// What the image names.
        seen: String,
        /// What it may name.
        declared: String,
    },
    /// Its disk is too large, or too small.
    #[error("it holds a disk of {seen} bytes, and {declared} are declared")]
    Size {
        /// How large it is.
        seen: u64,
        /// How large it may be, in words.
        declared: String,
    },
}

impl Fault {
    /// Returns what to do, in the imperative.
    #[must_use]
    pub fn hint(&self) -> String {
        const CONVERT: &str = "qemu-img convert -O qcow2";
        match self {
            Self::Format { declared, seen } => match (declared, seen) {
                (DiskFormat::Raw, Some(Known::Qcow2)) => {
                    "declare it as qcow2, as in `--disk IMAGE:GIB:qcow2`".to_owned()
                }
                (DiskFormat::Qcow2, None) => {
                    "declare it as raw, as in `--disk IMAGE:GIB:raw`".to_owned()
                }
                (_, Some(known)) => {
                    format!("make an image with `{CONVERT} -f {}`", known.name())
                }
                (DiskFormat::Raw, None) => "repeat the request".to_owned(),
            },
            Self::Header(_) | Self::Base { .. } => format!(
                "make an image that stands alone with `{CONVERT}`, on a machine that may read \
                 whatever the image names"
            ),
            Self::Size { .. } => "give the disk the size of the image, or more".to_owned(),
        }
    }
}

/// Inspects a file.
///
/// # Errors
///
/// [`Error::ImageRefused`] when it is not what it is declared to be; [`Error::Refused`] when it cannot be
/// read.
pub fn inspect(path: &Path, declared: &Declared<'_>) -> Result<(), Error> {
    virtual_bytes(path, declared).map(|_| ())
}

/// Inspects a file, and returns the size of the disk in it.
///
/// # Errors
///
/// As [`inspect`].
pub fn virtual_bytes(path: &Path, declared: &Declared<'_>) -> Result<u64, Error> {
    let (head, length) = read_head(path)?;
    check(&head, length, declared).map_err(|fault| refused(path, &fault.to_string(), fault.hint()))
}

pub(crate) fn refused(path: &Path, why: &str, hint: String) -> Error {
    Error::ImageRefused {
        path: path.to_owned(),
        why: why.to_owned(),
        hint,
    }
}

/// Checks the first bytes of a file and its length against what is declared: all of its bytes, or at least
/// those of the longest header. Returns the size of the disk in it.
///
/// # Errors
///
/// In what it differs.
pub fn check(head: &[u8], length: u64, declared: &Declared<'_>) -> Result<u64, Fault> {
    let seen = recognize(head);
    let format = Fault::Format {
        declared: declared.format,
        seen,
    };
    let virtual_bytes = match declared.format {
        DiskFormat::Raw => {
            // The guest may have encrypted its own disk.
            let is_mistake = seen.is_some_and(|known| known != Known::Luks);
            if is_mistake && declared.source == Source::User {
                return Err(format);
            }
            length
        }
        DiskFormat::Qcow2 if seen != Some(Known::Qcow2) => return Err(format),
        DiskFormat::Qcow2 => {
            let header = qcow2::parse(head)?;
            check_base(header.backing.as_ref(), &declared.base)?;
            header.virtual_bytes
        }
    };
    check_size(virtual_bytes, declared.size)?;
    Ok(virtual_bytes)
}

fn check_base(seen: Option<&Backing>, declared: &Base<'_>) -> Result<(), Fault> {
    let is_same = match (seen, declared) {
        (None, Base::None) | (Some(_), Base::Replaced) => true,
        (Some(backing), Base::File(path, format)) => {
            backing.name == path.as_os_str().as_bytes()
                && backing.format.as_deref() == Some(format.as_str().as_bytes())
        }
        (Some(_), Base::None) | (None, Base::File(..) | Base::Replaced) => false,
    };
    if is_same {
        return Ok(());
    }
    Err(Fault::Base {
        seen: seen.map_or_else(|| "no file".to_owned(), describe),
        declared: match declared {
            Base::None => "none".to_owned(),
            Base::File(path, format) => format!("{} ({})", path.display(), format.as_str()),
            Base::Replaced => "the image of its disk".to_owned(),
        },
    })
}

/// Returns the name of a backing file for a message: whatever is in it, on one line and not too long.
fn describe(backing: &Backing) -> String {
    let show = |bytes: &[u8]| {
        bytes[..bytes.len().min(SHOWN_MAX)]
            .escape_ascii()
            .to_string()
    };
    let mut text = show(&backing.name);
    if let Some(format) = &backing.format {
        let _ = write!(text, " ({})", show(format));
    }
    text
}

fn check_size(seen: u64, declared: Size) -> Result<(), Fault> {
    let (is_right, declared) = match declared {
        Size::Exactly(bytes) => (seen == bytes, bytes.to_string()),
        Size::AtMost(bytes) => (seen <= bytes, format!("at most {bytes}")),
        Size::Any => return Ok(()),
    };
    match is_right {
        true => Ok(()),
        false => Err(Fault::Size { seen, declared }),
    }
}

/// Reads the first bytes of a file, and its length.
fn read_head(path: &Path) -> Result<(Vec<u8>, u64), Error> {
    let failed = |what: &str, error: &std::io::Error| {
        Error::refused(format!("{} cannot be {what}: {error}", path.display()))
    };
    let file = open(path).map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            return Error::refused(format!("{} is not there", path.display()));
        }
        failed("opened", &error)
    })?;
    let metadata = file.metadata().map_err(|error| failed("read", &error))?;
    if !metadata.is_file() {
        let hint = "put a file there".to_owned();
        return Err(refused(path, "it is no regular file", hint));
    }
    let mut head = Vec::new();
    let read = file.take(HEAD_MAX).read_to_end(&mut head);
    read.map_err(|error| failed("read", &error))?;
    Ok((head, metadata.len()))
}

/// Opens a file for reading; does not wait where it is a pipe.
///
/// # Errors
///
/// When the system refuses it.
pub fn open(path: &Path) -> std::io::Result<File> {
    #[expect(clippy::cast_possible_wrap, reason = "bits, not a number")]
    let flags = OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}
