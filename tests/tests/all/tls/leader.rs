//! Where members send their callers: to an address that is dialled as theirs is, encrypted.

use std::future::poll_fn;
use std::time::Duration;

use berth_process::access::table;
use berth_tests::processes::{Cluster, eventually};
use berth_tls::{Expected, Role};
use http_body_util::BodyExt as _;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service as _, http};
use tonic::transport::Channel;

use super::{channel, runtime};
use crate::PROGRAMS;

/// How long an answer is read: watches end by themselves only later.
const PATIENCE: Duration = Duration::from_secs(2);

/// Goal: no answer of an encrypted member names another one without encryption. Method: every method at
/// every member, with an empty message; a member that knows a leader's address writes it in the message of the
/// refusal or in the answer.
#[test]
fn members_are_named_with_their_scheme() {
    let cluster = Cluster::builder(PROGRAMS).schedulers(3).certified().start();
    eventually("a leader", || cluster.ask(&["cluster", "status"]).map(drop));
    runtime().block_on(async {
        let mut named = 0;
        for member in &cluster.schedulers {
            for method in table::methods() {
                let tls = cluster.certificates().tls(Role::Operator, "ann");
                let mut channel = channel(tls, &member.address, Expected::AnyServer);
                let answer = answer_to_nothing(&mut channel, &method).await;
                let what = format!("{method} at {}: {answer}", member.name);
                assert!(!answer.contains("http://"), "{what}");
                named += usize::from(answer.contains("https://"));
            }
        }
        // The status and the wait for a leader at each member, and refusals of the two that follow.
        assert!(named >= 8, "{named} answers name a leader");
    });
}

/// Returns the headers, the body and the trailers of an answer as text.
async fn answer_to_nothing(channel: &mut Channel, method: &str) -> String {
    let body = http_body_util::Full::new(Bytes::from_static(&[0; 5]));
    let request = http::Request::post(format!("https://server/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    poll_fn(|context| channel.poll_ready(context))
        .await
        .unwrap();
    let mut text = String::new();
    let read = async {
        let answer = channel.call(request).await.expect("an answer");
        text += &format!("{:?}", answer.headers());
        let mut body = answer.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            match frame.into_data() {
                Ok(data) => text += &String::from_utf8_lossy(&data),
                Err(frame) => text += &format!("{:?}", frame.trailers_ref()),
            }
        }
    };
    // What goes on is a watch, and was read so far.
    let _ = tokio::time::timeout(PATIENCE, read).await;
    text
}
