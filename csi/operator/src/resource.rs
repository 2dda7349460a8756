//! A resource as the API server returned it, of any of the three kinds.
//!
//! Resources are read as JSON and parsed one by one: a stored object that the types refuse is a fault of
//! that object, and does not hide the others.
//!
//! Invariant: parsing is total.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::convert;
use crate::desired::Owner;
use crate::spec::{BerthStorageSpec, DeploymentSpec, PmemCSIDeploymentSpec};
use crate::status::Status;

/// The finalizer by which a deletion waits for the volumes.
pub const FINALIZER: &str = "berth.internal/volumes";
/// The annotation with which a deletion does not wait; its value is `true`.
pub const DELETE_WITH_VOLUMES: &str = "berth.internal/delete-with-volumes";

/// A kind of resource from which a deployment is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Of PMEM-CSI 0.7.
    Deployment,
    /// Of PMEM-CSI 0.9 and later.
    PmemCsiDeployment,
    /// Berth's own.
    BerthStorage,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [
        Self::Deployment,
        Self::PmemCsiDeployment,
        Self::BerthStorage,
    ];

    /// Returns the API group.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::Deployment | Self::PmemCsiDeployment => "pmem-csi.intel.com",
            Self::BerthStorage => "berth.internal",
        }
    }

    /// Returns the version.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Deployment | Self::BerthStorage => "v1alpha1",
            Self::PmemCsiDeployment => "v1beta1",
        }
    }

    /// Returns group and version.
    #[must_use]
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
    }

    /// Returns the name of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::PmemCsiDeployment => "PmemCSIDeployment",
            Self::BerthStorage => "BerthStorage",
        }
    }

    /// Returns the name in paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::PmemCsiDeployment => "pmemcsideployments",
            Self::BerthStorage => "berthstorages",
        }
    }

    /// Returns the kind of these names, if it is one.
    #[must_use]
    pub fn parse(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|one| one.api_version() == api_version && one.as_str() == kind)
    }
}

/// Which resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

impl Request {
    /// Returns the resource that controls an object, if it is of one of the kinds.
    #[must_use]
    pub fn of_owner(object: &Value) -> Option<Self> {
        let owners = object["metadata"]["ownerReferences"].as_array()?;
        owners.iter().find_map(|owner| {
            let text = |key: &str| owner[key].as_str().unwrap_or_default();
            let kind = Kind::parse(text("apiVersion"), text("kind"))?;
            (owner["controller"] == true).then(|| Self {
                kind,
                name: text("name").to_owned(),
            })
        })
    }
}

/// A resource.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its kind.
    pub kind: Kind,
    /// What its objects name as their owner.
    pub owner: Owner,
    /// Everything that it is configured with, or why it cannot be read.
    pub spec: Result<BerthStorageSpec, String>,
    /// When it was created, as the API server writes it: these texts are ordered as the times are.
    pub created: String,
    /// Changes with its spec.
    pub generation: i64,
    /// Whether its deletion was requested.
    pub is_deleting: bool,
    /// What its deletion waits for.
    pub finalizers: Vec<String>,
    /// Whether its deletion does not wait for its volumes.
    pub deletes_with_volumes: bool,
    /// The stored status.
    pub status: Status,
    /// Changes with every write.
    pub resource_version: String,
}

impl Resource {
    /// Reads an object.
    #[must_use]
    pub fn parse(kind: Kind, object: &Value) -> Self {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
        Self {
            kind,
            owner: Owner {
                api_version: kind.api_version(),
                kind: kind.as_str().to_owned(),
                name: text("name"),
                uid: text("uid"),
            },
            spec: spec(kind, &object["spec"]),
            created: text("creationTimestamp"),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            is_deleting: metadata["deletionTimestamp"].is_string(),
            finalizers: finalizers
                .filter_map(|one| one.as_str().map(str::to_owned))
                .collect(),
            deletes_with_volumes: metadata["annotations"][DELETE_WITH_VOLUMES] == "true",
            status: serde_json::from_value(object["status"].clone()).unwrap_or_default(),
            resource_version: text("resourceVersion"),
        }
    }

    /// Returns which it is.
    #[must_use]
    pub fn request(&self) -> Request {
        Request {
            kind: self.kind,
            name: self.owner.name.clone(),
        }
    }

    /// Returns whether its deletion waits for the operator.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|one| one == FINALIZER)
    }

    /// Returns whether it was created before another one. Of two that were created within a second the
    /// unique identifiers decide, so that exactly one is the earlier one.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        (&self.created, &self.owner.uid) < (&other.created, &other.owner.uid)
    }
}

fn spec(kind: Kind, spec: &Value) -> Result<BerthStorageSpec, String> {
    match kind {
        Kind::Deployment => {
            convert::from_alpha(&read::<DeploymentSpec>(spec)?).map_err(|error| error.to_string())
        }
        Kind::PmemCsiDeployment => Ok(convert::from_beta(&read::<PmemCSIDeploymentSpec>(spec)?)),
        Kind::BerthStorage => read(spec),
    }
}

/// An absent spec is an empty one: every field has a default.
fn read<T: DeserializeOwned + Default>(spec: &Value) -> Result<T, String> {
    if spec.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(spec.clone()).map_err(|error| format!("the spec is invalid: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::definitions;

    /// Goal: the names are those of the definitions.
    #[test]
    fn kinds_are_named_as_they_are_defined() {
        for (kind, definition) in Kind::ALL.into_iter().zip(definitions()) {
            let spec = definition.spec;
            assert_eq!(spec.group, kind.group());
            assert_eq!(spec.versions[0].name, kind.version());
            assert_eq!(spec.names.kind, kind.as_str());
            assert_eq!(spec.names.plural, kind.plural());
            assert_eq!(Kind::parse(&kind.api_version(), kind.as_str()), Some(kind));
        }
        assert_eq!(Kind::parse("apps/v1", "Deployment"), None);
    }

    #[test]
    fn anything_is_read() {
        let cases = [
            json!(null),
            json!([]),
            json!({"metadata": 1, "spec": "x", "status": []}),
        ];
        for object in cases {
            for kind in Kind::ALL {
                let resource = Resource::parse(kind, &object);
                assert_eq!(resource.spec.is_err(), object["spec"].is_string());
                assert_eq!(resource.status, Status::default());
            }
        }
    }

    #[test]
    fn what_an_object_says_is_read() {
        let object = json!({
            "metadata": {
                "name": "d.example", "uid": "u", "generation": 3, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z",
                "finalizers": ["other", FINALIZER],
                "annotations": {DELETE_WITH_VOLUMES: "true"},
            },
            "spec": {"deviceMode": "direct"},
            "status": {"phase": "Running"},
        });
        for kind in Kind::ALL {
            let resource = Resource::parse(kind, &object);
            assert!(
                resource.is_deleting && resource.has_finalizer() && resource.deletes_with_volumes
            );
            assert_eq!(
                (resource.generation, resource.resource_version.as_str()),
                (3, "7")
            );
            let spec = resource.spec.as_ref().expect("a spec");
            assert_eq!(spec.device_mode, crate::spec::DeviceMode::Direct);
            assert_eq!(resource.request().name, "d.example");
        }
        let bad = json!({"spec": {"nodeDriverResources": {"limits": {"cpu": "much"}}}});
        let error = Resource::parse(Kind::PmemCsiDeployment, &bad)
            .spec
            .expect_err("it is bad");
        assert!(error.contains("\"much\" is no quantity"), "{error}");
    }

    #[test]
    fn an_object_is_mapped_to_its_controller() {
        let owner = |controller: bool, kind: &str| {
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "controller": true},
                {"apiVersion": "berth.internal/v1alpha1", "kind": kind, "name": "d", "controller": controller},
            ]}})
        };
        let request = Request {
            kind: Kind::BerthStorage,
            name: "d".to_owned(),
        };
        assert_eq!(
            Request::of_owner(&owner(true, "BerthStorage")),
            Some(request)
        );
        assert_eq!(Request::of_owner(&owner(false, "BerthStorage")), None);
        assert_eq!(Request::of_owner(&owner(true, "Deployment")), None);
        assert_eq!(Request::of_owner(&json!({})), None);
    }

    #[test]
    fn of_two_exactly_one_is_earlier() {
        let resource = |created: &str, uid: &str| {
            let object = json!({"metadata": {"creationTimestamp": created, "uid": uid}});
            Resource::parse(Kind::BerthStorage, &object)
        };
        let (a, b) = (
            resource("2026-01-01T00:00:00Z", "a"),
            resource("2026-01-01T00:00:00Z", "b"),
        );
        let later = resource("2026-01-01T00:00:01Z", "0");
        assert!(a.is_before(&b) && !b.is_before(&a) && !a.is_before(&a));
        assert!(b.is_before(&later) && !later.is_before(&b));
    }
}
