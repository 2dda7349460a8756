//! A PCI function of a host.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ParseError, PciAddress, hexadecimal, request};
use crate::cell_id::CellId;

/// A vendor's or product's number, as `8086`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciId(pub u16);

impl fmt::Display for PciId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}", self.0)
    }
}

impl FromStr for PciId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        hexadecimal(text, 4..=4)
            .and_then(|number| u16::try_from(number).ok())
            .map(Self)
            .ok_or_else(|| ParseError::new(text, "a PCI number of four hexadecimal digits"))
    }
}

impl TryFrom<String> for PciId {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<PciId> for String {
    fn from(id: PciId) -> Self {
        id.to_string()
    }
}

/// What kind of function it is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PciKind {
    /// A function without SR-IOV.
    #[default]
    Pci,
    /// A virtual function: it shares the hardware of its physical one.
    Virtual,
    /// A physical function with SR-IOV. A guest gets one only if it requests this kind; then
    /// no other guest gets its virtual functions.
    Physical,
}

/// A PCI function that a host has for guests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PciDevice {
    /// Where it is.
    pub address: PciAddress,
    /// Who made it.
    pub vendor: PciId,
    /// What it is.
    pub product: PciId,
    /// The cell that it is attached to; absent where the host does not report it.
    pub cell: Option<CellId>,
    /// Its kind.
    pub kind: PciKind,
    /// The physical function of a virtual one, whether or not the host has that one for guests.
    pub parent: Option<PciAddress>,
    /// What else is known of it, as `physical_network`; values are compared regardless of case.
    pub tags: BTreeMap<String, String>,
}

impl PciDevice {
    /// Returns whether a guest that has it can be moved while it runs.
    #[must_use]
    pub fn is_live_migratable(&self) -> bool {
        request::says_yes(&self.tags)
    }
}
