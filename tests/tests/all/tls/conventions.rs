//! Requests that reach no method.
//!
//! Goal: every method of every program answers what is no request of it as gRPC prescribes, and never as
//! a fault of its own. Method: each method of the descriptors, by a role that may call it, with a
//! message of nonsense, one that is too large, none, another content type, and a compression that
//! no program has.

use std::future::poll_fn;
use std::time::Duration;

use berth_process::access::table;
use berth_process::bounds::methods;
use berth_tests::processes::{Cluster, Host};
use berth_tls::{Expected, Role};
use tonic::body::Body;
use tonic::codegen::{Bytes, Service as _, http};
use tonic::transport::Channel;

use super::{channel, runtime};
use crate::PROGRAMS;

const PATIENCE: Duration = Duration::from_secs(60);
const GRPC: &str = "application/grpc";

/// One fault, and the answer that is prescribed for it.
struct Fault {
    name: &'static str,
    content_type: &'static str,
    encoding: &'static str,
    body: &'static [u8],
    http: u16,
    grpc: &'static str,
}

const FAULTS: [Fault; 6] = [
    Fault {
        name: "nonsense",
        content_type: GRPC,
        encoding: "identity",
        // A field of a type that does not exist.
        body: &[0, 0, 0, 0, 2, 0x0f, 0xff],
        http: 200,
        grpc: "3",
    },
    Fault {
        name: "no frame",
        content_type: GRPC,
        encoding: "identity",
        body: b"{\"name\": \"x\"}",
        http: 200,
        grpc: "3",
    },
    Fault {
        name: "too large",
        content_type: GRPC,
        encoding: "identity",
        body: &[0, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3],
        http: 200,
        grpc: "8",
    },
    Fault {
        name: "nothing",
        content_type: GRPC,
        encoding: "identity",
        body: &[],
        http: 200,
        grpc: "3",
    },
    Fault {
        name: "another content type",
        content_type: "application/json",
        encoding: "identity",
        body: b"{}",
        http: 415,
        grpc: "3",
    },
    Fault {
        name: "another compression",
        content_type: GRPC,
        encoding: "br",
        body: &[1, 0, 0, 0, 1, 0],
        http: 200,
        grpc: "12",
    },
];

struct Answer {
    http: u16,
    grpc: String,
    message: String,
    accepted: String,
}

async fn send(channel: &mut Channel, method: &str, fault: &Fault) -> Answer {
    let body = http_body_util::Full::new(Bytes::from_static(fault.body));
    let request = http::Request::post(format!("https://server/{method}"))
        .header("content-type", fault.content_type)
        .header("grpc-encoding", fault.encoding)
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    poll_fn(|context| channel.poll_ready(context))
        .await
        .unwrap();
    let answered = tokio::time::timeout(PATIENCE, channel.call(request)).await;
    let answer = answered.expect("in time").expect("an answer");
    let header = |name: &str| {
        let value = answer.headers().get(name);
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    Answer {
        http: answer.status().as_u16(),
        grpc: header("grpc-status"),
        message: header("grpc-message"),
        accepted: header("grpc-accept-encoding"),
    }
}

#[test]
fn what_is_no_request_is_refused_as_such() {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(Host::new("h1").with_volumes("sim", &["region0:1024"], ""))
        .certified()
        .start();
    runtime().block_on(every_fault_of_every_method(&cluster));
}

async fn every_fault_of_every_method(cluster: &Cluster) {
    let mut served = 0;
    for server in [
        &cluster.schedulers[0],
        &cluster.conductors[0],
        &cluster.agents[0],
    ] {
        let dial = |role| {
            let tls = cluster.certificates().tls(role, "probe");
            channel(tls, &server.address, Expected::AnyServer)
        };
        let mut channels: Vec<(Role, Channel)> = Role::ALL
            .into_iter()
            .map(|role| (role, dial(role)))
            .collect();
        for method in table::methods() {
            let channel = channels
                .iter_mut()
                .find(|(role, _)| table::may(*role, &method));
            let (role, channel) = channel.expect("a role that may");
            for fault in &FAULTS {
                let answer = send(channel, &method, fault).await;
                let what = format!(
                    "{} to {method} at {} by {role}: {} {} {}",
                    fault.name, server.name, answer.http, answer.grpc, answer.message
                );
                assert_eq!(answer.http, fault.http, "{what}");
                // It may be a method of another program.
                let is_elsewhere = answer.grpc == "12" && answer.accepted.is_empty();
                if fault.http == 200 && is_elsewhere {
                    continue;
                }
                served += 1;
                // Streams answer what is wrong in them as they like, but not with success.
                match methods::is_client_stream(&method) && fault.grpc != "12" {
                    true => assert!(fault.body.is_empty() || answer.grpc != "0", "{what}"),
                    false => assert_eq!(answer.grpc, fault.grpc, "{what}"),
                }
                if fault.grpc == "12" {
                    assert_eq!(answer.accepted, "identity", "{what}");
                }
            }
        }
        let reader = channels.iter_mut().find(|(role, _)| *role == Role::Reader);
        let (_, reader) = reader.expect("a reader");
        let unknown = send(reader, "berth.new.v1.NewService/NotListed", &FAULTS[0]).await;
        assert_eq!(
            (unknown.http, &*unknown.grpc),
            (200, "12"),
            "{}",
            server.name
        );
    }
    assert!(served > table::methods().count() * FAULTS.len(), "{served}");
}
