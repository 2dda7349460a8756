//! Reads at an earlier revision: those whose metadata says [`Consistency::Revision`].
//!
//! ```text
//!   request ─▶ bounds, access ─▶ revision? ── no ──▶ the services of this member
//!                                   │ yes
//!                                   └─▶ archive ─▶ state at that revision ─▶ reader, kept for a while
//! ```
//!
//! A [reader](crate::reader) serves the state as it serves that of a backup, so every read answers as it
//! would have then, and what only a leader knows is unknown. It takes as much memory as the state of a
//! member, so there is one at a time; the latest is kept for what is read at the same revision next.
//!
//! Invariant: an answer is of the state after the last command up to the revision, and states the revision
//! of that command.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task;
use std::time::{Duration, Instant};

use berth_backup::Verified;
use berth_domain::refusal::{Code, Refusal};
use berth_process::bounds::methods::WATCHES;
use berth_process::bounds::{Held, Resource};
use berth_process::{BoxFuture, access};
use berth_proto::consistency::{CONSISTENCY, Consistency, MEMBER};
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_replication::runtime::{Past, in_background};
use berth_tls::Role;
use http_body_util::BodyExt as _;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::either::Either;
use tokio_util::sync::DropGuard;
use tonic::Status;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::service::{AxumBody, AxumRouter};
use tower_service::Service;

use crate::earlier;
use crate::machine::Machine;
use crate::reader::{self, Origin};
use crate::service::Context;

/// How long the state of a revision is kept after it was read last.
const KEPT: Duration = Duration::from_secs(60);

/// What needs no state, or is about all of them.
const NOT_OF_A_STATE: [&str; 3] = [
    "berth.cluster.v1.ClusterService/WaitLeader",
    "berth.log.v1.LogService/GetLogLevel",
    HISTORY,
];

/// Who may call this may read earlier states, which costs the same.
const HISTORY: &str = "berth.event.v1.EventService/GetHistory";

/// The services over one earlier state.
struct Served {
    router: AxumRouter,
    /// Ends them.
    _stop: DropGuard,
}

struct Kept {
    revision: u64,
    used: Instant,
    served: Arc<Served>,
}

/// The earlier state that was read last.
struct States {
    context: Context,
    kept: Arc<Mutex<Option<Kept>>>,
    /// The revision of the state that is kept, or made for it; zero if there is none.
    current: AtomicU64,
}

impl States {
    /// Returns the services over the state at a revision. Who requested it may go meanwhile: it is made to
    /// the end, and kept, before another one is begun.
    async fn at(
        self: &Arc<Self>,
        revision: u64,
        held: Option<Held>,
    ) -> Result<Arc<Served>, Status> {
        self.expect_reached(revision).await?;
        let plan = || held.as_ref().map(|held| held.acquire(Resource::Plans));
        // Before it waits: a caller with many revisions is refused, instead of delaying others with one.
        let mut taken = None;
        if self.current.load(Ordering::Relaxed) != revision {
            taken = plan().transpose()?;
        }
        let kept = self.kept.clone().lock_owned();
        let kept = tokio::time::timeout(self.context.request_timeout(), kept).await;
        let mut kept = kept.map_err(|_| to_status(&earlier::busy()))?;
        if let Some(kept) = kept.as_mut().filter(|kept| kept.revision == revision) {
            kept.used = Instant::now();
            return Ok(kept.served.clone());
        }
        // Another revision may have come between.
        if taken.is_none() {
            taken = plan().transpose()?;
        }
        // Two would take twice the memory.
        *kept = None;
        self.current.store(revision, Ordering::Relaxed);
        let states = self.clone();
        let made = tokio::spawn(async move {
            let _plan = taken;
            let served = states.serve(revision).await.inspect_err(|_| {
                states.current.store(0, Ordering::Relaxed);
            });
            let served = Arc::new(served?);
            *kept = Some(Kept {
                revision,
                used: Instant::now(),
                served: served.clone(),
            });
            tokio::spawn(states.forget(revision));
            Ok(served)
        });
        ended(made).await
    }

    /// Refuses a revision that the cluster has not reached.
    async fn expect_reached(&self, revision: u64) -> Result<(), Status> {
        if revision <= self.applied().await? {
            return Ok(());
        }
        // This member may only be behind.
        let linearizable = ReadConsistency::Linearizable.into();
        self.context.state(linearizable).await?;
        match self.applied().await? {
            last if revision > last => Err(to_status(&earlier::not_reached(revision, last))),
            _ => Ok(()),
        }
    }

    /// Returns the last index that is applied here. It may be that of an entry without a command.
    async fn applied(&self) -> Result<u64, Status> {
        let context = &self.context;
        let state = context.bounded(context.handle().snapshot()).await?;
        let state = state.map_err(|error| context.urls().of_read(error))?;
        Ok(state.position.index)
    }

    /// Makes the state of a revision.
    async fn serve(&self, revision: u64) -> Result<Served, Status> {
        let context = &self.context;
        let turn = tokio::time::timeout(context.request_timeout(), context.history_turn());
        let _turn = turn.await.map_err(|_| to_status(&earlier::busy()))?;
        let past = context.archive().before(revision).await;
        let past = past.map_err(|error| to_status(&earlier::not_kept(&error)))?;
        let origin = Origin {
            cluster_id: context.cluster_id().to_owned(),
            membership: past.membership.clone(),
        };
        let (routes, stop) = ended(tokio::task::spawn_blocking(move || {
            let state = in_background(|| replayed(past));
            let state = state.map_err(|error| to_status(&earlier::broken(&error)))?;
            reader::serve(state, &origin).map_err(|error| to_status(&earlier::broken(&error)))
        }))
        .await?;
        Ok(Served {
            router: routes.into_axum_router(),
            _stop: stop.drop_guard(),
        })
    }

    /// Forgets a state when it was not read for a while.
    async fn forget(self: Arc<Self>, revision: u64) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(KEPT / 4) => {}
                () = self.context.stopping().cancelled() => {}
            }
            let mut kept = self.kept.lock().await;
            let is_used = kept
                .as_ref()
                .is_some_and(|kept| kept.revision == revision && kept.used.elapsed() < KEPT);
            if is_used && !self.context.stopping().is_cancelled() {
                continue;
            }
            if kept.as_ref().is_some_and(|kept| kept.revision == revision) {
                *kept = None;
                self.current.store(0, Ordering::Relaxed);
            }
            return;
        }
    }
}

/// Returns what a task returned; a panic goes on here.
async fn ended<T>(task: JoinHandle<Result<T, Status>>) -> Result<T, Status> {
    match task.await {
        Ok(done) => done,
        Err(end) if end.is_panic() => std::panic::resume_unwind(end.into_panic()),
        Err(_) => Err(Status::unavailable("this member is stopping")),
    }
}

/// Applies the entries behind an earlier state.
fn replayed(past: Past<Machine>) -> Result<Verified<Machine>, berth_replication::ReplayError> {
    let Past {
        mut replay,
        entries,
        membership: _,
    } = past;
    for entry in &entries {
        replay.apply(entry)?;
    }
    Ok(Verified {
        machine: replay.machine().clone(),
        position: replay.position(),
        commands: replay.commands(),
    })
}

/// Answers reads at earlier revisions in front of the services.
#[derive(Clone)]
pub(crate) struct Layer(Arc<States>);

impl Layer {
    /// Begins with no state.
    pub(crate) fn new(context: Context) -> Self {
        Self(Arc::new(States {
            context,
            kept: Arc::default(),
            current: AtomicU64::new(0),
        }))
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Answering<S>;

    fn layer(&self, inner: S) -> Answering<S> {
        Answering {
            inner,
            states: self.0.clone(),
        }
    }
}

/// Services behind the layer.
#[derive(Clone)]
pub(crate) struct Answering<S> {
    inner: S,
    states: Arc<States>,
}

type Answer = Result<Response<AxumBody>, Infallible>;

impl<S> Service<Request<AxumBody>> for Answering<S>
where
    S: Service<Request<AxumBody>, Response = Response<AxumBody>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<AxumBody>;
    type Error = Infallible;
    type Future = Either<S::Future, BoxFuture<'static, Answer>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<AxumBody>) -> Self::Future {
        match requested(&request) {
            None => Either::Left(self.inner.call(request)),
            Some(Ok(revision)) => {
                let states = self.states.clone();
                Either::Right(Box::pin(async move {
                    let answered = answer(&states, revision, request).await;
                    Ok(answered.unwrap_or_else(Status::into_http))
                }))
            }
            Some(Err(refused)) => Either::Right(Box::pin(async move { Ok(refused.into_http()) })),
        }
    }
}

/// Returns the revision that a request names; nothing if it names none.
fn requested<B>(request: &Request<B>) -> Option<Result<u64, Status>> {
    let value = request.headers().get(CONSISTENCY)?;
    let Ok(Consistency::Revision(revision)) = Consistency::parse(value.as_bytes()) else {
        // It is answered or refused behind this layer.
        return None;
    };
    let method = request.uri().path().trim_start_matches('/');
    let is_served = access::table::roles(method).next().is_some();
    let is_read = access::table::may(Role::Reader, method)
        && !WATCHES.contains(&method)
        && !NOT_OF_A_STATE.contains(&method);
    if is_served && !is_read {
        return Some(Err(not_a_read(method)));
    }
    let caller = access::caller(request.extensions());
    if caller.is_some_and(|caller| !access::table::may(caller.role, HISTORY)) {
        return Some(Err(access::not_yours(
            "states of earlier revisions are read by operators and readers",
        )));
    }
    Some(Ok(revision))
}

async fn answer(
    states: &Arc<States>,
    revision: u64,
    request: Request<AxumBody>,
) -> Result<Response<AxumBody>, Status> {
    let (mut head, body) = request.into_parts();
    // First, since a client has little time for its request, and the state may take longer.
    let body = body.collect().await;
    let body = body.map_err(|error| Status::from_error(error.into_inner()))?;
    let held = head.extensions.get::<Held>().cloned();
    let served = states.at(revision, held).await?;
    let stale = HeaderValue::from_static("stale");
    head.headers.insert(CONSISTENCY, stale);
    let request = Request::from_parts(head, AxumBody::from(body.to_bytes()));
    let answered = served.router.clone().call(request).await;
    let mut response = answered.unwrap_or_else(|never| match never {});
    // The reader is this member's.
    if response.headers().contains_key(MEMBER) {
        let member = HeaderValue::from(states.context.handle().leader().id);
        response.headers_mut().insert(MEMBER, member);
    }
    // What it still sends is of these services.
    response.extensions_mut().insert(served);
    Ok(response)
}

fn not_a_read(method: &str) -> Status {
    let message = format!("{method} does not read the state of a revision");
    let refusal = Refusal::new(Code::InvalidArgument, "REVISION_NOT_A_READ", message);
    to_status(
        &refusal
            .with("method", method)
            .with_hint("leave x-berth-consistency out of the request"),
    )
}
