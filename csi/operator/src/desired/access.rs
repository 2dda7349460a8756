//! Accounts and permissions of controller and agents.

use serde_json::{Value, json};

use super::{Context, Part};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

pub(super) fn objects(context: &Context<'_>) -> Vec<Value> {
    let account = |part, content| {
        context.namespaced("v1", "ServiceAccount", &context.name(part), part, content)
    };
    let part = Part::Controller;
    let name = context.name(part);
    vec![
        account(Part::Controller, json!({})),
        // The agent does not call the API server.
        account(Part::Node, json!({"automountServiceAccountToken": false})),
        context.cluster_scoped(
            RBAC,
            "ClusterRole",
            &name,
            part,
            json!({"rules": cluster_rules()}),
        ),
        context.cluster_scoped(
            RBAC,
            "ClusterRoleBinding",
            &name,
            part,
            binding(context, "ClusterRole"),
        ),
        context.namespaced(RBAC, "Role", &name, part, json!({"rules": [lease_rule()]})),
        context.namespaced(RBAC, "RoleBinding", &name, part, binding(context, "Role")),
    ]
}

fn binding(context: &Context<'_>, kind: &str) -> Value {
    let name = context.name(Part::Controller);
    json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{
            "kind": "ServiceAccount",
            "name": name,
            "namespace": context.facts.namespace,
        }],
    })
}

/// What extender and webhook read, and what the provisioner writes.
pub(crate) fn cluster_rules() -> Value {
    json!([
        {
            "apiGroups": [""],
            "resources": ["persistentvolumes"],
            "verbs": ["get", "list", "watch", "create", "patch", "delete"],
        },
        {
            "apiGroups": [""],
            "resources": ["persistentvolumeclaims"],
            "verbs": ["get", "list", "watch", "update"],
        },
        {
            "apiGroups": ["storage.k8s.io"],
            "resources": ["storageclasses", "csinodes"],
            "verbs": ["get", "list", "watch"],
        },
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": [""],
            "resources": ["events"],
            "verbs": ["list", "watch", "create", "update", "patch"],
        },
    ])
}

/// Leader election among several provisioners.
pub(crate) fn lease_rule() -> Value {
    json!({
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    })
}
