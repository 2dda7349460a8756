//! Calls of any method by its path, with messages as bytes.

use berth_proto::consistency::{CONSISTENCY, Consistency, Staleness};
use berth_proto::for_cluster::{ForCluster, MemberChannel};
use berth_proto::raw::Raw;
use tonic::{Request, Status};

use super::case;
use crate::common::connect;

/// The messages of a response, and how it ended.
pub(super) type Answer = (Vec<Vec<u8>>, Result<(), Status>);

/// Returns whether two answers are the same for their client.
pub(super) fn are_equal(one: &Answer, other: &Answer) -> bool {
    let parts = |end: &Result<(), Status>| {
        let status = end.as_ref().err();
        status.map(|s| (s.code(), s.message().to_owned(), s.details().to_vec()))
    };
    one.0 == other.0 && parts(&one.1) == parts(&other.1)
}

/// Calls a method of one member. On the wire a unary method is a stream with one message.
pub(super) async fn call(address: &str, path: &str, request: &[u8]) -> Answer {
    let (answer, staleness) = call_with(address, path, request, None).await;
    assert_eq!(staleness, None, "{path} was not requested stale");
    answer
}

/// As [`call`], of a method that answers from the member's own state; and what its answer is worth.
pub(super) async fn call_stale(
    address: &str,
    path: &str,
    request: &[u8],
) -> (Answer, Option<Staleness>) {
    call_with(address, path, request, Some(Consistency::Stale)).await
}

async fn call_with(
    address: &str,
    path: &str,
    request: &[u8],
    consistency: Option<Consistency>,
) -> (Answer, Option<Staleness>) {
    let channel = connect(&format!("http://{address}")).await;
    call_over(channel, path, request, consistency).await
}

/// Calls a method of one member, for a cluster.
pub(super) async fn call_for(
    address: &str,
    path: &str,
    request: &[u8],
    cluster: &ForCluster,
) -> Answer {
    let channel = connect(&format!("http://{address}")).await;
    let (answer, _) = call_over(cluster.over(channel), path, request, None).await;
    answer
}

/// Calls a method over a channel.
pub(super) async fn call_over(
    channel: impl Into<MemberChannel>,
    path: &str,
    request: &[u8],
    consistency: Option<Consistency>,
) -> (Answer, Option<Staleness>) {
    let channel: MemberChannel = channel.into();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("a member");
    let path_and_query = path.parse().expect("a path");
    let mut request = Request::new(request.to_vec());
    if let Some(consistency) = consistency {
        let value = consistency.text().parse().expect("a value");
        request.metadata_mut().insert(CONSISTENCY, value);
    }
    let called = grpc.server_streaming(request, path_and_query, Raw).await;
    let response = match called {
        Ok(response) => response,
        Err(status) => {
            let staleness = Staleness::read(status.metadata());
            return ((Vec::new(), Err(status)), staleness);
        }
    };
    let staleness = Staleness::read(response.metadata());
    let mut stream = response.into_inner();
    let mut messages = Vec::new();
    let end = loop {
        match stream.message().await {
            Ok(Some(message)) => {
                let is_last = case::is_last(path, &message);
                messages.push(message);
                if is_last {
                    break Ok(());
                }
            }
            Ok(None) => break Ok(()),
            Err(status) => break Err(status),
        }
    };
    ((messages, end), staleness)
}
