//! Goal: what the API server enforces is what the operator expects. Method: the generated schemas are
//! checked against the rules for structural schemas, and each field, default and bound against a table.

use serde_json::{Value, json};

use super::*;

fn definition(plural: &str) -> Value {
    let all = definitions();
    let one = all.iter().find(|d| d.spec.names.plural == plural);
    serde_json::to_value(one.expect("a definition")).expect("JSON")
}

fn schema(plural: &str) -> Value {
    definition(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

const PLURALS: [&str; 3] = ["deployments", "pmemcsideployments", "berthstorages"];

/// Goal: each node of a schema is structural: one type, no references, no additional properties
/// beside properties, and only formats that the API server knows.
#[test]
fn schemas_are_structural() {
    fn visit(path: &str, schema: &Value) {
        let schema = schema.as_object().unwrap_or_else(|| panic!("{path}"));
        assert!(!schema.contains_key("$ref"), "{path}");
        assert!(!schema.contains_key("oneOf"), "{path}");
        let int_or_string = schema.get("x-kubernetes-int-or-string") == Some(&json!(true));
        assert_eq!(schema.contains_key("type"), !int_or_string, "{path}");
        if let Some(format) = schema.get("format") {
            let known = ["int32", "int64", "byte", "date-time"];
            let format = format.as_str().expect("text");
            assert!(known.contains(&format), "{path}: {format}");
        }
        assert_ne!(schema.get("default"), Some(&Value::Null), "{path}");
        let properties = schema.get("properties").and_then(Value::as_object);
        if let Some(additional) = schema.get("additionalProperties") {
            assert!(properties.is_none(), "{path}");
            if additional != &json!(false) {
                visit(&format!("{path}.*"), additional);
            }
        }
        for (name, inner) in properties.into_iter().flatten() {
            visit(&format!("{path}.{name}"), inner);
        }
        if let Some(items) = schema.get("items") {
            visit(&format!("{path}[]"), items);
        }
    }
    for plural in PLURALS {
        visit(plural, &schema(plural));
    }
}

#[test]
fn definitions_are_cluster_scoped_with_a_status_and_columns() {
    for (plural, group, version, short) in [
        ("deployments", "pmem-csi.intel.com", "v1alpha1", json!(null)),
        (
            "pmemcsideployments",
            "pmem-csi.intel.com",
            "v1beta1",
            json!(["pcd"]),
        ),
        (
            "berthstorages",
            "berth.internal",
            "v1alpha1",
            json!(["bst"]),
        ),
    ] {
        let definition = definition(plural);
        let spec = &definition["spec"];
        assert_eq!(spec["scope"], "Cluster");
        assert_eq!(spec["group"], group);
        let names = spec["names"]["shortNames"].clone();
        assert_eq!(
            if names == json!([]) {
                json!(null)
            } else {
                names
            },
            short
        );
        let served = &spec["versions"][0];
        assert_eq!(served["name"], version);
        assert_eq!(served["served"], true);
        assert_eq!(served["subresources"]["status"], json!({}));
        let columns = served["additionalPrinterColumns"].as_array().expect("some");
        let columns: Vec<&str> = columns
            .iter()
            .map(|c| c["name"].as_str().expect("a name"))
            .collect();
        let expected = ["DeviceMode", "NodeSelector", "Image", "Status", "Age"];
        assert_eq!(columns, expected);
        let rule = &schema(plural)["x-kubernetes-validations"][0]["rule"];
        assert_eq!(rule, "self.metadata.name.size() <= 63");
    }
}

/// Goal: no field of PMEM-CSI's resources is missing, and none has another name.
#[test]
fn each_field_of_pmem_csi_is_there() {
    let both = [
        "deviceMode",
        "image",
        "imagePullPolicy",
        "labels",
        "logLevel",
        "nodeRegistrarImage",
        "nodeSelector",
        "pmemPercentage",
        "provisionerImage",
    ];
    let alpha = [
        "caCert",
        "controllerResources",
        "nodeControllerCert",
        "nodeControllerKey",
        "nodeResources",
        "registryCert",
        "registryKey",
    ];
    let beta = [
        "controllReplicas",
        "controllerDriverResources",
        "controllerTLSSecret",
        "kubeletDir",
        "logFormat",
        "maxUnavailable",
        "mutatePods",
        "nodeDriverResources",
        "nodeRegistrarResources",
        "provisionerResources",
        "schedulerNodePort",
    ];
    for (plural, own) in [("deployments", &alpha[..]), ("pmemcsideployments", &beta)] {
        let schema = schema(plural);
        let properties = schema["properties"]["spec"]["properties"].as_object();
        let names: Vec<&str> = properties
            .expect("some")
            .keys()
            .map(String::as_str)
            .collect();
        let mut expected = [&both[..], own].concat();
        expected.sort_unstable();
        assert_eq!(names, expected, "{plural}");
        assert_eq!(schema["properties"]["spec"]["required"], json!(null));
    }
}

/// Goal: the nine validations of PMEM-CSI's tests, and ours. Method: enumerations and bounds as the
/// API server reads them.
#[test]
fn values_are_bounded_by_the_schema() {
    for plural in PLURALS {
        let schema = schema(plural);
        let of = |name: &str| schema["properties"]["spec"]["properties"][name].clone();
        assert_eq!(
            of("deviceMode")["enum"],
            json!(["lvm", "direct"]),
            "{plural}"
        );
        let policies = json!(["Always", "IfNotPresent", "Never"]);
        assert_eq!(of("imagePullPolicy")["enum"], policies);
        let (least, most) = (
            &of("pmemPercentage")["minimum"],
            &of("pmemPercentage")["maximum"],
        );
        let zero = if plural == "berthstorages" { 1.0 } else { 0.0 };
        assert_eq!((least.as_f64(), most.as_f64()), (Some(zero), Some(100.0)));
        if plural != "deployments" {
            assert_eq!(of("logFormat")["enum"], json!(["text", "json"]));
            let none = plural == "pmemcsideployments";
            let directory = if none { "^(/[^:]*)?$" } else { "^/[^:]*$" };
            assert_eq!(of("kubeletDir")["pattern"], directory);
            assert_eq!(of("mutatePods")["enum"], json!(["Always", "Try", "Never"]));
            let most = of("maxUnavailable");
            assert_eq!(
                (&most["minimum"], &most["pattern"]),
                (&json!(1.0), &json!("^([1-9][0-9]?|100)%$"))
            );
        }
    }
    for image in ["image", "provisionerImage", "nodeRegistrarImage"] {
        let of = |plural| schema(plural)["properties"]["spec"]["properties"][image].clone();
        // Empty and absent are the same in PMEM-CSI's.
        let lengths = PLURALS.map(|plural| of(plural)["minLength"].as_u64());
        assert_eq!(lengths, [None, None, Some(1)], "{image}");
    }
    let alpha = schema("deployments");
    let rules = &alpha["properties"]["spec"]["x-kubernetes-validations"];
    assert_eq!(rules.as_array().map(Vec::len), Some(3));
    let key = &alpha["properties"]["spec"]["properties"]["registryKey"];
    assert_eq!(
        (&key["type"], &key["format"]),
        (&json!("string"), &json!("byte"))
    );
}

#[test]
fn quantities_are_those_of_kubernetes() {
    for text in [
        "0", "1", "+1", "1.5", ".5", "1.", "100m", "250Mi", "1e3", "1E-3", "12n", "3u", "7k",
    ] {
        assert_eq!(
            Quantity::parse(text).map(|q| q.to_string()),
            Ok(text.to_owned())
        );
    }
    for text in [
        "", "-1", "1.2.3", "1K", "1mi", "m", ".", "1 Mi", "1e", "1e+", "0x1", "1MiB", "+",
    ] {
        let error = Quantity::parse(text).expect_err(text);
        assert!(error.to_string().contains("hint: "), "{error}");
    }
    let resources: Resources =
        serde_json::from_value(json!({"limits": {"cpu": 1}})).expect("cpu: 1");
    assert_eq!(resources.limits["cpu"].as_str(), "1");
    for wrong in [
        json!({"limits": {"cpu": -1}}),
        json!({"limits": {"cpu": "x"}}),
        json!({"limit": {}}),
    ] {
        assert!(serde_json::from_value::<Resources>(wrong).is_err());
    }
}

/// Goal: an empty BerthStorage has every default in its schema, so that `kubectl get` shows them.
#[test]
fn the_defaults_of_our_own_are_in_its_schema() {
    let spec = schema("berthstorages")["properties"]["spec"]["properties"].clone();
    for (field, default) in [
        ("controllerReplicas", json!(1)),
        ("deviceMode", json!("lvm")),
        ("imagePullPolicy", json!("IfNotPresent")),
        ("kubeletDir", json!("/var/lib/kubelet")),
        ("logFormat", json!("text")),
        ("logLevel", json!(3)),
        ("maxUnavailable", json!(1)),
        ("mutatePods", json!("Try")),
        ("nodeSelector", json!({"storage": "pmem"})),
        ("pmemPercentage", json!(100)),
    ] {
        assert_eq!(spec[field]["default"], default, "{field}");
    }
    let empty: BerthStorageSpec = serde_json::from_value(json!({})).expect("an empty spec");
    assert_eq!(empty, BerthStorageSpec::default());
}
