//! Mutual TLS between the parts of a cluster, as processes.
//!
//! Goal: who may call what is what the table says, on every server; who is wrong is told what is wrong
//! and what to do; who asked is known wherever it is recorded; and certificates are exchanged while
//! requests go on. Method: a cluster in which everybody has a certificate, and others who have wrong
//! ones.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use berth_process::access::{self, table};
use berth_proto::client::{Dialer, SchedulerChannel};
use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::conductor::v1::CreateVmRequest;
use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::host::v1::ReportHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::operation::v1::TakeLeaseRequest;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{CreateFlavorRequest, DeleteFlavorRequest, ListVmsRequest};
use berth_proto::status::from_status;
use berth_proto::types::v1 as wire;
use berth_tests::processes::{Answer, Certs, Cluster, Host, Programs, certs, eventually};
use berth_tls::{Expected, Files, Role, Tls};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service as _, http};
use tonic::transport::Channel;
use uuid::Uuid;

const PROGRAMS: &str = env!("CARGO_BIN_EXE_berth-programs");

#[test]
fn who_is_who_and_who_may_do_what() {
    let cluster = Cluster::builder(PROGRAMS)
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
        &["is there already, and nothing is overwritten"],
    );

    let made = berth(&issue).json().unwrap();
    assert_eq!(
        (&made["principal"], &made["ips"][0]),
        (&"agent:h1".into(), &"10.0.0.2".into())
    );
    let left = |of: &serde_json::Value| of["days_left"].as_i64().unwrap();
    assert!((364..=365).contains(&left(&made)), "{made:#}");
    check(&berth(&issue), &["agent-h1.pem is there already"]);
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

fn certs(cluster: &Cluster) -> &Certs {
    cluster.certs.as_ref().expect("everybody is certified")
}

fn channel(tls: Tls, address: &str, expected: Expected) -> Channel {
    let dialer = Dialer::new(Some(tls));
    dialer.channel(&dialer.url(address), expected).unwrap()
}

/// Goal: each server refuses what the table refuses, and nothing else. Method: a message that cannot
/// be read, so that what is allowed fails before it does anything.
async fn every_method_for_every_role(cluster: &Cluster) {
    let certs = certs(cluster);
    let mut methods: Vec<String> = table::methods().collect();
    methods.push("berth.new.v1.NewService/NotListed".to_owned());
    for server in [
        &cluster.schedulers[0],
        &cluster.conductors[0],
        &cluster.agents[0],
    ] {
        for role in Role::ALL {
            let tls = certs.tls(role, "probe");
            let mut channel = channel(tls, &server.address, Expected::Anybody);
            for method in &methods {
                let (code, message) = ask_unreadably(&mut channel, method).await;
                let refused = code == "7" && message.contains("may%20");
                let expected = !table::may(role, method);
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
    let body = http_body_util::Full::new(Bytes::from_static(&[1, 0, 0, 0, 0]));
    let request = http::Request::post(format!("https://server/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context))
        .await
        .unwrap();
    let answer = channel.call(request).await.unwrap();
    let header = |name: &str| {
        let value = answer.headers().get(name);
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    (header("grpc-status"), header("grpc-message"))
}

async fn nobody_speaks_for_another(cluster: &Cluster) {
    let certs = certs(cluster);
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

/// Asks until the answer has these parts. Why a connection was turned away is its last word, and may be
/// lost where the end of the connection comes first.
fn check_soon(cluster: &Cluster, files: Option<&Files>, parts: &[&str]) {
    let scheduler = &*cluster.schedulers[0].address;
    eventually("why nobody is let in is told", || {
        let answer = berth(cluster, files, scheduler, &["cluster", "status"]);
        assert_ne!(answer.status, Some(0), "{answer:#?}");
        let is_told = parts.iter().all(|part| answer.stderr.contains(part));
        is_told.then_some(()).ok_or(answer.stderr)
    });
}

/// Goal: each kind of wrong certificate is told by its own sentence, to people who type commands.
fn the_wrong_are_told(cluster: &Cluster) {
    let certs = certs(cluster);
    let scheduler = &*cluster.schedulers[0].address;
    let ann = certs.files(Role::Operator, "ann");
    let status = ["cluster", "status"];
    check_soon(cluster, None, &["speaks TLS only: give --tls-ca"]);

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
    check_soon(cluster, Some(&mixed), &["of no use", "not trusted here"]);

    let old = certs.files_for(Role::Operator, "old", Duration::ZERO);
    let answer = eventually("a certificate that has run out", || {
        let answer = berth(cluster, Some(&old), scheduler, &status);
        (answer.status != Some(0))
            .then_some(answer)
            .ok_or("it holds still")
    });
    check(&answer, &["it has run out; renew it: berth certs renew"]);

    let half = Files {
        key: certs.directory().join("none.pem"),
        ..ann.clone()
    };
    check(
        &berth(cluster, Some(&half), scheduler, &status),
        &["none.pem cannot be read"],
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
    let certs = certs(cluster);
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
            "issue one with --dns or --ip",
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

/// Goal: the audit names who asked, whichever conductor carried it out; and a request that is repeated
/// through another conductor is the same one.
async fn who_asked_is_known(cluster: &Cluster) {
    let certs = certs(cluster);
    cluster.run(&[
        "flavor",
        "create",
        "f",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ]);
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
    let certs = certs(cluster);
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
                assert_eq!(refused.reason, access::CERTIFICATE_RAN_OUT, "{refused}");
                return;
            }
        }
    }
}

/// Goal: all certificates are exchanged while requests go on, and none is lost. Method: users who make
/// and delete flavors, look, and boot and delete guests through a conductor, while every file is
/// renewed twice.
#[test]
fn a_rotation_under_load_loses_nothing() {
    let cluster = Cluster::builder(PROGRAMS)
        .host(Host::new("h1"))
        .certified()
        .start();
    cluster.run(&[
        "flavor",
        "create",
        "f",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ]);
    let runtime = runtime();
    let stopping = CancellationToken::new();
    let tls = certs(&cluster).tls(Role::Operator, "ann");
    runtime.spawn(tls.clone().follow(stopping.clone()));
    let urls = cluster
        .schedulers
        .iter()
        .map(|s| format!("https://{}", s.address));
    let scheduler = SchedulerChannel::new(urls)
        .unwrap()
        .with_dialer(Dialer::new(Some(tls)));
    let users: Vec<_> = (0..4)
        .map(|number| runtime.spawn(use_it(scheduler.clone(), number, stopping.clone())))
        .collect();
    let parts = || {
        let parts = cluster.schedulers.iter().chain(&cluster.conductors);
        parts.chain(&cluster.agents)
    };
    for round in 1..=2 {
        certs(&cluster).renew_all();
        let vm = format!("vm-{round}");
        eventually("new certificates everywhere", || {
            // Users of the command too: each is a new process with what is in the files just now.
            cluster.run(&Cluster::create(&vm, "f"));
            cluster.run(&["vm", "delete", &vm]);
            let late = parts().find(|part| {
                let taken = part.said().matches("other certificates are used").count();
                taken < round
            });
            late.map_or(Ok(()), |part| {
                Err(format!("{} has the old ones", part.name))
            })
        });
    }
    // Everything that is open now was made with the new ones, or serves on.
    cluster.run(&Cluster::create("last", "f"));
    stopping.cancel();
    let mut made = 0;
    for user in users {
        made += runtime.block_on(user).unwrap();
    }
    assert!(made >= 40, "requests went on: {made}");
    println!("{made} requests during two rotations, none lost");
}

/// Makes and deletes flavors until it is told to stop, and returns how many requests were answered.
/// Each has to be answered well.
async fn use_it(scheduler: SchedulerChannel, user: u32, stopping: CancellationToken) -> u32 {
    let mut answered = 0;
    while !stopping.is_cancelled() {
        let name = format!("flavor-{user}-{answered}");
        let create = CreateFlavorRequest {
            flavor: Some(wire::Flavor {
                name: format!("flavors/{name}"),
                vcpus: 1,
                memory_mib: 64,
                ..wire::Flavor::default()
            }),
            request_id: Uuid::now_v7().to_string(),
        };
        let delete = DeleteFlavorRequest {
            name: format!("flavors/{name}"),
            request_id: Uuid::now_v7().to_string(),
        };
        let made = scheduler.call(|channel| {
            let create = create.clone();
            async move {
                SchedulerServiceClient::new(channel)
                    .create_flavor(create)
                    .await
            }
        });
        made.await.expect("a flavor is made");
        let seen = scheduler.call(|channel| async move {
            let list = ListVmsRequest::default();
            SchedulerServiceClient::new(channel).list_vms(list).await
        });
        seen.await.expect("guests are listed");
        let gone = scheduler.call(|channel| {
            let delete = delete.clone();
            async move {
                SchedulerServiceClient::new(channel)
                    .delete_flavor(delete)
                    .await
            }
        });
        gone.await.expect("a flavor is deleted");
        answered += 3;
    }
    answered
}
