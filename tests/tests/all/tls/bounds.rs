//! Callers that take all that they get of a server.
//!
//! Goal: at every program, whatever the role of the one that takes all it gets, a member, a conductor,
//! an agent and another reader are served; and while a reader takes everything of everything, a guest
//! is booted. Method: requests whose bodies do not end, from one caller of each role, at processes with
//! their own limits. `process/tests/all/bounds.rs` does the same to smaller limits, plain connections
//! and sockets.

use std::future::poll_fn;
use std::time::Duration;

use berth_process::access::table;
use berth_process::bounds::{Class, Limits, Resource};
use berth_proto::status::from_status;
use berth_tests::processes::{Cluster, Host};
use berth_tls::{Expected, Role};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service as _, http};
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{channel, create_flavor, runtime};
use crate::PROGRAMS;

const CHECK: &str = "grpc.health.v1.Health/Check";
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest message of all programs.
const MESSAGE_BYTES: u32 = 4 << 20;
/// More requests than may be.
const BEYOND: usize = 3;
/// What a test of one role and resource opens at most.
const UNITS_MAX: u64 = 512;
/// What a connection opens at most: every role may.
const STREAMS: usize = 128;

/// Resources with a method that takes them, and what a request declares: nothing where bytes are not
/// meant, so that what is left of an earlier request takes none.
const TAKING: [(Resource, &str, u32); 5] = [
    (Resource::Requests, CHECK, 0),
    (Resource::Watches, "grpc.health.v1.Health/Watch", 0),
    (Resource::BodyBytes, CHECK, MESSAGE_BYTES),
    (
        Resource::Searches,
        "berth.volume.v1.VolumeService/FitVolumes",
        0,
    ),
    (
        Resource::Plans,
        "berth.planner.v1.PlannerService/VerifyCluster",
        0,
    ),
];

/// Sends a message of this length, or only its header.
async fn call(mut channel: Channel, method: &str, length: u32, ends: bool) -> Result<(), Status> {
    let header = [&[0][..], &length.to_be_bytes()].concat();
    let first = tokio_stream::once(Ok::<_, Status>(Frame::data(Bytes::from(header))));
    let body = match ends {
        true => Body::new(StreamBody::new(first)),
        false => Body::new(StreamBody::new(first.chain(tokio_stream::pending()))),
    };
    let request = http::Request::post(format!("https://server/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap();
    let failed = |error: tonic::transport::Error| Status::from_error(error.into());
    poll_fn(|context| channel.poll_ready(context))
        .await
        .map_err(failed)?;
    let response = channel.call(request).await.map_err(failed)?;
    let status = Status::from_header_map(response.headers());
    let status = status.filter(|status| status.code() != Code::Ok);
    status.map_or(Ok(()), Err)
}

/// Requests of one caller that do not end.
struct Taken {
    ended: mpsc::UnboundedReceiver<Result<(), Status>>,
    _tasks: JoinSet<()>,
    _channels: Vec<Channel>,
}

/// Where and as whom.
#[derive(Clone, Copy)]
struct Caller<'a> {
    cluster: &'a Cluster,
    address: &'a str,
    role: Role,
    name: &'a str,
}

impl Caller<'_> {
    fn dial(self) -> Channel {
        let tls = self.cluster.certificates().tls(self.role, self.name);
        channel(tls, self.address, Expected::AnyServer)
    }

    /// Takes all that it gets of a resource.
    async fn exhaust(self, resource: Resource, method: &'static str, length: u32) -> Taken {
        let units = units(self.role, resource, length);
        let count = usize::try_from(units).unwrap() + BEYOND;
        let channels = count.div_ceil(STREAMS);
        let channels: Vec<Channel> = (0..channels).map(|_| self.dial()).collect();
        let (end, ended) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (channel, end) = (channels[number / STREAMS].clone(), end.clone());
            tasks.spawn(async move {
                let _ = end.send(call(channel, method, length, false).await);
            });
        }
        let mut taken = Taken {
            ended,
            _tasks: tasks,
            _channels: channels,
        };
        for _ in 0..BEYOND {
            let what = format!(
                "{resource:?} of {}:{} at {}",
                self.role, self.name, self.address
            );
            let ended = tokio::time::timeout(PATIENCE, taken.ended.recv()).await;
            let refused = ended.unwrap_or_else(|_| panic!("{what}: not refused"));
            let refused = refused.unwrap().expect_err("it does not end");
            assert_eq!(refused.code(), Code::ResourceExhausted, "{what}: {refused}");
            let refusal = from_status(&refused);
            assert_eq!(refusal.reason, resource.reason(), "{what}");
            let owner = format!("{}:{}", self.role, self.name);
            assert_eq!(refusal.metadata.get("of"), Some(&owner), "{what}");
            assert!(refusal.hint.is_some(), "{what}");
        }
        taken
    }
}

/// Returns how many requests exhaust a resource.
fn units(role: Role, resource: Resource, length: u32) -> u64 {
    let limits = Limits::new(384);
    let max = limits.each(Class::Role(role), resource);
    match resource == Resource::BodyBytes {
        true => max / u64::from(length),
        false => max,
    }
}

fn servers(cluster: &Cluster) -> [&str; 3] {
    [
        &cluster.schedulers[0].address,
        &cluster.conductors[0].address,
        &cluster.agents[0].address,
    ]
}

#[test]
fn no_role_exhausts_a_program() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1"))
        .certified()
        .start();
    create_flavor(&cluster);
    let runtime = runtime();
    for (index, address) in servers(&cluster).into_iter().enumerate() {
        for role in Role::ALL {
            let hostile = Caller {
                cluster: &cluster,
                address,
                role,
                name: "hostile",
            };
            for (resource, method, length) in TAKING {
                // A member may take all bytes: it sends the log. Plans and searches are of schedulers.
                let is_open = table::may(role, method)
                    && units(role, resource, length) <= UNITS_MAX
                    && !(role == Role::Scheduler && resource == Resource::BodyBytes)
                    && (index == 0 || method.starts_with("grpc."));
                if is_open {
                    runtime.block_on(others_are_served(hostile, resource, method, length));
                }
            }
        }
    }
    runtime.block_on(connections_are_refused(&cluster));
    a_reader_takes_everything(&cluster, &runtime);
}

async fn others_are_served(
    hostile: Caller<'_>,
    resource: Resource,
    method: &'static str,
    length: u32,
) {
    let mut taken = hostile.exhaust(resource, method, length).await;
    for role in [
        Role::Scheduler,
        Role::Conductor,
        Role::Agent,
        Role::Operator,
        Role::Reader,
    ] {
        let other = Caller {
            role,
            name: "other",
            ..hostile
        };
        if !table::may(role, method) {
            continue;
        }
        let answer = call(other.dial(), CHECK, 0, true).await;
        assert!(answer.is_ok(), "{role}: {answer:?}");
        // Empty requests of these methods are answered, or refused for what is missing.
        if resource != Resource::Watches {
            let answer = call(other.dial(), method, 0, true).await;
            let code = answer.err().map(|status| status.code());
            assert_ne!(code, Some(Code::ResourceExhausted), "{role} {resource:?}");
        }
    }
    assert!(taken.ended.try_recv().is_err(), "what was taken is held");
}

/// Goal: one connection too many is refused with the reason, and others connect.
async fn connections_are_refused(cluster: &Cluster) {
    for address in servers(cluster) {
        for role in [Role::Reader, Role::Agent] {
            let hostile = Caller {
                cluster,
                address,
                role,
                name: "greedy",
            };
            let mut open = Vec::new();
            for _ in 0..units(role, Resource::Connections, 1) {
                let channel = hostile.dial();
                call(channel.clone(), CHECK, 0, true).await.unwrap();
                open.push(channel);
            }
            let refused = call(hostile.dial(), CHECK, 0, true).await.unwrap_err();
            assert_eq!(from_status(&refused).reason, "TOO_MANY_CONNECTIONS");
            let other = Caller {
                name: "other",
                ..hostile
            };
            call(other.dial(), CHECK, 0, true).await.unwrap();
        }
    }
}

/// Goal: while one reader holds all that it gets of everything at every program, guests are booted and
/// deleted, and each refusal kind of it is in the log, a few times.
fn a_reader_takes_everything(cluster: &Cluster, runtime: &tokio::runtime::Runtime) {
    let mut held = Vec::new();
    for (index, address) in servers(cluster).into_iter().enumerate() {
        let hostile = Caller {
            cluster,
            address,
            role: Role::Reader,
            name: "eve",
        };
        // What declares most comes first: requests without bytes are left for the others then.
        for (resource, method, length) in TAKING.into_iter().rev() {
            if (index == 0 || method.starts_with("grpc.")) && resource != Resource::Requests {
                held.push(runtime.block_on(hostile.exhaust(resource, method, length)));
            }
        }
    }
    cluster.run(&Cluster::create("guest", "f"));
    cluster.run(&["vm", "delete", "guest"]);
    drop(held);
    let said = cluster.schedulers[0].said();
    let lines = said.lines().filter(|line| line.contains("reader:eve"));
    let lines: Vec<&str> = lines.filter(|line| line.contains("at most")).collect();
    assert!((1..=3).contains(&lines.len()), "{lines:#?}");
}
