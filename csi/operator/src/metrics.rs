//! What is counted, as Prometheus reads it. The names are PMEM-CSI's.
//!
//! | metric | labels |
//! |---|---|
//! | `pmem_csi_deployment_reconcile` | name, uid |
//! | `pmem_csi_deployment_sub_resource_created_at`, `..._updated_at` | name, namespace, group, version, kind, uid, ownedBy |
//!
//! The uid of a sub-resource is its own if it is known: one that is created has none yet.
//!
//! Invariant: what is counted of a resource goes with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::plan::{Key, Plan, Write};
use crate::resource::{Request, Resource};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// What is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    resources: Mutex<BTreeMap<Request, Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    uid: String,
    passes: u64,
    /// When an object was created and last updated, in seconds since 1970.
    objects: BTreeMap<Key, Times>,
}

#[derive(Debug, Default)]
struct Times {
    uid: String,
    created: Option<u64>,
    updated: Option<u64>,
}

impl Metrics {
    /// Counts a pass.
    pub fn count_pass(&self, resource: &Resource) {
        let mut resources = self.lock();
        let counts = resources.entry(resource.request()).or_default();
        if counts.uid != resource.owner.uid {
            *counts = Counts {
                uid: resource.owner.uid.clone(),
                ..Counts::default()
            };
        }
        counts.passes += 1;
    }

    /// Records when objects were written.
    pub fn record_writes(&self, resource: &Resource, plan: &Plan) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let mut resources = self.lock();
        let counts = resources.entry(resource.request()).or_default();
        for write in &plan.writes {
            match write {
                Write::Create(object) => {
                    let times = counts.objects.entry(Key::of(object)).or_default();
                    *times = Times {
                        created: Some(now),
                        ..Times::default()
                    };
                }
                Write::Apply { object, uid } => {
                    let times = counts.objects.entry(Key::of(object)).or_default();
                    times.uid.clone_from(uid);
                    times.updated = Some(now);
                }
                Write::Delete { key, .. } => {
                    counts.objects.remove(key);
                }
            }
        }
    }

    /// Drops what was counted of a resource.
    pub fn forget(&self, request: &Request) {
        self.lock().remove(request);
    }

    /// Returns everything as text.
    #[must_use]
    pub fn render(&self) -> String {
        const PASSES: &str = "pmem_csi_deployment_reconcile";
        const CREATED: &str = "pmem_csi_deployment_sub_resource_created_at";
        const UPDATED: &str = "pmem_csi_deployment_sub_resource_updated_at";
        let resources = self.lock();
        let mut text = String::new();
        head(&mut text, PASSES, "counter", "Passes over a deployment.");
        for (request, counts) in resources.iter() {
            let labels = [("name", request.name.as_str()), ("uid", &counts.uid)];
            line(&mut text, PASSES, &labels, counts.passes);
        }
        head(
            &mut text,
            CREATED,
            "gauge",
            "When an object was created, in seconds since 1970.",
        );
        times(&mut text, CREATED, &resources, |times| times.created);
        head(
            &mut text,
            UPDATED,
            "gauge",
            "When an object was last updated, in seconds since 1970.",
        );
        times(&mut text, UPDATED, &resources, |times| times.updated);
        text
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Request, Counts>> {
        self.resources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn times(
    text: &mut String,
    name: &str,
    resources: &BTreeMap<Request, Counts>,
    time: impl Fn(&Times) -> Option<u64>,
) {
    for counts in resources.values() {
        for (key, times) in &counts.objects {
            if let Some(time) = time(times) {
                line(text, name, &labels(key, &times.uid, &counts.uid), time);
            }
        }
    }
}

fn labels<'a>(key: &'a Key, uid: &'a str, owner: &'a str) -> [(&'static str, &'a str); 7] {
    let (group, version) = key
        .api_version
        .split_once('/')
        .unwrap_or(("", &key.api_version));
    [
        ("name", &key.name),
        ("namespace", &key.namespace),
        ("group", group),
        ("version", version),
        ("kind", &key.kind),
        ("uid", uid),
        ("ownedBy", owner),
    ]
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &[(&str, &str)], value: u64) {
    let labels: Vec<String> = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
        .collect();
    let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::Kind;

    fn resource(uid: &str) -> Resource {
        let object = json!({"metadata": {"name": "d.example", "uid": uid}});
        Resource::parse(Kind::BerthStorage, &object)
    }

    #[test]
    fn passes_and_writes_are_counted_until_the_resource_goes() {
        let metrics = Metrics::default();
        let resource_1 = resource("u1");
        metrics.count_pass(&resource_1);
        metrics.count_pass(&resource_1);
        let object = |name: &str| {
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
                "metadata": {"name": name, "namespace": "berth"}})
        };
        let plan = Plan {
            writes: vec![
                Write::Create(object("a")),
                Write::Apply {
                    object: object("b"),
                    uid: "b-uid".to_owned(),
                },
            ],
            refusals: Vec::new(),
        };
        metrics.record_writes(&resource_1, &plan);
        let text = metrics.render();
        for expected in [
            "pmem_csi_deployment_reconcile{name=\"d.example\",uid=\"u1\"} 2\n",
            "sub_resource_created_at{name=\"a\",namespace=\"berth\",group=\"apps\",version=\"v1\",\
             kind=\"DaemonSet\",uid=\"\",ownedBy=\"u1\"} ",
            "sub_resource_updated_at{name=\"b\",namespace=\"berth\",group=\"apps\",version=\"v1\",\
             kind=\"DaemonSet\",uid=\"b-uid\",ownedBy=\"u1\"} ",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        // Another resource of the same name begins at none.
        metrics.count_pass(&resource("u2"));
        assert!(metrics.render().contains("uid=\"u2\"} 1\n"));
        assert!(!metrics.render().contains("u1"));
        metrics.forget(&resource_1.request());
        assert!(!metrics.render().contains("d.example"));
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(escape("a\"\\\n"), "a\\\"\\\\\\n");
    }
}
