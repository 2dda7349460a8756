//! The layer that judges every call before its method is looked up.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use berth_tls::{Peer, identity};
use tokio_util::either::Either;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower_service::Service;

use super::judge;

/// Puts the table of who may call what in front of a server.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Whether callers are known at all.
    known: bool,
}

impl Layer {
    /// Returns the layer; callers are known where connections are encrypted.
    #[must_use]
    pub fn new(known: bool) -> Self {
        Self { known }
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard {
            inner,
            known: self.known,
        }
    }
}

/// A server behind the table.
#[derive(Clone, Debug)]
pub struct Guard<S> {
    inner: S,
    known: bool,
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response<Body>, Infallible>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if self.known {
            let peer = request.extensions().get::<Peer>();
            if let Err(refused) = judge(peer, request.uri().path(), identity::now()) {
                tracing::debug!(
                    path = request.uri().path(),
                    why = refused.message(),
                    "refused"
                );
                return Either::Left(ready(Ok(refused.into_http())));
            }
        }
        Either::Right(self.inner.call(request))
    }
}
