//! The trace that a command belongs to: the environment variable `TRACEPARENT`, as tools pass it on.
//!
//! Not here: spans. The command sends none; the conductor's spans become children of the caller's.
//!
//! Invariant: a value that is not valid is not sent, and is no error: it may be meant for another
//! program.

use berth_proto::conductor::v1::conductor_service_client::ConductorServiceClient;
use berth_proto::for_cluster::MemberChannel;
use berth_traces::context::{HEADER, SpanContext};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};

/// The environment variable.
const VARIABLE: &str = "TRACEPARENT";

/// A client of a conductor.
pub type ConductorClient = ConductorServiceClient<InterceptedService<MemberChannel, TraceParent>>;

/// The span that the calls of a command are children of.
#[derive(Clone, Debug, Default)]
pub struct TraceParent(Option<MetadataValue<Ascii>>);

impl TraceParent {
    /// Returns that of the environment.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::parse(&std::env::var(VARIABLE).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let context = SpanContext::parse(text.as_bytes());
        Self(context.and_then(|context| context.header().parse().ok()))
    }

    /// Returns a client whose calls belong to the trace.
    #[must_use]
    pub fn over(self, channel: MemberChannel) -> ConductorClient {
        ConductorServiceClient::with_interceptor(channel, self)
    }
}

impl Interceptor for TraceParent {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.0 {
            request.metadata_mut().insert(HEADER, header.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_valid_is_not_sent() {
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let sent = |text: &str| {
            let request = TraceParent::parse(text).call(Request::new(()));
            let request = request.expect("a call goes on");
            let header = request.metadata().get(HEADER).cloned();
            header.map(|header| header.to_str().expect("hexadecimal digits").to_owned())
        };
        assert_eq!(sent(valid).as_deref(), Some(valid));
        for bad in [
            "",
            "00",
            "\n",
            &valid.to_uppercase(),
            &valid.replacen("00", "ff", 1),
        ] {
            assert_eq!(sent(bad), None, "{bad:?}");
        }
    }
}
