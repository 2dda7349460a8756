//! Recorded responses as a server of this process, so that commands show them as they show others.
//!
//! Not here: what is recorded (`calls`).
//!
//! Invariant: a request is answered with what was recorded of it, or refused; nothing is made up.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::refusal::{Code, Refusal};
use berth_process::server;
use berth_proto::client::Dialer;
use berth_proto::status::to_status;
use berth_tls::Inside;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;
use tonic::service::Routes;

use super::messages::{self, Method, method};
use super::wire::Answering;

/// Fields of a request that do not decide what is answered.
const IGNORED: [&str; 3] = ["consistency", "page_size", "page_token"];

/// What was recorded, by the path of the method.
pub(super) type Responses = BTreeMap<String, Value>;

/// A server of recorded responses, as long as this is kept.
#[derive(Debug)]
pub(crate) struct Recorded {
    inside: Inside,
    _stop: DropGuard,
}

impl Recorded {
    /// Serves responses in a task of the runtime that this is called in.
    pub(super) fn start(responses: Responses) -> Self {
        let (inside, incoming) = Inside::pair();
        let stop = CancellationToken::new();
        let responses = Arc::new(responses);
        let answering =
            Answering(move |path: &str, request: &[u8]| answer(&responses, path, request));
        let router = Routes::default().into_axum_router();
        let routes = Routes::from(router.fallback_service(answering));
        let server = server::new(None, server::limits());
        tokio::spawn(server.serve_inside(routes, incoming, stop.clone().cancelled_owned()));
        Self {
            inside,
            _stop: stop.drop_guard(),
        }
    }

    /// Returns a dialer by which every address is this server.
    pub(crate) fn dialer(&self) -> Dialer {
        Dialer::inside(self.inside.clone())
    }
}

fn answer(responses: &Responses, path: &str, request: &[u8]) -> Result<Vec<u8>, Status> {
    let recorded = method(path).zip(responses.get(path));
    let (method, response) = recorded.ok_or_else(not_recorded)?;
    if !is_whole(&method, request) {
        return Err(not_recorded());
    }
    let response = messages::from_json(&method.output, response.clone());
    let response = response.map_err(|error| Status::internal(error.to_string()))?;
    Ok(messages::encode(&response))
}

/// Returns whether a request is for everything: what was recorded is the answer to no other.
fn is_whole(method: &Method, request: &[u8]) -> bool {
    let request = messages::decode(&method.input, request);
    let request = request.and_then(|request| messages::to_json(&request));
    let Ok(Value::Object(fields)) = request else {
        return false;
    };
    let mut deciding = fields.iter().filter(|(key, value)| {
        // The command itself evaluates an expression on what is answered.
        let is_expression = *key == "filter" && value.is_string();
        !is_expression && !IGNORED.contains(&key.as_str())
    });
    deciding.all(|(_, value)| *value == serde_json::json!({}))
}

fn not_recorded() -> Status {
    let message = "this is not in the bundle, which has no state";
    let refusal = Refusal::new(Code::FailedPrecondition, "NOT_IN_THE_BUNDLE", message);
    to_status(&refusal.with_hint("make one with `berth support bundle --with-state`"))
}

#[cfg(test)]
mod tests {
    use berth_proto::host::v1::{GetHostRequest, ListHostsRequest, ListHostsResponse};
    use prost::Message as _;

    use super::*;

    const LIST: &str = "/berth.host.v1.HostService/ListHosts";

    fn responses() -> Responses {
        BTreeMap::from([(LIST.to_owned(), serde_json::json!({"revision": "7"}))])
    }

    #[test]
    fn only_what_was_recorded_is_answered() {
        let request = ListHostsRequest {
            page_size: 9,
            filter: "host.cordoned = true".to_owned(),
            ..Default::default()
        };
        let answered = answer(&responses(), LIST, &request.encode_to_vec()).expect("recorded");
        let answered = ListHostsResponse::decode(&*answered).expect("a response");
        assert_eq!(answered.revision, 7);
        let show = GetHostRequest::default().encode_to_vec();
        for path in ["/berth.host.v1.HostService/GetHost", "/berth.x.v1.X/Y", ""] {
            let refused = answer(&responses(), path, &show).expect_err(path);
            assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{path}");
        }
    }
}
