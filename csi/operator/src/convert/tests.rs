//! Goal: each field of both resources arrives where it belongs, with its default when absent. Method:
//! a table for each resource: what is written, and the only fields that differ from the defaults then.

use serde_json::{Value, json};

use super::*;

fn storage(changes: Value) -> BerthStorageSpec {
    serde_json::from_value(changes).expect("a spec")
}

fn alpha(written: Value) -> Result<BerthStorageSpec, Error> {
    from_alpha(&serde_json::from_value(written).expect("the schema accepts it"))
}

fn beta(written: Value) -> BerthStorageSpec {
    from_beta(&serde_json::from_value(written).expect("the schema accepts it"))
}

fn limits() -> Value {
    json!({"limits": {"cpu": "100m", "memory": "250Mi"}})
}

/// The defaults of an object of PMEM-CSI 0.7, with changes.
fn alpha_with(changes: &Value) -> BerthStorageSpec {
    let mut all = json!({
        "controllerResources": limits(),
        "provisionerResources": limits(),
        "nodeResources": limits(),
        "nodeRegistrarResources": limits(),
    });
    for (key, value) in changes.as_object().expect("an object") {
        all[key] = value.clone();
    }
    storage(all)
}

/// What is the same in both resources: as written, and as converted.
fn common() -> Vec<(Value, Value)> {
    let same = |value: Value| (value.clone(), value);
    vec![
        same(json!({})),
        same(json!({"image": "i:1"})),
        same(json!({"imagePullPolicy": "Always"})),
        same(json!({"imagePullPolicy": "Never"})),
        same(json!({"provisionerImage": "p:1"})),
        same(json!({"nodeRegistrarImage": "r:1"})),
        (json!({"image": ""}), json!({})),
        (json!({"provisionerImage": ""}), json!({})),
        (json!({"nodeRegistrarImage": ""}), json!({})),
        same(json!({"deviceMode": "direct"})),
        (
            json!({"deviceMode": "ndctl"}),
            json!({"deviceMode": "direct"}),
        ),
        same(json!({"deviceMode": "lvm"})),
        same(json!({"logLevel": 5})),
        same(json!({"logLevel": 0})),
        same(json!({"nodeSelector": {"a": "b"}})),
        same(json!({"nodeSelector": {}})),
        same(json!({"pmemPercentage": 50})),
        (json!({"pmemPercentage": 0}), json!({"pmemPercentage": 100})),
        same(json!({"labels": {"a": "b"}})),
    ]
}

#[test]
fn fields_of_pmem_csi_0_7() {
    let mut cases = common();
    let own = json!({"limits": {"cpu": "2"}});
    cases.push((
        json!({"controllerResources": own}),
        json!({"controllerResources": own, "provisionerResources": own}),
    ));
    cases.push((
        json!({"nodeResources": own}),
        json!({"nodeResources": own, "nodeRegistrarResources": own}),
    ));
    for (written, expected) in cases {
        let converted = alpha(written.clone());
        assert_eq!(converted, Ok(alpha_with(&expected)), "{written}");
    }
}

#[test]
fn fields_of_pmem_csi_1() {
    let own = json!({"requests": {"cpu": "2"}});
    let mut cases = common();
    cases.extend([
        (
            json!({"controllerDriverResources": own}),
            json!({"controllerResources": own}),
        ),
        (
            json!({"nodeDriverResources": own}),
            json!({"nodeResources": own}),
        ),
        (
            json!({"provisionerResources": own}),
            json!({"provisionerResources": own}),
        ),
        (
            json!({"nodeRegistrarResources": own}),
            json!({"nodeRegistrarResources": own}),
        ),
        (
            json!({"controllReplicas": 2}),
            json!({"controllerReplicas": 2}),
        ),
        (json!({"controllReplicas": 0}), json!({})),
        (json!({"logFormat": "json"}), json!({"logFormat": "json"})),
        (json!({"kubeletDir": "/k"}), json!({"kubeletDir": "/k"})),
        (json!({"kubeletDir": ""}), json!({})),
        (json!({"maxUnavailable": 3}), json!({"maxUnavailable": 3})),
        (
            json!({"maxUnavailable": "30%"}),
            json!({"maxUnavailable": "30%"}),
        ),
        (json!({"controllerTLSSecret": "-openshift-"}), json!({})),
        (
            json!({"mutatePods": "Always"}),
            json!({"mutatePods": "Always"}),
        ),
        (
            json!({"mutatePods": "Never"}),
            json!({"mutatePods": "Never"}),
        ),
        (
            json!({"schedulerNodePort": 32000}),
            json!({"schedulerNodePort": 32000}),
        ),
        (json!({"schedulerNodePort": 0}), json!({})),
    ]);
    for (written, expected) in cases {
        assert_eq!(beta(written.clone()), storage(expected), "{written}");
    }
}

/// Goal: certificates are complete or refused. Method: all 32 subsets of the five fields.
#[test]
fn certificates_are_complete_or_absent() {
    const FIELDS: [&str; 5] = [
        "registryCert",
        "registryKey",
        "nodeControllerCert",
        "nodeControllerKey",
        "caCert",
    ];
    for subset in 0_u32..32 {
        let mut written = json!({});
        for (bit, field) in FIELDS.iter().enumerate() {
            if subset & (1 << bit) != 0 {
                written[field] = json!("YQ==");
            }
        }
        let converted = alpha(written);
        match subset {
            0 => assert_eq!(converted.expect("none").certificates, None),
            31 => {
                let certificates = converted.expect("all").certificates.expect("some");
                assert_eq!(certificates.node_key.0, b"a");
            }
            _ => {
                let error = converted.expect_err("incomplete");
                let (Error::HalfPair { missing, .. } | Error::Incomplete { missing }) = error;
                let bit = FIELDS.iter().position(|field| *field == missing);
                assert_eq!(
                    subset & (1 << bit.expect("a field")),
                    0,
                    "{subset}: {missing}"
                );
            }
        }
    }
}
