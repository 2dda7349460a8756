//! `BerthStorage`: everything that a deployment of Berth's volumes can be configured with.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::parts::{
    DIRECTORY, DeviceMode, LogFormat, MutatePods, PERCENTAGE, PullPolicy, Resources,
};
use crate::status::Status;

/// A deployment of Berth's volumes of persistent memory.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "berth.internal",
    version = "v1alpha1",
    kind = "BerthStorage",
    plural = "berthstorages",
    shortname = "bst",
    doc = "A deployment of Berth's volumes of persistent memory; its name is the CSI driver's",
    status = "Status",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", default)]
pub struct BerthStorageSpec {
    /// The addresses of Berth's schedulers; those of the operator's configuration when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedulers: Vec<String>,
    /// The image of controller and agent; the operator's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    /// When images are fetched.
    pub image_pull_policy: PullPolicy,
    /// The image of the provisioner beside the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub provisioner_image: Option<String>,
    /// The image of the registrar beside each agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub node_registrar_image: Option<String>,
    /// How many controllers run.
    #[schemars(range(min = 1))]
    pub controller_replicas: i32,
    /// The resources of the controller.
    pub controller_resources: Resources,
    /// The resources of the provisioner.
    pub provisioner_resources: Resources,
    /// The resources of the agent.
    pub node_resources: Resources,
    /// The resources of the registrar.
    pub node_registrar_resources: Resources,
    /// How volumes are made of persistent memory.
    pub device_mode: DeviceMode,
    /// How much is logged: 0 warnings, 1 to 4 information, 5 and 6 debugging, from 7 on everything.
    #[schemars(range(min = 0, max = 65535))]
    pub log_level: i32,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The labels of the nodes that have persistent memory.
    pub node_selector: BTreeMap<String, String>,
    /// The part of each region that is used for volumes, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub pmem_percentage: i32,
    /// Labels of all objects.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The directory of the kubelet on each node.
    #[schemars(extend("pattern" = DIRECTORY))]
    pub kubelet_dir: String,
    /// How many agents may be unavailable while they are upgraded, as a number or in percent.
    #[schemars(extend("minimum" = 1, "pattern" = PERCENTAGE))]
    pub max_unavailable: IntOrString,
    /// Whether new pods are marked for the scheduler extender.
    pub mutate_pods: MutatePods,
    /// The port of each node through which a Kubernetes scheduler calls the extender; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub scheduler_node_port: Option<i32>,
    /// The certificates of the programs; made by the operator when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
}

/// Certificates in PEM that the programs present and verify.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Certificates {
    /// The certificate authority of all.
    #[schemars(with = "String", extend("format" = "byte"))]
    pub ca: ByteString,
    /// The controller's certificate.
    #[schemars(with = "String", extend("format" = "byte"))]
    pub controller_cert: ByteString,
    /// Its key.
    #[schemars(with = "String", extend("format" = "byte"))]
    pub controller_key: ByteString,
    /// The agents' certificate, for all hosts.
    #[schemars(with = "String", extend("format" = "byte"))]
    pub node_cert: ByteString,
    /// Its key.
    #[schemars(with = "String", extend("format" = "byte"))]
    pub node_key: ByteString,
}

impl Default for BerthStorageSpec {
    fn default() -> Self {
        Self {
            schedulers: Vec::new(),
            image: None,
            image_pull_policy: PullPolicy::default(),
            provisioner_image: None,
            node_registrar_image: None,
            controller_replicas: 1,
            controller_resources: Resources::requests("12m", "128Mi"),
            provisioner_resources: Resources::requests("12m", "128Mi"),
            node_resources: Resources::requests("100m", "250Mi"),
            node_registrar_resources: Resources::requests("12m", "128Mi"),
            device_mode: DeviceMode::default(),
            log_level: 3,
            log_format: LogFormat::default(),
            node_selector: BTreeMap::from([("storage".to_owned(), "pmem".to_owned())]),
            pmem_percentage: 100,
            labels: BTreeMap::new(),
            kubelet_dir: "/var/lib/kubelet".to_owned(),
            max_unavailable: IntOrString::Int(1),
            mutate_pods: MutatePods::default(),
            scheduler_node_port: None,
            certificates: None,
        }
    }
}
