//! What was acknowledged over the REST API survives `kill -9` of all members.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::trio::Trio;
use crate::common::{eventually, rest};

/// Writes through one member, which may still be looking for a leader.
async fn write(member: SocketAddr, method: &str, path: &str, body: &Value) {
    // A leader that is lost on the way cannot say whether it was carried out.
    let unknown = AtomicBool::new(false);
    eventually("a write", || async {
        let answer = rest::ask(member, method, path, Some(body.clone())).await?;
        match answer.status {
            200..=299 => return Some(()),
            409 if unknown.load(Ordering::Relaxed) => return Some(()),
            503 => unknown.fetch_or(answer.body.contains("may or may not"), Ordering::Relaxed),
            _ => panic!("{method} {path}: {answer:?}"),
        };
        None
    })
    .await;
}

/// Goal: a 2xx means that a quorum has it on disk. Method: three processes; providers, inventories
/// and allocations over REST, through another member each time; SIGKILL to all right after the
/// last answer, several times; all that was answered is there after the restart, at the
/// generations that were promised.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kill_9_of_all() {
    let mut trio = Trio::start().await;
    let mut written = Vec::new();
    for round in 0..3 {
        let (provider, consumer) = (Uuid::new_v4(), Uuid::new_v4());
        let member = trio.rest[round];
        let body = json!({"name": format!("round {round}"), "uuid": provider});
        write(member, "POST", "/resource_providers", &body).await;
        let inventory = json!({"resource_class": "VCPU", "total": 8});
        let path = format!("/resource_providers/{provider}/inventories");
        write(member, "POST", &path, &inventory).await;
        let allocations = json!({
            "allocations": {provider.to_string(): {"resources": {"VCPU": 3}}},
            "project_id": "p", "user_id": "u", "consumer_generation": null,
            "consumer_type": "INSTANCE",
        });
        write(
            member,
            "PUT",
            &format!("/allocations/{consumer}"),
            &allocations,
        )
        .await;
        written.push((provider, consumer));
        for number in 0..3 {
            trio.kill(number);
        }
        for number in 0..3 {
            trio.restart(number);
        }
        for (provider, consumer) in &written {
            let found = eventually("a read", || async {
                let path = format!("/allocations/{consumer}");
                let answer = rest::ask(trio.rest[round], "GET", &path, None).await?;
                (answer.status == 200).then(|| answer.json())
            })
            .await;
            let taken = &found["allocations"][provider.to_string()];
            assert_eq!(taken["resources"]["VCPU"], 3, "{found}");
            assert_eq!(taken["generation"], 2, "{found}");
            assert_eq!(found["consumer_generation"], 1, "{found}");
        }
    }
}
