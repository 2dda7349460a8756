//! The objects of Kubernetes' API, as much of them as counts here.
//!
//! Invariant: as in Kubernetes, what is absent and what is `null` are the same, and what is not
//! known is passed over.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::quantity::Quantity;

/// The annotation of a claim with the node of its volume, once a pod was scheduled there.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Where old claims name their class.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Marks the class of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Reads `null` as if it was absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// What is an object in JSON and not a list, which would do as well otherwise.
#[derive(Clone, Debug, Default)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(Only(PhantomData)).map(Self)
    }
}

/// What every object has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Its name; empty for one that is still to get one.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The namespace that it is in.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// Its labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(deserialize_with = "or_default")]
    pub annotations: BTreeMap<String, String>,
}

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// What it is.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// What every object has.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What it is made of.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
}

/// What a pod is made of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodSpec {
    /// Its containers.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Its volumes.
    #[serde(deserialize_with = "or_default")]
    pub volumes: Vec<Volume>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// What it may and must get.
    pub resources: Option<Resources>,
}

/// What a container may and must get.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// The most, by resource.
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// The least, by resource.
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// A volume of a pod. Of its many kinds at most one is there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// Its name in the pod.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// It is what a claim is bound to.
    pub persistent_volume_claim: Option<ClaimReference>,
    /// It is made by a driver for this pod.
    pub csi: Option<Inline>,
    /// It is what a claim is bound to that is made for this pod.
    pub ephemeral: Option<Ephemeral>,
}

/// A reference to a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimReference {
    /// The claim, in the namespace of the pod.
    #[serde(deserialize_with = "or_default")]
    pub claim_name: String,
}

/// A volume that a driver makes for one pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Inline {
    /// The driver.
    #[serde(deserialize_with = "or_default")]
    pub driver: String,
    /// The driver's parameters.
    #[serde(deserialize_with = "or_default")]
    pub volume_attributes: BTreeMap<String, String>,
}

/// A volume whose claim is made for one pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ephemeral {
    /// What the claim is made from.
    #[serde(deserialize_with = "or_default")]
    pub volume_claim_template: Claim,
}

/// A claim of a persistent volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// What every object has.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What is claimed.
    #[serde(deserialize_with = "or_default")]
    pub spec: ClaimSpec,
    /// What came of it.
    #[serde(deserialize_with = "or_default")]
    pub status: ClaimStatus,
}

/// What is claimed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    /// The class; empty where a volume without a class is requested.
    pub storage_class_name: Option<String>,
    /// The volume, if it is there.
    #[serde(deserialize_with = "or_default")]
    pub volume_name: String,
    /// How much.
    #[serde(deserialize_with = "or_default")]
    pub resources: ClaimResources,
}

/// How much is claimed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimResources {
    /// At least.
    #[serde(deserialize_with = "or_default")]
    pub requests: ClaimRequests,
}

/// How much is claimed at least.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRequests {
    /// In bytes.
    pub storage: Option<Quantity>,
}

/// What came of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
}

impl Claim {
    /// Returns whether it has its volume.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.status.phase == "Bound" || !self.spec.volume_name.is_empty()
    }

    /// Returns whether the node of its volume has been decided on.
    #[must_use]
    pub fn has_node(&self) -> bool {
        let annotations = &self.metadata.annotations;
        annotations
            .get(SELECTED_NODE)
            .is_some_and(|n| !n.is_empty())
    }

    /// Returns the name of its class; `None` where it names none, empty where it requests none.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        let old = self.metadata.annotations.get(OLD_CLASS);
        old.or(self.spec.storage_class_name.as_ref())
            .map(String::as_str)
    }

    /// Returns how much it claims, in bytes.
    #[must_use]
    pub fn bytes(&self) -> i64 {
        let storage = self.spec.resources.requests.storage;
        storage.unwrap_or_default().value()
    }
}

/// A class of claims.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Class {
    /// What every object has.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// The driver that makes the volumes.
    #[serde(deserialize_with = "or_default")]
    pub provisioner: String,
    /// When: `Immediate` or `WaitForFirstConsumer`.
    #[serde(deserialize_with = "or_default")]
    pub volume_binding_mode: String,
}

impl Class {
    /// Returns whether this driver makes its volumes, and only when a node was chosen for a pod.
    /// Like PMEM-CSI it takes a class without a binding mode for one that waits.
    #[must_use]
    pub fn is_late(&self, driver: &str) -> bool {
        self.provisioner == driver && self.volume_binding_mode != "Immediate"
    }

    /// Returns whether it is the class of claims that name none.
    #[must_use]
    pub fn is_default(&self) -> bool {
        let annotation = self.metadata.annotations.get(DEFAULT_CLASS);
        annotation.is_some_and(|value| value == "true")
    }
}

/// A page of a list.
#[derive(Clone, Debug, Deserialize)]
pub struct List<T> {
    /// Where it goes on.
    #[serde(default, deserialize_with = "or_default")]
    pub metadata: ListMetadata,
    /// What is on this page.
    #[serde(
        default = "Vec::new",
        deserialize_with = "or_default",
        bound(deserialize = "T: Deserialize<'de>")
    )]
    pub items: Vec<T>,
}

/// Where a list goes on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ListMetadata {
    /// The token of the next page; empty: there is none.
    #[serde(rename = "continue", deserialize_with = "or_default")]
    pub next: String,
}

/// Returns whether a text can be the name of an object: nothing else may go into a path.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=253).contains(&bytes.len())
        && is_plain(bytes[0])
        && is_plain(bytes[bytes.len() - 1])
        && bytes.iter().all(|&b| is_plain(b) || b == b'-' || b == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_absent_and_the_unknown_is_passed_over() {
        let json = r#"{"kind":null,"metadata":{"name":null,"labels":null,"uid":"x"},"other":[1],
            "spec":{"volumes":[{"name":"v","emptyDir":{}},{"csi":{"driver":"d","volumeAttributes":null}},
            {"persistentVolumeClaim":null}],"containers":null},"status":{"phase":"Pending"}}"#;
        let pod: Pod = serde_json::from_str(json).unwrap();
        assert!(pod.metadata.name.is_empty() && pod.spec.containers.is_empty());
        assert_eq!(pod.spec.volumes.len(), 3);
        assert_eq!(pod.spec.volumes[1].csi.as_ref().unwrap().driver, "d");
        for kind in ["[]", "5", "\"pod\""] {
            assert!(serde_json::from_str::<Object<Pod>>(kind).is_err(), "{kind}");
        }
    }

    #[test]
    fn the_annotation_of_old_claims_names_their_class() {
        let json = format!(
            r#"{{"metadata":{{"annotations":{{"{OLD_CLASS}":"old"}}}},"spec":{{"storageClassName":"new"}}}}"#
        );
        let claim: Claim = serde_json::from_str(&json).unwrap();
        assert_eq!(claim.class(), Some("old"));
    }

    #[test]
    fn only_names_go_into_paths() {
        for good in ["a", "data-0", "my.class", &"a".repeat(253)] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "-a",
            "a-",
            "A",
            "a/b",
            "a?b",
            "a b",
            "ä",
            "a%2f",
            &"a".repeat(254),
        ] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
