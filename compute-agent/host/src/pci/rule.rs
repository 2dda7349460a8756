//! The operator's rules for PCI functions: which are for guests, and their properties.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use berth_domain::pci::{LIVE_MIGRATABLE, PciAddress, PciId};
use serde::Deserialize;

use super::function::Function;

/// The longest key or value of a tag, in characters.
const TAG_LENGTH_MAX: usize = 255;
/// The most tags of a rule.
const TAGS_MAX: usize = 64;

/// An address in which a part may be any: `0000:81:*.*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct AddressPattern {
    domain: Option<u32>,
    bus: Option<u8>,
    slot: Option<u8>,
    function: Option<u8>,
}

/// A text is not an [`AddressPattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a PCI address as 0000:81:00.1, of which any part may be *")]
pub struct NoPattern;

impl FromStr for AddressPattern {
    type Err = NoPattern;

    fn from_str(text: &str) -> Result<Self, NoPattern> {
        let (domain, rest) = text.split_once(':').ok_or(NoPattern)?;
        let (bus, rest) = rest.split_once(':').ok_or(NoPattern)?;
        let (slot, function) = rest.split_once('.').ok_or(NoPattern)?;
        // With zeros for what may be any, the rest is an address like others.
        let zeros = |part: &str, zeros: &'static str| match part {
            "*" => zeros.to_owned(),
            _ => part.to_owned(),
        };
        let address = format!(
            "{}:{}:{}.{}",
            zeros(domain, "0000"),
            zeros(bus, "00"),
            zeros(slot, "00"),
            zeros(function, "0")
        );
        let address: PciAddress = address.parse().map_err(|_| NoPattern)?;
        Ok(Self {
            domain: (domain != "*").then(|| address.domain()),
            bus: (bus != "*").then(|| address.bus()),
            slot: (slot != "*").then(|| address.slot()),
            function: (function != "*").then(|| address.function()),
        })
    }
}

impl TryFrom<String> for AddressPattern {
    type Error = NoPattern;

    fn try_from(text: String) -> Result<Self, NoPattern> {
        text.parse()
    }
}

impl fmt::Display for AddressPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |part: Option<u32>, digits: usize| {
            part.map_or("*".to_owned(), |part| format!("{part:0digits$x}"))
        };
        write!(
            f,
            "{}:{}:{}.{}",
            hex(self.domain, 4),
            hex(self.bus.map(u32::from), 2),
            hex(self.slot.map(u32::from), 2),
            hex(self.function.map(u32::from), 1)
        )
    }
}

impl AddressPattern {
    fn accepts(&self, address: PciAddress) -> bool {
        self.domain.is_none_or(|part| part == address.domain())
            && self.bus.is_none_or(|part| part == address.bus())
            && self.slot.is_none_or(|part| part == address.slot())
            && self.function.is_none_or(|part| part == address.function())
    }

    /// Returns whether it is one address and no other.
    fn is_exact(&self) -> bool {
        self.domain.is_some()
            && self.bus.is_some()
            && self.slot.is_some()
            && self.function.is_some()
    }
}

/// Selects functions for guests. Every condition that is set must match; the first
/// rule that matches a function decides about its tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Their vendor.
    pub vendor_id: Option<PciId>,
    /// What they are.
    pub product_id: Option<PciId>,
    /// Where they are. An exact address of a physical function stands for its virtual ones too.
    pub address: Option<AddressPattern>,
    /// The network device that one is; of a physical function it stands for its virtual ones too.
    pub devname: Option<String>,
    /// The network that they are connected to: the tag `physical_network`.
    pub physical_network: Option<String>,
    /// Whether a guest with one of them can be moved while it runs: the tag `live_migratable`,
    /// `yes` or `no`.
    pub live_migratable: Option<bool>,
    /// Their other properties.
    pub tags: BTreeMap<String, String>,
}

impl Rule {
    /// Returns what is wrong with the rule itself, whatever machine it is for.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.address.is_some() && self.devname.is_some() {
            faults.push("has an address and a devname: one of them is enough".to_owned());
        }
        let selects = self.vendor_id.is_some()
            || self.product_id.is_some()
            || self.address.is_some()
            || self.devname.is_some();
        if !selects {
            let fault = "names no function: give it vendor_id, product_id, address or devname";
            faults.push(fault.to_owned());
        }
        if self.physical_network.is_some() && self.tags.contains_key("physical_network") {
            faults.push("has physical_network twice, once among its tags".to_owned());
        }
        if self.tags.contains_key(LIVE_MIGRATABLE) {
            let fault = "has live_migratable among its tags: it is a key of its own, true or false";
            faults.push(fault.to_owned());
        }
        let texts = self.tags.iter().flat_map(|(key, value)| [key, value]);
        let mut texts = texts.chain(&self.physical_network);
        let is_wrong = |t: &String| t.is_empty() || t.chars().count() > TAG_LENGTH_MAX;
        if self.tags.len() >= TAGS_MAX || texts.any(is_wrong) {
            faults.push(format!(
                "has more than {TAGS_MAX} tags, or one that is not 1 to {TAG_LENGTH_MAX} characters long"
            ));
        }
        faults
    }

    /// Returns what it names one function by, if it names exactly one.
    pub(super) fn name(&self) -> Option<Name<'_>> {
        let address = self.address.as_ref().filter(|a| a.is_exact());
        let devname = self.devname.as_deref().map(Name::Device);
        devname.or_else(|| address.map(Name::Address))
    }

    /// Returns whether vendor and product are those of the function.
    pub(super) fn accepts_model(&self, function: &Function) -> bool {
        self.vendor_id.is_none_or(|id| id == function.vendor)
            && self.product_id.is_none_or(|id| id == function.product)
    }

    /// Returns whether the function is one that the rule describes without naming it.
    pub(super) fn accepts(&self, function: &Function) -> bool {
        self.accepts_model(function) && self.address.is_none_or(|a| a.accepts(function.address))
    }

    /// Returns the tags of the functions that it decides about.
    pub(super) fn all_tags(&self) -> BTreeMap<String, String> {
        let network = self.physical_network.clone();
        let network = network.map(|network| ("physical_network".to_owned(), network));
        let movable = self.live_migratable.map(|yes| {
            let word = if yes { "yes" } else { "no" };
            (LIVE_MIGRATABLE.to_owned(), word.to_owned())
        });
        let said = network.into_iter().chain(movable);
        self.tags.clone().into_iter().chain(said).collect()
    }
}

/// What a rule names one function by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Address(&'a AddressPattern),
    Device(&'a str),
}

impl Name<'_> {
    pub(super) fn is(&self, function: &Function) -> bool {
        match self {
            Self::Address(address) => address.accepts(function.address),
            Self::Device(name) => function.devnames.contains(*name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_an_address_of_which_parts_may_be_any() {
        let address: PciAddress = "0000:81:00.1".parse().unwrap();
        for (text, expected) in [
            ("0000:81:00.1", true),
            ("*:*:*.*", true),
            ("0000:81:*.*", true),
            ("*:81:00.*", true),
            ("0000:82:*.*", false),
            ("0001:*:*.*", false),
            ("*:*:*.2", false),
        ] {
            let pattern: AddressPattern = text.parse().unwrap();
            assert_eq!(pattern.accepts(address), expected, "{text}");
            assert_eq!(pattern.to_string(), text);
        }
        for bad in [
            "",
            "*",
            "81:00.1",
            "0000:81",
            "0000:81:*",
            "0000:8*:00.1",
            "0:81:00.1",
        ] {
            assert_eq!(bad.parse::<AddressPattern>(), Err(NoPattern), "{bad}");
        }
    }
}
