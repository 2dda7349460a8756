//! The page of the cluster: HTTP/1.1 for browsers, of what the gRPC services answer.
//!
//! ```text
//!   request ─▶ name served? ─▶ GET? ─▶ Route ─▶ role may? ─▶ turn ─▶ services ─▶ blocking: HTML
//!                                         └ events ─▶ permit ─▶ watch ─▶ text/event-stream
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `reads` | what each view reads, by the methods of the services |
//! | `overview` | hosts and counts of a frozen state, for views that no single method answers |
//! | `stream` | changes as server-sent events |
//! | `response` | responses with the headers that all have |
//!
//! Not here: HTML ([`berth_page`]); slow clients and the number of connections ([`berth_process::http1`]).
//!
//! Invariant: it changes nothing. Every read is one that the caller's role may make over gRPC, is made of a
//! frozen state, and becomes HTML away from the replica's task. Views and streams are bounded in number and
//! time.

mod overview;
mod reads;
mod response;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use berth_page::host_header::Names;
use berth_page::{Frame, Route, Source};
use berth_process::access::{self, table};
use berth_process::bounds::{self, Bounds, Key, Resource};
use berth_process::http1::{self, Limits};
use berth_process::server;
use berth_tls::material::Protocol;
use berth_tls::{Peer, Role, Tls};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::header::HOST;
use tonic::codegen::http::{Method, Request, Response, StatusCode};
use tonic::{Code, Status};

use crate::metrics::Failover;
use crate::service::{Context, of_own_state};
use reads::{Reader, View};
use response::Content;

/// Connections at a time; a browser has up to six, one of which is a stream.
const CONNECTIONS_MAX: usize = 256;
/// Streams of changes at a time, of which one caller never has all.
const STREAMS_MAX: u64 = 64;
/// How many views are made at a time.
const VIEWS_MAX: usize = 4;
/// How long a view may take, with the wait for its turn.
const VIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a leader that a majority does not confirm is waited for, before its own state is shown.
const LEADER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client may take to send the head of a request, and to read a response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The page of a member.
#[derive(Clone)]
pub(crate) struct Page {
    shared: Arc<Shared>,
}

struct Shared {
    context: Context,
    failover: Failover,
    names: Names,
    /// Whether callers are authenticated.
    is_authenticated: bool,
    turns: Semaphore,
    /// Of streams.
    bounds: Arc<Bounds>,
    /// Ends streams.
    stop: CancellationToken,
}

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    (context, failover): (Context, Failover),
    names: Names,
    stop: CancellationToken,
) {
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        write_timeout: CLIENT_TIMEOUT,
        idle_timeout: CLIENT_TIMEOUT,
    };
    let page = Page {
        shared: Arc::new(Shared {
            context,
            failover,
            names,
            is_authenticated: tls.is_some(),
            turns: Semaphore::new(VIEWS_MAX),
            bounds: Bounds::new(bounds::Limits {
                watches: STREAMS_MAX,
                ..bounds::Limits::new(CONNECTIONS_MAX as u64)
            }),
            stop: stop.clone(),
        }),
    };
    let incoming = server::incoming(listener, tls, Protocol::Http);
    let answer = move |request: Request<_>| {
        let page = page.clone();
        let (head, _) = request.into_parts();
        async move { page.answer(Request::from_parts(head, ())).await }
    };
    http1::listen(incoming, answer, limits, stop).await;
}

impl Page {
    async fn answer(&self, request: Request<()>) -> Response<Content> {
        if !self.is_served(&request) {
            return response::failure(
                StatusCode::MISDIRECTED_REQUEST,
                "Not served under this name",
                "the page is served for loopback names, its own address, and the names in page_hosts",
                Some(
                    "use one of those, or add the name to page_hosts in the scheduler's configuration",
                ),
            );
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return response::method_not_allowed();
        }
        let uri = request.uri();
        let Some(route) = Route::parse(uri.path(), uri.query()) else {
            return response::failure(
                StatusCode::NOT_FOUND,
                "Not found",
                "no view has this address",
                None,
            );
        };
        let peer = request.extensions().get::<Peer>().cloned();
        if let Err(status) = self.authorize(peer.as_ref(), &route) {
            return response::refusal(&status);
        }
        match &route {
            Route::Asset(asset) => response::asset(*asset),
            Route::Events(_) if *request.method() == Method::HEAD => response::no_events(),
            Route::Events(query) => match self.events(query.clone(), peer).await {
                Ok(stream) => response::events(stream),
                Err(status) => response::refusal(&status),
            },
            Route::Cluster
            | Route::Failover
            | Route::Hosts(_)
            | Route::Host(_)
            | Route::Vms(_)
            | Route::Vm(_)
            | Route::VmHistory(_)
            | Route::WhyNot(_) => self.view(&route, peer).await,
        }
    }

    /// Returns whether the names that a request is for are served: the header, and the address in its
    /// first line where it has one.
    fn is_served(&self, request: &Request<()>) -> bool {
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = hosts.next().map(|host| host.as_bytes());
        let names = &self.shared.names;
        let authority = request.uri().authority();
        let is_authority_served =
            authority.is_none_or(|authority| names.serves(Some(authority.as_str().as_bytes())));
        hosts.next().is_none() && names.serves(host) && is_authority_served
    }

    /// Checks that the caller may make every read of a view.
    fn authorize(&self, peer: Option<&Peer>, route: &Route) -> Result<(), Status> {
        if !self.shared.is_authenticated {
            return Ok(());
        }
        let now = berth_tls::identity::now();
        let mut methods = route.methods().iter();
        methods.try_for_each(|method| access::authorize(peer, method, now))
    }

    /// Returns whether the caller may have a VM placed on trial.
    fn may_validate(&self, peer: Option<&Peer>) -> bool {
        let role: Option<Role> = peer
            .and_then(|peer| peer.identity.as_ref())
            .map(|identity| identity.role);
        let route = Route::WhyNot(berth_page::route::WhyNotQuery::default());
        let may = |role| {
            route
                .methods()
                .iter()
                .all(|method| table::may(role, method))
        };
        !self.shared.is_authenticated || role.is_some_and(may)
    }

    async fn view(&self, route: &Route, peer: Option<Peer>) -> Response<Content> {
        let made = tokio::time::timeout(VIEW_TIMEOUT, self.html(route, peer)).await;
        match made {
            Ok(Ok(html)) => response::html(StatusCode::OK, html),
            Ok(Err(status)) => response::refusal(&status),
            Err(_) => response::failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "No answer in time",
                "too many views are requested at once, or the member is busy",
                Some("load the page again"),
            ),
        }
    }

    async fn html(&self, route: &Route, peer: Option<Peer>) -> Result<String, Status> {
        // It is closed nowhere.
        let _turn = self.shared.turns.acquire().await;
        let may_validate = self.may_validate(peer.as_ref());
        let (view, source) = self.read(route, peer).await?;
        let frame = Frame {
            cluster_id: self.shared.context.cluster_id().to_owned(),
            member: self.shared.context.handle().leader().id,
            revision: view.revision,
            source,
            may_validate,
            topic: route.topic(),
        };
        let rendered = spawn_blocking(move || (view.render)(&frame)).await;
        rendered.map_err(|error| Status::internal(error.to_string()))
    }

    /// Reads a view from the leader if this member is it, and else from this member's own state.
    async fn read(&self, route: &Route, peer: Option<Peer>) -> Result<(View, Source), Status> {
        let Shared {
            context, failover, ..
        } = &*self.shared;
        let reader = Reader {
            context,
            failover,
            peer,
        };
        if context.handle().leader().role.deciding {
            let limit = match route {
                // What takes long is not waited for twice.
                Route::Failover | Route::WhyNot(_) | Route::VmHistory(_) => VIEW_TIMEOUT,
                Route::Asset(_)
                | Route::Cluster
                | Route::Hosts(_)
                | Route::Host(_)
                | Route::Vms(_)
                | Route::Vm(_)
                | Route::Events(_) => LEADER_TIMEOUT,
            };
            match tokio::time::timeout(limit, reader.view(route)).await {
                Ok(Ok(view)) => return Ok((view, Source::Leader)),
                Ok(Err(status)) if !is_of_leadership(&status) => return Err(status),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        let (view, staleness) = of_own_state(context, reader.view(route)).await;
        let source = Source::Own {
            age: staleness.and_then(|staleness| staleness.age),
            leader: staleness.and_then(|staleness| staleness.leader),
        };
        Ok((view?, source))
    }

    async fn events(
        &self,
        query: berth_page::route::EventsQuery,
        peer: Option<Peer>,
    ) -> Result<stream::Events, Status> {
        let key = peer.as_ref().map_or(Key::Local, Key::of);
        let caller = self.shared.bounds.caller(key);
        let permit = caller.acquire(Resource::Watches, 1);
        let permit = permit.map_err(|refused| {
            let status = refused.to_status();
            caller.log(&status);
            status
        })?;
        let checked = peer.filter(|_| self.shared.is_authenticated);
        let following = stream::Following {
            context: self.shared.context.clone(),
            topic: query.topic,
            checked,
            stop: self.shared.stop.clone(),
            _permit: permit,
        };
        following.open(query.after).await
    }
}

/// Returns whether another answer is had without the leader.
fn is_of_leadership(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}
