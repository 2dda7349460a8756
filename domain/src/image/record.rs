//! Images of the cluster: what is known of them, and which hosts have them.
//!
//! Not here: their bytes, which are files of hosts.
//!
//! Invariant: what is in an image never changes. Another image of the same name has another file name, so
//! that no host takes one for the other, and a VM keeps the one that it was created from.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::{DiskFormat, ImageProperties};
use crate::digest;
use crate::fault::Fault;
use crate::id::{ImageUid, TimeMs};
use crate::name::{HostName, ImageName};
use crate::ownership::Ownership;
use crate::refusal::{Code, Refusal};

/// The most images of a cluster.
pub const IMAGES_MAX: usize = 10_000;

/// The longest image in bytes.
pub const IMAGE_BYTES_MAX: u64 = 1 << 43;

/// The most hosts of which is recorded that they have an image. Others fetch from these.
pub const COPIES_MAX: usize = 1024;

/// How many digits of its UUID are in the file name of an image.
const DIGITS: usize = 12;

/// The SHA-256 of the bytes of an image; as text 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256(pub [u8; 32]);

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        digest::write(&self.0, f)
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

/// A text is no SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a SHA-256, 64 hexadecimal digits")]
pub struct NoSha256;

impl FromStr for Sha256 {
    type Err = NoSha256;

    fn from_str(text: &str) -> Result<Self, NoSha256> {
        digest::read(text.chars()).map(Self).ok_or(NoSha256)
    }
}

/// What is in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageContent {
    /// How long its file is.
    pub length_bytes: u64,
    /// How large the disk in it is.
    pub virtual_bytes: u64,
    /// The checksum of the file.
    pub sha256: Sha256,
}

/// The file of an image on hosts, as `debian-12@3f6c1d2e7b1a`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageFile {
    name: ImageName,
    digits: String,
}

impl ImageFile {
    /// Returns the file of an image.
    #[must_use]
    pub fn new(name: ImageName, uid: ImageUid) -> Self {
        // The last digits are random in every version of UUIDs that is used.
        let digits = uid.0.simple().to_string().split_off(32 - DIGITS);
        Self { name, digits }
    }

    /// Returns the number that is in it.
    #[must_use]
    pub fn number(&self) -> u64 {
        u64::from_str_radix(&self.digits, 16).unwrap_or_default()
    }

    /// Returns the name of the image.
    #[must_use]
    pub fn name(&self) -> &ImageName {
        &self.name
    }
}

impl fmt::Display for ImageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.digits)
    }
}

impl fmt::Debug for ImageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// A text is not the file name of an image of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the file name of an image of the cluster, as debian-12@3f6c1d2e7b1a")]
pub struct NoImageFile;

impl FromStr for ImageFile {
    type Err = NoImageFile;

    fn from_str(text: &str) -> Result<Self, NoImageFile> {
        let (name, digits) = text.split_once('@').ok_or(NoImageFile)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if digits.len() != DIGITS || !digits.bytes().all(is_digit) {
            return Err(NoImageFile);
        }
        Ok(Self {
            name: ImageName::new(name).map_err(|_| NoImageFile)?,
            digits: digits.to_owned(),
        })
    }
}

/// An image of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    /// Its name.
    pub name: ImageName,
    /// This image; another one of the same name has another.
    pub uid: ImageUid,
    /// The format of its file, as it was declared.
    pub format: DiskFormat,
    /// What a guest that is made from it requires.
    pub properties: ImageProperties,
    /// What is in it; absent until the first host has all of it.
    pub content: Option<ImageContent>,
    /// The hosts that have it.
    pub copies: BTreeSet<HostName>,
    /// The project that it belongs to, and who added it.
    pub ownership: Ownership,
    /// When it was begun to be added.
    pub created_at: TimeMs,
}

impl Image {
    /// Returns its file.
    #[must_use]
    pub fn file(&self) -> ImageFile {
        ImageFile::new(self.name.clone(), self.uid)
    }

    /// Returns what is in it.
    ///
    /// # Errors
    ///
    /// `IMAGE_NOT_READY` while it is being added.
    pub fn ready(&self) -> Result<&ImageContent, Refusal> {
        let name = &self.name;
        self.content.as_ref().ok_or_else(|| {
            let message = format!("image {name} is still being added");
            Refusal::new(Code::FailedPrecondition, "IMAGE_NOT_READY", message)
                .with("image", name)
                .with_hint(format!(
                    "`berth image show {name}` shows when it is ready; if adding it was broken off, remove \
                     it: `berth image remove {name}`"
                ))
        })
    }

    /// Checks what a disk that is made from it is declared to be.
    ///
    /// # Errors
    ///
    /// All faults at once.
    pub fn check_disk(
        &self,
        field: &str,
        format: DiskFormat,
        size_bytes: u64,
        faults: &mut Vec<Fault>,
    ) {
        let name = &self.name;
        if format != self.format {
            let field = format!("{field}.format");
            let rule = format!(
                "must be {}, the format of image {name}",
                self.format.as_str()
            );
            faults.push(Fault::new(field, format.as_str(), rule));
        }
        let Some(content) = &self.content else {
            return;
        };
        if content.virtual_bytes > size_bytes {
            let gib = content.virtual_bytes.div_ceil(1 << 30);
            let rule = format!("must be at least {gib}, the size of image {name}");
            faults.push(Fault::new(
                format!("{field}.size_gib"),
                size_bytes >> 30,
                rule,
            ));
        }
    }
}

/// Returns the refusal of an image that is not known.
#[must_use]
pub fn not_found(image: impl fmt::Display) -> Refusal {
    Refusal::not_found("image", image).with_hint("the images are listed by `berth image list`")
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Goal: the file of an image is read as it was written, and no other text is taken for one.
    #[test]
    fn files_are_read_as_they_were_written() {
        let name = ImageName::new("debian-12").unwrap();
        let uid = ImageUid(Uuid::from_u128(0x0123_4567_89ab_7def_8123_3f6c_1d2e_7b1a));
        let file = ImageFile::new(name, uid);
        assert_eq!(file.to_string(), "debian-12@3f6c1d2e7b1a");
        assert_eq!(file.number(), 0x3f6c_1d2e_7b1a);
        assert_eq!("debian-12@3f6c1d2e7b1a".parse(), Ok(file));
        for text in [
            "debian-12",
            "debian-12@",
            "@3f6c1d2e7b1a",
            "debian-12@3F6C1D2E7B1A",
            "debian-12@3f6c1d2e7b1",
            "debian-12@3f6c1d2e7b1a0",
            "a@b@3f6c1d2e7b1a",
            "a/b@3f6c1d2e7b1a",
            ".a@3f6c1d2e7b1a",
        ] {
            assert_eq!(text.parse::<ImageFile>(), Err(NoImageFile), "{text}");
        }
    }

    #[test]
    fn checksums_are_read_as_they_were_written() {
        let sum = Sha256([0xa5; 32]);
        assert_eq!(sum.to_string().parse(), Ok(sum));
        assert_eq!(sum.to_string().to_uppercase().parse(), Ok(sum));
        for text in [
            "",
            "a5",
            &"a5".repeat(33),
            &"g5".repeat(32),
            &"ä".repeat(32),
        ] {
            assert_eq!(text.parse::<Sha256>(), Err(NoSha256), "{text}");
        }
    }
}
