//! Which addresses a host connects to for a download.
//!
//! A URL may be one that its user was given, and its server may redirect to any other; what answers becomes an
//! image that guests read. So what only this host reaches is not reached: its own services, its link, and
//! what its cloud reports to machines of themselves. Private addresses are reached, as mirrors have them, and
//! those who may add images may attach guests to networks anyway; an operator excludes those of services.
//!
//! Not here: how a name is resolved. Invariant: the address that is checked is the one that is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::images::Settings;

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What any host may be reached at, private addresses among them.
    Ordinary,
    /// Special, and connected to where the configuration allows it.
    Special(&'static str),
    /// No address of one host.
    Never(&'static str),
}

/// Metadata services of clouds, which serve credentials too, at addresses that are not link-local.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Returns why the host does not connect to an address; nothing where it does.
pub(super) fn refusal(settings: &Settings, address: IpAddr) -> Option<&'static str> {
    let inner = inner(address);
    let is_in =
        |prefix: &crate::config::images::Prefix| prefix.contains(address) || prefix.contains(inner);
    if settings.refuse_addresses.iter().any(is_in) {
        return Some("its agent is configured to refuse it");
    }
    match kind(inner) {
        Kind::Ordinary => None,
        Kind::Special(_) if settings.allow_addresses.iter().any(is_in) => None,
        Kind::Special(why) | Kind::Never(why) => Some(why),
    }
}

/// Returns the IPv4 address that an IPv6 address stands for, wherever packets to it may end at that.
fn inner(address: IpAddr) -> IpAddr {
    let IpAddr::V6(outer) = address else {
        return address;
    };
    let parts = outer.segments();
    let at = |at: usize| {
        let bits = u32::from(parts[at]) << 16 | u32::from(parts[at + 1]);
        IpAddr::V4(Ipv4Addr::from_bits(bits))
    };
    match parts {
        // Of the range of compatible addresses, these two are their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => address,
        // Mapped, compatible, translated, and translated by NAT64.
        [0, 0, 0, 0, 0, 0xffff | 0, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => at(6),
        // 6to4.
        [0x2002, ..] => at(1),
        [..] => address,
    }
}

/// Returns what an address is, which stands for no other.
fn kind(address: IpAddr) -> Kind {
    if METADATA.contains(&address) {
        return Kind::Special("it is the metadata service of a cloud");
    }
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Kind {
    match address.octets() {
        [0, ..] => Kind::Never("it is unspecified"),
        [127, ..] => Kind::Special("it is a loopback address"),
        [169, 254, ..] => Kind::Special("it is a link-local address"),
        [224..=239, ..] => Kind::Never("it is a multicast address"),
        [240..=255, ..] => Kind::Never("it is reserved, or a broadcast address"),
        [..] => Kind::Ordinary,
    }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Kind::Never("it is unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Kind::Special("it is a loopback address"),
        [0xfe80..=0xfebf, ..] => Kind::Special("it is a link-local address"),
        [0xfec0..=0xfeff, ..] => Kind::Special("it is a site-local address"),
        [0xff00..=0xffff, ..] => Kind::Never("it is a multicast address"),
        // They hold an IPv4 address in a form that depends on the network, or that is obscured.
        [0x64, 0xff9b, 1, ..] | [0x2001, 0, ..] => {
            Kind::Special("it stands for an address that is not known here")
        }
        [..] => Kind::Ordinary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &Settings, address: &str) -> Option<&'static str> {
        refusal(settings, address.parse().expect("an address"))
    }

    /// Every kind of address in both families, and whether it is reached: always, where it is allowed, never.
    const TABLE: &[(&str, &[&str])] = &[
        (
            "always",
            &[
                "192.0.2.1",
                "8.8.8.8",
                "1.0.0.0",
                "126.255.255.255",
                "128.0.0.0",
                "169.253.255.255",
                "169.255.0.0",
                "223.255.255.255",
                "10.0.0.1",
                "172.16.0.1",
                "192.168.1.1",
                "100.64.0.1",
                "192.0.0.191",
                "2001:db8::1",
                "2606:4700::1",
                "fd00::1",
                "fc00::1",
                "fe7f::1",
                "::ffff:192.0.2.1",
                "::ffff:10.0.0.1",
                "64:ff9b::192.0.2.1",
                "2002:c000:201::1",
                "2001:1::1",
            ],
        ),
        (
            "where allowed",
            &[
                "127.0.0.1",
                "127.0.0.0",
                "127.255.255.255",
                "169.254.169.254",
                "169.254.0.0",
                "169.254.255.255",
                "100.100.100.200",
                "168.63.129.16",
                "192.0.0.192",
                "::1",
                "fe80::1",
                "febf::1",
                "fec0::1",
                "feff::1",
                "fd00:ec2::254",
                "fd20:ce::254",
                "::ffff:127.0.0.1",
                "::ffff:169.254.169.254",
                "::127.0.0.1",
                "::ffff:0:127.0.0.1",
                "64:ff9b::127.0.0.1",
                "64:ff9b::a9fe:a9fe",
                "2002:7f00:1::",
                "2002:a9fe:a9fe::1",
                "64:ff9b:1::7f00:1",
                "2001::1",
                "::ffff:100.100.100.200",
            ],
        ),
        (
            "never",
            &[
                "0.0.0.0",
                "0.1.2.3",
                "224.0.0.1",
                "239.255.255.255",
                "240.0.0.1",
                "255.255.255.255",
                "::",
                "ff02::1",
                "ffff::1",
                "::ffff:0.0.0.0",
                "::ffff:224.0.0.1",
                "::ffff:255.255.255.255",
                "64:ff9b::0.0.0.0",
                "2002::1",
                "2002:e000:1::",
                "::0.0.0.2",
            ],
        ),
    ];

    #[test]
    fn every_kind_of_address_is_known() {
        let all = |name: &str| name.parse().expect("a range");
        let plain = Settings::default();
        let allowing = Settings {
            allow_addresses: vec![all("0.0.0.0/0"), all("::/0")],
            ..Settings::default()
        };
        let refusing = Settings {
            refuse_addresses: vec![all("0.0.0.0/0"), all("::/0")],
            ..allowing.clone()
        };
        for (when, addresses) in TABLE {
            for address in *addresses {
                let is_reached = check(&plain, address).is_none();
                assert_eq!(is_reached, *when == "always", "{address}");
                let is_reached = check(&allowing, address).is_none();
                assert_eq!(is_reached, *when != "never", "{address}");
                assert!(check(&refusing, address).is_some(), "{address}");
            }
        }
    }

    /// Goal: what is configured for an address holds for every form of it.
    #[test]
    fn the_configuration_means_addresses_in_every_form() {
        let range = |text: &str| vec![text.parse().expect("a range")];
        let settings = Settings {
            allow_addresses: range("127.0.0.1"),
            refuse_addresses: range("10.0.0.0/8"),
            ..Settings::default()
        };
        for (address, is_reached) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("::ffff:127.0.0.2", false),
            ("::1", false),
            ("10.1.2.3", false),
            ("::ffff:10.1.2.3", false),
            ("64:ff9b::10.1.2.3", false),
            ("11.1.2.3", true),
        ] {
            assert_eq!(check(&settings, address).is_none(), is_reached, "{address}");
        }
    }
}
