//! The identity that both sides of the driver report.

use crate::csi::v1::plugin_capability::service::Type as Ability;
use crate::csi::v1::plugin_capability::{Service, Type};
use crate::csi::v1::{
    GetPluginCapabilitiesResponse, GetPluginInfoResponse, PluginCapability, ProbeResponse,
};

/// Returns what the driver is called.
#[must_use]
pub fn information(driver: &str) -> GetPluginInfoResponse {
    GetPluginInfoResponse {
        name: driver.to_owned(),
        vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
        manifest: std::collections::BTreeMap::new(),
    }
}

/// Returns what the driver can do: both sides report it for both.
#[must_use]
pub fn abilities() -> GetPluginCapabilitiesResponse {
    let able = |ability: Ability| PluginCapability {
        r#type: Some(Type::Service(Service {
            r#type: ability.into(),
        })),
    };
    let abilities = [
        Ability::ControllerService,
        Ability::VolumeAccessibilityConstraints,
    ];
    GetPluginCapabilitiesResponse {
        capabilities: abilities.map(able).to_vec(),
    }
}

/// Returns that it can be called.
#[must_use]
pub fn ready() -> ProbeResponse {
    ProbeResponse { ready: Some(true) }
}
