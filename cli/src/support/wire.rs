//! Calls that are made and answered without generated code, with messages as bytes.
//!
//! Invariant: the bytes of a message are passed on as they are.

use std::convert::Infallible;
use std::future::{Ready, ready};

use berth_proto::raw::Raw;
use tonic::{Response, Status};

/// Calls a method of a server.
macro_rules! call {
    ($channel:expr, $path:expr, $request:expr) => {{
        let mut grpc = ::tonic::client::Grpc::new($channel);
        // A list of hosts may be longer than what tonic takes by default.
        grpc = grpc.max_decoding_message_size($crate::support::wire::MESSAGE_BYTES_MAX);
        let ready = grpc.ready().await;
        ready.map_err(|error| {
            let error: Box<dyn std::error::Error + Send + Sync> = error.into();
            ::tonic::Status::unavailable(error.to_string())
        })?;
        let path = ::http::uri::PathAndQuery::from_static($path);
        grpc.unary(
            ::tonic::Request::new($request),
            path,
            ::berth_proto::raw::Raw,
        )
        .await
    }};
}
pub(super) use call;

/// The longest message that is received.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Answers every call of a service by a function of path and request.
#[derive(Clone)]
pub(super) struct Answering<F>(pub(super) F);

/// One call with its path.
struct One<F>(F, String);

impl<F> tonic::server::UnaryService<Vec<u8>> for One<F>
where
    F: Fn(&str, &[u8]) -> Result<Vec<u8>, Status>,
{
    type Response = Vec<u8>;
    type Future = Ready<Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: tonic::Request<Vec<u8>>) -> Self::Future {
        let answered = (self.0)(&self.1, request.get_ref());
        ready(answered.map(Response::new))
    }
}

impl<F, B> tower_service::Service<http::Request<B>> for Answering<F>
where
    F: Fn(&str, &[u8]) -> Result<Vec<u8>, Status> + Clone + Send + 'static,
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<tonic::codegen::StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = tonic::codegen::BoxFuture<Self::Response, Infallible>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let one = One(self.0.clone(), request.uri().path().to_owned());
        Box::pin(async move {
            let mut grpc =
                tonic::server::Grpc::new(Raw).max_encoding_message_size(MESSAGE_BYTES_MAX);
            Ok(grpc.unary(one, request).await)
        })
    }
}
