//! The layer that authorizes every call before its method is looked up.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use berth_tls::{Peer, identity};
use tokio_util::either::Either;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower_service::Service;

use super::authorize;

/// Puts the access table in front of a server.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Whether callers are authenticated.
    authenticated: bool,
}

impl Layer {
    /// Returns the layer; callers are authenticated where connections use mutual TLS.
    #[must_use]
    pub fn new(authenticated: bool) -> Self {
        Self { authenticated }
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Authorized<S>;

    fn layer(&self, inner: S) -> Authorized<S> {
        Authorized {
            inner,
            authenticated: self.authenticated,
        }
    }
}

/// A server behind the access table.
#[derive(Clone, Debug)]
pub struct Authorized<S> {
    inner: S,
    authenticated: bool,
}

impl<S> Service<Request<Body>> for Authorized<S>
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
        if self.authenticated {
            let peer = request.extensions().get::<Peer>();
            if let Err(refused) = authorize(peer, request.uri().path(), identity::now()) {
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
