//! What gRPC prescribes for requests that reach no method, where the library does otherwise.
//!
//! Not here: unknown methods ([`crate::access`], and the library), messages that are too large or cut
//! off ([`crate::bounds`]), compression (the library).
//!
//! Invariant: a fault of the client is never answered as a fault of the server.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::either::Either;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response, StatusCode, header};
use tonic::{Code, Status};
use tower_service::Service;

use crate::bounds::refusal::refusal;

/// The reason of the refusal of a message that is not of the method's type.
pub const UNDECODABLE_REQUEST: &str = "UNDECODABLE_REQUEST";
/// The reason of the refusal of a request that is not gRPC.
const NOT_GRPC: &str = "NOT_GRPC";

const CONTENT_TYPE: &str = "application/grpc";
/// How the library begins the message of a status for what it cannot decode.
const UNDECODABLE: &str = "failed to decode Protobuf message";

/// Puts the conventions in front of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer;

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Conventional<S>;

    fn layer(&self, inner: S) -> Conventional<S> {
        Conventional(inner)
    }
}

/// A server behind the conventions.
#[derive(Clone, Debug)]
pub(super) struct Conventional<S>(S);

impl<S> Service<Request<Body>> for Conventional<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response<Body>, Infallible>>, Responding<S::Future>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match is_grpc(request.headers()) {
            true => Either::Right(Responding(self.0.call(request))),
            false => Either::Left(ready(Ok(not_grpc()))),
        }
    }
}

/// A response to come.
#[derive(Debug)]
pub(super) struct Responding<F>(F);

impl<F> Future for Responding<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(conventional)
    }
}

/// Returns whether a request is of gRPC: its content type, or a subtype of it.
fn is_grpc(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let rest = value.and_then(|value| value.as_bytes().strip_prefix(CONTENT_TYPE.as_bytes()));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

fn not_grpc() -> Response<Body> {
    let what = "the content type of the request is not application/grpc";
    let hint = "call this address with a client of gRPC";
    let status = refusal(Code::InvalidArgument, NOT_GRPC, what, hint, &[]);
    let mut response = status.into_http();
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// Returns the response as it is prescribed: the library calls it its own fault if it cannot decode a
/// message. A method that fails by itself states a reason, which this has not.
fn conventional(response: Response<Body>) -> Response<Body> {
    let status = Status::from_header_map(response.headers());
    let undecodable = status.filter(|status| {
        status.code() == Code::Internal
            && status.details().is_empty()
            && status.message().starts_with(UNDECODABLE)
    });
    let Some(status) = undecodable else {
        return response;
    };
    let hint = "compare the .proto files of client and server";
    let code = Code::InvalidArgument;
    refusal(code, UNDECODABLE_REQUEST, status.message(), hint, &[]).into_http()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_of_grpc() {
        let check = |value: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(is_grpc(&headers), expected, "{value}");
        };
        for good in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;x=y",
        ] {
            check(good, true);
        }
        for bad in ["", "application/json", "application/grpc-web", "text/plain"] {
            check(bad, false);
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
