//! PMEM-CSI's two resources as Berth's own.
//!
//! Not here: the schedulers' addresses, which neither resource has; they come from the operator's
//! configuration ([`crate::spec::BerthStorageSpec::schedulers`] stays empty).
//!
//! Invariant: total over what the schemas accept, except the errors below; an absent field and one with
//! its default are converted alike.

use crate::spec::{
    BerthStorageSpec, Certificates, DeploymentSpec, PmemCSIDeploymentSpec, Quantity, Resources,
};

/// Why a resource cannot be converted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A certificate without its key, or the reverse.
    #[error("{present} is given without {missing}; hint: give both, or neither")]
    HalfPair {
        /// The given field.
        present: &'static str,
        /// The missing field.
        missing: &'static str,
    },
    /// Certificates without all that they need.
    #[error(
        "certificates are given without {missing}; hint: give registryCert, nodeControllerCert, their \
         keys and caCert, or none of them"
    )]
    Incomplete {
        /// The missing field.
        missing: &'static str,
    },
}

/// Converts a resource of PMEM-CSI 0.7.
///
/// # Errors
///
/// When its certificates are incomplete.
pub fn from_alpha(spec: &DeploymentSpec) -> Result<BerthStorageSpec, Error> {
    let spec = spec.clone();
    let certificates = certificates(&spec)?;
    let default = BerthStorageSpec::default();
    let controller = spec.controller_resources.unwrap_or_else(alpha_resources);
    let node = spec.node_resources.unwrap_or_else(alpha_resources);
    Ok(BerthStorageSpec {
        image: text(spec.image),
        image_pull_policy: spec.image_pull_policy.unwrap_or_default(),
        provisioner_image: text(spec.provisioner_image),
        node_registrar_image: text(spec.node_registrar_image),
        controller_resources: controller.clone(),
        provisioner_resources: controller,
        node_resources: node.clone(),
        node_registrar_resources: node,
        device_mode: spec.device_mode.unwrap_or_default(),
        log_level: spec.log_level.unwrap_or(default.log_level),
        node_selector: spec.node_selector.unwrap_or(default.node_selector),
        pmem_percentage: positive(spec.pmem_percentage).unwrap_or(default.pmem_percentage),
        labels: spec.labels.unwrap_or_default(),
        certificates,
        ..BerthStorageSpec::default()
    })
}

/// Converts a resource of PMEM-CSI 1.x.
#[must_use]
pub fn from_beta(spec: &PmemCSIDeploymentSpec) -> BerthStorageSpec {
    let spec = spec.clone();
    let default = BerthStorageSpec::default();
    let resources = |given: Option<Resources>, default| given.unwrap_or(default);
    BerthStorageSpec {
        schedulers: Vec::new(),
        image: text(spec.image),
        image_pull_policy: spec.image_pull_policy.unwrap_or_default(),
        provisioner_image: text(spec.provisioner_image),
        node_registrar_image: text(spec.node_registrar_image),
        controller_replicas: positive(spec.controller_replicas)
            .unwrap_or(default.controller_replicas),
        controller_resources: resources(
            spec.controller_driver_resources,
            default.controller_resources,
        ),
        provisioner_resources: resources(spec.provisioner_resources, default.provisioner_resources),
        node_resources: resources(spec.node_driver_resources, default.node_resources),
        node_registrar_resources: resources(
            spec.node_registrar_resources,
            default.node_registrar_resources,
        ),
        device_mode: spec.device_mode.unwrap_or_default(),
        log_level: spec.log_level.unwrap_or(default.log_level),
        log_format: spec.log_format.unwrap_or_default(),
        node_selector: spec.node_selector.unwrap_or(default.node_selector),
        pmem_percentage: positive(spec.pmem_percentage).unwrap_or(default.pmem_percentage),
        labels: spec.labels.unwrap_or_default(),
        kubelet_dir: text(spec.kubelet_dir).unwrap_or(default.kubelet_dir),
        max_unavailable: spec.max_unavailable.unwrap_or(default.max_unavailable),
        mutate_pods: spec.mutate_pods.unwrap_or_default(),
        scheduler_node_port: positive(spec.scheduler_node_port),
        certificates: None,
    }
}

/// PMEM-CSI writes an absent number as 0.
fn positive(number: Option<i32>) -> Option<i32> {
    number.filter(|number| *number > 0)
}

/// And an absent text as an empty one.
fn text(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn alpha_resources() -> Resources {
    let parse = |text| Quantity::parse(text).expect("a constant quantity");
    let limits = [("cpu", "100m"), ("memory", "250Mi")];
    Resources {
        limits: limits
            .map(|(name, amount)| (name.to_owned(), parse(amount)))
            .into(),
        requests: std::collections::BTreeMap::new(),
    }
}

fn certificates(spec: &DeploymentSpec) -> Result<Option<Certificates>, Error> {
    let controller = pair(
        ("registryCert", spec.registry_cert.as_ref()),
        ("registryKey", spec.registry_key.as_ref()),
    )?;
    let node = pair(
        ("nodeControllerCert", spec.node_controller_cert.as_ref()),
        ("nodeControllerKey", spec.node_controller_key.as_ref()),
    )?;
    let incomplete = |missing| Err(Error::Incomplete { missing });
    match (controller, node, &spec.ca_cert) {
        (None, None, None) => Ok(None),
        (None, _, _) => incomplete("registryCert"),
        (_, None, _) => incomplete("nodeControllerCert"),
        (_, _, None) => incomplete("caCert"),
        (Some(controller), Some(node), Some(ca)) => Ok(Some(Certificates {
            ca: ca.clone(),
            controller_cert: controller.0.clone(),
            controller_key: controller.1.clone(),
            node_cert: node.0.clone(),
            node_key: node.1.clone(),
        })),
    }
}

type Field<'a, T> = (&'static str, Option<&'a T>);

fn pair<'a, T>(cert: Field<'a, T>, key: Field<'a, T>) -> Result<Option<(&'a T, &'a T)>, Error> {
    let half = |present, missing| Err(Error::HalfPair { present, missing });
    match (cert, key) {
        ((_, Some(cert)), (_, Some(key))) => Ok(Some((cert, key))),
        ((_, None), (_, None)) => Ok(None),
        ((present, Some(_)), (missing, None)) | ((missing, None), (present, Some(_))) => {
            half(present, missing)
        }
    }
}

#[cfg(test)]
mod tests;
