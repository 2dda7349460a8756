//! Configuration of the images that a host downloads: the table `[images]`. What is made of the addresses is
//! in `images::download::address`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use berth_domain::image::IMAGE_BYTES_MAX;
use berth_process::Keys;
use berth_process::configuration::check_bounds;
use serde::Deserialize;

/// A range of addresses, as `10.0.0.0/8`, or one, as `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Returns whether an address is in the range. None of IPv6 is in one of IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let ignored = 32 - u32::from(self.length);
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(ignored).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let ignored = 128 - u32::from(self.length);
                let differs = own.to_bits() ^ other.to_bits();
                differs.checked_shr(ignored).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is no address or range of addresses, as 10.0.0.0/8");
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) => length.parse().map_err(|_| invalid())?,
            None => max,
        };
        match length <= max {
            true => Ok(Self { address, length }),
            false => Err(invalid()),
        }
    }
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Configuration of downloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Addresses that the host connects to although they are loopback, link-local or of that kind.
    pub allow_addresses: Vec<Prefix>,
    /// Addresses that the host does not connect to. They go before those that are allowed.
    pub refuse_addresses: Vec<Prefix>,
    /// The CAs that are trusted for servers with https; those of the system if absent.
    pub download_ca: Option<PathBuf>,
    /// The longest image that is downloaded.
    pub download_mib_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            allow_addresses: Vec::new(),
            refuse_addresses: Vec::new(),
            download_ca: None,
            download_mib_max: 1 << 20,
        }
    }
}

impl Settings {
    pub(crate) fn read(&mut self, keys: &mut Keys) {
        keys.take_each("allow_addresses", &mut self.allow_addresses);
        keys.take_each("refuse_addresses", &mut self.refuse_addresses);
        keys.take_some("download_ca", &mut self.download_ca);
        keys.take("download_mib_max", &mut self.download_mib_max);
    }

    pub(crate) fn validate(&self, faults: &mut Vec<String>) {
        let max = IMAGE_BYTES_MAX >> 20;
        let bounded = ("images.download_mib_max", self.download_mib_max, 1, max);
        check_bounds([bounded], faults);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a range holds its addresses and no other. Method: those at both sides of its ends.
    #[test]
    fn ranges_hold_their_addresses() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("10.1.2.3/8", "10.0.0.0", "9.255.255.255"),
            ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("::1", "::1", "::2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "ffff::", "0.0.0.0"),
        ] {
            let prefix: Prefix = range.parse().expect("a range");
            assert!(prefix.contains(inside.parse().unwrap()), "{range}");
            assert!(!prefix.contains(outside.parse().unwrap()), "{range}");
            assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
        for text in [
            "",
            "a",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/",
            "::1/-1",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_settings_are_refused() {
        let mut settings = Settings::default();
        let mut faults = Vec::new();
        settings.validate(&mut faults);
        assert_eq!(faults, [""; 0]);
        for mib in [0, (IMAGE_BYTES_MAX >> 20) + 1] {
            settings.download_mib_max = mib;
            settings.validate(&mut faults);
        }
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
