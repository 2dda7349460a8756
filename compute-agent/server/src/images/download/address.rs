//! Which addresses a host connects to for a download.
//!
//! A URL may be one that its user was given, and its server may redirect to any other; what answers becomes an
//! image that guests read. So what only this host reaches is not reached: its own services, its link, and
//! what its cloud tells machines about themselves. Private addresses are reached, as mirrors have them, and
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

/// What clouds tell machines about themselves, credentials among it, at addresses that are not link-local.
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
