//! The patch that marks a pod: its first container requests one of the resource (RFC 6902).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::kubernetes::object::Pod;
use crate::kubernetes::quantity::Quantity;

/// How much of the resource is requested.
const AMOUNT: &str = "1";

/// One step of a patch. Adding replaces what is there.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Operation {
    op: &'static str,
    path: String,
    value: Value,
}

/// Returns what marks a pod that has a container; nothing if it is marked.
pub(super) fn marking(pod: &Pod, resource: &str) -> Vec<Operation> {
    let Some(first) = pod.spec.containers.first() else {
        return Vec::new();
    };
    let at = "/spec/containers/0/resources";
    let Some(resources) = &first.resources else {
        let one = json!({ resource: AMOUNT });
        let value = json!({ "limits": one, "requests": one });
        return vec![add(at.to_owned(), value)];
    };
    let lists = [
        ("limits", &resources.limits),
        ("requests", &resources.requests),
    ];
    let steps = lists.into_iter();
    steps
        .filter_map(|(list, has)| one_of(&format!("{at}/{list}"), has.as_ref(), resource))
        .collect()
}

/// Returns the step that puts one of the resource into a list of resources.
fn one_of(at: &str, has: Option<&BTreeMap<String, Quantity>>, resource: &str) -> Option<Operation> {
    match has {
        None => Some(add(at.to_owned(), json!({ resource: AMOUNT }))),
        Some(has) if has.get(resource).is_some_and(|amount| amount.value() == 1) => None,
        Some(_) => Some(add(format!("{at}/{}", escaped(resource)), json!(AMOUNT))),
    }
}

fn add(path: String, value: Value) -> Operation {
    Operation {
        op: "add",
        path,
        value,
    }
}

/// Writes a key as a part of a path.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCE: &str = "pmem-csi.intel.com/scheduler";

    fn check(container: &str, expected: Value) {
        let pod = format!(r#"{{"spec":{{"containers":[{container},{{"name":"second"}}]}}}}"#);
        let pod: Pod = serde_json::from_str(&pod).unwrap();
        let steps = serde_json::to_value(marking(&pod, RESOURCE)).unwrap();
        assert_eq!(steps, expected, "{container}");
    }

    #[test]
    fn only_what_is_missing_is_added() {
        let at = "/spec/containers/0/resources";
        let one = json!({ RESOURCE: "1" });
        let whole = json!([{"op": "add", "path": at, "value": {"limits": one, "requests": one}}]);
        check(r#"{"name":"c"}"#, whole.clone());
        check(r#"{"resources":null}"#, whole);
        let limits = json!({"op": "add", "path": format!("{at}/limits"), "value": one});
        let requests = json!({"op": "add", "path": format!("{at}/requests"), "value": one});
        check(r#"{"resources":{}}"#, json!([limits, requests]));
        let escaped = "pmem-csi.intel.com~1scheduler";
        let into = |list: &str| json!({"op": "add", "path": format!("{at}/{list}/{escaped}"), "value": "1"});
        check(
            r#"{"resources":{"requests":{"cpu":"100m"}}}"#,
            json!([limits, into("requests")]),
        );
        check(
            r#"{"resources":{"limits":{"cpu":1},"requests":{"pmem-csi.intel.com/scheduler":"2"}}}"#,
            json!([into("limits"), into("requests")]),
        );
        check(
            r#"{"resources":{"limits":{"pmem-csi.intel.com/scheduler":"1"},"requests":{"pmem-csi.intel.com/scheduler":1}}}"#,
            json!([]),
        );
    }
}
