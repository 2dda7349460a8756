//! The layer that refuses requests which are for another cluster.
//!
//! Not here: what is in the header, and the refusal ([`berth_proto::for_cluster`]).
//!
//! Invariant: no service sees a request that is for another cluster.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use berth_proto::for_cluster;
use tokio_util::either::Either;
use tonic::codegen::http::{Request, Response};
use tower_service::Service;

/// Puts the check in front of the services of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Layer(Arc<str>);

impl Layer {
    /// Returns that of the cluster of this id; an empty one refuses nothing.
    pub(crate) fn new(cluster_id: &str) -> Self {
        Self(cluster_id.into())
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = OfCluster<S>;

    fn layer(&self, inner: S) -> OfCluster<S> {
        OfCluster {
            inner,
            cluster_id: self.0.clone(),
        }
    }
}

/// Services behind the layer.
#[derive(Clone, Debug)]
pub(crate) struct OfCluster<S> {
    inner: S,
    cluster_id: Arc<str>,
}

impl<S, B, R> Service<Request<B>> for OfCluster<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: Default,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response<R>, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match for_cluster::check(request.headers(), &self.cluster_id) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(refused) => Either::Right(ready(Ok(refused.into_http()))),
        }
    }
}
