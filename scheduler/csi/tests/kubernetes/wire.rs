//! Requests in the shape in which a real Kubernetes scheduler and API server send them, and the
//! answers byte for byte.
//!
//! The requests in `testdata/` were put together from the types of `k8s.io/kube-scheduler` and
//! `k8s.io/api`: all fields, with their names and in their order. The answers are what Go writes of
//! the types of `extender/v1` and `admission/v1`.

use serde_json::json;

use crate::support::{GIB, Place, claim};

const ARGS: &str = include_str!("../../testdata/extender-args.json");
const ARGS_NAMES: &str = include_str!("../../testdata/extender-args-names.json");
const REVIEW: &str = include_str!("../../testdata/admission-review.json");

/// The driver and the names in the recorded requests are those of a cluster, not of these tests.
fn recorded(text: &str) -> String {
    text.trim_end()
        .replace("pmem-csi.intel.com", crate::support::DRIVER)
}

async fn place() -> Place {
    let place = Place::start(&[("worker-1", &[8 * GIB]), ("worker-2", &[GIB])]).await;
    let place = place.with_classes();
    let mut data = claim("data-web-0", Some("late"), "4Gi");
    data["metadata"]["namespace"] = json!("testns");
    place.api.put_claim(&data);
    place
}

#[tokio::test]
async fn whole_nodes_go_back_as_they_came() {
    let place = place().await;
    let args = recorded(ARGS);
    let answer = place.client.post("/filter", args.clone()).await;
    // The first node, from its brace to its brace.
    let begin = args.find(r#"{"metadata":{"name":"worker-1""#).unwrap();
    let end = args.find(r#",{"metadata":{"name":"worker-2""#).unwrap();
    let first = &args[begin..end];
    let expected = format!(
        r#"{{"Nodes":{{"metadata":{{}},"items":[{first}]}},"NodeNames":null,"FailedNodes":{{"worker-2":"only 1GiB of PMEM available, need 6GiB"}},"FailedAndUnresolvableNodes":null,"Error":""}}"#
    );
    assert_eq!(answer.body, expected);
    assert_eq!(
        place.scheduler.asked()[0].required_bytes,
        [4 * GIB, 2 * GIB]
    );
    let answer = place.client.post("/prioritize", args).await;
    assert_eq!(
        answer.body,
        r#"[{"Host":"worker-1","Score":8},{"Host":"worker-2","Score":0}]"#
    );
    place.end().await;
}

#[tokio::test]
async fn names_go_back_as_names() {
    let place = place().await;
    let answer = place.client.post("/filter", recorded(ARGS_NAMES)).await;
    assert_eq!(
        answer.body,
        r#"{"Nodes":null,"NodeNames":["worker-1"],"FailedNodes":{"worker-2":"only 1GiB of PMEM available, need 6GiB"},"FailedAndUnresolvableNodes":null,"Error":""}"#
    );
    place.end().await;
}

/// Before 1.18 the fields had names in lower case.
#[tokio::test]
async fn old_names_are_read() {
    let place = place().await;
    let args = recorded(ARGS_NAMES);
    let old = args
        .replace("\"Pod\"", "\"pod\"")
        .replace("\"Nodes\"", "\"nodes\"")
        .replace("\"NodeNames\"", "\"nodenames\"");
    assert_ne!(args, old);
    let answers = [
        place.client.post("/filter", args).await.body,
        place.client.post("/filter", old).await.body,
    ];
    assert_eq!(answers[0], answers[1]);
    place.end().await;
}

#[tokio::test]
async fn nothing_left_and_errors() {
    let place = place().await;
    let answer = place
        .client
        .post("/filter", recorded(ARGS).replace("worker-", "other-"))
        .await;
    assert_eq!(
        answer.body,
        r#"{"Nodes":{"metadata":{},"items":null},"NodeNames":null,"FailedNodes":{"other-1":"the host has no persistent memory for volumes","other-2":"the host has no persistent memory for volumes"},"FailedAndUnresolvableNodes":null,"Error":""}"#
    );
    let answer = place.client.post("/filter", "{}").await;
    assert_eq!(
        answer.body,
        r#"{"Nodes":null,"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":"incomplete parameters"}"#
    );
    place.end().await;
}

#[tokio::test]
async fn reviews_of_both_versions() {
    let place = place().await;
    let review = recorded(REVIEW);
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let review = review.replace("admission.k8s.io/v1", version);
        let answer = place.client.post("/pod/mutate", review.clone()).await;
        assert_eq!(
            (answer.status, answer.kind.as_str()),
            (200, "application/json")
        );
        // [{"op":"add","path":"/spec/containers/0/resources/limits","value":{"pmem-csi.intel.com/scheduler":"1"}},
        //  {"op":"add","path":"/spec/containers/0/resources/requests/pmem-csi.intel.com~1scheduler","value":"1"}]
        let patch = concat!(
            "W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvY29udGFpbmVycy8wL3Jlc291cmNlcy9saW1pdHMiLCJ2YWx1ZSI6",
            "eyJwbWVtLWNzaS5pbnRlbC5jb20vc2NoZWR1bGVyIjoiMSJ9fSx7Im9wIjoiYWRkIiwicGF0aCI6Ii9zcGVjL2Nv",
            "bnRhaW5lcnMvMC9yZXNvdXJjZXMvcmVxdWVzdHMvcG1lbS1jc2kuaW50ZWwuY29tfjFzY2hlZHVsZXIiLCJ2YWx1",
            "ZSI6IjEifV0=",
        );
        let expected = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"{version}","response":{{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true,"patch":"{patch}","patchType":"JSONPatch"}}}}"#
        );
        assert_eq!(answer.body, expected);

        let other = review
            .replace(crate::support::DRIVER, "another.driver")
            .replace("data-web-0", "x");
        let answer = place.client.post("/pod/mutate", other).await;
        let expected = format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"{version}","response":{{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","allowed":true,"status":{{"metadata":{{}},"message":"no relevant PMEM volumes","code":200}}}}}}"#
        );
        assert_eq!(answer.body, expected);
    }
    place.end().await;
}
