//! `PmemCSIDeployment` of `pmem-csi.intel.com/v1beta1`, with the fields of PMEM-CSI 1.x.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts::{
    DIRECTORY_OR_NONE, DeviceMode, LogFormat, MutatePods, PERCENTAGE, PullPolicy, Resources,
};
use crate::status::Status;

/// A deployment of the driver.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "pmem-csi.intel.com",
    version = "v1beta1",
    kind = "PmemCSIDeployment",
    plural = "pmemcsideployments",
    shortname = "pcd",
    doc = "A deployment of the driver, with the fields of PMEM-CSI 1.x; its name is the CSI driver's",
    status = "Status",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct PmemCSIDeploymentSpec {
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
    /// The resources of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_driver_resources: Option<Resources>,
    /// The resources of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_driver_resources: Option<Resources>,
    /// The resources of the provisioner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner_resources: Option<Resources>,
    /// The resources of the registrar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_registrar_resources: Option<Resources>,
    /// How many controllers run; 0 and absent are 1. PMEM-CSI's spelling.
    #[serde(rename = "controllReplicas", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub controller_replicas: Option<i32>,
    /// How volumes are made of persistent memory; lvm when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_mode: Option<DeviceMode>,
    /// How much is logged; 3 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub log_level: Option<i32>,
    /// The format of log lines; text when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,
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
    /// The directory of the kubelet on each node; /var/lib/kubelet when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = DIRECTORY_OR_NONE))]
    pub kubelet_dir: Option<String>,
    /// How many agents may be unavailable while they are upgraded, as a number or in percent; 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1, "pattern" = PERCENTAGE))]
    pub max_unavailable: Option<IntOrString>,
    /// Accepted for compatibility and ignored: a secret of the given name is not read.
    #[serde(
        rename = "controllerTLSSecret",
        skip_serializing_if = "Option::is_none"
    )]
    pub controller_tls_secret: Option<String>,
    /// Whether new pods are marked for the scheduler extender; Try when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutate_pods: Option<MutatePods>,
    /// The port of each node through which a Kubernetes scheduler calls the extender; 0 and absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub scheduler_node_port: Option<i32>,
}
