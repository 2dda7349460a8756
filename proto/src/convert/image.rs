//! Images of the cluster, and the pieces in which their bytes are sent.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::image::{
    COPIES_MAX, IMAGE_BYTES_MAX, Image, ImageContent, ImageDownload, ImageFile, ImageProperties,
    ImageUrl, PROPERTIES_MAX, PROPERTY_LENGTH_MAX, Sha256,
};
use berth_domain::name::HostName;

use super::field::{self, Invalid};
use super::name::ResourceName;
use super::ownership::{self, write_project};
use crate::image::v1;
use crate::types::v1 as types;
use crate::types::v1::disk::Format;

/// The most bytes of a piece of an image.
pub const IMAGE_PIECE_MAX: usize = 1 << 20;

/// The most zeros of a piece of an image.
pub const IMAGE_ZEROS_MAX: u64 = 1 << 30;

impl From<&Image> for v1::Image {
    fn from(image: &Image) -> Self {
        Self {
            name: image.name.resource_name(),
            uid: image.uid.to_string(),
            format: Format::from(image.format).into(),
            properties: image.properties.0.clone(),
            content: image.content.as_ref().map(Into::into),
            copies: image.copies.iter().map(HostName::resource_name).collect(),
            file_name: image.file().to_string(),
            project: write_project(image.ownership.project.as_ref()),
            creator: image.ownership.creator.clone(),
            create_time: Some(field::timestamp(image.created_at)),
            copy_count: 0,
        }
    }
}

impl TryFrom<v1::Image> for Image {
    type Error = Invalid;

    /// The file name follows from name and UUID. One that is to be added leaves the time open; it reads as
    /// the epoch then, and the state writes its own.
    fn try_from(wire: v1::Image) -> Result<Self, Invalid> {
        field::bounded(wire.copies.len(), "copies", COPIES_MAX)?;
        let host = |name: &String| field::name(name, "copies");
        let created_at = field::optional_time(wire.create_time, "create_time")?;
        Ok(Self {
            name: field::name(&wire.name, "name")?,
            uid: field::uuid(&wire.uid, "uid")?,
            format: field::choice::<Format, _>(wire.format, "format")?,
            properties: read_properties(wire.properties, "properties")?,
            content: field::optional(wire.content, "content")?,
            copies: wire
                .copies
                .iter()
                .map(host)
                .collect::<Result<BTreeSet<_>, _>>()?,
            ownership: ownership::read(&wire.project, wire.creator)?,
            created_at: created_at.unwrap_or_default(),
        })
    }
}

impl From<&ImageContent> for types::ImageContent {
    fn from(content: &ImageContent) -> Self {
        Self {
            length_bytes: content.length_bytes,
            virtual_bytes: content.virtual_bytes,
            sha256: content.sha256.0.to_vec().into(),
        }
    }
}

impl TryFrom<types::ImageContent> for ImageContent {
    type Error = Invalid;

    fn try_from(wire: types::ImageContent) -> Result<Self, Invalid> {
        for (field, bytes) in [
            ("length_bytes", wire.length_bytes),
            ("virtual_bytes", wire.virtual_bytes),
        ] {
            if bytes > IMAGE_BYTES_MAX {
                let rule = format!("may be {IMAGE_BYTES_MAX} at most");
                return Err(Invalid::new(field, rule));
            }
        }
        Ok(Self {
            length_bytes: wire.length_bytes,
            virtual_bytes: wire.virtual_bytes,
            sha256: read_sha256(&wire.sha256, "sha256")?,
        })
    }
}

impl From<&ImageDownload> for types::ImageDownload {
    fn from(download: &ImageDownload) -> Self {
        let sha256 = download.sha256.map(|sum| sum.0.to_vec().into());
        Self {
            url: download.url.as_str().to_owned(),
            sha256: sha256.unwrap_or_default(),
        }
    }
}

impl TryFrom<types::ImageDownload> for ImageDownload {
    type Error = Invalid;

    fn try_from(wire: types::ImageDownload) -> Result<Self, Invalid> {
        // The error does not repeat the URL, which may have what gives access.
        let url = wire.url.parse::<ImageUrl>();
        Ok(Self {
            url: url.map_err(|why| Invalid::new("url", why.to_string()))?,
            sha256: read_optional_sha256(&wire.sha256, "sha256")?,
        })
    }
}

/// Reads the properties of an image.
///
/// # Errors
///
/// When there are too many, or one is too long.
pub fn read_properties(
    wire: BTreeMap<String, String>,
    field: &str,
) -> Result<ImageProperties, Invalid> {
    field::text_map(wire, field, PROPERTIES_MAX, PROPERTY_LENGTH_MAX).map(ImageProperties)
}

/// Reads a checksum.
///
/// # Errors
///
/// When it does not have 32 bytes.
pub fn read_sha256(wire: &[u8], field: &str) -> Result<Sha256, Invalid> {
    let bytes = wire.try_into();
    bytes
        .map(Sha256)
        .map_err(|_| Invalid::new(field, "must have 32 bytes"))
}

/// Reads a checksum that may be left out.
///
/// # Errors
///
/// When it has another number of bytes than 32.
pub fn read_optional_sha256(wire: &[u8], field: &str) -> Result<Option<Sha256>, Invalid> {
    match wire.is_empty() {
        true => Ok(None),
        false => read_sha256(wire, field).map(Some),
    }
}

/// Reads the file name of an image.
///
/// # Errors
///
/// When it is none.
pub fn read_file(wire: &str, field: &str) -> Result<ImageFile, Invalid> {
    wire.parse()
        .map_err(|rule| Invalid::new(field, format!("{rule}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a download is read as it was written, and one that is refused is not repeated.
    #[test]
    fn downloads_are_read_as_they_were_written() {
        for sha256 in [None, Some(Sha256([7; 32]))] {
            let url = "https://a.example/x?token=y".parse().unwrap();
            let download = ImageDownload { url, sha256 };
            assert_eq!(
                types::ImageDownload::from(&download).try_into(),
                Ok(download)
            );
        }
        for (url, sum, field) in [
            ("https://user:secret@a/x", 0, "url"),
            ("file:///secret", 0, "url"),
            ("https://a/secret", 31, "sha256"),
        ] {
            let wire = types::ImageDownload {
                url: url.to_owned(),
                sha256: vec![1; sum].into(),
            };
            let error = ImageDownload::try_from(wire).unwrap_err();
            assert_eq!(error.path, field, "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
