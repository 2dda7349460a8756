//! Mutual TLS between the parts of a cluster, as processes.
//!
//! Goal: who may call what is what the table says, on every server; who is wrong is told what is wrong
//! and what to do; who asked is known wherever it is recorded; and certificates are exchanged while
//! requests go on. Method: a cluster in which everybody has a certificate, and others who have wrong
//! ones.
//!
//! | file | what |
//! |---|---|
//! | `bounds` | callers that take all that they get of a server |
//! | `conventions` | requests that reach no method |
//! | `controller` | volumes: controller, schedulers and agents, and Kubernetes |
//! | `leader` | where members send their callers |
//! | `revocation` | certificates that are revoked while connections are open |
//! | `rogue` | callers that use their certificate against others |
//! | `rotation` | certificates and authorities that are exchanged while requests go on |
//!
//! The documented setup, and what takes `curl`, are in the target `real`.

mod bounds;
mod controller;
mod conventions;
mod leader;
mod revocation;
mod rogue;
mod rotation;

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use berth_process::access::{self, table};
use berth_proto::client::Dialer;
use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::conductor::v1::CreateVmRequest;
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::host::v1::ReportHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{AdvanceRequest, Mark, Step, TakeLeaseRequest, mark};
use berth_proto::scheduler::v1::ScheduleNextRequest;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::status::from_status;
use berth_proto::types::v1 as wire;
use berth_tests::processes::{Answer, Certs, Cluster, Host, Programs, certs, eventually};
use berth_tls::{Expected, Files, Role, Tls};
use tonic::body::Body;
use tonic::codegen::{Bytes, Service as _, http};
use tonic::transport::Channel;
use uuid::Uuid;

use crate::PROGRAMS;

#[test]
fn who_is_who_and_who_may_do_what() {
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(2)
        .host(Host::new("h1"))
        .certified()
        .start();
    let runtime = runtime();
    runtime.block_on(every_method_for_every_role(&cluster));
    runtime.block_on(nobody_speaks_for_another(&cluster));
    the_wrong_are_told(&cluster);
    servers_know_themselves(&cluster);
    runtime.block_on(who_asked_is_known(&cluster));
    runtime.block_on(an_open_connection_ends_with_its_certificate(&cluster));
    nobody_carries_on_what_is_another_ones(&mut cluster);
    somebody_elses_certificate_is_not_taken(&cluster);
}

/// Goal: what is typed makes certificates that programs take; nothing is overwritten, and no key is
/// shown.
#[test]
fn certificates_are_made_by_command() {
    let programs = Programs::new(PROGRAMS);
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("certs");
    let directory = directory.to_str().unwrap();
    let said = std::cell::RefCell::new(String::new());
    let berth = |words: &[&str]| {
        let mut command = programs.command("berth");
        command.args(["--output", "json", "certs"]).args(words);
        let answer = Answer::of(command);
        said.borrow_mut().push_str(&answer.stdout);
        said.borrow_mut().push_str(&answer.stderr);
        answer
    };
    let issue = [
        "issue", directory, "--role", "agent", "--name", "h1", "--ip", "10.0.0.2",
    ];
    check(&berth(&issue), &["make an authority with berth certs init"]);
    let _ = berth(&["init", directory]).with_status(0);
    check(
        &berth(&["init", directory]),
        &["exists already and is not overwritten"],
    );

    let made = berth(&issue).json().unwrap();
    assert_eq!(
        (&made["principal"], &made["ips"][0]),
        (&"agent:h1".into(), &"10.0.0.2".into())
    );
    let left = |of: &serde_json::Value| of["days_left"].as_i64().unwrap();
    assert!((364..=365).contains(&left(&made)), "{made:#}");
    check(&berth(&issue), &["agent-h1.pem exists already"]);
    let other = ["issue", directory, "--role", "root", "--name", "h1"];
    check(
        &berth(&other),
        &["is no role; the roles are scheduler, conductor"],
    );

    let file = made["file"].as_str().unwrap();
    let renewed = berth(&["renew", directory, file, "--days", "30"])
        .json()
        .unwrap();
    assert_eq!(
        (&renewed["principal"], &renewed["ips"]),
        (&made["principal"], &made["ips"])
    );
    assert!((29..=30).contains(&left(&renewed)), "{renewed:#}");
    assert_ne!(renewed["sha256"], made["sha256"]);
    // What another authority made, under the same name, is left as it is.
    let other = folder.path().join("other");
    let other = other.to_str().unwrap();
    let _ = berth(&["init", other]).with_status(0);
    let foreign = ["issue", other, "--role", "agent", "--name", "h1"];
    let foreign = berth(&foreign).json().unwrap()["file"].clone();
    let foreign = foreign.as_str().unwrap();
    let before = std::fs::read(foreign).unwrap();
    check(
        &berth(&["renew", directory, foreign]),
        &["was not made by this authority", "issue a new one"],
    );
    assert_eq!(std::fs::read(foreign).unwrap(), before);

    let _ = berth(&["issue", directory, "--role", "operator", "--name", "ann"]).with_status(0);
    let shown = berth(&["show", directory]).json().unwrap();
    let shown: Vec<_> = shown
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["principal"].clone())
        .collect();
    assert_eq!(shown, ["agent:h1", "operator:ann"]);

    let key = file.replace(".pem", "-key.pem");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!said.borrow().contains("PRIVATE KEY"));
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().build().expect("a runtime")
}

fn channel(tls: Tls, address: &str, expected: Expected) -> Channel {
    let dialer = Dialer::new(Some(tls));
    dialer.channel(&dialer.url(address), expected).unwrap()
}

/// Goal: each server refuses what the table refuses, and nothing else. Method: a message that cannot
/// be read, so that what is allowed fails before it does anything.
async fn every_method_for_every_role(cluster: &Cluster) {
    let certs = cluster.certificates();
    let mut methods: Vec<String> = table::methods().collect();
    methods.push("berth.new.v1.NewService/NotListed".to_owned());
    for server in [
        &cluster.schedulers[0],
        &cluster.conductors[0],
        &cluster.agents[0],
    ] {
        for role in Role::ALL {
            let tls = certs.tls(role, "probe");
            let mut channel = channel(tls, &server.address, Expected::AnyServer);
            for method in &methods {
                let (code, message) = ask_unreadably(&mut channel, method).await;
                let refused = code == "7" && message.contains("may%20");
                let is_known = table::roles(method).next().is_some();
                let expected = is_known && !table::may(role, method);
                let what = format!("{role} calls {method} at {}", server.name);
                assert_eq!(refused, expected, "{what}: {code} {message}");
                assert!(
                    refused || !matches!(&*code, "0" | "7" | "16"),
                    "{what}: {code} {message}"
                );
            }
        }
    }
}

/// Returns the code and the message of the answer to what is said to be compressed, and not by what.
async fn ask_unreadably(channel: &mut Channel, method: &str) -> (String, String) {
    let answer = try_unreadably(channel, method).await;
    answer.expect("an answer")
}

/// As [`ask_unreadably`]; an error if there is no connection.
async fn try_unreadably(
    channel: &mut Channel,
    method: &str,
) -> Result<(String, String), tonic::transport::Error> {
    let body = http_body_util::Full::new(Bytes::from_static(&[1, 0, 0, 0, 0]));
    let request = http::Request::post(format!("https://server/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context)).await?;
    let answer = channel.call(request).await?;
    let header = |name: &str| {
        let value = answer.headers().get(name);
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    Ok((header("grpc-status"), header("grpc-message")))
}

async fn nobody_speaks_for_another(cluster: &Cluster) {
    let certs = cluster.certificates();
    let scheduler = &cluster.schedulers[0].address;
    let other = channel(certs.tls(Role::Agent, "h2"), scheduler, Expected::Scheduler);
    let report = ReportHostRequest {
        name: "hosts/h1".to_owned(),
        ..ReportHostRequest::default()
    };
    let refused = HostServiceClient::new(other).report_host(report).await;
    let refused = from_status(&refused.unwrap_err());
    assert_eq!(refused.reason, access::NOT_YOURS);
    assert!(
        refused
            .message
            .contains("agent:h2 does not speak for host h1"),
        "{refused}"
    );

    let other = certs.tls(Role::Conductor, "conductor-9");
    let other = channel(other, scheduler, Expected::Scheduler);
    let lease = TakeLeaseRequest {
        conductor: "services/conductor-1".to_owned(),
        ..TakeLeaseRequest::default()
    };
    let refused = OperationServiceClient::new(other).take_lease(lease).await;
    let refused = from_status(&refused.unwrap_err());
    assert_eq!(refused.reason, access::NOT_YOURS, "{refused}");
}

/// Goal: a conductor carries on what it holds itself, and nothing of another one's, though it knows under
/// which number that is held.
fn nobody_carries_on_what_is_another_ones(cluster: &mut Cluster) {
    // An operation that goes on: its host is not there.
    cluster.agents[0].kill();
    let operation = cluster.begin(&Cluster::create("unfinished", "f"));
    cluster.reaches(&operation, "Spawn", "Started");
    let lease = cluster.json(&["operation", "show", &operation])["lease"].clone();
    let (holder, epoch) = (
        lease["conductor"].as_str().unwrap(),
        lease["epoch"].as_u64().unwrap(),
    );
    let other = cluster
        .conductors
        .iter()
        .find(|c| c.name != holder)
        .unwrap();
    let certs = cluster.certificates();
    let scheduler = &cluster.schedulers[0].address;
    let operation = format!("operations/{operation}");
    let advance = |epoch| AdvanceRequest {
        operation: operation.clone(),
        epoch,
        step: Step::Spawn.into(),
        mark: Some(Mark {
            kind: mark::Kind::Started.into(),
            ..Mark::default()
        }),
        ..AdvanceRequest::default()
    };
    runtime().block_on(async {
        let asked = |name: &str, epoch| {
            let tls = certs.tls(Role::Conductor, name);
            let channel = channel(tls, scheduler, Expected::Scheduler);
            let next = ScheduleNextRequest {
                operation: operation.clone(),
                epoch,
                ..ScheduleNextRequest::default()
            };
            let advance = advance(epoch);
            async move {
                let advanced = OperationServiceClient::new(channel.clone())
                    .advance(advance)
                    .await;
                let chosen = SchedulerServiceClient::new(channel)
                    .schedule_next(next)
                    .await;
                let reason = |status| from_status(&status).reason;
                (
                    advanced.map(drop).map_err(reason),
                    chosen.map(drop).map_err(reason),
                )
            }
        };
        let not_yours = || Err(access::NOT_YOURS.to_owned());
        for epoch in [epoch, epoch + 1000] {
            assert_eq!(asked(&other.name, epoch).await, (not_yours(), not_yours()));
        }
        // What its holder says is judged by the state.
        let (advanced, chosen) = asked(holder, epoch).await;
        assert_eq!(advanced, Ok(()), "a repetition");
        assert_ne!(chosen, not_yours());
        let (stale, _) = asked(&other.name, 0).await;
        assert_eq!(stale, Err("STALE_EPOCH".to_owned()));
    });
    let programs = cluster.programs.clone();
    cluster.agents[0].start(&programs);
    cluster.wait();
}

/// Goal: a certificate that is put in the place of a program's own, and is that of another name or role,
/// is not taken while it runs; and when its own is back, nothing was lost.
fn somebody_elses_certificate_is_not_taken(cluster: &Cluster) {
    let certs = cluster.certificates();
    let agent = &cluster.agents[0];
    let own = certs.files(Role::Agent, "h1");
    let keep = |file: &std::path::Path| std::fs::read(file).unwrap();
    let (cert, key) = (keep(&own.cert), keep(&own.key));
    for (role, name) in [(Role::Agent, "h2"), (Role::Operator, "ann")] {
        let other = certs.files(role, name);
        std::fs::copy(&other.key, &own.key).unwrap();
        std::fs::copy(&other.cert, &own.cert).unwrap();
        let told = format!("is that of {role}:{name}, and this is agent:h1");
        eventually("a word of it in the log", || {
            let said = agent.said();
            said.contains(&told).then_some(()).ok_or(said)
        });
        let tls = certs.tls(Role::Operator, "ann");
        let meant = Expected::Agent("h1".to_owned());
        runtime().block_on(async {
            let mut channel = channel(tls, &agent.address, meant);
            let method = "berth.agent.v1.ComputeAgentService/GetAgentInfo";
            let (code, message) = ask_unreadably(&mut channel, method).await;
            assert!(!matches!(&*code, "0" | "7" | "16"), "{code} {message}");
        });
    }
    std::fs::write(&own.key, key).unwrap();
    std::fs::write(&own.cert, cert).unwrap();
    cluster.run(&Cluster::create("after", "f"));
}

/// Runs `berth` with these certificates, or none.
fn berth(cluster: &Cluster, files: Option<&Files>, address: &str, words: &[&str]) -> Answer {
    let mut command: Command = cluster.programs.command("berth");
    command.args(["--output", "json", "--scheduler", address]);
    for (flag, file) in files.iter().flat_map(|files| certs::flags(files)) {
        command.args([flag, &file]);
    }
    Answer::of({
        command.args(words);
        command
    })
}

fn check(answer: &Answer, parts: &[&str]) {
    assert_ne!(answer.status, Some(0), "{answer:#?}");
    for part in parts {
        assert!(answer.stderr.contains(part), "{part:?}: {answer:#?}");
    }
}

/// Goal: each kind of wrong certificate is told by its own sentence, to people who type commands.
fn the_wrong_are_told(cluster: &Cluster) {
    let certs = cluster.certificates();
    let scheduler = &*cluster.schedulers[0].address;
    let ann = certs.files(Role::Operator, "ann");
    let status = ["cluster", "status"];
    check(
        &berth(cluster, None, scheduler, &status),
        &["speaks TLS only: give --tls-ca"],
    );

    let foreign = Certs::new(cluster.folder().join("foreign"), [127, 0, 0, 1].into());
    let stranger = foreign.files(Role::Operator, "ann");
    check(
        &berth(cluster, Some(&stranger), scheduler, &status),
        &[
            "comes from an authority that is not trusted here",
            "one authority",
        ],
    );
    // One who trusts the cluster, and whom the cluster does not trust.
    let mixed = Files {
        ca: ann.ca.clone(),
        ..stranger
    };
    check(
        &berth(cluster, Some(&mixed), scheduler, &status),
        &["is not valid", "not trusted here"],
    );

    let old = certs.files_for(Role::Operator, "old", Duration::ZERO);
    let answer = eventually("a certificate that has run out", || {
        let answer = berth(cluster, Some(&old), scheduler, &status);
        (answer.status != Some(0))
            .then_some(answer)
            .ok_or("it holds still")
    });
    check(&answer, &["has expired", "berth certs renew"]);

    let half = Files {
        key: certs.directory().join("none.pem"),
        ..ann.clone()
    };
    check(
        &berth(cluster, Some(&half), scheduler, &status),
        &["none.pem cannot be used"],
    );
    let mut command = cluster.programs.command("berth");
    command.args(["cluster", "status", "--tls-ca", "x"]);
    check(&Answer::of(command), &["give all three"]);

    // Somebody else than who is meant.
    let agent = &*cluster.agents[0].address;
    check(
        &berth(cluster, Some(&ann), agent, &status),
        &["is not a scheduler: its certificate is that of agent:h1"],
    );

    let reader = certs.files(Role::Reader, "bob");
    let _ = berth(cluster, Some(&reader), scheduler, &["vm", "list"]).with_status(0);
    let words = [
        "flavor",
        "create",
        "f",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ];
    check(
        &berth(cluster, Some(&reader), scheduler, &words),
        &[
            "ROLE_NOT_ALLOWED",
            "reader:bob may not call",
            "that is for operator",
        ],
    );
}

/// Goal: a server does not start with a certificate by which nobody would know it; one without
/// certificates says so to whoever has some.
fn servers_know_themselves(cluster: &Cluster) {
    let certs = cluster.certificates();
    let start = |program: &str, files: Option<&Files>, words: &[&str]| {
        let mut command = cluster.programs.command(program);
        for (flag, file) in files.iter().flat_map(|files| certs::flags(files)) {
            command.args([flag, &file]);
        }
        command.args(words);
        command
    };
    let data_dir = cluster.folder().join("nobody");
    let data_dir = data_dir.to_str().unwrap();
    let own = cluster.schedulers[0]
        .address
        .rsplit_once(':')
        .unwrap()
        .0
        .to_owned();
    let listen = format!("{own}:0");
    let member = ["--data-dir", data_dir, "--bootstrap", "--listen", &listen];
    let ann = certs.files(Role::Operator, "ann");
    check(
        &Answer::of(start("berth-scheduler", Some(&ann), &member)),
        &[
            "is that of operator:ann, and a scheduler needs one of its own",
            "--role scheduler",
        ],
    );
    let elsewhere = [&member[..], &["--advertise", "m1.example:7100"]].concat();
    let right = certs.files(Role::Scheduler, "scheduler-1");
    check(
        &Answer::of(start("berth-scheduler", Some(&right), &elsewhere)),
        &[
            "does not name m1.example, by which others dial it",
            "issue one with --dns m1.example",
        ],
    );
    let conductor = certs.files(Role::Conductor, "conductor-1");
    let words = ["--name", "other", "--listen", &listen];
    check(
        &Answer::of(start("berth-conductor", Some(&conductor), &words)),
        &["is that of conductor conductor-1, and this one is called other"],
    );
    let agent = certs.files(Role::Agent, "h1");
    let words = ["--name", "h2", "--driver", "sim", "--listen", &listen];
    check(
        &Answer::of(start("berth-compute-agent", Some(&agent), &words)),
        &["is that of host h1, and this is host h2"],
    );

    let mut addresses = berth_tests::processes::Addresses::new();
    let plain = addresses.free();
    let words = ["--data-dir", data_dir, "--bootstrap", "--listen", &plain];
    let log = cluster.folder().join("plain.log");
    let command = start("berth-scheduler", None, &words);
    let _plain = berth_tests::processes::Process::start(command, &log);
    eventually("a sentence about plain text", || {
        let answer = berth(cluster, Some(&ann), &plain, &["cluster", "status"]);
        let told = answer.stderr.contains("does not speak TLS");
        told.then_some(()).ok_or(format!("{answer:#?}"))
    });
}

/// Makes the flavor `f`.
fn create_flavor(cluster: &Cluster) {
    let words = [
        "flavor",
        "create",
        "f",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ];
    cluster.run(&words);
}

/// Goal: the audit names who asked, whichever conductor carried it out; and a request that is repeated
/// through another conductor is the same one.
async fn who_asked_is_known(cluster: &Cluster) {
    let certs = cluster.certificates();
    create_flavor(cluster);
    let kernel = wire::KernelBoot {
        kernel: "vmlinuz".to_owned(),
        initrd: "initrd.gz".to_owned(),
        ..wire::KernelBoot::default()
    };
    let asked = CreateVmRequest {
        vm: "vms/a".to_owned(),
        template: Some(wire::VmTemplate {
            flavor: "flavors/f".to_owned(),
            boot: Some(wire::BootSource {
                source: Some(wire::boot_source::Source::Kernel(kernel)),
            }),
            ..Default::default()
        }),
        request_id: Uuid::now_v7().to_string(),
        ..CreateVmRequest::default()
    };
    let mut begun = Vec::new();
    for conductor in &cluster.conductors {
        let meant = Expected::Conductor(Some(conductor.name.clone()));
        let channel = channel(certs.tls(Role::Operator, "ann"), &conductor.address, meant);
        let answer = ConductorServiceClient::new(channel)
            .create_vm(asked.clone())
            .await;
        begun.push(answer.unwrap().into_inner().operation.unwrap().name);
    }
    assert_eq!(begun[0], begun[1], "one request");
    let listed = cluster.json(&["audit", "list", "--principal", "operator:ann"]);
    let methods: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|e| e["asked"]["method"].as_str())
        .collect();
    let times = methods.iter().filter(|m| **m == "ScheduleVm").count();
    assert_eq!(times, 1, "{listed:#}");
    assert_eq!(
        cluster.json(&["audit", "list", "--principal", "unverified"]),
        serde_json::json!([])
    );
}

async fn an_open_connection_ends_with_its_certificate(cluster: &Cluster) {
    let certs = cluster.certificates();
    let files = certs.files_for(Role::Reader, "short", Duration::from_secs(2));
    // It may have run out before it is used, on a machine that is busy.
    let Ok(tls) = Tls::open(files) else { return };
    let channel = channel(tls, &cluster.schedulers[0].address, Expected::Scheduler);
    let mut client = ClusterServiceClient::new(channel);
    loop {
        match client.get_cluster_status(GetClusterStatusRequest {}).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(status) if berth_proto::client::is_unanswered(&status) => return,
            Err(status) => {
                let refused = from_status(&status);
                assert_eq!(refused.reason, access::CERTIFICATE_EXPIRED, "{refused}");
                return;
            }
        }
    }
}
