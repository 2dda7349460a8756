//! A write over the REST API to a member that does not lead: it is carried to the one that does.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use berth_codec as codec;
use berth_domain::id::{ProviderId, RequestId, TimeMs};
use berth_proto::raft::v1::raft_service_client::RaftServiceClient;
use berth_proto::raft::v1::{ForwardRequest, Hello};
use berth_proto::status::from_status;
use berth_state::Reply;
use berth_state::command::{Command, Envelope, RequestKey};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::common::rest::{Answer, ask, send};
use crate::common::trio::Trio;
use crate::common::{Cluster, eventually};

async fn tell(
    server: SocketAddr,
    method: &str,
    path: &str,
    body: Option<Value>,
    expected: u16,
) -> Answer {
    let answer = ask(server, method, path, body).await;
    let answer = answer.unwrap_or_else(|| panic!("{method} {path}: no answer"));
    assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
    answer
}

/// Goal: every kind of write works at a member that does not lead, also when the leader shows no
/// REST API, and every member shows it at once. Who calls is judged where they called. Method:
/// three processes, of which the leader has no REST API; writes at one of the others, each read at
/// the third.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_does_not_lead_takes_writes() {
    let mut trio = Trio::start().await;
    trio.kill(0);
    trio.restart_without_rest(0);
    trio.lead(0).await;
    trio.answers(1).await;
    trio.answers(2).await;
    let (here, there) = (trio.rest[1], trio.rest[2]);
    let (provider, consumer) = (Uuid::new_v4(), Uuid::new_v4());
    let path = format!("/resource_providers/{provider}");

    let body = json!({"name": "p", "uuid": provider});
    let made = tell(here, "POST", "/resource_providers", Some(body.clone()), 200).await;
    assert_eq!(made.json()["generation"], 0, "{made:?}");
    assert_eq!(
        tell(there, "GET", &path, None, 200).await.json(),
        made.json()
    );
    let twice = tell(here, "POST", "/resource_providers", Some(body), 409).await;
    let code = &twice.json()["errors"][0]["code"];
    assert_eq!(code, "placement.duplicate_name", "{twice:?}");

    let body = json!({"resource_class": "VCPU", "total": 8});
    let inventories = format!("{path}/inventories");
    tell(here, "POST", &inventories, Some(body), 201).await;
    let shown = tell(there, "GET", &inventories, None, 200).await.json();
    assert_eq!(shown["inventories"]["VCPU"]["total"], 8, "{shown}");

    tell(here, "PUT", "/traits/CUSTOM_A", None, 201).await;
    tell(here, "PUT", "/traits/CUSTOM_A", None, 204).await;
    tell(there, "GET", "/traits/CUSTOM_A", None, 204).await;
    tell(here, "PUT", "/resource_classes/CUSTOM_C", None, 201).await;
    tell(there, "PUT", "/resource_classes/CUSTOM_C", None, 204).await;
    let body = json!({"traits": ["CUSTOM_A"], "resource_provider_generation": 1});
    let traits = format!("{path}/traits");
    let told = tell(here, "PUT", &traits, Some(body.clone()), 200).await;
    assert_eq!(told.json()["resource_provider_generation"], 2);
    tell(there, "PUT", &traits, Some(body), 409).await;

    // More than is kept, which is more than one member reads from another.
    let many: Vec<Uuid> = (0..10_001).map(|_| Uuid::new_v4()).collect();
    let body = json!({"aggregates": many, "resource_provider_generation": 2});
    let told = tell(here, "PUT", &format!("{path}/aggregates"), Some(body), 400).await;
    assert!(told.body.contains("at most 10000"), "{told:?}");

    let allocations = format!("/allocations/{consumer}");
    let body = json!({
        "allocations": {provider.to_string(): {"resources": {"VCPU": 3}}},
        "project_id": "p", "user_id": "u", "consumer_generation": null,
        "consumer_type": "INSTANCE",
    });
    tell(here, "PUT", &allocations, Some(body), 204).await;
    let shown = tell(there, "GET", &allocations, None, 200).await.json();
    assert_eq!(shown["consumer_generation"], 1, "{shown}");
    tell(here, "DELETE", &path, None, 409).await;
    tell(there, "DELETE", &allocations, None, 204).await;
    tell(here, "DELETE", &path, None, 204).await;
    tell(there, "GET", &path, None, 404).await;

    let reader = "X-Auth-Token: somebody\r\nX-Roles: reader\r\nContent-Length: 0\r\n\
                  OpenStack-API-Version: placement latest\r\n";
    let answer = send(here, "PUT", "/traits/CUSTOM_B", reader, b"").await;
    assert_eq!(answer.expect("an answer").status, 403);
    tell(there, "GET", "/traits/CUSTOM_B", None, 404).await;
}

/// Goal: where nobody leads a write is refused in bounded time, with the advice to come back, and
/// is not done later. Method: two of three processes are killed.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_a_write_is_refused_in_time() {
    let mut trio = Trio::start().await;
    trio.lead(0).await;
    trio.answers(1).await;
    trio.kill(0);
    trio.kill(2);
    let begun = Instant::now();
    let name = Uuid::new_v4();
    let body = json!({"name": name});
    let answer = tell(trio.rest[1], "POST", "/resource_providers", Some(body), 503).await;
    assert!(answer.head.contains("\r\nretry-after: "), "{answer:?}");
    // Ten seconds are the time that a request has.
    assert!(begun.elapsed() < Duration::from_secs(30));
    // Whether the leader died before or after it was asked, nobody has it.
    trio.restart(2);
    let list = format!("/resource_providers?name={name}");
    let listed = eventually("a list", || async {
        let answer = ask(trio.rest[2], "GET", &list, None).await?;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(listed["resource_providers"], json!([]));
}

/// What the clients of a provider were told.
#[derive(Default)]
struct Told {
    done: BTreeSet<Uuid>,
    /// No answer, or one that says that it may have been done.
    unknown: BTreeSet<Uuid>,
    refused: BTreeSet<Uuid>,
}

/// Lets new consumers take one unit each, at one member after the other, until `stop`.
async fn take(
    members: Vec<SocketAddr>,
    provider: Uuid,
    count: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Told {
    let mut told = Told::default();
    // No generation is checked before 1.28, so that a write that is done twice is done twice.
    let head = "X-Auth-Token: nova\r\nX-Roles: service\r\nContent-Type: application/json\r\n\
                OpenStack-API-Version: placement 1.12\r\n";
    for member in members.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let consumer = Uuid::new_v4();
        let body = json!({
            "allocations": {provider.to_string(): {"resources": {"VCPU": 1}}},
            "project_id": "p", "user_id": "u",
        })
        .to_string();
        let head = format!("{head}Content-Length: {}\r\n", body.len());
        let path = format!("/allocations/{consumer}");
        let answer = send(*member, "PUT", &path, &head, body.as_bytes()).await;
        match &answer {
            None => told.unknown.insert(consumer),
            Some(answer) => match answer.status {
                204 => {
                    count.fetch_add(1, Ordering::Relaxed);
                    told.done.insert(consumer)
                }
                503 if answer.body.contains("may or may not") => told.unknown.insert(consumer),
                503 => told.refused.insert(consumer),
                _ => panic!("{answer:?}"),
            },
        };
    }
    told
}

/// Goal: what is acknowledged is there once, whichever member was asked and whoever led. Method:
/// clients write to all members in turn while the leader is killed, several times; each write has
/// a consumer of its own and raises the generation of the client's provider by one, so that the
/// generation counts executions.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_done_twice_when_the_leader_is_killed() {
    let mut trio = Trio::start().await;
    let (count, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    for number in 0..3 {
        trio.answers(number).await;
    }
    let mut clients = Vec::new();
    for number in 0..6_usize {
        let provider = Uuid::new_v4();
        let body = json!({"name": format!("p{number}"), "uuid": provider});
        let server = trio.rest[number % 3];
        tell(server, "POST", "/resource_providers", Some(body), 200).await;
        let body = json!({"resource_class": "VCPU", "total": 1_000_000});
        let path = format!("/resource_providers/{provider}/inventories");
        tell(server, "POST", &path, Some(body), 201).await;
        let mut members = trio.rest.clone();
        members.rotate_left(number % 3);
        let client = take(members, provider, count.clone(), stop.clone());
        clients.push((provider, tokio::spawn(client)));
    }
    for _ in 0..3 {
        let before = count.load(Ordering::Relaxed);
        let more = || async { (count.load(Ordering::Relaxed) > before + 60).then_some(()) };
        eventually("writes under this leader", more).await;
        let leader = trio.leader().await;
        trio.kill(leader);
        let before = count.load(Ordering::Relaxed);
        let more = || async { (count.load(Ordering::Relaxed) > before + 60).then_some(()) };
        eventually("writes under the next leader", more).await;
        trio.restart(leader);
        trio.answers(leader).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut done = 0;
    for (provider, client) in clients {
        let told = client.await.expect("no panic");
        done += told.done.len();
        let path = format!("/resource_providers/{provider}/allocations");
        let shown = tell(trio.rest[0], "GET", &path, None, 200).await.json();
        let taken = shown["allocations"].as_object().expect("an object");
        let taken: BTreeSet<Uuid> = taken.keys().map(|id| id.parse().expect("a UUID")).collect();
        assert!(told.done.is_subset(&taken), "an acknowledged write is lost");
        let rest: BTreeSet<Uuid> = taken.difference(&told.done).copied().collect();
        assert!(rest.is_subset(&told.unknown), "{:?}", told.refused);
        let generation = &shown["resource_provider_generation"];
        assert_eq!(*generation, 1 + taken.len(), "a write was done twice");
    }
    assert!(done > 360);
}

/// Goal: a repeated forward is carried out once, strangers are refused, and who does not lead
/// passes nothing on. Method: the call itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_forward_is_carried_out_once_by_the_leader_alone() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let status = cluster.members[leader].status().await;
    let follower = (leader + 1) % 3;
    let from = cluster.members[follower].status().await;
    let own = from.members.iter().find(|m| m.id == from.member_id);
    let hello = |to| Hello {
        cluster_id: status.cluster_id.clone(),
        from: from.member_id,
        to,
        from_address: cluster.members[follower].peer(),
        from_disk: own.expect("itself").disk_id.clone(),
        from_version: 0,
    };
    let id = ProviderId(Uuid::new_v4());
    let mut envelope = Envelope {
        at: TimeMs(0),
        principal: "placement:nova".to_owned(),
        request: None,
        audit: None,
        command: Command::CreateProvider {
            id,
            name: "p".to_owned(),
            parent: None,
        },
    };
    let keyless = codec::encode_command(&envelope);
    envelope.request = Some(RequestKey {
        method: "Forward".to_owned(),
        id: RequestId(Uuid::now_v7()),
        payload_hash: 7,
    });
    let bytes = codec::encode_command(&envelope);
    let mut at_leader = RaftServiceClient::new(cluster.members[leader].channel().await);
    let mut at_follower = RaftServiceClient::new(cluster.members[follower].channel().await);
    let request = |hello, envelope: &bytes::Bytes| ForwardRequest {
        hello,
        envelope: envelope.clone(),
    };

    let to = from.member_id;
    let elsewhere = at_follower.forward(request(Some(hello(to)), &bytes)).await;
    let refusal = from_status(&elsewhere.expect_err("it does not lead"));
    assert_eq!(refusal.reason, "NOT_LEADER");
    let to = status.member_id;
    for (wrong, envelope) in [
        (None, &bytes),
        (Some(hello(to + 9)), &bytes),
        (
            Some(Hello {
                cluster_id: Uuid::new_v4().to_string(),
                ..hello(to)
            }),
            &bytes,
        ),
        (
            Some(Hello {
                from_disk: Uuid::new_v4().to_string(),
                ..hello(to)
            }),
            &bytes,
        ),
        (Some(hello(to)), &keyless),
        (Some(hello(to)), &bytes::Bytes::from_static(b"\xff")),
    ] {
        let answer = at_leader.forward(request(wrong.clone(), envelope)).await;
        assert!(answer.is_err(), "{wrong:?} is let in");
    }
    for _ in 0..3 {
        let answer = at_leader.forward(request(Some(hello(to)), &bytes)).await;
        let outcome = answer.expect("an outcome").into_inner().outcome;
        let outcome = codec::decode_outcome(&outcome).expect("an outcome");
        assert!(matches!(outcome, Ok(Reply::Provider(p)) if p.id == id));
    }
    envelope.request = Some(RequestKey {
        method: "Forward".to_owned(),
        id: RequestId(Uuid::now_v7()),
        payload_hash: 7,
    });
    let bytes = codec::encode_command(&envelope);
    let answer = at_leader.forward(request(Some(hello(to)), &bytes)).await;
    let outcome = answer.expect("an outcome").into_inner().outcome;
    let refused = codec::decode_outcome(&outcome).expect("an outcome");
    assert_eq!(refused.expect_err("it is there").reason, "DUPLICATE_ID");
}
