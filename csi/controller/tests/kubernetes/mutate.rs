//! Which pods are marked.
//!
//! Goal: the nine situations that PMEM-CSI's own tests know, and a few more. Method: the patch is
//! applied to the pod, so that what counts is the pod that comes out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{DRIVER, Place, claim, inline, of_claim, pod};

const RESOURCE: &str = "pmem-csi.intel.com/scheduler";

fn review(pod: &Value) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "namespace": crate::support::NAMESPACE,
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "object": pod,
        },
    })
}

/// Returns the answer, and the pod that comes out of it.
async fn mutate(place: &Place, pod: &Value) -> (Value, Value) {
    let answer = place.ask("/pod/mutate", &review(pod)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let response = answer.json()["response"].clone();
    assert_eq!(response["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    let mut pod = pod.clone();
    if let Some(patch) = response["patch"].as_str() {
        assert_eq!(response["patchType"], "JSONPatch");
        let patch: Value = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        for step in patch.as_array().unwrap() {
            assert_eq!(step["op"], "add");
            let (parent, key) = step["path"].as_str().unwrap().rsplit_once('/').unwrap();
            let key = key.replace("~1", "/").replace("~0", "~");
            let parent = pod.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            parent.insert(key, step["value"].clone());
        }
    }
    (response, pod)
}

fn is_marked(pod: &Value) -> bool {
    let resources = &pod["spec"]["containers"][0]["resources"];
    resources["limits"][RESOURCE] == "1" && resources["requests"][RESOURCE] == "1"
}

/// A pod made from a template has neither name nor namespace.
fn template(volumes: &[Value]) -> Value {
    let mut pod = pod(volumes);
    pod["metadata"] = json!({"generateName": "web-"});
    pod
}

async fn place() -> Place {
    let place = Place::start(&[]).await.with_classes();
    for class in ["late", "immediate", "other", "unknown"] {
        place
            .api
            .put_claim(&claim(&format!("of-{class}"), Some(class), "1Gi"));
    }
    place.api.put_claim(&claim("of-nothing", None, "1Gi"));
    place
}

#[tokio::test]
async fn pods_that_wait_for_a_node_are_marked() {
    let place = place().await;
    for volumes in [
        vec![of_claim("of-late")],
        vec![of_claim("of-other"), of_claim("of-late")],
        vec![inline(DRIVER, "1Gi")],
        vec![of_claim("missing"), inline(DRIVER, "1Gi")],
    ] {
        for pod in [pod(&volumes), template(&volumes)] {
            let (response, marked) = mutate(&place, &pod).await;
            assert_eq!(response["allowed"], true, "{response}");
            assert!(is_marked(&marked), "{pod}: {response}");
            let (response, again) = mutate(&place, &marked).await;
            assert_eq!(
                response["patch"],
                Value::Null,
                "a second time changes nothing"
            );
            assert_eq!(again, marked);
        }
    }
    place.end().await;
}

#[tokio::test]
async fn other_pods_are_let_through() {
    let place = place().await;
    for (volumes, why) in [
        (vec![], "no volumes"),
        (vec![of_claim("of-immediate")], "no relevant PMEM volumes"),
        (vec![of_claim("of-other")], "no relevant PMEM volumes"),
        (vec![of_claim("of-nothing")], "no relevant PMEM volumes"),
        (vec![of_claim("missing")], "no relevant PMEM volumes"),
        (
            vec![of_claim("../../../secrets/x")],
            "no relevant PMEM volumes",
        ),
        (vec![of_claim("of-unknown")], "no relevant PMEM volumes"),
        (
            vec![inline("another.driver", "1Gi")],
            "no relevant PMEM volumes",
        ),
        (
            vec![json!({"name": "e", "emptyDir": {}})],
            "no relevant PMEM volumes",
        ),
    ] {
        let (response, _) = mutate(&place, &pod(&volumes)).await;
        assert_eq!(response["allowed"], true, "{volumes:?}");
        assert_eq!(response["patch"], Value::Null, "{volumes:?}");
        assert_eq!(response["status"]["message"], why, "{volumes:?}");
    }
    let mut ignored = pod(&[inline(DRIVER, "1Gi")]);
    ignored["metadata"]["labels"] = json!({"pmem-csi.intel.com/webhook": "ignore"});
    let (response, _) = mutate(&place, &ignored).await;
    assert_eq!(
        (&response["allowed"], &response["patch"]),
        (&json!(true), &Value::Null)
    );
    assert!(
        place
            .api
            .asked()
            .iter()
            .all(|path| !path.contains("secrets"))
    );
    place.end().await;
}

#[tokio::test]
async fn pods_that_cannot_be_judged_are_denied() {
    let place = place().await;
    let mut empty = pod(&[inline(DRIVER, "1Gi")]);
    empty["spec"]["containers"] = json!([]);
    let mut deployment = pod(&[]);
    deployment["kind"] = json!("Deployment");
    for (pod, code, why) in [
        (empty, 403, "pod has no containers"),
        (
            deployment,
            400,
            "the object is of kind \"Deployment\"; this webhook is for pods",
        ),
        (Value::Null, 400, "there is no pod in the request"),
        (json!([]), 400, "the object is no pod: "),
        (
            json!({"spec": {"volumes": 5}}),
            400,
            "the object is no pod: ",
        ),
    ] {
        let (response, _) = mutate(&place, &pod).await;
        assert_eq!(response["allowed"], false, "{pod}");
        assert_eq!(response["status"]["code"], code, "{pod}");
        let told = response["status"]["message"].as_str().unwrap();
        assert!(told.starts_with(why), "{pod}: {told}");
    }
    place.api.refuse_next(&[403]);
    let (response, _) = mutate(&place, &pod(&[of_claim("of-late")])).await;
    assert_eq!(
        (&response["allowed"], &response["status"]["code"]),
        (&json!(false), &json!(500))
    );
    place.end().await;
}

/// Goal: a claim that is made for the pod counts by its template, whose class may be the default;
/// the default is found on whichever page of the list it is.
#[tokio::test]
async fn claims_made_for_the_pod_count_by_their_template() {
    let place = place().await;
    let made = |spec: Value| {
        let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}});
        pod(&[volume])
    };
    let (_, out) = mutate(&place, &made(json!({"storageClassName": "late"}))).await;
    assert!(is_marked(&out));
    let (_, out) = mutate(&place, &made(json!({"storageClassName": "other"}))).await;
    assert!(!is_marked(&out));
    place.end().await;

    let place = self::place().await;
    let (_, out) = mutate(&place, &made(json!({}))).await;
    assert!(!is_marked(&out), "there is no default");
    place.end().await;

    let place = self::place().await;
    let default = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    place
        .api
        .put_class_with("zz", DRIVER, "WaitForFirstConsumer", &default);
    let (_, out) = mutate(&place, &made(json!({}))).await;
    assert!(is_marked(&out));
    let pages = place.api.asked();
    assert_eq!(
        pages
            .iter()
            .filter(|path| path.contains("limit=500"))
            .count(),
        3,
        "{pages:?}"
    );
    place.end().await;
}

/// Goal: only pods that are made are marked.
#[tokio::test]
async fn changes_are_let_through() {
    let place = place().await;
    for operation in ["UPDATE", "DELETE", "CONNECT"] {
        let mut review = review(&pod(&[inline(DRIVER, "1Gi")]));
        review["request"]["operation"] = json!(operation);
        let response = place.ask("/pod/mutate", &review).await.json()["response"].clone();
        assert_eq!(
            (&response["allowed"], &response["patch"]),
            (&json!(true), &Value::Null)
        );
    }
    place.end().await;
}
