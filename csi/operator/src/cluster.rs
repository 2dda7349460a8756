//! What the operator reads from the API server besides the objects that it makes: resources, nodes,
//! secrets; and what it writes besides them: a finalizer, a status, an event.
//!
//! Everything is read from the API server when it is needed. Watches only say when.
//!
//! Invariant: writes name the version that was read, so none is made on an outdated view.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node as KubeNode, Secret};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::certificates::{Files, Node};
use crate::event;
use crate::plan::Key;
use crate::reconcile::{ApiServer, Error, FIELD_MANAGER, api};
use crate::resource::{Kind, Resource};
use crate::status::Status;

/// Nodes are read in pages: a large cluster has thousands.
const NODES_PAGE: u32 = 500;

/// Returns the API of one kind of resource.
#[must_use]
pub fn resources_api(server: &ApiServer, kind: Kind) -> Api<DynamicObject> {
    let names = GroupVersionKind::gvk(kind.group(), kind.version(), kind.as_str());
    let resource = ApiResource::from_gvk_with_plural(&names, kind.plural());
    Api::all_with(server.client.clone(), &resource)
}

fn key_of(kind: Kind, name: &str) -> Key {
    Key {
        api_version: kind.api_version(),
        kind: kind.as_str().to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

/// Returns all resources of all kinds. Of a kind that the API server does not serve there are none.
///
/// # Errors
///
/// With the first request that fails.
pub async fn resources(server: &ApiServer) -> Result<Vec<Resource>, Error> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let params = ListParams::default();
        let api = resources_api(server, kind);
        let key = key_of(kind, "");
        match server.within("list", &key, "", api.list(&params)).await {
            Ok(list) => all.extend(list.iter().map(|one| Resource::parse(kind, &json!(one)))),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn is_missing(error: &Error) -> bool {
    let Error::Request { source, .. } = error else {
        return false;
    };
    let kube::Error::Api(status) = source.as_ref() else {
        return false;
    };
    status.code == 404
}

fn is_existing(error: &Error) -> bool {
    let Error::Request { source, .. } = error else {
        return false;
    };
    let kube::Error::Api(status) = source.as_ref() else {
        return false;
    };
    status.code == 409 && status.reason == "AlreadyExists"
}

/// Returns the nodes with these labels.
///
/// # Errors
///
/// When they cannot be read.
pub async fn nodes(
    server: &ApiServer,
    selector: &BTreeMap<String, String>,
) -> Result<Vec<Node>, Error> {
    let labels: Vec<String> = selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let api: Api<KubeNode> = Api::all(server.client.clone());
    let key = Key {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        namespace: String::new(),
        name: String::new(),
    };
    let mut params = ListParams::default()
        .labels(&labels.join(","))
        .limit(NODES_PAGE);
    let mut all = Vec::new();
    loop {
        let page = server.within("list", &key, "", api.list(&params)).await?;
        all.extend(page.items.iter().map(to_node));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

fn to_node(node: &KubeNode) -> Node {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    let internal = addresses.into_iter().flatten();
    let internal = internal.filter(|address| address.type_ == "InternalIP");
    Node {
        name: node.name_any(),
        labels: node.labels().clone(),
        addresses: internal
            .filter_map(|address| address.address.parse().ok())
            .collect(),
    }
}

/// Returns the content of a secret, with its owners as an object has them; `None` if there is none.
///
/// # Errors
///
/// When it cannot be read.
pub async fn secret(
    server: &ApiServer,
    namespace: &str,
    name: &str,
) -> Result<Option<(Value, Files)>, Error> {
    let api: Api<Secret> = Api::namespaced(server.client.clone(), namespace);
    let key = Key {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let secret = server.within("get", &key, name, api.get_opt(name)).await?;
    Ok(secret.map(|secret| {
        let files = secret.data.clone().unwrap_or_default();
        let files = files.into_iter().map(|(name, bytes)| (name, bytes.0));
        (json!({"metadata": secret.metadata}), files.collect())
    }))
}

/// Returns an object; `None` if there is none.
///
/// # Errors
///
/// When it cannot be read.
pub async fn object(server: &ApiServer, key: &Key) -> Result<Option<Value>, Error> {
    let api = api(server, key);
    let object = server
        .within("get", key, &key.name, api.get_opt(&key.name))
        .await?;
    Ok(object.map(|object| json!(object)))
}

/// Returns the objects of a kind that a DaemonSet controls: its pods and its revisions.
///
/// # Errors
///
/// When they cannot be read.
pub async fn owned(server: &ApiServer, key: Key, daemon_set: &Value) -> Result<Vec<Value>, Error> {
    // Both have the labels of the template.
    let labels = daemon_set["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let params = ListParams::default().labels(&labels.join(","));
    let list = server
        .within("list", &key, "", api(server, &key).list(&params))
        .await?;
    let uid = &daemon_set["metadata"]["uid"];
    let is_owned = |object: &Value| {
        let mut owners = object["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten();
        owners.any(|owner| owner["controller"] == true && owner["uid"] == *uid)
    };
    let objects = list.into_iter().map(|object| json!(object));
    Ok(objects.filter(is_owned).collect())
}

/// Replaces the finalizers of a resource; returns it as it is then.
///
/// # Errors
///
/// When the request fails, as for a resource that was changed meanwhile.
pub async fn set_finalizers(
    server: &ApiServer,
    resource: &Resource,
    finalizers: &[String],
) -> Result<Resource, Error> {
    server.expect_active()?;
    let patch = json!({"metadata": {
        "resourceVersion": resource.resource_version,
        "finalizers": finalizers,
    }});
    let name = &resource.owner.name;
    let api = resources_api(server, resource.kind);
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(&patch);
    let written = server
        .within(
            "patch",
            &key_of(resource.kind, name),
            name,
            api.patch(name, &params, &patch),
        )
        .await?;
    Ok(Resource::parse(resource.kind, &json!(written)))
}

/// Replaces the status of a resource, and not what it had of fields that are absent now.
///
/// # Errors
///
/// When the request fails, as for a resource that was changed meanwhile.
pub async fn write_status(
    server: &ApiServer,
    resource: &Resource,
    status: &Status,
) -> Result<(), Error> {
    server.expect_active()?;
    let name = &resource.owner.name;
    let key = key_of(resource.kind, name);
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": key.api_version,
        "kind": key.kind,
        "metadata": {"name": name, "resourceVersion": resource.resource_version},
        "status": status,
    }))
    .map_err(|source| Error::Request {
        verb: "encode",
        kind: key.kind.clone(),
        name: name.clone(),
        source: Box::new(kube::Error::SerdeError(source)),
    })?;
    let api = resources_api(server, resource.kind);
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let request = api.replace_status(name, &params, &object);
    server
        .within("replace the status of", &key, name, request)
        .await?;
    Ok(())
}

/// Creates an event; one that exists already is the same.
///
/// # Errors
///
/// When the request fails.
pub async fn create_event(server: &ApiServer, event: &Value) -> Result<(), Error> {
    server.expect_active()?;
    let key = Key::of(event);
    let object: DynamicObject =
        serde_json::from_value(event.clone()).map_err(|source| Error::Request {
            verb: "encode",
            kind: key.kind.clone(),
            name: key.name.clone(),
            source: Box::new(kube::Error::SerdeError(source)),
        })?;
    debug_assert_eq!(key.namespace, event::NAMESPACE);
    let api = api(server, &key);
    let params = PostParams::default();
    let request = api.create(&params, &object);
    match server.within("create", &key, &key.name, request).await {
        Ok(_) => Ok(()),
        Err(error) if is_existing(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_connect_to_the_internal_addresses() {
        let node: KubeNode = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"storage": "pmem"}},
            "status": {"addresses": [
                {"type": "Hostname", "address": "n1"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": "192.0.2.1"},
                {"type": "InternalIP", "address": "fd00::1"},
            ]},
        }))
        .expect("a node");
        let node = to_node(&node);
        let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(
            (node.name.as_str(), addresses),
            ("n1", vec!["10.0.0.1".into(), "fd00::1".into()])
        );
        assert_eq!(node.labels["storage"], "pmem");
        assert_eq!(
            to_node(&KubeNode::default()).addresses,
            Vec::<std::net::IpAddr>::new()
        );
    }
}
