//! The formats of images.

use serde::{Deserialize, Serialize};

/// The format of a disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DiskFormat {
    /// QEMU's copy-on-write format.
    Qcow2,
    /// Plain bytes.
    Raw,
}

impl DiskFormat {
    /// Returns its name, as QEMU has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}
