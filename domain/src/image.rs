//! Images: their properties, and those that the cluster has.
//!
//! Properties are what the image's maker knows of the guest inside: text, as OpenStack Glance keeps them.
//! What they require is read together with the flavor's extra specs: see
//! [`crate::flavor::Flavor::requirements`].

mod format;
mod record;
mod url;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use format::DiskFormat;
pub use record::{
    COPIES_MAX, IMAGE_BYTES_MAX, IMAGES_MAX, Image, ImageContent, ImageFile, NoImageFile, NoSha256,
    Sha256, not_found,
};
pub use url::{ImageDownload, ImageUrl, InvalidUrl, Scheme, URL_LENGTH_MAX};

/// The most properties of an image.
pub const PROPERTIES_MAX: usize = 256;
/// The longest key or value of a property.
pub const PROPERTY_LENGTH_MAX: usize = 255;

/// The properties of an image, as `hw_cpu_policy` = `dedicated`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageProperties(pub BTreeMap<String, String>);

impl ImageProperties {
    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
