//! Goal: drift is noticed, and what the API server adds or rewrites is none. Method: pairs of a live and
//! a desired value, each direction; and every leaf of a real object changed and removed.

use serde_json::json;

use super::*;

#[test]
fn differences_that_are_none() {
    for (live, desired) in [
        (json!({"a": 1, "b": 2}), json!({"a": 1})),
        (json!({}), json!({"a": {}})),
        (json!({}), json!({"a": []})),
        (
            json!({"limits": {"cpu": "1"}}),
            json!({"limits": {"cpu": "1000m"}}),
        ),
        (
            json!({"limits": {"memory": "1Gi"}}),
            json!({"limits": {"memory": "1024Mi"}}),
        ),
        (
            json!({"limits": {"cpu": "1500m"}}),
            json!({"limits": {"cpu": "1.5"}}),
        ),
        (
            json!({"limits": {"cpu": "1k"}}),
            json!({"limits": {"cpu": "1e3"}}),
        ),
        (
            json!([{"name": "other"}, {"name": "a", "x": 1, "added": 1}]),
            json!([{"name": "a", "x": 1}]),
        ),
        (
            json!([{"mountPath": "/a", "b": 1}]),
            json!([{"mountPath": "/a"}]),
        ),
    ] {
        assert!(covers(&live, &desired), "{live} {desired}");
    }
}

#[test]
fn drift_is_noticed() {
    for (live, desired) in [
        (json!({}), json!({"a": 1})),
        (json!({"a": 2}), json!({"a": 1})),
        (json!({"a": "1"}), json!({"a": 1})),
        (
            json!({"limits": {"cpu": "1"}}),
            json!({"limits": {"cpu": "1001m"}}),
        ),
        (json!({"limits": {}}), json!({"limits": {"cpu": "1"}})),
        (json!([{"name": "b"}]), json!([{"name": "a"}])),
        (
            json!([{"name": "a", "x": 2}]),
            json!([{"name": "a", "x": 1}]),
        ),
        (json!(["a", "b"]), json!(["a"])),
        (json!(["b", "a"]), json!(["a", "b"])),
        (json!({}), json!({"a": ""})),
    ] {
        assert!(!covers(&live, &desired), "{live} {desired}");
    }
}

/// Goal: a label more in a selector, of which less is selected, is drift. Method: each kind of selector.
#[test]
fn what_is_added_to_a_selector_is_drift() {
    for key in ATOMIC {
        let of = |labels: Value| json!({"spec": {key: labels}});
        let (desired, same) = (of(json!({"a": "1"})), of(json!({"a": "1"})));
        assert!(covers(&same, &desired), "{key}");
        let more = of(json!({"a": "1", "b": "2"}));
        assert!(!covers(&more, &desired), "{key}");
        assert!(covers(&of(Value::Null), &of(json!({}))), "{key}");
        assert!(!covers(&more, &of(json!({}))), "{key}");
    }
}

#[test]
fn amounts_are_compared_exactly() {
    for (text, nano) in [
        ("0", Some(0)),
        ("1", Some(1_000_000_000)),
        ("1.5", Some(1_500_000_000)),
        (".5", Some(500_000_000)),
        ("1n", Some(1)),
        ("0.1n", None),
        ("1Ki", Some(1_024_000_000_000)),
        ("1e-3", Some(1_000_000)),
        ("1E3", Some(1_000_000_000_000)),
        ("+2m", Some(2_000_000)),
        ("99999999999999999999999999999999999999Ei", None),
        ("1e31", None),
    ] {
        assert_eq!(Quantity::parse(text).expect(text).nano(), nano, "{text}");
    }
}
