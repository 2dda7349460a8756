//! The layer that begins a span for each request that states one which is recorded.
//!
//! Not here: what is in the header, and whether it is valid ([`berth_traces::context`]).
//!
//! Invariant: a header that is not valid changes nothing. Clients invent paths: one that is no method is
//! not the name of a span.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use berth_traces::{Span, body, within};
use tokio_util::either::Either;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower_service::Service;

use crate::access::table;

/// The name of the span of a request to no method.
const UNKNOWN: &str = "unknown/unknown";

/// Puts spans in front of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer;

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced(inner)
    }
}

/// A server with spans.
#[derive(Clone, Debug)]
pub(super) struct Traced<S>(S);

type Responding = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S> Service<Request<Body>> for Traced<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Responding, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(span) = begin(&request) else {
            return Either::Right(self.0.call(request));
        };
        let answering = within(Some(span.active()), self.0.call(request));
        Either::Left(Box::pin(async move {
            let response = answering.await?;
            Ok(body::keeping(response, span))
        }))
    }
}

fn begin(request: &Request<Body>) -> Option<Span> {
    if !berth_traces::is_on() {
        return None;
    }
    let method = request.uri().path().trim_start_matches('/');
    let is_known = table::roles(method).next().is_some();
    Span::server(if is_known { method } else { UNKNOWN }, request.headers())
}
