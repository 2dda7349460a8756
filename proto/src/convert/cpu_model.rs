//! What guests see as their processor: what hosts offer, and what claims record.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_domain::cpu_model::{CpuMode, FEATURES_MAX, GuestCpu, HostCpu, MODELS_MAX};
use berth_domain::name::{CpuFeature, CpuModelName, CpuVendor};

use super::field::{self, Invalid, choices};
use crate::types::v1;

choices!(CpuMode => v1::guest_cpu::Mode { Custom, HostPassthrough });

/// Writes the names of features, in their order.
#[must_use]
pub fn write_features(features: &BTreeSet<CpuFeature>) -> Vec<String> {
    features.iter().map(ToString::to_string).collect()
}

/// Reads names of features.
///
/// # Errors
///
/// There are too many of them, or one is no name.
pub fn read_features(names: &[String], field: &str) -> Result<BTreeSet<CpuFeature>, Invalid> {
    field::bounded(names.len(), field, FEATURES_MAX)?;
    let read =
        |name: &String| CpuFeature::new(name).map_err(|why| Invalid::new(field, why.to_string()));
    names.iter().map(read).collect()
}

fn read_model(name: &str) -> Result<CpuModelName, Invalid> {
    CpuModelName::new(name).map_err(|why| Invalid::new("model", why.to_string()))
}

impl From<&GuestCpu> for v1::GuestCpu {
    fn from(cpu: &GuestCpu) -> Self {
        Self {
            mode: v1::guest_cpu::Mode::from(cpu.mode).into(),
            model: cpu.model.to_string(),
            vendor: cpu
                .vendor
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            required_features: write_features(&cpu.required),
            disabled_features: write_features(&cpu.disabled),
        }
    }
}

impl TryFrom<v1::GuestCpu> for GuestCpu {
    type Error = Invalid;

    fn try_from(wire: v1::GuestCpu) -> Result<Self, Invalid> {
        let vendor = match wire.vendor.is_empty() {
            true => None,
            false => Some(
                CpuVendor::new(&wire.vendor)
                    .map_err(|why| Invalid::new("vendor", why.to_string()))?,
            ),
        };
        let cpu = Self {
            mode: field::choice::<v1::guest_cpu::Mode, _>(wire.mode, "mode")?,
            model: read_model(&wire.model)?,
            vendor,
            required: read_features(&wire.required_features, "required_features")?,
            disabled: read_features(&wire.disabled_features, "disabled_features")?,
        };
        match cpu.is_consistent() {
            true => Ok(cpu),
            false => {
                let rule = "must not have features that are required too";
                Err(Invalid::new("disabled_features", rule))
            }
        }
    }
}

impl From<&HostCpu> for v1::HostCpuModel {
    fn from(cpu: &HostCpu) -> Self {
        let models = cpu.models.iter().map(|(model, missing)| v1::CpuModel {
            model: model.to_string(),
            missing_features: write_features(missing),
        });
        Self {
            host_model: Some((&*cpu.host_model).into()),
            features: write_features(&cpu.features),
            models: models.collect(),
        }
    }
}

impl TryFrom<v1::HostCpuModel> for HostCpu {
    type Error = Invalid;

    fn try_from(wire: v1::HostCpuModel) -> Result<Self, Invalid> {
        field::bounded(wire.models.len(), "models", MODELS_MAX)?;
        let model = |wire: v1::CpuModel| {
            let missing = read_features(&wire.missing_features, "missing_features")?;
            Ok((read_model(&wire.model)?, missing))
        };
        let named = wire.models.len();
        let models = wire.models.into_iter().map(model);
        let cpu = Self {
            host_model: Arc::new(field::required(wire.host_model, "host_model")?),
            features: read_features(&wire.features, "features")?,
            models: models
                .collect::<Result<_, Invalid>>()
                .map_err(|invalid| invalid.within("models"))?,
        };
        if cpu.models.len() != named {
            return Err(Invalid::new("models", "must not name a model twice"));
        }
        match cpu.is_consistent() {
            true => Ok(cpu),
            false => {
                let rule = "must be a known model with the features of the host, and no model may lack \
                            one that the host has";
                Err(Invalid::new("host_model", rule))
            }
        }
    }
}
