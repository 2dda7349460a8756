//! Callers with a certificate of the cluster that use it against others: rows B1 and B7 of the attacks.
//!
//! Goal: what is not theirs remains as it is, whichever method they call, and the refusals are in the
//! log. Method: unchanged processes, and calls over their connections with the certificates of a host,
//! of conductors without a lease and of readers.

use berth_proto::DESCRIPTOR_SET;
use berth_proto::agent::v1 as wire;
use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::operation::v1::{GetOperationRequest, SignedGrant};
use berth_proto::status::from_status;
use berth_tests::processes::{Cluster, Host, eventually};
use berth_tls::{Expected, Role};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service as _, http};
use tonic::transport::Channel;
use uuid::Uuid;

use super::{channel, runtime};
use crate::PROGRAMS;

/// More VMs than an agent remembers.
const CALLS: u32 = 4_200;

const HUGE: u64 = u64::MAX - 1;

/// What answers a method that is granted to nobody, called with nothing but a fence: that it was not
/// granted, that the fields beside the fence are missing, or that the role may not call it.
const NOT_DONE: [&str; 3] = ["GRANT_MISSING", "INVALID_FIELD", "ROLE_NOT_ALLOWED"];

fn start(storage: bool) -> Cluster {
    let host = |name: &str| match storage {
        true => Host::new(name).with_storage(name),
        false => Host::new(name),
    };
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(host("h1"))
        .host(host("h2"))
        .certified()
        .start();
    let size = ["--vcpus", "1", "--memory-mib", "64", "--disk-gib", "1"];
    cluster.run(&[&["flavor", "create", "f"][..], &size].concat());
    cluster
}

fn on<'a>(vm: &'a str, host: &'a str) -> Vec<&'a str> {
    [Cluster::create(vm, "f"), vec!["--host", host]].concat()
}

fn uid(cluster: &Cluster, vm: &str) -> Uuid {
    let shown = cluster.json(&["vm", "show", vm]);
    let uid = shown["vm"]["uid"].as_str().expect("a UUID");
    uid.parse().expect("a UUID")
}

/// Returns the connection of a role to the agent of a host.
fn dial(cluster: &Cluster, role: Role, name: &str, host: &str) -> Channel {
    let agent = cluster.agents.iter().find(|agent| agent.name == host);
    let meant = Expected::Agent(host.to_owned());
    let tls = cluster.certificates().tls(role, name);
    channel(tls, &agent.expect("an agent").address, meant)
}

async fn incarnation(channel: Channel) -> String {
    let mut agent = ComputeAgentServiceClient::new(channel);
    let info = agent.get_agent_info(wire::GetAgentInfoRequest {}).await;
    info.expect("a response").into_inner().incarnation
}

fn fence(vm_uid: Uuid, epoch: u64, incarnation: &str) -> wire::Fence {
    wire::Fence {
        vm_uid: vm_uid.to_string(),
        operation: format!("operations/{}", Uuid::new_v4()),
        epoch,
        incarnation: incarnation.to_owned(),
        grant: None,
        attempt: 0,
    }
}

fn read(vm_uid: Uuid, incarnation: &str) -> wire::ReadDisksRequest {
    wire::ReadDisksRequest {
        fence: Some(fence(vm_uid, HUGE, incarnation)),
        migration: format!("migrations/{}", Uuid::new_v4()),
        disks: 1,
    }
}

fn reason<T>(result: Result<T, Status>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(status) => from_status(&status).reason,
    }
}

/// Returns the methods of agents whose requests carry a fence.
fn fenced_methods() -> Vec<String> {
    let described = FileDescriptorSet::decode(DESCRIPTOR_SET).unwrap();
    let files = described
        .file
        .iter()
        .filter(|f| f.package() == "berth.agent.v1");
    let file = files
        .into_iter()
        .find(|file| {
            file.service
                .iter()
                .any(|s| s.name() == "ComputeAgentService")
        })
        .expect("the service is described");
    let is_fenced = |input: &str| {
        let name = input.rsplit('.').next().unwrap_or_default();
        let message = file.message_type.iter().find(|m| m.name() == name);
        let fields = message.into_iter().flat_map(|m| &m.field);
        fields
            .into_iter()
            .any(|f| f.name() == "fence" && f.number() == 1)
    };
    let methods = &file.service[0].method;
    let fenced = methods.iter().filter(|m| is_fenced(m.input_type()));
    fenced.map(|m| m.name().to_owned()).collect()
}

/// Calls a method with a fence and nothing else, and returns the reason of the refusal.
async fn call_bare(channel: &mut Channel, method: &str, fence: wire::Fence) -> String {
    let message = wire::DestroyVmRequest { fence: Some(fence) }.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap();
    let framed = [&[0][..], &length.to_be_bytes(), &message].concat();
    let request = http::Request::post(format!(
        "https://server/berth.agent.v1.ComputeAgentService/{method}"
    ))
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .body(Body::new(http_body_util::Full::new(Bytes::from(framed))))
    .unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context))
        .await
        .unwrap();
    let answer = channel.call(request).await.unwrap();
    let status = Status::from_header_map(answer.headers());
    status.map_or_else(|| "done".to_owned(), |status| from_status(&status).reason)
}

/// Goal: with the certificate of `h1` no operation on `h2` is stopped, however many epochs are sent to
/// its agent; and its agent does not state which run it is.
#[test]
fn the_certificate_of_a_host_stops_nothing_on_another() {
    let cluster = start(false);
    cluster.run(&on("victim", "h2"));
    let uid = uid(&cluster, "victim");
    runtime().block_on(async {
        // What the incarnation is, is known here: the attack is stronger than a rogue host's.
        let reader = dial(&cluster, Role::Reader, "bob", "h2");
        let incarnation = incarnation(reader.clone()).await;
        let mut rogue = ComputeAgentServiceClient::new(dial(&cluster, Role::Agent, "h1", "h2"));
        let other = Uuid::new_v4().to_string();
        let refused = rogue.read_disks(read(uid, &other)).await.map(drop);
        let refused = from_status(&refused.expect_err("a refusal"));
        let shown = format!("{refused:?}");
        assert!(!shown.contains(&incarnation), "{shown}");
        for number in 0..CALLS {
            let vm_uid = if number == 0 { uid } else { Uuid::new_v4() };
            let read = rogue.read_disks(read(vm_uid, &incarnation)).await;
            assert_eq!(reason(read), "GRANT_MISSING", "{number}");
        }
        // What would raise the fence is refused to those who only read.
        let fence = read(uid, &incarnation).fence;
        let look = ComputeAgentServiceClient::new(reader)
            .get_domain(wire::GetDomainRequest { fence })
            .await;
        assert_eq!(reason(look), "ROLE_NOT_ALLOWED");
    });
    let agent = &cluster.agents[1];
    let said = agent.said();
    let line = said.lines().find(|line| line.contains("GRANT_MISSING"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains("audit") && line.contains("agent:h1"),
        "{line}"
    );
    let lines = said.lines().filter(|line| line.contains("GRANT_MISSING"));
    assert!(lines.count() < 10, "a flood does not fill the log");
    cluster.run(&["vm", "stop", "victim"]);
    cluster.run(&on("another", "h2"));
    cluster.run(&["vm", "delete", "victim"]);
}

/// Goal: a conductor without a lease has no effect by any method, and that is in the log.
#[test]
fn a_conductor_without_a_lease_does_nothing() {
    let cluster = start(false);
    cluster.run(&on("victim", "h2"));
    let uid = uid(&cluster, "victim");
    let methods = fenced_methods();
    assert!(methods.len() >= 21, "{methods:?}");
    let before = cluster.json(&["vm", "show", "victim"]);
    runtime().block_on(async {
        let reader = dial(&cluster, Role::Reader, "bob", "h2");
        let run = incarnation(reader).await;
        for (role, name) in [
            (Role::Conductor, "rogue"),
            // The very one that booted it, without its operation.
            (Role::Conductor, "conductor-1"),
            (Role::Agent, "h1"),
            (Role::Operator, "ann"),
            (Role::Reader, "bob"),
            (Role::CsiController, "csi"),
            (Role::Scheduler, "m1"),
        ] {
            let mut channel = dial(&cluster, role, name, "h2");
            for method in &methods {
                for epoch in [0, 1_000_000, HUGE] {
                    let refused = call_bare(&mut channel, method, fence(uid, epoch, &run)).await;
                    assert!(
                        NOT_DONE.contains(&refused.as_str()),
                        "{role}:{name} {method} {epoch}: {refused}"
                    );
                }
            }
        }
        let mut rogue =
            ComputeAgentServiceClient::new(dial(&cluster, Role::Conductor, "rogue", "h2"));
        let fence = Some(fence(uid, 1_000_000, &run));
        let destroyed = rogue.destroy_vm(wire::DestroyVmRequest { fence }).await;
        assert_eq!(reason(destroyed), "GRANT_MISSING");
    });
    let said = cluster.agents[1].said();
    let is_recorded = |line: &&str| {
        ["audit", "DestroyVm", "conductor:rogue", "GRANT_MISSING"]
            .iter()
            .all(|part| line.contains(part))
    };
    assert!(said.lines().any(|line| is_recorded(&line)), "{said}");
    assert_eq!(cluster.json(&["vm", "show", "victim"]), before);
    cluster.run(&["vm", "stop", "victim"]);
    // What was carried out is recorded too.
    let said = cluster.agents[1].said();
    let is_stop = |line: &&str| line.contains("StopVm") && line.contains("conductor:conductor-1");
    assert!(said.lines().any(|line| is_stop(&line)), "{said}");
    cluster.run(&["vm", "delete", "victim"]);
}

/// Goal: the grant of a lease is for its holder, its VM and its hosts. While there is no leader it is
/// good, also for an agent that was restarted meanwhile.
#[test]
fn a_grant_is_good_without_a_leader_and_for_nothing_else() {
    let mut cluster = start(false);
    cluster.run(&on("other", "h1"));
    // An operation that goes on: its host is not there.
    cluster.agents[0].kill();
    let operation = cluster.begin(&on("unfinished", "h1"));
    cluster.reaches(&operation, "Spawn", "Started");
    let vm = uid(&cluster, "unfinished");
    let epoch = cluster.json(&["operation", "show", &operation])["lease"]["epoch"].clone();
    let epoch = epoch.as_u64().expect("an epoch");
    let name = format!("operations/{operation}");
    let granted = |role, who: &str| -> Option<SignedGrant> {
        let scheduler = &cluster.schedulers[0].address;
        let tls = cluster.certificates().tls(role, who);
        let request = GetOperationRequest {
            name: name.clone(),
            ..GetOperationRequest::default()
        };
        runtime().block_on(async {
            let channel = channel(tls, scheduler, Expected::Scheduler);
            let mut scheduler = OperationServiceClient::new(channel);
            let read = scheduler.get_operation(request).await;
            read.expect("a response").into_inner().grant
        })
    };
    for (role, who) in [
        (Role::Conductor, "rogue"),
        (Role::Operator, "ann"),
        (Role::Reader, "bob"),
    ] {
        assert_eq!(granted(role, who), None, "{role}:{who}");
    }
    let grant = granted(Role::Conductor, "conductor-1").expect("a grant for the holder");
    // From here on there is neither a leader nor a conductor.
    cluster.conductors[0].kill();
    cluster.schedulers[0].kill();
    let programs = cluster.programs.clone();
    cluster.agents[0].start(&programs);
    let holder = || dial(&cluster, Role::Conductor, "conductor-1", "h1");
    let other = uid_of_guest(&cluster, "h1", vm);
    runtime().block_on(async {
        let run = eventually_reached(holder()).await;
        let settle = |who: Channel, change: &dyn Fn(&mut wire::Fence)| {
            let mut fence = wire::Fence {
                operation: name.clone(),
                grant: Some(grant.clone()),
                ..fence(vm, epoch, &run)
            };
            change(&mut fence);
            let request = wire::SettleVmRequest { fence: Some(fence) };
            async move { reason(ComputeAgentServiceClient::new(who).settle_vm(request).await) }
        };
        let refused = "GRANT_OF_ANOTHER";
        assert_eq!(settle(holder(), &|f| f.grant = None).await, "GRANT_MISSING");
        assert_eq!(settle(holder(), &|f| f.epoch += 1).await, refused);
        assert_eq!(settle(holder(), &|f| f.epoch = HUGE).await, refused);
        assert_eq!(
            settle(holder(), &|f| f.vm_uid = other.clone()).await,
            refused
        );
        let elsewhere =
            |f: &mut wire::Fence| f.operation = format!("operations/{}", Uuid::new_v4());
        assert_eq!(settle(holder(), &elsewhere).await, refused);
        let rogue = || dial(&cluster, Role::Conductor, "rogue", "h1");
        assert_eq!(settle(rogue(), &|_| ()).await, refused);
        let h2 = || dial(&cluster, Role::Conductor, "conductor-1", "h2");
        let run_of_h2 = incarnation(h2()).await;
        let at_h2 = |f: &mut wire::Fence| f.incarnation.clone_from(&run_of_h2);
        assert_eq!(settle(h2(), &at_h2).await, refused);
        let forged = |f: &mut wire::Fence| {
            if let Some(grant) = &mut f.grant {
                grant.key += 1;
            }
        };
        assert_eq!(settle(holder(), &forged).await, "GRANT_INVALID");
        assert_eq!(settle(holder(), &|_| ()).await, "done");
    });
}

/// Returns the id of a guest of a host that is another one than this.
fn uid_of_guest(cluster: &Cluster, host: &str, than: Uuid) -> String {
    eventually("the guests of a host", || {
        runtime().block_on(async {
            let channel = dial(cluster, Role::Reader, "bob", host);
            let listed = ComputeAgentServiceClient::new(channel)
                .list_domains(wire::ListDomainsRequest::default())
                .await
                .map_err(|status| status.to_string())?;
            let domains = listed.into_inner().domains;
            let other = domains.into_iter().find(|d| d.vm_uid != than.to_string());
            other.map(|d| d.vm_uid).ok_or_else(|| "none".to_owned())
        })
    })
}

async fn eventually_reached(channel: Channel) -> String {
    loop {
        let mut agent = ComputeAgentServiceClient::new(channel.clone());
        let info = agent.get_agent_info(wire::GetAgentInfoRequest {}).await;
        match info {
            Ok(info) => return info.into_inner().incarnation,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}

/// Goal: the disks of a guest go to the destination of its move, and after a rotation of the key
/// everything goes on.
#[test]
fn disks_go_to_the_destination_and_keys_are_rotated() {
    let cluster = start(true);
    let disks = ["--disk", "first.qcow2:1", "--host", "h1"];
    cluster.run(&[&["vm", "create", "d", "--flavor", "f"][..], &disks].concat());
    cluster.run(&["vm", "migrate", "d", "--cold", "--host", "h2"]);
    let rotated = cluster.json(&["cluster", "rotate-grant-key"]);
    assert_eq!(rotated["key"], 2);
    cluster.run(&["vm", "stop", "d"]);
    cluster.run(&["vm", "migrate", "d", "--cold", "--host", "h1"]);
    cluster.run(&["vm", "delete", "d"]);
}
