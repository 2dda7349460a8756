//! Goal: a change of one field of a resource changes the objects where it must, and the change back
//! restores them. Method: the fields of PMEM-CSI's table of updates, each by itself and all at once, on
//! an object with defaults and on one with values.

use super::{BerthStorageSpec, Value, expect_valid, get, json, merge, objects};
use crate::convert::from_beta;

/// A field, its new value, and the place that must have the last value afterwards.
struct Update {
    field: &'static str,
    value: Value,
    place: Place,
    expected: Value,
}

/// An object and a pointer into it; or a line of the configuration in it.
enum Place {
    At(&'static str, &'static str, &'static str),
    Line(&'static str),
}

const CONTROLLER: (&str, &str) = ("Deployment", "pmem-csi-intel-com-controller");
const NODE: (&str, &str) = ("DaemonSet", "pmem-csi-intel-com-node");

fn at(object: (&'static str, &'static str), pointer: &'static str) -> Place {
    Place::At(object.0, object.1, pointer)
}

fn updates() -> Vec<Update> {
    let same = |field, value: Value, place| Update {
        field,
        expected: value.clone(),
        value,
        place,
    };
    let line = |field, value: Value, line: &'static str| Update {
        field,
        value,
        place: Place::Line(line),
        expected: Value::Null,
    };
    let resources = || json!({"limits": {"cpu": "201m"}, "requests": {"memory": "101Mi"}});
    let first = "/spec/template/spec/containers/0/resources";
    let second = "/spec/template/spec/containers/1/resources";
    let service = ("Service", "pmem-csi-intel-com-controller");
    let webhook = ("MutatingWebhookConfiguration", "pmem-csi-intel-com");
    vec![
        same(
            "image",
            json!("x:1"),
            at(NODE, "/spec/template/spec/containers/0/image"),
        ),
        same(
            "imagePullPolicy",
            json!("Never"),
            at(
                CONTROLLER,
                "/spec/template/spec/containers/0/imagePullPolicy",
            ),
        ),
        same(
            "provisionerImage",
            json!("x:2"),
            at(CONTROLLER, "/spec/template/spec/containers/1/image"),
        ),
        same(
            "nodeRegistrarImage",
            json!("x:3"),
            at(NODE, "/spec/template/spec/containers/1/image"),
        ),
        same(
            "controllerDriverResources",
            resources(),
            at(CONTROLLER, first),
        ),
        same("provisionerResources", resources(), at(CONTROLLER, second)),
        same("nodeDriverResources", resources(), at(NODE, first)),
        same("nodeRegistrarResources", resources(), at(NODE, second)),
        same(
            "controllReplicas",
            json!(5),
            at(CONTROLLER, "/spec/replicas"),
        ),
        line("logLevel", json!(7), "log_filter = \"trace\""),
        line("logFormat", json!("json"), "log_format = \"json\""),
        same(
            "nodeSelector",
            json!({"still-not": "such-label"}),
            at(NODE, "/spec/template/spec/nodeSelector"),
        ),
        line("pmemPercentage", json!(33), "fsdax_percent = 33"),
        line("deviceMode", json!("direct"), "manager = \"direct\""),
        Update {
            field: "labels",
            value: json!({"foo": "bar"}),
            place: at(NODE, "/metadata/labels/foo"),
            expected: json!("bar"),
        },
        Update {
            field: "kubeletDir",
            value: json!("/foo/bar"),
            place: at(NODE, "/spec/template/spec/volumes/6/hostPath/path"),
            expected: json!("/foo/bar/pods"),
        },
        same(
            "maxUnavailable",
            json!("20%"),
            at(
                NODE,
                "/metadata/annotations/berth.internal~1max-unavailable",
            ),
        ),
        same(
            "schedulerNodePort",
            json!(31000),
            at(service, "/spec/ports/0/nodePort"),
        ),
        Update {
            field: "mutatePods",
            value: json!("Always"),
            place: at(webhook, "/webhooks/0/failurePolicy"),
            expected: json!("Fail"),
        },
    ]
}

fn spec(written: &Value) -> BerthStorageSpec {
    from_beta(&serde_json::from_value(written.clone()).expect("a spec"))
}

/// Every field with a value that is neither the default nor that of the table.
fn with_values() -> Value {
    let resources = json!({"limits": {"cpu": "200m", "memory": "100Mi"}});
    json!({
        "image": "base:1",
        "imagePullPolicy": "Always",
        "provisionerImage": "base:2",
        "nodeRegistrarImage": "base:3",
        "controllerDriverResources": resources,
        "provisionerResources": resources,
        "nodeDriverResources": resources,
        "nodeRegistrarResources": resources,
        "controllReplicas": 2,
        "logLevel": 0,
        "nodeSelector": {"no-such-label": "x"},
        "pmemPercentage": 50,
        "labels": {"a": "b"},
        "kubeletDir": "/kubelet",
        "maxUnavailable": 2,
        "schedulerNodePort": 30000,
        "mutatePods": "Try",
    })
}

fn expect_effect(objects: &[Value], update: &Update) {
    match update.place {
        Place::At(kind, name, pointer) => {
            let value = get(objects, kind, name).pointer(pointer);
            assert_eq!(value, Some(&update.expected), "{}", update.field);
        }
        Place::Line(line) => {
            let map = get(objects, "ConfigMap", NODE.1);
            let text = map["data"]["compute-agent.toml"].as_str().expect("text");
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}

/// Returns the objects that differ, as kind and name.
fn changed(before: &[Value], after: &[Value]) -> usize {
    let differs = |object: &&Value| !before.contains(object);
    after.iter().filter(differs).count()
}

#[test]
fn each_field_by_itself() {
    for base in [json!({}), with_values()] {
        let before = objects(&spec(&base));
        for update in updates() {
            let mut written = base.clone();
            written[update.field] = update.value.clone();
            let after = objects(&spec(&written));
            after.iter().for_each(expect_valid);
            expect_effect(&after, &update);
            assert!(changed(&before, &after) > 0, "{}", update.field);
            // Whatever changed is noticed in the objects of before, as they are in the cluster.
            for object in &after {
                let name = object["metadata"]["name"].as_str().expect("a name");
                let live = get(&before, object["kind"].as_str().expect("a kind"), name);
                assert_eq!(crate::diff::covers(live, object), live == object);
            }
            assert_eq!(objects(&spec(&base)), before);
        }
    }
}

#[test]
fn all_fields_at_once() {
    for base in [json!({}), with_values()] {
        let mut written = base.clone();
        for update in updates() {
            // Replaced, not merged.
            written[update.field] = Value::Null;
            written[update.field] = update.value;
        }
        let after = objects(&spec(&written));
        for update in updates() {
            expect_effect(&after, &update);
        }
        assert!(changed(&objects(&spec(&base)), &after) >= after.len() - 1);
    }
}

/// Goal: the table has every field of the resource, so that none is added without its effect.
#[test]
fn the_table_is_complete() {
    let mut all = json!({});
    for update in updates() {
        merge(&mut all, &json!({update.field: update.value}));
    }
    // Ignored by design.
    all["controllerTLSSecret"] = json!("x");
    let typed: crate::spec::PmemCSIDeploymentSpec =
        serde_json::from_value(all).expect("every field is known");
    let json = serde_json::to_value(typed).expect("JSON");
    let definition = crate::spec::definitions()[1].clone();
    let schema = serde_json::to_value(definition).expect("JSON");
    let pointer = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = schema
        .pointer(pointer)
        .and_then(Value::as_object)
        .expect("fields");
    assert_eq!(
        json.as_object().map(serde_json::Map::len),
        Some(fields.len())
    );
}
