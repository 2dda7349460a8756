//! What was acknowledged over the REST API survives `kill -9` of all members.

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use common::process::{Process, addresses, voters};
use common::{eventually, rest};
use serde_json::{Value, json};
use uuid::Uuid;

/// The members' addresses: for gRPC, and for the REST API.
struct Addresses {
    grpc: Vec<String>,
    rest: Vec<SocketAddr>,
}

impl Addresses {
    fn start(&self, folder: &Path, number: usize, more: &[&str]) -> Process {
        let rest = self.rest[number].to_string();
        let mut flags = vec![
            "--placement-profile",
            "default",
            "--placement-listen",
            &rest,
        ];
        flags.extend(more);
        let directory = folder.join(number.to_string());
        Process::spawn(&directory, &self.grpc[number], &flags)
    }

    /// Asks every member until one accepts: those that do not lead say so by 503.
    async fn write(&self, method: &str, path: &str, body: &Value) {
        // A leader that is lost on the way cannot say whether it was carried out.
        let unknown = AtomicBool::new(false);
        eventually("a leader that accepts", || async {
            for member in &self.rest {
                let answer = rest::ask(*member, method, path, Some(body.clone())).await;
                let status = answer.as_ref().map_or(503, |answer| answer.status);
                match status {
                    200..=299 => return Some(()),
                    409 if unknown.load(Ordering::Relaxed) => return Some(()),
                    503 => {
                        let told = answer.is_some_and(|a| a.body.contains("may or may not"));
                        unknown.fetch_or(told, Ordering::Relaxed);
                    }
                    _ => panic!("{method} {path}: {answer:?}"),
                }
            }
            None
        })
        .await;
    }
}

/// Goal: a 2xx means that a quorum has it on disk. Method: three processes; providers, inventories
/// and allocations over REST; SIGKILL to all right after the last answer, several times; all that
/// was answered is there after the restart, at the generations that were promised.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_kill_9_of_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let rest = addresses(6).split_off(3);
    let all = Addresses {
        grpc: addresses(3),
        rest: rest
            .iter()
            .map(|a| a.parse().expect("an address"))
            .collect(),
    };
    let mut members = vec![all.start(folder.path(), 0, &["--bootstrap"])];
    voters(&all.grpc[0], 1).await;
    for number in 1..3 {
        members.push(all.start(folder.path(), number, &["--join", &all.grpc[0]]));
        voters(&all.grpc[0], number + 1).await;
    }
    let mut written = Vec::new();
    for round in 0..3 {
        let (provider, consumer) = (Uuid::new_v4(), Uuid::new_v4());
        let body = json!({"name": format!("round {round}"), "uuid": provider});
        all.write("POST", "/resource_providers", &body).await;
        let inventory = json!({"resource_class": "VCPU", "total": 8});
        let path = format!("/resource_providers/{provider}/inventories");
        all.write("POST", &path, &inventory).await;
        let allocations = json!({
            "allocations": {provider.to_string(): {"resources": {"VCPU": 3}}},
            "project_id": "p", "user_id": "u", "consumer_generation": null,
            "consumer_type": "INSTANCE",
        });
        all.write("PUT", &format!("/allocations/{consumer}"), &allocations)
            .await;
        // Dropping kills.
        members.clear();
        written.push((provider, consumer));
        members.extend((0..3).map(|number| all.start(folder.path(), number, &[])));
        for (provider, consumer) in &written {
            let found = eventually("a read", || async {
                let path = format!("/allocations/{consumer}");
                let answer = rest::ask(all.rest[round], "GET", &path, None).await?;
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
