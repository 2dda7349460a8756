//! Which nodes are left.
//!
//! Goal: the 18 situations that PMEM-CSI's own tests know, and those in which it was wrong. Method:
//! each with a place of its own; what is expected is written beside it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{DRIVER, Filtered, GIB, NAMESPACE, Place, claim, inline, of_claim, pod};

const A: &str = "node-a";
const B: &str = "node-b";

/// A situation: hosts with what is free in their regions, claims, volumes, nodes.
#[derive(Default)]
struct Case {
    what: &'static str,
    hosts: &'static [(&'static str, &'static [u64])],
    claims: Vec<Value>,
    volumes: Vec<Value>,
    nodes: &'static [&'static str],
    left: &'static [&'static str],
    failed: &'static [(&'static str, &'static str)],
    error: &'static str,
}

async fn check(case: Case) {
    let place = Place::start(case.hosts).await.with_classes();
    for claim in &case.claims {
        place.api.put_claim(claim);
    }
    let told = place.filter(&pod(&case.volumes), case.nodes).await;
    let text = |text: &&str| (*text).to_owned();
    let expected = Filtered {
        nodes: case.left.iter().map(text).collect(),
        failed: case
            .failed
            .iter()
            .map(|(a, b)| (text(a), text(b)))
            .collect(),
        error: case.error.to_owned(),
    };
    assert_eq!(told, expected, "{}", case.what);
    assert!(place.scheduler.asked().len() <= 1, "{}", case.what);
    place.end().await;
}

fn late() -> Value {
    claim("unbound", Some("late"), "1Gi")
}

fn of_late() -> Vec<Value> {
    vec![of_claim("unbound")]
}

fn bound(by: &str) -> Value {
    let mut claim = late();
    match by {
        "phase" => claim["status"]["phase"] = json!("Bound"),
        _ => claim["spec"]["volumeName"] = json!("pv-1"),
    }
    claim
}

#[tokio::test]
async fn without_need_every_node_is_left() {
    let other = "test.pmem-csi.example.other";
    let volumes_and_claims: Vec<(&'static str, Vec<Value>, Vec<Value>)> = vec![
        ("no volumes", vec![], vec![]),
        (
            "another driver's inline volume",
            vec![inline(other, "1Gi")],
            vec![],
        ),
        ("a bound claim", of_late(), vec![bound("phase")]),
        ("a claim with a volume", of_late(), vec![bound("volume")]),
        (
            "a claim that binds at once",
            of_late(),
            vec![claim("unbound", Some("immediate"), "1Gi")],
        ),
        (
            "no provisioner",
            of_late(),
            vec![claim("unbound", Some("none"), "1Gi")],
        ),
        (
            "another provisioner",
            of_late(),
            vec![claim("unbound", Some("other"), "1Gi")],
        ),
        ("no class", of_late(), vec![claim("unbound", None, "1Gi")]),
        (
            "no class wanted",
            of_late(),
            vec![claim("unbound", Some(""), "1Gi")],
        ),
    ];
    for (what, volumes, claims) in volumes_and_claims {
        check(Case {
            what,
            claims,
            volumes,
            nodes: &[A],
            left: &[A],
            ..Case::default()
        })
        .await;
    }
    check(Case {
        what: "no volumes, no nodes",
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn nodes_with_room_are_left() {
    check(Case {
        what: "one volume, one node, enough",
        hosts: &[(A, &[GIB])],
        claims: vec![late()],
        volumes: of_late(),
        nodes: &[A],
        left: &[A],
        ..Case::default()
    })
    .await;
    check(Case {
        what: "one inline volume in decimal bytes, enough",
        hosts: &[(A, &[GIB])],
        volumes: vec![inline(DRIVER, "1073741824")],
        nodes: &[A],
        left: &[A],
        ..Case::default()
    })
    .await;
    check(Case {
        what: "one volume, two nodes, enough",
        hosts: &[(A, &[GIB]), (B, &[GIB])],
        claims: vec![late()],
        volumes: of_late(),
        nodes: &[B, A],
        left: &[B, A],
        ..Case::default()
    })
    .await;
    check(Case {
        what: "one volume, two nodes, enough on one",
        hosts: &[(A, &[GIB]), (B, &[1])],
        claims: vec![late()],
        volumes: of_late(),
        nodes: &[A, B],
        left: &[A],
        failed: &[(B, "only 1B of PMEM available, need 1GiB")],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn nodes_without_room_are_told_why() {
    check(Case {
        what: "a node that is no host",
        claims: vec![late()],
        volumes: of_late(),
        nodes: &[A],
        failed: &[(A, "the host has no persistent memory for volumes")],
        ..Case::default()
    })
    .await;
    check(Case {
        what: "one inline volume, not enough",
        hosts: &[(A, &[1])],
        volumes: vec![inline(DRIVER, "1Gi")],
        nodes: &[A],
        failed: &[(A, "only 1B of PMEM available, need 1GiB")],
        ..Case::default()
    })
    .await;
    check(Case {
        what: "two volumes, enough for one",
        hosts: &[(A, &[GIB])],
        claims: vec![late(), claim("second", Some("late"), "5Gi")],
        volumes: vec![of_claim("unbound"), of_claim("second")],
        nodes: &[A],
        failed: &[(A, "only 1GiB of PMEM available, need 6GiB")],
        ..Case::default()
    })
    .await;
    check(Case {
        what: "one volume, two nodes, not enough",
        hosts: &[(A, &[100]), (B, &[10])],
        claims: vec![late()],
        volumes: of_late(),
        nodes: &[A, B],
        failed: &[
            (A, "only 100B of PMEM available, need 1GiB"),
            (B, "only 10B of PMEM available, need 1GiB"),
        ],
        ..Case::default()
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_known_is_an_error() {
    check(Case {
        what: "an inline volume whose size is none",
        volumes: vec![inline(DRIVER, "foobar")],
        nodes: &[A],
        error: "checking for unbound volumes: inline volume \"vol0\" is wrong: \
                volume_context[\"size\"]: must be a size like 10Gi or 4096, not \"foobar\"",
        ..Case::default()
    })
    .await;
    check(Case {
        what: "an unknown claim",
        volumes: of_late(),
        nodes: &[A],
        error: "checking for unbound volumes: there is no claim \"unbound\" in namespace \"testns\"",
        ..Case::default()
    })
    .await;
    check(Case {
        what: "an unknown class",
        claims: vec![claim("unbound", Some("unknown"), "1Gi")],
        volumes: of_late(),
        nodes: &[A],
        error: "checking for unbound volumes: claim \"unbound\" is of storage class \"unknown\", \
                which does not exist",
        ..Case::default()
    })
    .await;
}

/// PMEM-CSI compared the sum of all volumes with the largest free piece: it refused this.
#[tokio::test]
async fn volumes_are_packed_together_on_the_regions() {
    let two = |size: &str| {
        vec![
            claim("one", Some("late"), size),
            claim("two", Some("late"), size),
        ]
    };
    let volumes = || vec![of_claim("one"), of_claim("two")];
    check(Case {
        what: "two of 40 on two of 64",
        hosts: &[(A, &[64 * GIB, 64 * GIB])],
        claims: two("40Gi"),
        volumes: volumes(),
        nodes: &[A],
        left: &[A],
        ..Case::default()
    })
    .await;
    check(Case {
        what: "one region has not both, and the other none",
        hosts: &[(A, &[64 * GIB, 39 * GIB])],
        claims: two("40Gi"),
        volumes: volumes(),
        nodes: &[A],
        failed: &[(A, "no region has 40GiB left")],
        ..Case::default()
    })
    .await;
}

/// Goal: a pod's events stay readable where each of many nodes has something else free: a Kubernetes
/// scheduler writes every sentence that differs into them.
#[tokio::test]
async fn few_sentences_differ() {
    let names: Vec<String> = (10..60).map(|at| format!("node-{at}")).collect();
    let free: Vec<[u64; 1]> = (1..=50).map(|bytes| [bytes]).collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    let hosts = nodes.iter().zip(&free);
    let hosts: Vec<(&str, &[u64])> = hosts.map(|(name, free)| (*name, &free[..])).collect();
    let place = Place::start(&hosts).await;
    let told = place.filter(&pod(&[inline(DRIVER, "1Gi")]), &nodes).await;
    assert_eq!(told.failed.len(), nodes.len());
    let first = "only 1B of PMEM available, need 1GiB";
    assert_eq!(told.failed[0], ("node-10".to_owned(), first.to_owned()));
    let sentences: BTreeSet<&String> = told.failed.iter().map(|(_, why)| why).collect();
    assert_eq!(sentences.len(), 17, "{sentences:?}");
    let last = &told.failed.last().unwrap().1;
    assert_eq!(last, "other reasons: see `berth volume capacity`");
    place.end().await;
}

/// Goal: exactly the volumes that are still to be made are asked for, each once, as they are.
#[tokio::test]
async fn every_volume_is_asked_for_once() {
    let place = Place::start(&[(A, &[2 * GIB])]).await.with_classes();
    place.api.put_claim(&late());
    place.api.put_claim(&claim("nothing", Some("late"), "0"));
    place.api.put_claim(&claim("odd", Some("late"), "1500m"));
    // A claim that is made for the pod has the names of both.
    place
        .api
        .put_claim(&claim("test-pod-scratch", Some("late"), "5M"));
    let mut chosen = claim("chosen", Some("late"), "1Gi");
    chosen["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": A});
    place.api.put_claim(&chosen);
    let volumes = [
        of_claim("unbound"),
        of_claim("unbound"),
        of_claim("nothing"),
        of_claim("odd"),
        of_claim("chosen"),
        json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
        inline(DRIVER, "2Mi"),
        inline(DRIVER, "2Mi"),
        json!({"name": "plain", "emptyDir": {}}),
    ];
    let told = place
        .filter(&pod(&volumes), &[A, "unknown", "Not A Host"])
        .await;
    assert_eq!(told.nodes, [A]);
    assert_eq!(told.failed.len(), 2, "{told:?}");
    let asked = place.scheduler.asked();
    let [asked] = &*asked else {
        panic!("{asked:?}")
    };
    assert_eq!(asked.hosts, ["hosts/node-a", "hosts/unknown"]);
    assert_eq!(
        asked.required_bytes,
        [GIB, 0, 2, 5_000_000, 2 << 20, 2 << 20]
    );
    place.end().await;
}

/// Goal: `nodenames` in, `NodeNames` out.
#[tokio::test]
async fn names_are_answered_with_names() {
    let place = Place::start(&[(A, &[GIB]), (B, &[])]).await.with_classes();
    place.api.put_claim(&late());
    for key in ["NodeNames", "nodenames"] {
        let args = json!({"Pod": pod(&of_late()), "Nodes": null, key: [B, A]});
        let told = place.ask("/filter", &args).await.json();
        assert_eq!(told["NodeNames"], json!([A]));
        assert_eq!(told["Nodes"], Value::Null);
        let why = "only 0B of PMEM available, need 1GiB";
        assert_eq!(told["FailedNodes"], json!({ B: why }));
    }
    place.end().await;
}

/// Goal: the API server is asked once for what it told a moment ago.
#[tokio::test]
async fn what_was_told_is_remembered_for_a_moment() {
    let place = Place::start(&[(A, &[GIB])]).await.with_classes();
    place.api.put_claim(&late());
    let args = json!({"Pod": pod(&of_late()), "NodeNames": [A]});
    place.ask("/filter", &args).await;
    let claim = format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/unbound");
    let class = "/apis/storage.k8s.io/v1/storageclasses/late";
    assert_eq!(place.api.asked(), [claim.as_str(), class]);
    place.ask("/prioritize", &args).await;
    // A claim may be too old by now, a class is not; unless this machine is very slow.
    assert!(place.api.asked().len() <= 2);
    place.end().await;
}

/// Goal: a scheduler that is not there is an error that says so, and the next call is answered.
#[tokio::test]
async fn a_silent_scheduler_is_an_error() {
    let mut place = Place::start(&[(A, &[GIB])]).await.with_classes();
    place.api.put_claim(&late());
    place.scheduler.die().await;
    let told = place.filter(&pod(&of_late()), &[A]).await;
    let begin = "querying the scheduler failed: no scheduler answers at http://127.0.0.1:";
    assert!(told.error.starts_with(begin), "{told:?}");
    let told = place.filter(&pod(&[]), &[A]).await;
    assert_eq!(told.nodes, [A]);
    place.end().await;
}

/// Goal: an API server that refuses is an error that says what it lacks; one that stumbles is asked
/// again.
#[tokio::test]
async fn refusals_of_the_api_server_are_told() {
    let place = Place::start(&[(A, &[GIB])]).await.with_classes();
    place.api.put_claim(&late());
    place.api.refuse_next(&[503, 429]);
    let told = place.filter(&pod(&of_late()), &[A]).await;
    assert_eq!(
        (told.nodes, told.error),
        (vec![A.to_owned()], String::new())
    );
    place.api.put_claim(&claim("second", Some("late"), "1Gi"));
    place.api.refuse_next(&[403]);
    let told = place.filter(&pod(&[of_claim("second")]), &[A]).await;
    let end = "403 Forbidden: not now; the service account needs get and list on \
               persistentvolumeclaims and storageclasses";
    assert!(told.error.ends_with(end), "{told:?}");
    place.end().await;
}
