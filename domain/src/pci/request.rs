//! What a guest requests: a number of PCI functions, and how near they must be.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{LIVE_MIGRATABLE, PciDevice, PciId, PciKind};

/// How near a function must be to the host cells that the guest sits on, all of them together
/// (`hw:pci_numa_affinity_policy`). A guest without cells does not care.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PciNumaPolicy {
    /// On one of these cells.
    Required,
    /// On one of these cells, or anywhere if there is none.
    Preferred,
    /// On one of these cells, or its cell is not known.
    #[default]
    Legacy,
    /// On a cell of the same socket as one of these cells. Where the socket of any cell of the
    /// host is not known, as [`Self::Required`].
    Socket,
}

/// What a function must be like: everything that is given must be so.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PciMatch {
    /// Who made it.
    pub vendor: Option<PciId>,
    /// What it is.
    pub product: Option<PciId>,
    /// Its kind.
    pub kind: Option<PciKind>,
    /// Tags that it must have, with values that are compared regardless of case.
    pub tags: BTreeMap<String, String>,
}

/// A request for some equal PCI functions (`pci_passthrough:alias`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PciRequest {
    /// How many.
    pub count: u32,
    /// What each must be like: one of these, at least one.
    pub any_of: Vec<PciMatch>,
    /// How near they must be.
    pub policy: PciNumaPolicy,
}

impl PciMatch {
    /// Returns whether a function is like this.
    #[must_use]
    pub fn accepts(&self, device: &PciDevice) -> bool {
        let has_tag = |(key, value): (&String, &String)| {
            let unsaid = (key == LIVE_MIGRATABLE).then_some("no");
            let tag = device.tags.get(key).map(String::as_str).or(unsaid);
            tag.is_some_and(|tag| tag.eq_ignore_ascii_case(value))
        };
        self.vendor.is_none_or(|vendor| vendor == device.vendor)
            && self.product.is_none_or(|product| product == device.product)
            && self.kind.is_none_or(|kind| kind == device.kind)
            && self.tags.iter().all(has_tag)
    }
}

impl PciRequest {
    /// Returns whether only functions are requested with which a guest can be moved while it runs.
    #[must_use]
    pub fn is_live_migratable(&self) -> bool {
        let says_yes = |m: &PciMatch| says_yes(&m.tags);
        self.any_of.iter().all(says_yes)
    }

    /// Returns whether a function is one that is requested, wherever it is. Whole physical
    /// functions are given only to those that request them by their kind.
    #[must_use]
    pub fn accepts(&self, device: &PciDevice) -> bool {
        let asks_physical = || {
            let mut kinds = self.any_of.iter().map(|m| m.kind);
            kinds.any(|kind| kind == Some(PciKind::Physical))
        };
        (device.kind != PciKind::Physical || asks_physical())
            && self.any_of.iter().any(|m| m.accepts(device))
    }
}

/// Returns whether tags state that a guest can be moved while it runs.
pub(super) fn says_yes(tags: &BTreeMap<String, String>) -> bool {
    let tag = tags.get(LIVE_MIGRATABLE);
    tag.is_some_and(|tag| tag.eq_ignore_ascii_case("yes"))
}

impl fmt::Display for PciMatch {
    /// Writes `8086:1572` and what else is requested.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |id: Option<PciId>| id.map_or_else(|| "*".to_owned(), |id| id.to_string());
        write!(f, "{}:{}", id(self.vendor), id(self.product))?;
        match self.kind {
            None => {}
            Some(PciKind::Pci) => f.write_str(" (PCI)")?,
            Some(PciKind::Virtual) => f.write_str(" (VF)")?,
            Some(PciKind::Physical) => f.write_str(" (PF)")?,
        }
        for (key, value) in &self.tags {
            write!(f, " {key}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PciRequest {
    /// Writes what a function must be like.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.any_of.iter().enumerate() {
            if index > 0 {
                f.write_str(" or ")?;
            }
            one.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(kind: PciKind) -> PciDevice {
        PciDevice {
            address: "0000:81:00.1".parse().unwrap(),
            vendor: PciId(0x8086),
            product: PciId(0x1572),
            cell: None,
            kind,
            parent: None,
            tags: [("physical_network".to_owned(), "Blue".to_owned())].into(),
        }
    }

    /// Goal: every requirement must be met, and one of the alternatives is enough.
    #[test]
    fn a_function_is_like_one_of_the_alternatives() {
        let vendor = |vendor| PciMatch {
            vendor: Some(PciId(vendor)),
            ..PciMatch::default()
        };
        let tagged = |value: &str| PciMatch {
            tags: [("physical_network".to_owned(), value.to_owned())].into(),
            ..vendor(0x8086)
        };
        let kind = |kind| PciMatch {
            kind: Some(kind),
            ..vendor(0x8086)
        };
        let migratable = |value: &str| PciMatch {
            tags: [(LIVE_MIGRATABLE.to_owned(), value.to_owned())].into(),
            ..vendor(0x8086)
        };
        for (any_of, have, expected) in [
            (vec![vendor(0x8086)], PciKind::Pci, true),
            (vec![vendor(0x10de)], PciKind::Pci, false),
            (vec![vendor(0x10de), vendor(0x8086)], PciKind::Virtual, true),
            (vec![tagged("bLUE")], PciKind::Pci, true),
            (vec![tagged("red")], PciKind::Pci, false),
            (vec![vendor(0x8086)], PciKind::Physical, false),
            (vec![kind(PciKind::Physical)], PciKind::Physical, true),
            (vec![kind(PciKind::Virtual)], PciKind::Physical, false),
            (vec![migratable("yes")], PciKind::Pci, false),
            (vec![migratable("no")], PciKind::Pci, true),
        ] {
            let request = PciRequest {
                count: 1,
                any_of,
                policy: PciNumaPolicy::default(),
            };
            assert_eq!(request.accepts(&device(have)), expected, "{request}");
        }
    }
}
