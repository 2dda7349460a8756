//! Networks of the cluster, and the physical networks that hosts reach.

use std::collections::BTreeSet;

use berth_domain::name::PhysicalNetworkName;
use berth_domain::network::{
    BridgeMapping, BridgeType, HostNetwork, INTERFACE_LENGTH_MAX, Network, NetworkAttachment,
    NetworkLink, PHYSICAL_NETWORKS_MAX, is_interface,
};

use super::field::{self, ADDRESS_MAX, Invalid, choices};
use super::name::ResourceName;
use super::ownership::{self, write_project};
use crate::types::v1;

/// The longest description that is read; what is allowed is for the domain to say, with the other faults.
const DESCRIPTION_MAX: usize = 64 << 10;

impl From<&Network> for v1::Network {
    fn from(network: &Network) -> Self {
        Self {
            name: network.name.resource_name(),
            physical_network: network.link.physical_network.to_string(),
            vlan: network.link.vlan.map(Into::into),
            mtu: network.link.mtu,
            description: network.description.clone(),
            project: write_project(network.ownership.project.as_ref()),
            creator: network.ownership.creator.clone(),
            create_time: Some(field::timestamp(network.created_at)),
            vm_count: 0,
            host_count: 0,
        }
    }
}

impl TryFrom<v1::Network> for Network {
    type Error = Invalid;

    /// One that is to be created leaves the time open; it reads as the epoch then, and the state writes its own.
    fn try_from(wire: v1::Network) -> Result<Self, Invalid> {
        let created_at = field::optional_time(wire.create_time, "create_time")?;
        Ok(Self {
            name: field::name(&wire.name, "name")?,
            link: read_link(&wire.physical_network, wire.vlan, wire.mtu)?,
            description: field::text(wire.description, "description", DESCRIPTION_MAX)?,
            ownership: ownership::read(&wire.project, wire.creator)?,
            created_at: created_at.unwrap_or_default(),
        })
    }
}

impl From<&NetworkLink> for v1::NetworkLink {
    fn from(link: &NetworkLink) -> Self {
        Self {
            physical_network: link.physical_network.to_string(),
            vlan: link.vlan.map(Into::into),
            mtu: link.mtu,
        }
    }
}

impl TryFrom<v1::NetworkLink> for NetworkLink {
    type Error = Invalid;

    fn try_from(wire: v1::NetworkLink) -> Result<Self, Invalid> {
        read_link(&wire.physical_network, wire.vlan, wire.mtu)
    }
}

fn read_link(physical: &str, vlan: Option<u32>, mtu: Option<u32>) -> Result<NetworkLink, Invalid> {
    let vlan = vlan.map(u16::try_from).transpose();
    Ok(NetworkLink {
        physical_network: read_physical(physical)?,
        vlan: vlan.map_err(|_| Invalid::new("vlan", "must be 1 to 4094"))?,
        mtu,
    })
}

/// Reads the network of an interface of a VM.
pub(super) fn read_attachment(
    network: &str,
    link: Option<v1::NetworkLink>,
) -> Result<Option<NetworkAttachment>, Invalid> {
    let network = field::optional_name(network, "network")?;
    let link = field::optional(link, "network_link")?;
    match (network, link) {
        (None, None) => Ok(None),
        (Some(name), Some(link)) => Ok(Some(NetworkAttachment { name, link })),
        (Some(_), None) => Err(Invalid::new("network_link", "is required")),
        (None, Some(_)) => Err(Invalid::new("network", "is required")),
    }
}

choices!(BridgeType => v1::bridge_mapping::BridgeType {
    Linux,
    OpenVSwitch,
});

impl From<&BridgeMapping> for v1::BridgeMapping {
    fn from(mapping: &BridgeMapping) -> Self {
        Self {
            physical_network: mapping.physical_network.to_string(),
            bridge: mapping.bridge.clone(),
            bridge_type: v1::bridge_mapping::BridgeType::from(mapping.bridge_type).into(),
        }
    }
}

impl TryFrom<v1::BridgeMapping> for BridgeMapping {
    type Error = Invalid;

    fn try_from(wire: v1::BridgeMapping) -> Result<Self, Invalid> {
        if !is_interface(&wire.bridge) {
            let rule = format!("must be a bridge's name of at most {INTERFACE_LENGTH_MAX} bytes");
            return Err(Invalid::new("bridge", rule));
        }
        Ok(Self {
            physical_network: read_physical(&wire.physical_network)?,
            bridge: wire.bridge,
            bridge_type: field::choice::<v1::bridge_mapping::BridgeType, _>(
                wire.bridge_type,
                "bridge_type",
            )?,
        })
    }
}

impl From<&HostNetwork> for v1::HostNetwork {
    fn from(network: &HostNetwork) -> Self {
        Self {
            mapping: Some((&network.mapping).into()),
            can_tag: network.can_tag,
            mtu: network.mtu,
        }
    }
}

impl TryFrom<v1::HostNetwork> for HostNetwork {
    type Error = Invalid;

    fn try_from(wire: v1::HostNetwork) -> Result<Self, Invalid> {
        Ok(Self {
            mapping: field::required(wire.mapping, "mapping")?,
            can_tag: wire.can_tag,
            mtu: wire.mtu,
        })
    }
}

/// Reads the physical networks of a host, each once.
pub(super) fn read_networks(
    wire: Vec<v1::HostNetwork>,
    field: &str,
) -> Result<Vec<HostNetwork>, Invalid> {
    let networks: Vec<HostNetwork> = field::each(wire, field, PHYSICAL_NETWORKS_MAX)?;
    let names = networks.iter().map(|network| &network.mapping);
    each_once(names, field)?;
    Ok(networks)
}

/// Reads the bridges of a host, each physical network once.
pub(super) fn read_bridges(
    wire: Vec<v1::BridgeMapping>,
    field: &str,
) -> Result<Vec<BridgeMapping>, Invalid> {
    let bridges: Vec<BridgeMapping> = field::each(wire, field, PHYSICAL_NETWORKS_MAX)?;
    each_once(bridges.iter(), field)?;
    Ok(bridges)
}

fn each_once<'a>(
    mut mappings: impl Iterator<Item = &'a BridgeMapping>,
    field: &str,
) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    match mappings.find(|mapping| !seen.insert(&mapping.physical_network)) {
        Some(twice) => {
            let rule = format!("{} is there twice", twice.physical_network);
            Err(Invalid::new(field, rule))
        }
        None => Ok(()),
    }
}

pub(super) fn read_physical(text: &str) -> Result<PhysicalNetworkName, Invalid> {
    let text = field::text(text.to_owned(), "physical_network", ADDRESS_MAX)?;
    PhysicalNetworkName::new(&text)
        .map_err(|error| Invalid::new("physical_network", error.to_string()))
}
