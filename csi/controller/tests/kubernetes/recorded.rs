//! What a real Kubernetes asked and was answered, byte for byte.
//!
//! The questions in `testdata/recorded/` are those of a kube-scheduler and a kube-apiserver 1.36.2,
//! and the answers beside them are those that they took: see `tests/long/README.md`, which says how
//! they were recorded. `api-server.json` is what the API server told the controller meanwhile, and
//! `hosts.json` which regions the hosts had.
//!
//! Goal: every answer is still the same, to the byte. Method: the questions are asked again, with
//! Berth's own scheduler and those hosts behind, and an API server in front that tells the same. So
//! that a recording cannot hold a wrong answer, it is said of each here what has to be in it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_proto::convert::csi::DRIVER_NAME_DEFAULT;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::support::Place;
use crate::support::real::RealScheduler;

const API_SERVER: &str = include_str!("../../testdata/recorded/api-server.json");
const HOSTS: &str = include_str!("../../testdata/recorded/hosts.json");

/// A question with its answer.
struct Call {
    name: &'static str,
    question: &'static str,
    answer: &'static str,
}

macro_rules! recorded {
    ($($name:literal),* $(,)?) => {
        &[$(Call {
            name: $name,
            question: include_str!(concat!("../../testdata/recorded/", $name, ".json")),
            answer: include_str!(concat!("../../testdata/recorded/", $name, ".answer.json")),
        }),*]
    };
}

const CALLS: &[Call] = recorded![
    "filter-names",
    "filter-names-refused",
    "filter-names-inline",
    "filter-names-ephemeral",
    "filter-names-wrong",
    "filter-nodes",
    "filter-nodes-refused",
    "prioritize-names",
    "prioritize-nodes",
    "review-claim",
    "review-inline",
    "review-ephemeral",
    "review-deployment",
    "review-nothing",
    "review-unknown-claim",
];

impl Call {
    fn path(&self) -> &'static str {
        match self.name.split_once('-').unwrap().0 {
            "filter" => "/filter",
            "prioritize" => "/prioritize",
            _ => "/pod/mutate",
        }
    }
}

fn call(name: &str) -> &'static Call {
    CALLS.iter().find(|call| call.name == name).unwrap()
}

fn answer(name: &str) -> Value {
    serde_json::from_str(call(name).answer).unwrap()
}

/// A controller for the driver of the recordings, with the API server and the hosts that were there.
async fn place() -> (RealScheduler, Place) {
    let scheduler = RealScheduler::start().await;
    let hosts: BTreeMap<String, Vec<u64>> = serde_json::from_str(HOSTS).unwrap();
    for (name, regions) in &hosts {
        let name = name.trim_start_matches("hosts/");
        scheduler.register(name, regions).await;
    }
    let place = Place::start_before_real_for(DRIVER_NAME_DEFAULT, scheduler.url()).await;
    let told: BTreeMap<String, String> = serde_json::from_str(API_SERVER).unwrap();
    for (path, object) in told {
        place.api.put_text(&path, &object);
    }
    (scheduler, place)
}

#[tokio::test]
async fn answers_are_the_same_to_the_byte() {
    let (scheduler, place) = place().await;
    for call in CALLS {
        let told = place.client.post(call.path(), call.question).await;
        assert_eq!(told.status, 200, "{}: {told:?}", call.name);
        assert_eq!(told.kind, "application/json", "{}", call.name);
        assert_eq!(told.body, call.answer, "{}", call.name);
    }
    place.end().await;
    scheduler.end().await;
}

/// Goal: before 1.18 the fields of a scheduler's questions had names in lower case, and an API server
/// may speak of reviews in version v1beta1.
#[tokio::test]
async fn older_questions_are_answered_too() {
    let (scheduler, place) = place().await;
    let filter = call("filter-names");
    let old = filter.question.replacen("\"Pod\"", "\"pod\"", 1);
    let old = old.replacen("\"Nodes\"", "\"nodes\"", 1);
    let old = old.replacen("\"NodeNames\"", "\"nodenames\"", 1);
    assert_ne!(old, filter.question);
    assert_eq!(place.client.post("/filter", old).await.body, filter.answer);
    let review = call("review-claim");
    let [old, expected] = [review.question, review.answer]
        .map(|text| text.replacen("admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1));
    assert_ne!(old, review.question);
    assert_eq!(place.client.post("/pod/mutate", old).await.body, expected);
    place.end().await;
    scheduler.end().await;
}

/// Goal: whole nodes went back as they came, to the byte.
#[test]
fn whole_nodes_go_back_as_they_came() {
    #[derive(Deserialize)]
    struct Nodes<'a> {
        #[serde(borrow, rename = "Nodes")]
        nodes: List<'a>,
    }
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let nodes = |text: &'static str| {
        let Nodes { nodes } = serde_json::from_str(text).unwrap();
        nodes.items.into_iter().map(RawValue::get).collect()
    };
    let call = call("filter-nodes");
    let mut came: Vec<&str> = nodes(call.question);
    let went: Vec<&str> = nodes(call.answer);
    assert_eq!((came.len(), went.len()), (4, 3));
    came.retain(|node| !node.contains("\"kubernetes.io/hostname\":\"plain\""));
    assert_eq!(came, went);
}

#[test]
fn the_recorded_answers_are_right() {
    let large = answer("filter-names");
    let mut left: Vec<&str> = texts(&large["NodeNames"]);
    left.sort_unstable();
    assert_eq!(left, ["double", "wide"]);
    assert_eq!(failed(&large), ["narrow", "plain"]);
    for refused in ["filter-names-refused", "filter-nodes-refused"] {
        let refused = answer(refused);
        assert_eq!(failed(&refused), ["double", "narrow", "plain", "wide"]);
        assert_eq!(refused["Error"], "");
    }
    assert_eq!(
        texts(&answer("filter-names-inline")["NodeNames"]),
        ["double"]
    );
    let of_claim = answer("filter-names-ephemeral");
    assert_eq!(failed(&of_claim), ["plain"]);
    let wrong = answer("filter-names-wrong");
    assert!(wrong["Error"].as_str().unwrap().contains("must be a size"));
    for names in ["prioritize-names", "prioritize-nodes"] {
        let scores = answer(names);
        let scores = scores.as_array().unwrap();
        assert!(!scores.is_empty() && scores.iter().all(|one| one["Score"].as_u64() <= Some(10)));
    }
    for marked in [
        "review-claim",
        "review-inline",
        "review-ephemeral",
        "review-deployment",
    ] {
        let patch = answer(marked)["response"]["patch"].clone();
        let patch = STANDARD.decode(patch.as_str().unwrap()).unwrap();
        let patch = String::from_utf8(patch).unwrap();
        assert!(
            patch.contains("pmem-csi.intel.com/scheduler\":\"1\""),
            "{marked}: {patch}"
        );
    }
    for plain in ["review-nothing", "review-unknown-claim"] {
        let response = &answer(plain)["response"];
        assert_eq!(
            (&response["allowed"], &response["patch"]),
            (&true.into(), &Value::Null)
        );
    }
}

fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one.as_str().unwrap()).collect()
}

fn failed(answer: &Value) -> Vec<&str> {
    let failed = answer["FailedNodes"].as_object().unwrap();
    failed.keys().map(String::as_str).collect()
}
