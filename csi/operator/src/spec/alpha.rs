//! `Deployment` of `pmem-csi.intel.com/v1alpha1`, with the fields of PMEM-CSI 0.7.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts::{DeviceMode, PullPolicy, Resources};
use crate::status::Status;

/// A deployment of the driver.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "pmem-csi.intel.com",
    version = "v1alpha1",
    kind = "Deployment",
    plural = "deployments",
    doc = "A deployment of the driver, with the fields of PMEM-CSI 0.7; its name is the CSI driver's",
    status = "Status",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.registryCert) == has(self.registryKey)",
        "message": "registryCert and registryKey are given together"
    },
    {
        "rule": "has(self.nodeControllerCert) == has(self.nodeControllerKey)",
        "message": "nodeControllerCert and nodeControllerKey are given together"
    },
    {
        "rule": "has(self.registryCert) == has(self.caCert) && has(self.nodeControllerCert) == has(self.caCert)",
        "message": "registryCert, nodeControllerCert and caCert are given together"
    }
]))]
pub struct DeploymentSpec {
    /// The image of controller and agent; the operator's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When images are fetched; IfNotPresent when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// The image of the provisioner beside the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner_image: Option<String>,
    /// The image of the registrar beside each agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_registrar_image: Option<String>,
    /// The resources of each container of the controller's pod; limits of 100m and 250Mi when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_resources: Option<Resources>,
    /// The resources of each container of the agent's pod; limits of 100m and 250Mi when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_resources: Option<Resources>,
    /// How volumes are made of persistent memory; lvm when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_mode: Option<DeviceMode>,
    /// How much is logged; 3 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub log_level: Option<i32>,
    /// The controller's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "byte"))]
    pub registry_cert: Option<ByteString>,
    /// The key of the controller's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "byte"))]
    pub registry_key: Option<ByteString>,
    /// The agents' certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "byte"))]
    pub node_controller_cert: Option<ByteString>,
    /// The key of the agents' certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "byte"))]
    pub node_controller_key: Option<ByteString>,
    /// The certificate authority of both certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "byte"))]
    pub ca_cert: Option<ByteString>,
    /// The labels of the nodes that have persistent memory; storage: pmem when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The part of each region that is used for volumes, in percent; 0 and absent are 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub pmem_percentage: Option<i32>,
    /// Labels of all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}
