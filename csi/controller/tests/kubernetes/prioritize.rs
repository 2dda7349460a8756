//! How well nodes fit.

use serde_json::{Value, json};

use crate::support::{DRIVER, GIB, Place, inline, pod};

/// Goal: the less is left the better, from 0 to 10, and 0 where nothing fits.
#[tokio::test]
async fn tighter_is_better() {
    let hosts: &[(&str, &[u64])] = &[
        ("full", &[GIB]),
        ("half", &[2 * GIB]),
        ("wide", &[100 * GIB]),
        ("small", &[1]),
    ];
    let place = Place::start(hosts).await;
    let names = ["wide", "small", "full", "half", "unknown"];
    let expected = json!([
        {"Host": "wide", "Score": 0}, {"Host": "small", "Score": 0}, {"Host": "full", "Score": 10},
        {"Host": "half", "Score": 5}, {"Host": "unknown", "Score": 0},
    ]);
    let args = json!({"Pod": pod(&[inline(DRIVER, "1Gi")]), "NodeNames": names});
    let answer = place.ask("/prioritize", &args).await;
    assert_eq!((answer.status, answer.json()), (200, expected));
    let nodes: Vec<Value> = names
        .iter()
        .map(|n| json!({"metadata": {"name": n}}))
        .collect();
    let args = json!({"Pod": pod(&[]), "Nodes": {"items": nodes}});
    let answer = place.ask("/prioritize", &args).await;
    assert!(
        answer
            .json()
            .as_array()
            .unwrap()
            .iter()
            .all(|host| host["Score"] == 0)
    );
    place.end().await;
}

/// Goal: what cannot be answered is a status with a sentence; a scheduler takes all for equal then.
#[tokio::test]
async fn what_cannot_be_answered_is_a_status() {
    let mut place = Place::start(&[]).await;
    for (body, status, told) in [
        ("{", 400, "the body is not ExtenderArgs: "),
        ("{}", 400, "incomplete parameters"),
    ] {
        let answer = place.client.post("/prioritize", body).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.body.starts_with(told), "{answer:?}");
    }
    let args = json!({"Pod": pod(&[inline(DRIVER, "x")]), "NodeNames": ["a"]});
    assert_eq!(place.ask("/prioritize", &args).await.status, 422);
    place.scheduler.die().await;
    let args = json!({"Pod": pod(&[inline(DRIVER, "1Gi")]), "NodeNames": ["a"]});
    assert_eq!(place.ask("/prioritize", &args).await.status, 503);
    place.end().await;
}
