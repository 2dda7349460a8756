//! The three resources from which a deployment is made.
//!
//! | resource | of |
//! |---|---|
//! | `Deployment`, `pmem-csi.intel.com/v1alpha1` | PMEM-CSI 0.7 |
//! | `PmemCSIDeployment`, `pmem-csi.intel.com/v1beta1` | PMEM-CSI 0.9 and later |
//! | `BerthStorage`, `berth.internal/v1alpha1` | Berth itself; the other two are converted to it |
//!
//! The schemas are generated from these types. A value that a schema refuses never reaches the operator.

mod alpha;
mod beta;
mod parts;
mod storage;

pub use alpha::{Deployment, DeploymentSpec};
pub use beta::{PmemCSIDeployment, PmemCSIDeploymentSpec};
pub use parts::{DeviceMode, LogFormat, MutatePods, PullPolicy, Quantity, Resources};
pub use storage::{BerthStorage, BerthStorageSpec, Certificates};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, ValidationRule,
};
use kube::CustomResourceExt as _;

/// The longest name of a deployment: it is the name of the CSI driver.
pub const NAME_BYTES_MAX: usize = 63;

/// Returns the definitions of all three resources.
#[must_use]
pub fn definitions() -> [CustomResourceDefinition; 3] {
    let derived = [
        Deployment::crd(),
        PmemCSIDeployment::crd(),
        BerthStorage::crd(),
    ];
    derived.map(complete)
}

/// The columns of `kubectl get`.
const COLUMNS: [(&str, &str, &str); 5] = [
    ("DeviceMode", "string", ".spec.deviceMode"),
    ("NodeSelector", "string", ".spec.nodeSelector"),
    ("Image", "string", ".spec.image"),
    ("Status", "string", ".status.phase"),
    ("Age", "date", ".metadata.creationTimestamp"),
];

/// Adds what all definitions have: the columns, and the bound of the name.
fn complete(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let columns = COLUMNS.map(|(name, type_, path)| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    });
    for version in &mut definition.spec.versions {
        version.additional_printer_columns = Some(columns.to_vec());
    }
    with_bounded_name(definition)
}

/// The derived schema cannot express a rule about the name.
fn with_bounded_name(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let rule = ValidationRule {
        rule: format!("self.metadata.name.size() <= {NAME_BYTES_MAX}"),
        message: Some(format!(
            "the name is the CSI driver's and has at most {NAME_BYTES_MAX} characters"
        )),
        ..ValidationRule::default()
    };
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            schema.x_kubernetes_validations = Some(vec![rule.clone()]);
        }
    }
    definition
}

#[cfg(test)]
mod tests;
