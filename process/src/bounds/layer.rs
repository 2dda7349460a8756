//! The layer that counts the requests of one connection.
//!
//! Invariant: a request is counted from its headers until its response is sent or its client is gone;
//! a refused one is answered without its body being read.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use berth_traces::body::{self, Kept};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tower_service::Service;

use super::request_body::RequestBody;
use super::{Caller, Permit, Resource, methods};

/// What a request took, as an extension of it. A method that works on without its client, as in a
/// thread, holds a clone.
#[derive(Clone, Debug)]
pub struct Held(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    caller: Caller,
    _permits: Vec<Permit>,
    /// Whether a method holds it instead of the response.
    is_taken_over: AtomicBool,
}

impl Held {
    /// Returns what a request holds; absent where no bounds are in front of the method.
    #[must_use]
    pub fn of<T>(request: &tonic::Request<T>) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    /// Takes more for the request, where what it takes depends on more than its method.
    ///
    /// # Errors
    ///
    /// Its caller, or all callers together, hold as much as they may.
    pub fn acquire(&self, resource: Resource) -> Result<Permit, Status> {
        let permit = self.0.caller.acquire(resource, 1);
        permit.map_err(|refused| {
            let status = refused.to_status();
            self.0.caller.log(&status);
            status
        })
    }

    /// Has the caller of this alone hold it: for a method that ends by itself what its client does not
    /// read.
    pub fn take_over(&self) {
        self.0.is_taken_over.store(true, Ordering::Release);
    }
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct InProgress {
    held: Option<Held>,
    open: OpenRequests,
}

impl InProgress {
    /// Returns it as its response holds it.
    fn responding(mut self) -> Self {
        self.held = self
            .held
            .take()
            .filter(|held| !held.0.is_taken_over.load(Ordering::Acquire));
        self
    }
}

impl Kept for InProgress {
    fn status(&mut self, _: &HeaderMap) {}
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.open.0.send_modify(|open| *open -= 1);
    }
}

/// How many requests of a connection are in progress.
#[derive(Clone, Debug)]
pub struct OpenRequests(Arc<watch::Sender<usize>>);

impl Default for OpenRequests {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl OpenRequests {
    /// Subscribes to the number.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }

    fn begin(&self, caller: Caller, permits: Vec<Permit>) -> InProgress {
        self.0.send_modify(|open| *open += 1);
        InProgress {
            held: Some(Held(Arc::new(Taken {
                caller,
                _permits: permits,
                is_taken_over: AtomicBool::new(false),
            }))),
            open: self.clone(),
        }
    }
}

/// Counts the requests of a connection.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The other end of the connection, or why nothing of it is served.
    caller: Result<Caller, Box<Status>>,
    open: OpenRequests,
}

impl Layer {
    /// Returns the layer of a connection of a caller.
    #[must_use]
    pub fn new(caller: Caller, open: OpenRequests) -> Self {
        Self {
            caller: Ok(caller),
            open,
        }
    }

    /// Returns the layer of a connection of which every request is refused.
    #[must_use]
    pub fn refusing(status: Status) -> Self {
        Self {
            caller: Err(Box::new(status)),
            open: OpenRequests::default(),
        }
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            layer: self.clone(),
        }
    }
}

/// A server behind the bounds of its callers.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    inner: S,
    layer: Layer,
}

/// Takes what a request of a method needs.
fn take(caller: &Caller, method: &str) -> Result<Vec<Permit>, Status> {
    let (first, second) = methods::resources(method);
    let resources = [Some(first), second].into_iter().flatten();
    let permits = resources.map(|resource| caller.acquire(resource, 1));
    permits.collect::<Result<_, _>>().map_err(|refused| {
        let status = refused.to_status();
        caller.log(&status);
        status
    })
}

impl<S> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let method = request.uri().path().trim_start_matches('/').to_owned();
        let taken = match &self.layer.caller {
            Ok(caller) => take(caller, &method).map(|permits| (caller, permits)),
            Err(refused) => Err(Status::clone(refused)),
        };
        let (caller, permits) = match taken {
            Ok(taken) => taken,
            Err(refused) => return Box::pin(std::future::ready(Ok(refused.into_http()))),
        };
        let held = self.layer.open.begin(caller.clone(), permits);
        if let Some(held) = held.held.clone() {
            request.extensions_mut().insert(held);
        }
        let caller = caller.clone();
        let request = request.map(|body| {
            let max = methods::message_bytes_max(&method);
            let max = max.unwrap_or(caller.bounds().limits().message_bytes);
            let is_stream = methods::is_client_stream(&method);
            Body::new(RequestBody::new(body, caller, max, is_stream))
        });
        let answering = self.inner.call(request);
        Box::pin(async move {
            let response = answering.await?;
            Ok(body::keeping(response, held.responding()))
        })
    }
}
