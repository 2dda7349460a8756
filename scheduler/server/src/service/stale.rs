//! Reads that this member answers from its own applied state, with or without a leader: those whose
//! metadata says [`Consistency::Stale`].
//!
//! ```text
//!   request ─▶ bounds, access ─▶ header? ── no ──────────────────────────▶ method
//!                                   │ stale
//!                                   ├─ not a read ─▶ INVALID_ARGUMENT
//!                                   └─ a read ─▶ method, every read of the state local ─▶ + member,
//!                                                revision, age and leader in the metadata
//! ```
//!
//! A method of which a reader's certificate may call it changes nothing, so the access table says which
//! methods are reads. It leaves out what is part of a write: looking up a fence before its command, and
//! what a host's own agent compares.
//!
//! The request is found again where the state is read by a value of its task; what a method spawns, as the
//! rest of a watch, is outside, and follows this member's feed as any watch does.
//!
//! Invariant: the age was taken before the state was read, so no answer is older than it says.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task;

use berth_domain::refusal::{Code, Refusal};
use berth_process::BoxFuture;
use berth_process::access::table;
use berth_proto::consistency::{CONSISTENCY, Consistency, Staleness};
use berth_proto::status::to_status;
use berth_state::State;
use berth_tls::Role;
use tokio_util::either::Either;
use tonic::Status;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tower_service::Service;

use super::context::Context;
use super::refusal;

/// The reason of the refusal of a stale call of a method that is not a read.
const NOT_A_READ: &str = "STALE_NOT_A_READ";

tokio::task_local! {
    static READ: Arc<Mutex<Option<Staleness>>>;
}

/// Returns whether the request of this task is to be answered from this member's own state.
pub(super) fn is_requested() -> bool {
    READ.try_with(|_| ()).is_ok()
}

/// Records which state the request of this task was answered from last.
pub(super) fn record(staleness: Staleness) {
    // Outside a stale read there is no place for it.
    let _ = READ.try_with(|read| *lock(read) = Some(staleness));
}

fn lock(read: &Mutex<Option<Staleness>>) -> std::sync::MutexGuard<'_, Option<Staleness>> {
    // It is replaced as a whole.
    read.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the refusal of a watch after a revision that this member has not applied.
pub(super) fn behind(after: u64, revision: u64) -> Status {
    let message =
        format!("this member has not applied revision {after}: its own state is at {revision}");
    let refusal = Refusal::new(Code::Unavailable, "MEMBER_BEHIND", message);
    to_status(
        &refusal
            .with("last_revision", revision)
            .with_hint("watch at another member, or without x-berth-consistency"),
    )
}

/// Returns the consistency of a request.
fn requested(headers: &HeaderMap, path: &str) -> Result<Consistency, Status> {
    let Some(value) = headers.get(CONSISTENCY) else {
        return Ok(Consistency::Linearizable);
    };
    let parsed = Consistency::parse(value.as_bytes());
    let consistency = parsed.map_err(|e| refusal::invalid(CONSISTENCY, &e.to_string()))?;
    let method = path.trim_start_matches('/');
    let is_served = table::roles(method).next().is_some();
    match consistency {
        // A method that does not exist is refused as such.
        Consistency::Stale if is_served && !table::may(Role::Reader, method) => {
            Err(not_a_read(method))
        }
        Consistency::Stale | Consistency::Linearizable => Ok(consistency),
        // A member answers it before this layer.
        Consistency::Revision(_) => Err(refusal::invalid(
            CONSISTENCY,
            "must not name a revision here: this state has one only",
        )),
    }
}

fn not_a_read(method: &str) -> Status {
    let message = format!(
        "{method} is not a read: a stale answer comes from one member, which can change nothing"
    );
    let refusal = Refusal::new(Code::InvalidArgument, NOT_A_READ, message);
    to_status(
        &refusal
            .with("method", method)
            .with_hint("leave x-berth-consistency out of the request"),
    )
}

/// Answers stale reads in front of the services.
#[derive(Clone)]
pub(crate) struct Layer(pub(crate) Context);

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Answering<S>;

    fn layer(&self, inner: S) -> Answering<S> {
        Answering {
            inner,
            context: self.0.clone(),
        }
    }
}

/// Services behind the layer.
#[derive(Clone)]
pub(crate) struct Answering<S> {
    inner: S,
    context: Context,
}

impl<S, B, R> Service<Request<B>> for Answering<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = Either<S::Future, BoxFuture<'static, Result<Response<R>, Infallible>>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match requested(request.headers(), request.uri().path()) {
            Ok(Consistency::Linearizable) => Either::Left(self.inner.call(request)),
            Ok(Consistency::Stale) => {
                // The clone was not polled for readiness, this one was.
                let clone = self.inner.clone();
                let inner = std::mem::replace(&mut self.inner, clone);
                Either::Right(Box::pin(answer(inner, self.context.clone(), request)))
            }
            Ok(Consistency::Revision(_)) => Either::Left(self.inner.call(request)),
            Err(refused) => Either::Right(Box::pin(async move { Ok(refused.into_http()) })),
        }
    }
}

/// Carries out reads, all of which are of this member's own state; returns what they are worth.
pub(crate) async fn of_own_state<T>(
    context: &Context,
    reads: impl Future<Output = T>,
) -> (T, Option<Staleness>) {
    let read = Arc::new(Mutex::new(None));
    let done = READ.scope(read.clone(), async {
        let done = reads.await;
        if lock(&read).is_none() {
            // It was answered without the state, as a page token that is invalid.
            let _ = context.stale(State::revision).await;
        }
        done
    });
    let done = done.await;
    let staleness = lock(&read).take();
    (done, staleness)
}

async fn answer<S, B, R>(
    mut inner: S,
    context: Context,
    request: Request<B>,
) -> Result<Response<R>, Infallible>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
{
    let (response, staleness) = of_own_state(&context, inner.call(request)).await;
    let mut response = response?;
    for (key, value) in staleness.iter().flat_map(Staleness::entries) {
        response.headers_mut().insert(key, HeaderValue::from(value));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(consistency: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(
            CONSISTENCY.parse().expect("a name"),
            HeaderValue::from_static(consistency),
        )])
    }

    /// Goal: a method is either answered from one member's state or refused, with the reason.
    #[test]
    fn a_method_that_is_no_read_is_refused_with_a_sentence() {
        for method in table::methods() {
            let path = format!("/{method}");
            let linearizable = Ok(Consistency::Linearizable);
            let without = requested(&HeaderMap::new(), &path);
            assert_eq!(without.map_err(|_| ()), linearizable, "{method}");
            let named = requested(&headers("linearizable"), &path);
            assert_eq!(named.map_err(|_| ()), linearizable, "{method}");
            match requested(&headers("stale"), &path) {
                Ok(consistency) => {
                    assert_eq!(consistency, Consistency::Stale);
                    assert!(table::may(Role::Reader, &method), "{method}");
                }
                Err(refused) => {
                    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{method}");
                    let message = refused.message();
                    assert!(message.contains(&method), "{message}");
                    assert!(message.contains("is not a read"), "{message}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_consistency_is_refused() {
        let read = "/berth.scheduler.v1.SchedulerService/ListVms";
        for bad in ["", "STALE", "eventual"] {
            let refused = requested(&headers(bad), read).expect_err(bad);
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().contains(CONSISTENCY), "{refused:?}");
        }
        // It is refused as a method that does not exist.
        assert!(requested(&headers("stale"), "/berth.scheduler.v1.SchedulerService/No").is_ok());
    }

    #[tokio::test]
    async fn outside_a_stale_read_nothing_is_recorded() {
        let staleness = |revision| Staleness {
            member: 1,
            revision,
            age: None,
            leader: None,
        };
        assert!(!is_requested());
        record(staleness(1));
        let read = Arc::new(Mutex::new(None));
        READ.scope(read.clone(), async {
            assert!(is_requested());
            record(staleness(7));
            // A task of its own is another one.
            let other = tokio::spawn(async { is_requested() });
            assert!(!other.await.expect("a task"));
        })
        .await;
        assert_eq!(lock(&read).map(|read| read.revision), Some(7));
    }
}
