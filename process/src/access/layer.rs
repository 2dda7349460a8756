//! The layer that authorizes every call before its method is looked up.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use berth_tls::{Peer, identity};
use tokio_util::either::Either;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic_types::StatusExt as _;
use tower_service::Service;

use super::{ON_BEHALF_OF, OnBehalfOf, audit, authorize, authorize_for};

/// Records a refusal in the audit of the log.
pub fn record_refusal(peer: Option<&Peer>, path: &str, refused: &Status) {
    let identity = peer.and_then(|peer| peer.identity.as_ref());
    // Any client may send any path: one that is in no table is not distinguished.
    let method = path.trim_start_matches('/');
    let is_known = super::table::roles(method).next().is_some();
    let line = audit::Line {
        method: if is_known { method } else { "unknown" }.to_owned(),
        caller: identity.map_or_else(|| "unverified".to_owned(), |who| who.principal()),
        ..audit::Line::default()
    };
    let reason = refused.get_details_error_info().map(|info| info.reason);
    audit::refused(&line, &reason.unwrap_or_default());
}

/// Authorizes a request; returns the operator whom a scheduler makes it for, if one does.
fn check(request: &Request<Body>) -> Result<Option<OnBehalfOf>, Status> {
    let peer = request.extensions().get::<Peer>();
    let (path, now) = (request.uri().path(), identity::now());
    let named = request.headers().get(ON_BEHALF_OF);
    match named.and_then(|named| named.to_str().ok()) {
        Some(named) => authorize_for(peer, path, named, now),
        None => authorize(peer, path, now).map(|()| None),
    }
}

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

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if !self.authenticated {
            return Either::Right(self.inner.call(request));
        }
        match check(&request) {
            Ok(None) => {}
            Ok(Some(operator)) => {
                request.extensions_mut().insert(operator);
            }
            Err(refused) => {
                let peer = request.extensions().get::<Peer>();
                record_refusal(peer, request.uri().path(), &refused);
                return Either::Left(ready(Ok(refused.into_http())));
            }
        }
        Either::Right(self.inner.call(request))
    }
}
