//! Goal: a pass makes the planned requests and no others, and any failure of the API server is followed
//! by a pass that finishes. Method: each request of a pass to the server of [`crate::fake_server`] fails in
//! each way.

use axum::http::Method;

use super::*;
use crate::desired::{Credentials, Facts, NodePairs, Pair, desired};
use crate::fake_server::{Fault, Store, start};
use crate::safety::Refusal;
use crate::spec::BerthStorageSpec;

fn owner() -> Owner {
    Owner {
        api_version: "berth.internal/v1alpha1".to_owned(),
        kind: "BerthStorage".to_owned(),
        name: "d.example".to_owned(),
        uid: "owner".to_owned(),
    }
}

fn objects(spec: &BerthStorageSpec) -> Vec<Value> {
    let pair = || Pair {
        cert: b"cert".to_vec(),
        key: b"key".to_vec(),
    };
    let facts = Facts {
        namespace: "berth".to_owned(),
        image: "berth:0.1.0".to_owned(),
        schedulers: vec!["s1:7100".to_owned()],
        credentials: Credentials {
            ca: b"ca".to_vec(),
            controller: pair(),
            nodes: NodePairs::Shared(pair()),
        },
    };
    desired(&owner(), spec, &facts).expect("objects")
}

fn defaults() -> Vec<Value> {
    objects(&BerthStorageSpec::default())
}

#[tokio::test]
async fn paths_are_those_of_kubernetes_and_nothing_is_written_twice() {
    let (store, server) = start().await;
    let first = reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    assert_eq!(first.plan.writes.len(), 15);
    let paths: Vec<String> = {
        let store = store.lock().expect("not poisoned");
        for (method, _, query) in store
            .log
            .iter()
            .filter(|(method, _, _)| method == Method::PATCH)
        {
            assert!(
                query.contains("fieldManager=berth-csi-operator"),
                "{method} {query}"
            );
            assert!(query.contains("fieldValidation=Strict") && !query.contains("force"));
        }
        store.objects.keys().cloned().collect()
    };
    assert_eq!(
        paths,
        [
            "/api/v1/namespaces/berth/configmaps/d-example-controller",
            "/api/v1/namespaces/berth/configmaps/d-example-node",
            "/api/v1/namespaces/berth/secrets/d-example-controller-tls",
            "/api/v1/namespaces/berth/secrets/d-example-node-tls",
            "/api/v1/namespaces/berth/serviceaccounts/d-example-controller",
            "/api/v1/namespaces/berth/serviceaccounts/d-example-node",
            "/api/v1/namespaces/berth/services/d-example-controller",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/d-example",
            "/apis/apps/v1/namespaces/berth/daemonsets/d-example-node",
            "/apis/apps/v1/namespaces/berth/deployments/d-example-controller",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/d-example-controller",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/d-example-controller",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/berth/rolebindings/d-example-controller",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/berth/roles/d-example-controller",
            "/apis/storage.k8s.io/v1/csidrivers/d.example",
        ]
    );
    let second = reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    assert_eq!(second.plan, Plan::default());
    assert_eq!(store.lock().expect("not poisoned").writes().len(), 15);
}

/// Goal: drift is corrected by one forced write that names its object; an object of another owner is not
/// written to; an obsolete one is deleted with its identifier.
#[tokio::test]
async fn only_what_differs_is_written() {
    let (store, server) = start().await;
    reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    let agents = "/apis/apps/v1/namespaces/berth/daemonsets/d-example-node";
    let driver = "/apis/storage.k8s.io/v1/csidrivers/d.example";
    let obsolete = "/api/v1/namespaces/berth/services/old";
    {
        let mut store = store.lock().expect("not poisoned");
        store.log.clear();
        let edited = store.objects.get_mut(agents).expect("it exists");
        edited["spec"]["updateStrategy"]["type"] = json!("RollingUpdate");
        let mut old =
            store.objects["/api/v1/namespaces/berth/services/d-example-controller"].clone();
        old["metadata"]["name"] = json!("old");
        old["metadata"]["uid"] = json!("old");
        store.objects.insert(obsolete.to_owned(), old);
        let foreign = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": "d.example", "uid": "foreign"}});
        store.objects.insert(driver.to_owned(), foreign);
    }
    let pass = reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    let refusal = Refusal::Foreign {
        kind: "CSIDriver".to_owned(),
        name: "d.example".to_owned(),
    };
    assert_eq!(pass.plan.refusals, [refusal]);
    {
        let store = store.lock().expect("not poisoned");
        let expected = [
            (Method::PATCH, "d-example-node".to_owned()),
            (Method::DELETE, "old".to_owned()),
        ];
        assert_eq!(store.writes(), expected);
        assert!(
            store
                .log
                .iter()
                .any(|(_, path, query)| path == agents && query.contains("force=true"))
        );
        assert_eq!(store.objects[driver]["metadata"]["uid"], "foreign");
        assert!(!store.objects.contains_key(obsolete));
    }
    store.lock().expect("not poisoned").objects.remove(driver);
    let pass = reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    assert_eq!((pass.plan.writes.len(), pass.plan.refusals.len()), (1, 0));
}

/// Goal: an object of a kind of which none is desired any more is obsolete too.
#[tokio::test]
async fn the_last_object_of_a_kind_is_deleted() {
    let (store, server) = start().await;
    reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    store.lock().expect("not poisoned").log.clear();
    let without = objects(&BerthStorageSpec {
        mutate_pods: crate::spec::MutatePods::Never,
        ..BerthStorageSpec::default()
    });
    let pass = reconcile(&server, &owner(), &without).await;
    assert_eq!(pass.expect("a pass").plan.refusals, []);
    let writes = store.lock().expect("not poisoned").writes();
    assert_eq!(writes, [(Method::DELETE, "d-example".to_owned())]);
}

/// Goal: nothing is lost and nothing is made twice, whichever request fails, and however. Method: each
/// request of a first pass fails in each way; the passes after it have to finish.
#[tokio::test]
async fn any_failed_request_is_survived() {
    let (store, server) = start().await;
    reconcile(&server, &owner(), &defaults())
        .await
        .expect("a pass");
    let requests = store.lock().expect("not poisoned").log.len();
    let all = store.lock().expect("not poisoned").objects.clone();
    let faults = [
        Fault::Refused(403),
        Fault::Refused(409),
        Fault::Refused(429),
        Fault::Refused(500),
        Fault::Lost,
        Fault::Garbage,
    ];
    for fault in faults {
        for at in 0..requests {
            *store.lock().expect("not poisoned") = Store {
                fault: Some((at, fault)),
                ..Store::default()
            };
            let failed = reconcile(&server, &owner(), &defaults()).await;
            // The client itself repeats a request that is refused for load.
            assert!(
                failed.is_err() || fault == Fault::Refused(429),
                "{fault:?} at {at}"
            );
            reconcile(&server, &owner(), &defaults())
                .await
                .expect("a pass");
            let last = reconcile(&server, &owner(), &defaults())
                .await
                .expect("a pass");
            assert_eq!(last.plan, Plan::default(), "{fault:?} at {at}");
            let store = store.lock().expect("not poisoned");
            assert_eq!(store.objects, all);
            assert!(
                store.created.values().all(|times| *times == 1),
                "{fault:?} at {at}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_left() {
    let (store, mut server) = start().await;
    server.deadline = Duration::from_millis(50);
    store.lock().expect("not poisoned").fault = Some((0, Fault::Hangs));
    let error = reconcile(&server, &owner(), &defaults())
        .await
        .expect_err("it hangs");
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("hint: "), "{error}");
}
