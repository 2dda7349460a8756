//! Which of the configured bridges a host has, and what they can do.
//!
//! Not here: making bridges. Their operator makes them, and may do so while the agent runs.

use std::fs;
use std::path::Path;

use berth_domain::network::{self, BridgeMapping, BridgeType, HostNetwork, NetworkAttachment};

use super::connection::Version;

/// From here on libvirt puts the ports of Linux bridges into VLANs.
const TAGS_LINUX_BRIDGES: Version = Version {
    major: 11,
    minor: 0,
    release: 0,
};

/// Returns the physical networks that these bridges reach; bridges that are not there are left out.
pub(super) fn reached(
    devices: &Path,
    mappings: &[BridgeMapping],
    libvirt: Version,
) -> Vec<HostNetwork> {
    let reached = mappings.iter().filter_map(|mapping| {
        let device = devices.join(&mapping.bridge);
        is_bridge(&device, mapping.bridge_type).then(|| HostNetwork {
            mapping: mapping.clone(),
            can_tag: can_tag(&device, mapping.bridge_type, libvirt),
            mtu: mtu(devices, &device, mapping.bridge_type),
        })
    });
    reached.collect()
}

/// Returns what is in the way of a network on its bridge now.
///
/// # Errors
///
/// What is in the way.
pub(super) fn check(
    devices: &Path,
    mapping: &BridgeMapping,
    libvirt: Version,
    attachment: &NetworkAttachment,
) -> Result<(), String> {
    let reached = reached(devices, std::slice::from_ref(mapping), libvirt);
    if reached.is_empty() {
        let BridgeMapping {
            physical_network,
            bridge,
            bridge_type,
        } = mapping;
        return Err(format!(
            "this host has no bridge {bridge} ({bridge_type}) to physical network {physical_network}"
        ));
    }
    network::check(&reached, attachment).map_err(|mismatch| format!("this host: {mismatch}"))
}

/// Returns whether there is such a bridge. That of Open vSwitch is no bridge to the kernel: its device is the
/// port by which the host itself is on it, which is no hardware, and in no other bridge or bond.
pub(super) fn is_bridge(device: &Path, kind: BridgeType) -> bool {
    let is = |what: &str| device.join(what).exists();
    match kind {
        BridgeType::Linux => is("bridge"),
        BridgeType::OpenVSwitch => {
            let others = ["bridge", "device", "bonding", "brport"];
            device.exists() && !others.into_iter().any(is)
        }
    }
}

/// Returns the largest packet that a bridge forwards. The kernel lowers that of a Linux bridge to the least of
/// its ports, those of guests among them: what it leads to the network by says what it can.
fn mtu(devices: &Path, device: &Path, kind: BridgeType) -> u32 {
    let own = number(&device.join("mtu")).unwrap_or_default();
    match kind {
        BridgeType::OpenVSwitch => own,
        BridgeType::Linux => {
            let ports = fs::read_dir(device.join("brif"));
            let ports = ports.into_iter().flatten().flatten();
            let ports = ports.map(|port| devices.join(port.file_name()));
            // A guest's port is a tap.
            let lasting = ports.filter(|port| !port.join("tun_flags").exists());
            let mtus = lasting.filter_map(|port| number(&port.join("mtu")));
            mtus.min().unwrap_or(own)
        }
    }
}

fn can_tag(device: &Path, kind: BridgeType, libvirt: Version) -> bool {
    match kind {
        BridgeType::OpenVSwitch => true,
        BridgeType::Linux => {
            let filters = number(&device.join("bridge/vlan_filtering"));
            filters == Some(1) && libvirt >= TAGS_LINUX_BRIDGES
        }
    }
}

fn number(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use berth_domain::name::PhysicalNetworkName;

    use super::*;

    const OLD: Version = Version {
        major: 9,
        minor: 0,
        release: 0,
    };

    fn mapping(bridge: &str, bridge_type: BridgeType) -> BridgeMapping {
        BridgeMapping {
            physical_network: PhysicalNetworkName::new(bridge).unwrap(),
            bridge: bridge.to_owned(),
            bridge_type,
        }
    }

    fn device(root: &Path, name: &str, mtu: &str, filtering: Option<&str>) -> PathBuf {
        let device = root.join(name);
        fs::create_dir(&device).unwrap();
        fs::write(device.join("mtu"), mtu).unwrap();
        if let Some(filtering) = filtering {
            fs::create_dir(device.join("bridge")).unwrap();
            fs::write(device.join("bridge/vlan_filtering"), filtering).unwrap();
        }
        device
    }

    /// Goal: what is reported is what guests get. Method: each type of bridge, declared as each type, with
    /// libvirt before and after it knew VLANs of Linux bridges.
    #[test]
    fn only_bridges_of_their_type_are_reached() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), "plain", "1500\n", Some("0\n"));
        device(root.path(), "filtering", "9000\n", Some("1\n"));
        device(root.path(), "ovs", "9000\n", None);
        let names = ["plain", "filtering", "ovs", "absent"];
        let look = |kind, libvirt| -> Vec<(String, bool, u32)> {
            let mappings = names.map(|name| mapping(name, kind));
            let reached = reached(root.path(), &mappings, libvirt).into_iter();
            reached
                .map(|one| (one.mapping.bridge, one.can_tag, one.mtu))
                .collect()
        };
        let linux = |can_tag| {
            vec![
                ("plain".to_owned(), false, 1500),
                ("filtering".to_owned(), can_tag, 9000),
            ]
        };
        assert_eq!(look(BridgeType::Linux, OLD), linux(false));
        assert_eq!(look(BridgeType::Linux, TAGS_LINUX_BRIDGES), linux(true));
        let ovs = vec![("ovs".to_owned(), true, 9000)];
        assert_eq!(look(BridgeType::OpenVSwitch, OLD), ovs);
        // What is no port of the host on a bridge: hardware, a bond, a port of another bridge.
        for what in ["device", "bonding", "brport"] {
            let name = format!("of-{what}");
            fs::create_dir(device(root.path(), &name, "1500\n", None).join(what)).unwrap();
            let mapping = mapping(&name, BridgeType::OpenVSwitch);
            assert!(reached(root.path(), &[mapping], OLD).is_empty(), "{what}");
        }
    }

    /// Goal: a guest does not change what its host reaches. Method: a bridge whose own MTU a guest's port has
    /// lowered, with ports of hosts and guests of several sizes, and one with ports of guests alone.
    #[test]
    fn ports_of_guests_do_not_count() {
        let root = tempfile::tempdir().unwrap();
        let bridge = device(root.path(), "br0", "1400\n", Some("0\n"));
        let mtu_with = |ports: &[(&str, &str, bool)]| {
            for (name, mtu, is_tap) in ports {
                let port = device(root.path(), name, mtu, None);
                if *is_tap {
                    fs::write(port.join("tun_flags"), "0x1002\n").unwrap();
                }
                fs::create_dir_all(bridge.join("brif").join(name)).unwrap();
            }
            reached(root.path(), &[mapping("br0", BridgeType::Linux)], OLD)[0].mtu
        };
        assert_eq!(mtu_with(&[]), 1400);
        assert_eq!(mtu_with(&[("vnet0", "1400\n", true)]), 1400);
        assert_eq!(mtu_with(&[("eth0", "9000\n", false)]), 9000);
        assert_eq!(mtu_with(&[("eth0.7", "1500\n", false)]), 1500);
    }
}
