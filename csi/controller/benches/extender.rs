//! How long `filter` and `prioritize` take with 1,000 nodes.
//!
//! Goal: p99 under 20 ms. Method: Berth's own scheduler with 1,000 hosts of two regions each, an API
//! server, extender and client in one process, over TLS on loopback, one call after the other; a
//! pod with two volumes to be made. Each figure is what the client sees.
//!
//!     cargo bench -p berth-csi-controller --bench extender

// Most of it is for the tests.
#[allow(dead_code, unused_imports)]
#[path = "../tests/kubernetes/support/mod.rs"]
mod support;

use std::time::Instant;

use bytes::Bytes;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use support::real::RealScheduler;
use support::{DRIVER, GIB, Place, claim, inline, of_claim, pod};

const NODES: usize = 1_000;
const CALLS: usize = 1_000;
const WARM: usize = 50;

#[tokio::main]
async fn main() {
    let scheduler = RealScheduler::start().await;
    let names: Vec<String> = (0..NODES).map(|at| format!("node-{at:04}")).collect();
    for (at, name) in names.iter().enumerate() {
        // On a third of them it does not fit.
        let small = if at % 3 == 0 { 3 } else { 64 };
        scheduler.register(name, &[small * GIB, small * GIB]).await;
    }
    let place = Place::start_before_real(scheduler.url())
        .await
        .with_classes();
    place.api.put_claim(&claim("data", Some("late"), "40Gi"));
    let pod = pod(&[of_claim("data"), inline(DRIVER, "40Gi")]);
    let by_name = json!({"Pod": pod, "Nodes": null, "NodeNames": names});
    // A node as a scheduler sent it, with 50 images as nodes have them.
    let recorded: Value =
        serde_json::from_str(include_str!("../testdata/recorded/filter-nodes.json")).expect("JSON");
    let items: Vec<Value> = names.iter().map(|name| node(&recorded, name)).collect();
    let whole = json!({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": null});
    println!("{NODES} nodes, {CALLS} calls one after the other, in milliseconds");
    println!("| call | body in | p50 | p99 | max |\n|---|---|---|---|---|");
    measure(&place, "filter, names", "/filter", &by_name, CALLS).await;
    measure(&place, "prioritize, names", "/prioritize", &by_name, CALLS).await;
    measure(&place, "filter, whole nodes", "/filter", &whole, CALLS / 10).await;
    place.end().await;
    scheduler.end().await;
}

fn node(recorded: &Value, name: &str) -> Value {
    let mut node = recorded["Nodes"]["items"][0].clone();
    node["metadata"]["name"] = json!(name);
    let image = node["status"]["images"][0].clone();
    node["status"]["images"] = json!(vec![image; 50]);
    node
}

async fn measure(place: &Place, what: &str, path: &str, args: &Value, calls: usize) {
    let body = Bytes::from(args.to_string());
    let mut conversation = place.client.converse().await;
    let mut taken = Histogram::<u64>::new(3).expect("three digits");
    for call in 0..WARM + calls {
        let begun = Instant::now();
        let answer = conversation.send("POST", path, body.clone()).await;
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        assert_eq!(answer.status, 200);
        if call == 0 && path == "/filter" {
            let told = answer.json();
            assert_eq!(told["Error"], "");
            let failed = told["FailedNodes"].as_object().map(serde_json::Map::len);
            assert_eq!(failed, Some(NODES.div_ceil(3)));
        }
        if call >= WARM {
            taken.record(micros).expect("it resizes");
        }
    }
    conversation.end().await;
    let at = |quantile| taken.value_at_quantile(quantile) as f64 / 1000.0;
    let kib = body.len() / 1024;
    println!(
        "| {what} | {kib} KiB | {:.2} | {:.2} | {:.2} |",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
