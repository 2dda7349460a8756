//! Arbitrary networks, and interfaces that are on one.

use super::*;
use berth_domain::name::{NetworkName, PhysicalNetworkName};
use berth_domain::network::{
    BridgeMapping, BridgeType, HostNetwork, Network, NetworkAttachment, NetworkLink,
};

const BRIDGE: &str = "[a-z][a-z0-9._-]{0,14}";

fn physical() -> impl Strategy<Value = PhysicalNetworkName> {
    NAME.prop_map(|name| PhysicalNetworkName::new(&name).unwrap())
}

fn link() -> impl Strategy<Value = NetworkLink> {
    (
        physical(),
        option::of(any::<u16>()),
        option::of(any::<u32>()),
    )
        .prop_map(|(physical_network, vlan, mtu)| NetworkLink {
            physical_network,
            vlan,
            mtu,
        })
}

pub(crate) fn network() -> impl Strategy<Value = Network> {
    (NAME, link(), TEXT, ownership(), 0..1_u64 << 40).prop_map(
        |(name, link, description, ownership, at)| Network {
            name: NetworkName::new(&name).unwrap(),
            link,
            description,
            ownership,
            created_at: TimeMs(at),
        },
    )
}

pub(super) fn nic() -> impl Strategy<Value = Nic> {
    let attachment = (NAME, link()).prop_map(|(name, link)| NetworkAttachment {
        name: NetworkName::new(&name).unwrap(),
        link,
    });
    (TEXT, option::of(attachment), TEXT).prop_map(|(bridge, network, mac)| Nic {
        bridge,
        network,
        mac,
    })
}

fn mapping() -> impl Strategy<Value = BridgeMapping> {
    let kind = select(BridgeType::ALL.to_vec());
    (physical(), BRIDGE, kind).prop_map(|(physical_network, bridge, bridge_type)| BridgeMapping {
        physical_network,
        bridge,
        bridge_type,
    })
}

/// Returns the bridges of a host, each physical network once.
pub(crate) fn bridges() -> impl Strategy<Value = Vec<BridgeMapping>> {
    vec(mapping(), 0..3).prop_map(|mut all| {
        all.sort_by(|a, b| a.physical_network.cmp(&b.physical_network));
        all.dedup_by(|a, b| a.physical_network == b.physical_network);
        all
    })
}

pub(super) fn host_networks() -> impl Strategy<Value = Vec<HostNetwork>> {
    (bridges(), any::<bool>(), any::<u32>()).prop_map(|(bridges, can_tag, mtu)| {
        let network = |mapping| HostNetwork {
            mapping,
            can_tag,
            mtu,
        };
        bridges.into_iter().map(network).collect()
    })
}
