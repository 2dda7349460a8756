//! OpenStack Placement's REST API over real connections: who is let in, what belongs to Berth, and
//! what a hostile client can send. That OpenStack's clients are answered as they expect is what
//! OpenStack's own suite shows (`tests/placement` of the repository).

use std::net::SocketAddr;
use std::time::Instant;

use berth_proto::policy::v1::UpdateSchedulingPolicyRequest;
use berth_proto::policy::v1::policy_service_client::PolicyServiceClient;
use berth_scheduler::{Config, Profile, Start};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::common::rest::{self, Answer};
use crate::common::world::{flavor, register, register_request, schedule, vm_request};
use crate::common::{Member, PATIENCE, config, hosts};

/// A member that serves the REST API, and the directory that it keeps.
struct Server {
    member: Member,
    address: SocketAddr,
    directory: TempDir,
}

impl Server {
    async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = config(&directory.path().join("0"), Start::Bootstrap);
        config.placement_listen = Some("127.0.0.1:0".into());
        config.placement_profile = Some(Profile::Default);
        change(&mut config);
        let member = Member::start(config).await;
        let address = member.placement.expect("the REST API is served");
        Self {
            member,
            address,
            directory,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let answer = rest::ask(self.address, method, path, body).await;
        answer.expect("an answer")
    }

    async fn send(&self, method: &str, path: &str, head: &str, body: &[u8]) -> Answer {
        let answer = rest::send(self.address, method, path, head, body).await;
        answer.expect("an answer")
    }

    async fn provider(&self, name: &str, parent: Option<Uuid>) -> Uuid {
        let uuid = Uuid::new_v4();
        let body = json!({"name": name, "uuid": uuid, "parent_provider_uuid": parent});
        let answer = self.ask("POST", "/resource_providers", Some(body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        uuid
    }
}

/// Goal: with a file of tokens nobody is believed. Method: an unknown token, a known one whose
/// roles do not suffice although it says so, and one whose roles do.
#[tokio::test(flavor = "multi_thread")]
async fn only_tokens_of_the_file_are_let_in() {
    // The SHA-256 of "one" and of "two".
    let tokens = "\
        [[token]]\n\
        sha256 = \"7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\"\n\
        user = \"nova\"\nproject = \"service\"\nroles = [\"service\"]\n\
        [[token]]\n\
        sha256 = \"3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\"\n\
        user = \"guest\"\nroles = [\"reader\"]\n";
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), tokens).expect("written");
    let server = Server::start(|config| {
        config.placement_profile = None;
        config.placement_tokens = Some(file.path().to_owned());
    })
    .await;
    for (token, status) in [
        ("admin", 401),
        ("two", 403),
        ("one", 200),
        ("one:admin", 401),
    ] {
        let head = format!("X-Auth-Token: {token}\r\nX-Roles: admin\r\n");
        let answer = server.send("GET", "/resource_providers", &head, b"").await;
        assert_eq!(answer.status, status, "{token}: {answer:?}");
    }
    assert_eq!(server.send("GET", "/", "", b"").await.status, 200);
    server.member.stop().await.expect("a clean end");
    drop(server.directory);
}

/// Goal: what hosts report and what claims hold is shown and not written. Method: a host and a VM
/// over gRPC, then reads and writes of both over REST.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_and_claims_are_read_only() {
    let server = Server::start(|_| ()).await;
    let channel = server.member.channel().await;
    register(&channel, "h1", 2, 4).await;
    flavor(&channel, "small", 2).await;
    let scheduled = schedule(&channel, vm_request("a", "small"))
        .await
        .expect("room");
    let claim = scheduled.claim.expect("a claim").name;
    let claim = claim.rsplit('/').next().expect("an id").to_owned();

    let list = server.ask("GET", "/resource_providers", None).await.json();
    let provider = &list["resource_providers"][0];
    let path = format!(
        "/resource_providers/{}",
        provider["uuid"].as_str().expect("a text")
    );
    let usages = server
        .ask("GET", &format!("{path}/usages"), None)
        .await
        .json();
    let taken = server
        .ask("GET", &format!("{path}/allocations"), None)
        .await
        .json();
    let held = &taken["allocations"][&claim]["resources"];
    assert!(
        held["PCPU"] == 2 && usages["usages"]["PCPU"] == 2,
        "{taken} {usages}"
    );
    let shown = server
        .ask("GET", &format!("/allocations/{claim}"), None)
        .await
        .json();
    assert_eq!(shown["consumer_type"], "BERTH_CLAIM", "{shown}");
    assert_eq!(shown["user_id"], "a", "{shown}");

    let inventories = json!({
        "inventories": {},
        "resource_provider_generation": provider["generation"],
    });
    let allocations = json!({
        "allocations": {}, "project_id": "p", "user_id": "u", "consumer_generation": 1,
        "consumer_type": "INSTANCE",
    });
    let consumer = format!("/allocations/{claim}");
    for (method, path, body) in [
        ("PUT", format!("{path}/inventories"), Some(inventories)),
        ("DELETE", path.clone(), None),
        ("DELETE", format!("{path}/traits"), None),
        ("PUT", consumer.clone(), Some(allocations)),
        ("DELETE", consumer, None),
    ] {
        let answer = server.ask(method, &path, body).await;
        assert_eq!(answer.status, 409, "{method} {path}: {answer:?}");
        let code = &answer.json()["errors"][0]["code"];
        assert_eq!(*code, "berth.read_only", "{method} {path}: {answer:?}");
    }
}

/// Goal: ratio and reserve of a host's shared CPUs are those of the policy, and a client that tries to
/// change them is answered with the command that does. Method: a host with shared CPUs, read and written
/// over REST before and after the policy is set.
#[tokio::test(flavor = "multi_thread")]
async fn shared_cpus_of_hosts_follow_the_policy() {
    let server = Server::start(|_| ()).await;
    let channel = server.member.channel().await;
    let mut request = register_request("h1", 1, 4);
    let report = request.report.as_mut().expect("a report");
    let cells = &mut report.topology.as_mut().expect("a topology").cells;
    cells[0].dedicated_cpus = "0".into();
    cells[0].shared_cpus = "1-3".into();
    hosts(&channel)
        .register_host(request)
        .await
        .expect("a host");
    let list = server.ask("GET", "/resource_providers", None).await.json();
    let uuid = list["resource_providers"][0]["uuid"].as_str().expect("one");
    let path = format!("/resource_providers/{uuid}/inventories");
    for (ratio, reserved) in [(4.0, 0), (1.5, 1), (0.5, 3)] {
        if ratio < 4.0 {
            let settings = [
                ("cpu.ratio".to_owned(), ratio.to_string()),
                ("cpu.reserved".to_owned(), reserved.to_string()),
            ];
            let request = UpdateSchedulingPolicyRequest {
                settings: settings.into(),
                ..Default::default()
            };
            let mut client = PolicyServiceClient::new(channel.clone());
            let set = client.update_scheduling_policy(request).await;
            set.expect("a policy");
        }
        let shown = server.ask("GET", &path, None).await.json();
        let vcpu = &shown["inventories"]["VCPU"];
        assert_eq!(vcpu["allocation_ratio"], ratio, "{shown}");
        assert_eq!(
            (&vcpu["reserved"], &vcpu["total"]),
            (&json!(reserved), &json!(3))
        );
        let body = json!({
            "resource_provider_generation": shown["resource_provider_generation"],
            "total": 3, "allocation_ratio": 8.0,
        });
        let put = server.ask("PUT", &format!("{path}/VCPU"), Some(body)).await;
        assert_eq!(put.status, 409, "{put:?}");
        let error = &put.json()["errors"][0];
        assert_eq!(error["code"], "berth.read_only", "{put:?}");
        let detail = error["detail"].as_str().expect("a text");
        assert!(
            detail.contains("berth policy set cpu.ratio=... --host h1"),
            "{detail}"
        );
    }
}

/// Goal: a body that is too long is refused before it is kept, announced or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_are_refused_at_once() {
    let server = Server::start(|_| ()).await;
    let head = "X-Auth-Token: admin\r\nContent-Type: application/json\r\n";
    let announced = format!("{head}Content-Length: {}\r\n", 100 << 20);
    let start = Instant::now();
    let answer = server
        .send("POST", "/resource_providers", &announced, b"{")
        .await;
    assert_eq!(answer.status, 413, "{answer:?}");
    assert!(
        answer.body.contains("longer than the 4194304 bytes"),
        "{answer:?}"
    );

    let chunked = format!("{head}Transfer-Encoding: chunked\r\n");
    let mut body = Vec::new();
    let chunk = vec![b' '; 1 << 20];
    for _ in 0..8 {
        body.extend_from_slice(b"100000\r\n");
        body.extend_from_slice(&chunk);
        body.extend_from_slice(b"\r\n");
    }
    let answer = server
        .send("POST", "/resource_providers", &chunked, &body)
        .await;
    assert_eq!(answer.status, 413, "{answer:?}");
    assert!(start.elapsed() < PATIENCE / 2);
}

/// Goal: a tree of depth 1,000 is as good as any other: it can be asked for, moved as a whole and
/// taken down.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_depth_1000_is_searched_and_moved() {
    let server = Server::start(|_| ()).await;
    let mut chain = vec![server.provider("level 0", None).await];
    for level in 1..1000 {
        let parent = chain.last().copied();
        chain.push(server.provider(&format!("level {level}"), parent).await);
    }
    let deepest = chain.last().expect("the last one");
    let path = format!("/resource_providers/{deepest}/inventories");
    let inventory = json!({"resource_class": "VCPU", "total": 4});
    assert_eq!(server.ask("POST", &path, Some(inventory)).await.status, 201);
    let found = server
        .ask("GET", "/allocation_candidates?resources=VCPU:2", None)
        .await;
    let found = found.json();
    assert_eq!(
        found["allocation_requests"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(
        found["provider_summaries"].as_object().map(|all| all.len()),
        Some(1000)
    );

    let top = server.provider("top", None).await;
    let body = json!({"name": "level 0", "parent_provider_uuid": top});
    let path = format!("/resource_providers/{}", chain[0]);
    assert_eq!(server.ask("PUT", &path, Some(body)).await.status, 200);
    let moved = server
        .ask("GET", &format!("/resource_providers/{deepest}"), None)
        .await;
    assert_eq!(moved.json()["root_provider_uuid"], json!(top));
    let body = json!({"name": "top", "parent_provider_uuid": deepest});
    let answer = server
        .ask("PUT", &format!("/resource_providers/{top}"), Some(body))
        .await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("creating loop"), "{answer:?}");
}

/// Goal: whatever a client sends, it is told what is wrong, shortly. Method: a table.
#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_shortly() {
    let server = Server::start(|_| ()).await;
    let groups: String = (1..3000).map(|n| format!("&resources{n}=VCPU:1")).collect();
    let many = format!("/allocation_candidates?group_policy=none{groups}");
    let longer = format!(
        "/allocation_candidates?resources={}",
        "VCPU:1,".repeat(50_000)
    );
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let head = "X-Auth-Token: admin\r\nContent-Type: application/json\r\n";
    for (method, path, body, status) in [
        ("GET", many.as_str(), "", 400),
        ("GET", longer.as_str(), "", 414),
        ("GET", "/resource_providers?name=%ff", "", 400),
        ("GET", "/resource_providers/%2e%2e%2f%2e%2e%2fetc", "", 404),
        ("GET", "/resource_providers/%00", "", 404),
        ("POST", "/resource_providers", deep.as_str(), 400),
        (
            "POST",
            "/resource_providers",
            "{\"name\": \"\\ud800\"}",
            400,
        ),
        ("POST", "/resource_providers", "{\"name\": 1e400}", 400),
        ("POST", "/resource_providers", "", 400),
        ("BREW", "/resource_providers", "", 405),
    ] {
        let version = "OpenStack-API-Version: placement latest\r\n";
        let head = format!("{head}{version}Content-Length: {}\r\n", body.len());
        let answer = server.send(method, path, &head, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{method} {path:.80}: {answer:?}");
        assert!(
            answer.body.len() < 4096,
            "{method} {path:.80}: {}",
            answer.body.len()
        );
    }
}

/// Goal: any name that a schema lets through is kept to the letter.
#[tokio::test(flavor = "multi_thread")]
async fn odd_names_are_kept_to_the_letter() {
    let server = Server::start(|_| ()).await;
    for name in [
        "☃",
        "a/b?c#d",
        "'; DROP TABLE x; --",
        "<b>",
        "\u{7}\n\t\"\\",
        "  ",
        "é\u{301}",
    ] {
        let uuid = server.provider(name, None).await;
        let answer = server
            .ask("GET", &format!("/resource_providers/{uuid}"), None)
            .await;
        assert_eq!(answer.json()["name"], name, "{answer:?}");
        let query: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let found = server
            .ask("GET", &format!("/resource_providers?name={query}"), None)
            .await;
        assert_eq!(
            found.json()["resource_providers"][0]["uuid"],
            json!(uuid),
            "{found:?}"
        );
    }
}

/// Goal: of two faults that one is told that Placement tells. Method: what the differential test
/// found: a provider that exists as its own parent, and an unknown class from a late caller.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_faults_placements_first_is_told() {
    let server = Server::start(|_| ()).await;
    let (first, second) = (
        server.provider("first", None).await,
        server.provider("second", None).await,
    );
    let body = json!({"name": "first", "uuid": first, "parent_provider_uuid": first});
    let answer = server.ask("POST", "/resource_providers", Some(body)).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    let (one, other) = (first.min(second).to_string(), first.max(second).to_string());
    let unknown = json!({"CUSTOM_NONE": {"total": 1}});
    let inventories = json!({
        one: {"resource_provider_generation": 0, "inventories": unknown},
        other: {"resource_provider_generation": 7, "inventories": {}},
    });
    let body = json!({"inventories": inventories, "allocations": {}});
    let answer = server.ask("POST", "/reshaper", Some(body)).await;
    assert_eq!(answer.status, 409, "{answer:?}");
}

/// Goal: providers of the group without a suffix are not looked at in a write, as in Placement,
/// whose expression for suffixes does not find the empty one.
#[tokio::test(flavor = "multi_thread")]
async fn mappings_of_the_empty_suffix_are_ignored() {
    let server = Server::start(|_| ()).await;
    for (suffix, status) in [("", 204), ("_A", 400)] {
        let body = json!({
            "allocations": {},
            "project_id": "p",
            "user_id": "u",
            "consumer_generation": null,
            "consumer_type": "INSTANCE",
            "mappings": {suffix: [1]},
        });
        let path = format!("/allocations/{}", Uuid::new_v4());
        let answer = server.ask("PUT", &path, Some(body)).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
}
