//! The physical networks that a host reaches, and with which bridges: `physical_networks`.
//!
//! Not here: whether the bridges are there, which may change while the agent runs.

use std::collections::BTreeSet;

use berth_domain::name::PhysicalNetworkName;
use berth_domain::network::{
    BridgeMapping, BridgeType, INTERFACE_LENGTH_MAX, PHYSICAL_NETWORKS_MAX, is_interface,
};
use serde::Deserialize;

/// A physical network with its bridge, as in `{ name = "physnet1", bridge = "br0" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhysicalNetwork {
    /// The name of the physical network; other hosts that reach it have the same.
    pub name: PhysicalNetworkName,
    /// The bridge.
    pub bridge: String,
    /// What makes it: `linux` or `openvswitch`.
    #[serde(rename = "type", default = "linux")]
    pub bridge_type: BridgeType,
}

fn linux() -> BridgeType {
    BridgeType::Linux
}

/// Returns the mappings of the configured networks, by their names: hosts that reach the same are alike.
pub(crate) fn mappings(networks: &[PhysicalNetwork]) -> Vec<BridgeMapping> {
    let mut networks: Vec<&PhysicalNetwork> = networks.iter().collect();
    networks.sort_by(|a, b| a.name.cmp(&b.name));
    let mappings = networks.into_iter().map(|network| BridgeMapping {
        physical_network: network.name.clone(),
        bridge: network.bridge.clone(),
        bridge_type: network.bridge_type,
    });
    mappings.collect()
}

/// Says what is wrong with the configured networks.
pub(crate) fn check(networks: &[PhysicalNetwork], faults: &mut Vec<String>) {
    if networks.len() > PHYSICAL_NETWORKS_MAX {
        let count = networks.len();
        faults.push(format!(
            "physical_networks has {count} entries, at most {PHYSICAL_NETWORKS_MAX} are possible"
        ));
    }
    let mut seen = BTreeSet::new();
    for (index, network) in networks.iter().enumerate() {
        let (name, bridge) = (&network.name, &network.bridge);
        if !is_interface(bridge) {
            faults.push(format!(
                "physical_networks[{index}].bridge = {bridge:?} is not the name of a bridge: 1 to \
                 {INTERFACE_LENGTH_MAX} characters out of letters, digits, '.', '_' and '-'"
            ));
        }
        if !seen.insert(name) {
            faults.push(format!(
                "physical_networks[{index}].name = \"{name}\" is there already: a host reaches a \
                 physical network with one bridge"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_process::configuration;

    use crate::config::Config;

    /// Goal: what cannot be is refused with its key. Method: each fault.
    #[test]
    fn wrong_networks_are_named() {
        let faults = |networks: &str| {
            let text = format!("schedulers = [\"h:1\"]\nphysical_networks = [{networks}]\n");
            let (config, mut faults) = configuration::parse(Config::default(), &text);
            if let Err(found) = config.validate() {
                faults.extend(found.0);
            }
            faults.join("\n")
        };
        let good = r#"{ name = "physnet1", bridge = "br0" }, { name = "b", bridge = "br-int", type = "openvswitch" }"#;
        assert_eq!(faults(good), "");
        for (networks, expected) in [
            (r#"{ bridge = "br0" }"#, "missing field `name`"),
            (r#"{ name = "a" }"#, "missing field `bridge`"),
            (
                r#"{ name = "a b", bridge = "br0" }"#,
                "physical network name",
            ),
            (
                r#"{ name = "a", bridge = "a/b" }"#,
                "physical_networks[0].bridge",
            ),
            (
                r#"{ name = "a", bridge = "b", type = "macvlan" }"#,
                "unknown variant",
            ),
            (r#"{ name = "a", bridge = "b", vlan = 7 }"#, "unknown field"),
            (
                r#"{ name = "a", bridge = "b" }, { name = "a", bridge = "c" }"#,
                "physical_networks[1].name",
            ),
        ] {
            let found = faults(networks);
            assert!(found.contains(expected), "{networks}: {found}");
        }
    }
}
