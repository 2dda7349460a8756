//! Networks of the cluster: what interfaces of VMs are plugged into, and which hosts can give it.
//!
//! A network is on a *physical network*, as OpenStack calls what several hosts are cabled to. Each host says
//! with which bridge it reaches it, so that neither users nor VMs know bridges, and a guest moves between hosts
//! whose bridges have different names.
//!
//! Not here: how packets go. Berth makes no bridge and no VLAN on a host, and gives guests no addresses.
//!
//! Invariant: a network never changes. Each interface has a copy of what hosts need of it, and a network
//! is deleted only once no VM is on it: what a guest is plugged into is the same on each host.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::id::TimeMs;
use crate::name::{NetworkName, PhysicalNetworkName};
use crate::ownership::Ownership;
use crate::refusal::Refusal;

/// The most networks of a cluster: as many as a physical network has VLANs.
pub const NETWORKS_MAX: usize = 4096;

/// The most physical networks of a host.
pub const PHYSICAL_NETWORKS_MAX: usize = 64;

/// The longest name of a network interface that Linux takes.
pub const INTERFACE_LENGTH_MAX: usize = 15;

/// The longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;

/// The ids that a VLAN can have (IEEE 802.1Q reserves 0 and 4095).
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// The sizes that a maximum transmission unit can have: IPv4's least (RFC 791), and what virtio can say.
const MTUS: std::ops::RangeInclusive<u32> = 68..=65_535;

/// What a host needs to know to give a guest a network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NetworkLink {
    /// The physical network that it is on.
    pub physical_network: PhysicalNetworkName,
    /// The VLAN of the physical network; absent for the packets without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The largest packet in bytes, which guests are informed of; absent where the bridge decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl NetworkLink {
    /// Returns what is wrong with it, by field.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(vlan) = self.vlan
            && !VLANS.contains(&vlan)
        {
            let rule = format!("must be {} to {}", VLANS.start(), VLANS.end());
            faults.push(Fault::new("vlan", vlan, rule));
        }
        if let Some(mtu) = self.mtu
            && !MTUS.contains(&mtu)
        {
            let rule = format!("must be {} to {}", MTUS.start(), MTUS.end());
            faults.push(Fault::new("mtu", mtu, rule));
        }
        faults
    }
}

impl NetworkLink {
    /// Returns what is in the way of it where a host reaches this physical network.
    #[must_use]
    pub fn obstacle(&self, reached: &HostNetwork) -> Option<NetworkObstacle> {
        let HostNetwork {
            mapping,
            can_tag,
            mtu,
        } = reached;
        if mapping.physical_network != self.physical_network {
            return Some(NetworkObstacle::NotReached(self.physical_network.clone()));
        }
        let bridge = || mapping.bridge.clone();
        match (self.vlan, self.mtu) {
            (Some(vlan), _) if !can_tag => Some(NetworkObstacle::NoVlans {
                bridge: bridge(),
                vlan,
            }),
            (_, Some(needed)) if needed > *mtu => Some(NetworkObstacle::MtuTooSmall {
                bridge: bridge(),
                needed,
                actual: *mtu,
            }),
            (_, _) => None,
        }
    }
}

impl fmt::Display for NetworkLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on physical network {}", self.physical_network)?;
        if let Some(vlan) = self.vlan {
            write!(f, ", VLAN {vlan}")?;
        }
        match self.mtu {
            Some(mtu) => write!(f, ", MTU {mtu}"),
            None => Ok(()),
        }
    }
}

/// The network that an interface is on, as it was when the VM was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NetworkAttachment {
    /// Which.
    pub name: NetworkName,
    /// How hosts give it.
    pub link: NetworkLink,
}

/// A network of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// Its name.
    pub name: NetworkName,
    /// How hosts give it.
    pub link: NetworkLink,
    /// A text for people; may be empty.
    pub description: String,
    /// The project that it belongs to, and who created it.
    pub ownership: Ownership,
    /// When it was created.
    pub created_at: TimeMs,
}

impl Network {
    /// Returns it as an interface of a VM has it.
    #[must_use]
    pub fn attachment(&self) -> NetworkAttachment {
        NetworkAttachment {
            name: self.name.clone(),
            link: self.link.clone(),
        }
    }

    /// Checks that there can be such a network.
    ///
    /// # Errors
    ///
    /// All faults at once.
    pub fn validate(&self) -> Result<(), Vec<Fault>> {
        let mut faults = self.link.faults();
        let is_long = self.description.len() > DESCRIPTION_BYTES_MAX;
        if is_long || self.description.chars().any(char::is_control) {
            let rule = format!(
                "must have at most {DESCRIPTION_BYTES_MAX} bytes and no control characters"
            );
            faults.push(Fault::new("description", &self.description, rule));
        }
        match faults.is_empty() {
            true => Ok(()),
            false => Err(faults),
        }
    }
}

/// Returns the refusal of a network that the cluster does not have.
#[must_use]
pub fn not_found(name: &NetworkName) -> Refusal {
    Refusal::not_found("network", name)
        .with_hint("the networks that exist are listed by `berth network list`")
}

/// What makes a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BridgeType {
    /// The Linux kernel.
    Linux,
    /// Open vSwitch.
    OpenVSwitch,
}

impl BridgeType {
    /// Both, for tables.
    pub const ALL: [Self; 2] = [Self::Linux, Self::OpenVSwitch];

    /// Returns the word for it, as configurations have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::OpenVSwitch => "openvswitch",
        }
    }
}

impl fmt::Display for BridgeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// With which bridge a host reaches a physical network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BridgeMapping {
    /// The physical network.
    pub physical_network: PhysicalNetworkName,
    /// The name of the bridge on the host.
    pub bridge: String,
    /// What makes it.
    pub bridge_type: BridgeType,
}

/// A physical network that a host reaches now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostNetwork {
    /// With which bridge.
    pub mapping: BridgeMapping,
    /// Whether the port of a guest on it can be put into a VLAN.
    pub can_tag: bool,
    /// The largest packet that the bridge forwards, in bytes.
    pub mtu: u32,
}

/// Why a host cannot give a guest a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkMismatch {
    /// The network.
    pub network: NetworkName,
    /// What is in the way.
    pub why: NetworkObstacle,
}

/// What is in the way of a network on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkObstacle {
    /// The host reaches no such physical network.
    NotReached(PhysicalNetworkName),
    /// Its bridge puts no port into a VLAN.
    NoVlans {
        /// The bridge.
        bridge: String,
        /// The VLAN.
        vlan: u16,
    },
    /// Its bridge forwards smaller packets only.
    MtuTooSmall {
        /// The bridge.
        bridge: String,
        /// What the network needs.
        needed: u32,
        /// What the bridge has.
        actual: u32,
    },
}

impl NetworkMismatch {
    /// Returns the cause for programs.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match &self.why {
            NetworkObstacle::NotReached(_) => "NETWORK_NOT_ON_HOST",
            NetworkObstacle::NoVlans { .. } => "NETWORK_NEEDS_VLANS",
            NetworkObstacle::MtuTooSmall { .. } => "NETWORK_MTU_TOO_LARGE",
        }
    }
}

impl fmt::Display for NetworkMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = &self.network;
        match &self.why {
            NetworkObstacle::NotReached(physical) => write!(
                f,
                "it has no bridge to physical network {physical} of network {network}"
            ),
            NetworkObstacle::NoVlans { bridge, vlan } => write!(
                f,
                "its bridge {bridge} puts no port into a VLAN, network {network} has VLAN {vlan}"
            ),
            NetworkObstacle::MtuTooSmall {
                bridge,
                needed,
                actual,
            } => write!(
                f,
                "its bridge {bridge} has an MTU of {actual}, network {network} has {needed}"
            ),
        }
    }
}

/// Checks whether a host that reaches these physical networks can give a guest a network.
///
/// # Errors
///
/// What is in the way.
pub fn check(
    reached: &[HostNetwork],
    attachment: &NetworkAttachment,
) -> Result<(), NetworkMismatch> {
    let NetworkAttachment { name, link } = attachment;
    let mut obstacles = reached
        .iter()
        .filter(|one| one.mapping.physical_network == link.physical_network)
        .map(|one| link.obstacle(one));
    let not_reached = || NetworkObstacle::NotReached(link.physical_network.clone());
    match obstacles.next().unwrap_or_else(|| Some(not_reached())) {
        None => Ok(()),
        Some(why) => Err(NetworkMismatch {
            network: name.clone(),
            why,
        }),
    }
}

/// Returns whether a text can be the name of a bridge on a host.
#[must_use]
pub fn is_interface(name: &str) -> bool {
    (1..=INTERFACE_LENGTH_MAX).contains(&name.len())
        && name.bytes().any(|b| b != b'.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(vlan: Option<u16>, mtu: Option<u32>) -> NetworkAttachment {
        NetworkAttachment {
            name: NetworkName::new("web").unwrap(),
            link: NetworkLink {
                physical_network: PhysicalNetworkName::new("physnet1").unwrap(),
                vlan,
                mtu,
            },
        }
    }

    fn host(physical: &str, can_tag: bool, mtu: u32) -> HostNetwork {
        HostNetwork {
            mapping: BridgeMapping {
                physical_network: PhysicalNetworkName::new(physical).unwrap(),
                bridge: "br0".to_owned(),
                bridge_type: BridgeType::Linux,
            },
            can_tag,
            mtu,
        }
    }

    /// Goal: a host takes exactly what its bridge can do. Method: all combinations of what a network needs
    /// and what a bridge has.
    #[test]
    fn a_host_gives_what_its_bridge_can() {
        for vlan in [None, Some(7)] {
            for mtu in [None, Some(1500), Some(9000)] {
                for can_tag in [false, true] {
                    for has in [1500, 9000] {
                        let hosts = [host("other", true, 65_535), host("physnet1", can_tag, has)];
                        let cause = check(&hosts, &attachment(vlan, mtu))
                            .err()
                            .map(|mismatch| mismatch.cause());
                        let is_untagged = vlan.is_none() || can_tag;
                        let is_small = mtu.is_none_or(|mtu| mtu <= has);
                        let expected = match (is_untagged, is_small) {
                            (true, true) => None,
                            (false, _) => Some("NETWORK_NEEDS_VLANS"),
                            (true, false) => Some("NETWORK_MTU_TOO_LARGE"),
                        };
                        assert_eq!(cause, expected, "{vlan:?} {mtu:?} {can_tag} {has}");
                    }
                }
                let elsewhere = [host("other", true, 65_535)];
                let refused = check(&elsewhere, &attachment(vlan, mtu)).unwrap_err();
                assert_eq!(refused.cause(), "NETWORK_NOT_ON_HOST");
                assert!(refused.to_string().contains("physnet1"));
            }
        }
    }

    #[test]
    fn faults_name_their_field() {
        let fields = |vlan, mtu| -> Vec<String> {
            let faults = attachment(vlan, mtu).link.faults();
            faults.into_iter().map(|fault| fault.field).collect()
        };
        assert!(fields(None, None).is_empty());
        for good in [1, 4094] {
            assert!(fields(Some(good), None).is_empty());
        }
        for bad in [0, 4095, u16::MAX] {
            assert_eq!(fields(Some(bad), None), ["vlan"]);
        }
        for good in [68, 1500, 65_535] {
            assert!(fields(None, Some(good)).is_empty());
        }
        for bad in [0, 67, 65_536] {
            assert_eq!(fields(None, Some(bad)), ["mtu"]);
        }
        assert_eq!(fields(Some(0), Some(0)), ["vlan", "mtu"]);
    }
}
