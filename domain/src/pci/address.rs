//! Where a PCI function is on its host.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ParseError, hexadecimal};

/// The address of a PCI function, as `0000:81:00.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    slot: u8,
    function: u8,
}

impl PciAddress {
    /// Returns the segment of the machine's PCI buses.
    #[must_use]
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// Returns the bus.
    #[must_use]
    pub fn bus(self) -> u8 {
        self.bus
    }

    /// Returns the slot, below 32.
    #[must_use]
    pub fn slot(self) -> u8 {
        self.slot
    }

    /// Returns the function, below 8.
    #[must_use]
    pub fn function(self) -> u8 {
        self.function
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            slot,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{slot:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = ParseError;

    /// Reads `domain:bus:slot.function`, all hexadecimal: 4 to 8, 2, 2 and 1 digits.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let read = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (slot, function) = rest.split_once('.')?;
            let small =
                |text, digits: usize| u8::try_from(hexadecimal(text, digits..=digits)?).ok();
            Some(Self {
                domain: hexadecimal(domain, 4..=8)?,
                bus: small(bus, 2)?,
                slot: small(slot, 2).filter(|slot| *slot < 32)?,
                function: small(function, 1).filter(|function| *function < 8)?,
            })
        };
        read().ok_or_else(|| ParseError::new(text, "a PCI address as 0000:81:00.1"))
    }
}

impl TryFrom<String> for PciAddress {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_text() {
        let read = |text: &str| text.parse::<PciAddress>().map(|a| a.to_string()).ok();
        for good in ["0000:81:00.1", "ffffffff:ff:1f.7"] {
            assert_eq!(read(good).as_deref(), Some(good));
        }
        assert_eq!(read("000A:0B:1F.0").as_deref(), Some("000a:0b:1f.0"));
        for bad in [
            "",
            "81:00.1",
            "0000:81:00",
            "0000:81:20.0",
            "0000:81:00.8",
            "000g:81:00.1",
            "0000:+1:00.1",
            "123456789:81:00.1",
            "0000:81:00.1 ",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
