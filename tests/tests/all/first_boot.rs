//! What a guest is given for its first boot, with whole processes.
//!
//! Goal: the guest gets it, and none but the conductor that boots it sees it on the way. Method: a word
//! that is nowhere else, and a conductor that stands still; every method that reads is called with every
//! name there is by every role, while the boot lasts and afterwards, and the word is looked for in
//! every response, in all logs, in what hypervisors record and in a support bundle.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use berth_process::access::table;
use berth_proto::client::Dialer;
use berth_proto::operation::v1::GetOperationRequest;
use berth_proto::raw::Raw;
use berth_proto::types::v1::ReadConsistency;
use berth_tests::processes::{Cluster, Host, Part};
use berth_tls::{Expected, Role};
use prost::Message as _;
use rustix::process::Signal;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use crate::PROGRAMS;
use crate::backup::back_up;

const SECRET: &str = "quetzalcoatlus";
/// How long a stream is read. What a method has to say of a small cluster it says at once.
const READ_TIME_MAX: Duration = Duration::from_millis(500);
/// How many calls are made at once.
const AT_ONCE: usize = 20;

/// A request whose first field is a text: the name in nearly all that read.
#[derive(Clone, PartialEq, prost::Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

/// Returns the methods that change nothing, by what the table says of those who may only read, and by
/// their names. A backup has everything, and is for operators alone.
fn reading_methods() -> Vec<String> {
    let begins = |method: &str, verbs: &[&str]| {
        let (_, name) = method.split_once('/').expect("a service and a method");
        verbs.iter().any(|verb| name.starts_with(verb))
    };
    let verbs = [
        "Get", "List", "Watch", "Read", "Check", "Find", "Plan", "Wait",
    ];
    let reads = |method: &String| table::may(Role::Reader, method) || begins(method, &verbs);
    let methods: Vec<String> = table::methods().filter(reads).collect();
    assert!(methods.len() > 50, "{methods:?}");
    methods
}

/// Returns the responses of a method, as they are on the wire.
async fn call(channel: &Channel, method: &str, request: Vec<u8>) -> Vec<u8> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    let path = PathAndQuery::try_from(format!("/{method}")).expect("a path");
    let mut seen = Vec::new();
    let reading = async {
        client.ready().await.expect("a connection");
        let request = tonic::Request::new(request);
        match client.server_streaming(request, path, Raw).await {
            Ok(response) => {
                let mut messages = response.into_inner();
                while let Ok(Some(message)) = messages.message().await {
                    seen.extend(message);
                }
            }
            // What is refused may say it too.
            Err(status) => {
                seen.extend(status.message().as_bytes());
                seen.extend(status.details());
            }
        }
    };
    let _ = tokio::time::timeout(READ_TIME_MAX, reading).await;
    seen
}

fn has_secret(bytes: &[u8]) -> bool {
    let word = SECRET.as_bytes();
    bytes.windows(word.len()).any(|part| part == word)
}

type Calls = Vec<tokio::task::JoinHandle<(Vec<u8>, String)>>;

/// Returns the names of the methods whose responses have it.
fn await_all(
    runtime: &tokio::runtime::Runtime,
    calls: &mut Calls,
) -> impl Iterator<Item = String> + use<> {
    let made = calls
        .drain(..)
        .map(|call| runtime.block_on(call).expect("a call"));
    let seen = made.filter(|(response, _)| has_secret(response));
    let methods: Vec<String> = seen
        .map(|(_, method)| method.split_once('/').expect("a method").1.to_owned())
        .collect();
    methods.into_iter()
}

/// Returns who sees it, as `conductor conductor-1 GetOperation`.
fn seen_by(cluster: &Cluster, names: &[String]) -> BTreeSet<String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let certs = cluster.certificates();
    let callers = [
        (Role::Operator, "ann"),
        (Role::Reader, "bob"),
        (Role::Conductor, &*cluster.conductors[0].name),
        (Role::Conductor, &*cluster.conductors[1].name),
        (Role::Agent, "h1"),
        (Role::CsiController, "csi-1"),
    ];
    let servers = [&cluster.schedulers[0], &cluster.agents[0]];
    let requests: Vec<Vec<u8>> = names
        .iter()
        .map(|name| Named { name: name.clone() }.encode_to_vec())
        .collect();
    let methods = reading_methods();
    let mut seen = BTreeSet::new();
    for (role, name) in callers {
        for server in servers {
            let dialer = Dialer::new(Some(certs.tls(role, name)));
            let url = dialer.url(&server.address);
            let opened = runtime.block_on(async { dialer.channel(&url, Expected::AnyServer) });
            let channel = opened.expect("an address");
            let mut calls = Vec::new();
            for method in methods.iter().filter(|method| table::may(role, method)) {
                for request in &requests {
                    let (channel, method) = (channel.clone(), method.clone());
                    let request = request.clone();
                    let calling = async move { (call(&channel, &method, request).await, method) };
                    calls.push(runtime.spawn(calling));
                }
                // As many at a time as a caller may have.
                if calls.len() < AT_ONCE {
                    continue;
                }
                seen.extend(await_all(&runtime, &mut calls).map(|m| format!("{role} {name} {m}")));
            }
            seen.extend(await_all(&runtime, &mut calls).map(|m| format!("{role} {name} {m}")));
        }
    }
    seen
}

/// Returns an operation as a conductor reads it.
fn operation_as(
    cluster: &Cluster,
    conductor: &str,
    operation: &str,
    consistency: ReadConsistency,
) -> Vec<u8> {
    let request = GetOperationRequest {
        name: format!("operations/{operation}"),
        consistency: consistency.into(),
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let dialer = Dialer::new(Some(cluster.certificates().tls(Role::Conductor, conductor)));
    let url = dialer.url(&cluster.schedulers[0].address);
    runtime.block_on(async {
        let channel = dialer
            .channel(&url, Expected::Scheduler)
            .expect("an address");
        let method = "berth.operation.v1.OperationService/GetOperation";
        call(&channel, method, request.encode_to_vec()).await
    })
}

/// Returns whether a backup of the state has it.
fn backup_has_secret(cluster: &Cluster, path: &Path) -> bool {
    let _ = back_up(cluster, 0, path, &[]);
    let mut reader = berth_backup::Reader::new(fs::File::open(path).unwrap()).expect("a backup");
    let mut found = false;
    while let Some(item) = reader.next().expect("it is sound") {
        if let berth_backup::Item::Row(row) = item {
            found |= has_secret(&row.value);
        }
    }
    found
}

fn logs_have_secret(cluster: &Cluster) -> Vec<String> {
    let parts = [&cluster.schedulers, &cluster.conductors, &cluster.agents];
    let parts = parts.into_iter().flatten();
    parts
        .filter(|part| has_secret(part.log().as_bytes()))
        .map(|part| part.name.clone())
        .collect()
}

#[test]
fn only_the_guest_and_its_conductor_see_it() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(2)
        .host(Host::new("h1").with_storage("s"))
        // The other conductor waits so long for the one that stands still.
        .lease_ttl_ms(120_000)
        .certified()
        .start();
    cluster.pinned_flavor("one", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let text = |name: &str, content: &str| {
        fs::write(file(name), content).expect("it is written");
        file(name).to_str().expect("a plain path").to_owned()
    };
    let user_data = text("user-data", &format!("#cloud-config\npassword: {SECRET}\n"));
    let key = text(
        "key.pub",
        &format!("ssh-ed25519 AAAAC3NzaC1lZDI1 {SECRET}\n"),
    );
    let network = text("network", &format!("# {SECRET}\nversion: 2\n"));

    let verbose = [
        "log-level",
        "set",
        "debug",
        "--all-members",
        "--all-conductors",
        "--host",
        "h1",
    ];
    cluster.run(&verbose);
    cluster.agents[0].signal(Signal::STOP);
    let operation = cluster.begin(&[
        "vm",
        "create",
        "a",
        "--flavor",
        "one",
        "--kernel",
        "k",
        "--user-data",
        &user_data,
        "--ssh-key",
        &key,
        "--network-config",
        &network,
    ]);
    cluster.reaches(&operation, "Spawn", "Started");
    let shown = cluster.json(&["operation", "show", &operation]);
    let claim = shown["claim"].as_str().expect("a claim").to_owned();
    let holder = shown["lease"]["conductor"].as_str().expect("a holder");
    let names = [
        String::new(),
        "vms/a".to_owned(),
        "hosts/h1".to_owned(),
        format!("operations/{operation}"),
        format!("claims/{claim}"),
    ];
    let held = |part: &Part| part.name == holder;
    let at = cluster
        .conductors
        .iter()
        .position(held)
        .expect("a conductor");
    cluster.conductors[at].signal(Signal::STOP);
    cluster.agents[0].signal(Signal::CONT);
    let expected = [format!("conductor {holder} GetOperation")];
    assert_eq!(seen_by(&cluster, &names), expected.into());
    for (consistency, expected) in [
        (ReadConsistency::Unspecified, true),
        // Of a stale state it is not known who holds the lease by now.
        (ReadConsistency::Stale, false),
    ] {
        let response = operation_as(&cluster, holder, &operation, consistency);
        assert_eq!(has_secret(&response), expected, "{consistency:?}");
    }
    assert!(
        backup_has_secret(&cluster, &file("during")),
        "the state has it while the guest waits for it"
    );

    cluster.conductors[at].signal(Signal::CONT);
    cluster.succeeds(&operation);
    let vm = cluster.json(&["vm", "show", "a"]);
    let uid = vm["vm"]["uid"].as_str().expect("a UUID");
    let seed = cluster.disk_dir("s").join(uid).join("disk0.raw");
    let seed = fs::read(&seed).unwrap_or_else(|error| panic!("{}: {error}", seed.display()));
    assert_eq!(seed.len(), 2 << 20);
    assert!(has_secret(&seed), "the guest has not what it was given");
    assert_eq!(seen_by(&cluster, &names), BTreeSet::new());
    assert!(
        !backup_has_secret(&cluster, &file("afterwards")),
        "the state still has it"
    );
    let record = fs::read(cluster.guests_file("h1")).expect("what the hypervisor records");
    assert!(!has_secret(&record));
    assert_eq!(logs_have_secret(&cluster), Vec::<String>::new());
}

/// Goal: nothing of it is left of a boot that failed, and a bundle that is made meanwhile does not have it.
#[test]
fn a_boot_that_fails_and_a_bundle_leave_nothing_of_it() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .host(Host::new("h1"))
        .certified()
        .start();
    cluster.pinned_flavor("one", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let user_data = folder.path().join("user-data");
    fs::write(&user_data, format!("#!/bin/sh\necho {SECRET}\n")).expect("it is written");
    let user_data = user_data.to_str().expect("a plain path");
    cluster.agents[0].signal(Signal::STOP);
    let create = ["vm", "create", "a", "--flavor", "one", "--kernel", "k"];
    let operation = cluster.begin(&[&create[..], &["--user-data", user_data]].concat());
    cluster.reaches(&operation, "Spawn", "Started");
    let bundle = folder.path().join("bundle");
    let path = bundle.to_str().expect("a plain path");
    cluster.run(&["support", "bundle", path, "--with-state"]);
    let bytes = fs::read(&bundle).expect("a bundle");
    assert!(!has_secret(&bytes), "the bundle has it");
    // The only host does not answer, and so it is given up.
    cluster.reaches(&operation, "Spawn", "UndoStarted");
    cluster.agents[0].signal(Signal::CONT);
    let ended = cluster.ends(&operation);
    assert!(ended["outcome"]["Failed"].is_object(), "{ended:#}");
    assert!(
        !backup_has_secret(&cluster, &folder.path().join("backup")),
        "the state still has it"
    );
    assert_eq!(logs_have_secret(&cluster), Vec::<String>::new());
}
