//! The page of the cluster: HTTP/1.1 for browsers, of what the gRPC services answer.
//!
//! ```text
//!   request ─▶ name served? ─▶ Route ─▶ role may? ─▶ GET  ─▶ agents? ─▶ turn ─▶ services ─▶ blocking: HTML
//!                                 │                └ POST ─▶ of this page? ─▶ action ─▶ another view
//!                                 └ events ─▶ permit ─▶ watch ─▶ text/event-stream
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `reads` | what each view reads, by the methods of the services |
//! | `overview` | hosts and counts of a frozen state, for views that no single method answers |
//! | `confirm` | what the view that confirms an action reads |
//! | `actions` | actions, carried out for the person who confirmed them |
//! | `conductors`, `guests` | conductors, called for the caller; what agents know of guests |
//! | `forgery` | which requests are of this page's own forms |
//! | [`logins`], `login` | logins without a certificate in the browser, and their cookies |
//! | `stream` | changes as server-sent events |
//! | `response` | responses with the headers that all have |
//!
//! Not here: HTML ([`berth_page`]); slow clients and the number of connections ([`berth_process::http1`]).
//!
//! Invariant: every read and every action is one that the caller's role may have made over gRPC. Reads are of a
//! frozen state, and become HTML away from the replica's task. Actions are of forms of this member alone. Views,
//! streams and actions are bounded in number and time.

mod actions;
mod conductors;
mod confirm;
mod forgery;
mod guests;
mod login;
pub(crate) mod logins;
mod overview;
mod reads;
mod response;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use berth_domain::refusal::{self, Refusal};
use berth_page::action::{self, Action, Submission};
use berth_page::confirm as confirm_page;
use berth_page::frame::LoggedIn;
use berth_page::host_header::Names;
use berth_page::{Frame, Route, Source};
use berth_process::access::{self, table};
use berth_process::bounds::{self, Bounds, Key, Resource};
use berth_process::http1::{self, Limits};
use berth_process::server;
use berth_proto::status::to_status;
use berth_tls::material::Protocol;
use berth_tls::{Peer, Role, Tls};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tonic::codegen::http::header::HOST;
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::{Method, Request, Response, StatusCode};
use tonic::{Code, Status};

use crate::metrics::Failover;
use crate::service::{Context, of_own_state};
use actions::Actor;
use forgery::Seals;
use guests::{Guests, Known};
pub(crate) use login::refused as login_refused;
use logins::{Logins, Session};
use reads::{Reader, View};
use response::Content;

/// Connections at a time; a browser has up to six, one of which is a stream.
const CONNECTIONS_MAX: usize = 256;
/// Streams of changes at a time, of which one caller never has all.
const STREAMS_MAX: u64 = 64;
/// How many views are made at a time.
const VIEWS_MAX: usize = 4;
/// For how many views agents are called at a time, of which one caller never has all.
const CALLS_MAX: u64 = 32;
/// How long a view may take, with the wait for its turn.
const VIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a leader that a majority does not confirm is waited for, before its own state is shown.
const LEADER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client may take to send the head of a request, and to read a response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest body of a form.
const BODY_BYTES_MAX: usize = 4096;

/// The page of a member.
#[derive(Clone)]
pub(crate) struct Page {
    shared: Arc<Shared>,
}

struct Shared {
    context: Context,
    failover: Failover,
    names: Names,
    seals: Seals,
    /// Where browsers may log in instead of presenting a certificate.
    logins: Option<Arc<Logins>>,
    /// Whether callers are authenticated.
    is_authenticated: bool,
    turns: Semaphore,
    /// Of calls of agents.
    calls: Arc<Bounds>,
    /// Of streams.
    bounds: Arc<Bounds>,
    /// Ends streams.
    stop: CancellationToken,
}

/// How browsers get to the page.
#[derive(Clone, Debug)]
pub(crate) struct PageAccess {
    /// Its address, with a slash at the end.
    pub(crate) url: String,
    /// Whether it is served over TLS.
    pub(crate) is_encrypted: bool,
    /// Where browsers may log in instead of presenting a certificate.
    pub(crate) logins: Option<Arc<Logins>>,
}

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    (context, failover): (Context, Failover),
    names: Names,
    logins: Option<Arc<Logins>>,
    stop: CancellationToken,
) {
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        write_timeout: CLIENT_TIMEOUT,
        idle_timeout: CLIENT_TIMEOUT,
    };
    let Some(seals) = Seals::new() else {
        tracing::error!("the page is not served: the operating system has no random numbers");
        return;
    };
    let page = Page {
        shared: Arc::new(Shared {
            context,
            failover,
            names,
            seals,
            logins: logins.clone(),
            is_authenticated: tls.is_some(),
            turns: Semaphore::new(VIEWS_MAX),
            calls: Bounds::new(bounds::Limits {
                watches: CALLS_MAX,
                ..bounds::Limits::new(CONNECTIONS_MAX as u64)
            }),
            bounds: Bounds::new(bounds::Limits {
                watches: STREAMS_MAX,
                ..bounds::Limits::new(CONNECTIONS_MAX as u64)
            }),
            stop: stop.clone(),
        }),
    };
    let protocol = match logins {
        Some(_) => Protocol::HttpWithLogin,
        None => Protocol::Http,
    };
    let incoming = server::incoming(listener, tls, protocol);
    let answer = move |request: Request<Incoming>| {
        let page = page.clone();
        let (head, body) = request.into_parts();
        async move { page.answer(&head, body).await }
    };
    http1::listen(incoming, answer, limits, stop).await;
}

impl Page {
    async fn answer(&self, head: &Parts, body: Incoming) -> Response<Content> {
        if !self.is_served(head) {
            return response::failure(
                StatusCode::MISDIRECTED_REQUEST,
                "Not served under this name",
                "the page is served for loopback names, its own address, and the names in page_hosts",
                Some(
                    "use one of those, or add the name to page_hosts in the scheduler's configuration",
                ),
            );
        }
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if !is_read && head.method != Method::POST {
            return response::method_not_allowed("GET, HEAD, POST");
        }
        let Some(route) = Route::parse(head.uri.path(), head.uri.query()) else {
            return response::failure(
                StatusCode::NOT_FOUND,
                "Not found",
                "no view has this address",
                None,
            );
        };
        let caller = self.caller_of(head);
        if let Route::Login(link) = &route {
            return self.login(head, body, link).await;
        }
        if route == Route::Logout {
            return self.logout(head, body, &caller).await;
        }
        if let Err(status) = self.authorize(&caller, &route) {
            return match self.shared.logins {
                Some(_) if !caller.is_known() => login::required(),
                _ => response::refusal(&status),
            };
        }
        match &route {
            Route::Action(action) if !is_read => {
                let done = self.carry_out(head, body, action, &caller).await;
                match done {
                    Ok(()) => response::see_other(&confirm_page::after(action)),
                    Err(status) => response::refusal(&status),
                }
            }
            _ if !is_read => response::method_not_allowed("GET, HEAD"),
            Route::Asset(asset) => response::asset(*asset),
            Route::Events(_) if head.method == Method::HEAD => response::no_events(),
            Route::Events(query) => match self.events(query.clone(), caller).await {
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
            | Route::Console(_)
            | Route::Balance
            | Route::Audit(_)
            | Route::Action(_)
            | Route::Login(_)
            | Route::Logout
            | Route::WhyNot(_) => self.view(&route, caller).await,
        }
    }

    /// Returns who makes a request: the owner of the certificate that was presented, or of the one with which
    /// the browser was logged in.
    fn caller_of(&self, head: &Parts) -> Caller {
        let peer = head.extensions.get::<Peer>().cloned();
        let is_known = peer.as_ref().is_some_and(|peer| peer.identity.is_some());
        let logins = self.shared.logins.as_ref().filter(|_| !is_known);
        let session = logins.and_then(|logins| login::session_of(&head.headers, logins));
        Caller { peer, session }
    }

    /// Carries out an action that a form of this page requests.
    async fn carry_out(
        &self,
        head: &Parts,
        body: Incoming,
        action: &Action,
        caller: &Caller,
    ) -> Result<(), Status> {
        let refused = |status: Status| {
            access::record_refusal(caller.peer(), action.method(), &status);
            status
        };
        let submission = self.read_form(head, body).await.map_err(refused)?;
        let checked = self.shared.seals.check(&caller.key(), &submission.token);
        checked.map_err(|refusal| refused(to_status(&refusal)))?;
        Actor::new(&self.shared.context, caller.peer())
            .carry_out(action, &submission)
            .await
    }

    /// Reads a form that a page of the same origin has sent.
    async fn read_form(&self, head: &Parts, body: Incoming) -> Result<Submission, Status> {
        let checked = forgery::check_origin(&head.headers, self.shared.is_authenticated);
        checked.map_err(|refusal| to_status(&refusal))?;
        read_form(body).await
    }

    /// Returns whether the names that a request is for are served: the header, and the address in its
    /// first line where it has one.
    fn is_served(&self, head: &Parts) -> bool {
        let mut hosts = head.headers.get_all(HOST).iter();
        let host = hosts.next().map(|host| host.as_bytes());
        let names = &self.shared.names;
        let authority = head.uri.authority();
        let is_authority_served =
            authority.is_none_or(|authority| names.serves(Some(authority.as_str().as_bytes())));
        hosts.next().is_none() && names.serves(host) && is_authority_served
    }

    /// Checks that the caller may make every read of a view, and what it changes.
    fn authorize(&self, caller: &Caller, route: &Route) -> Result<(), Status> {
        // What everyone may load before a login.
        let is_public = matches!(route, Route::Asset(_)) && self.shared.logins.is_some();
        if !self.shared.is_authenticated || is_public {
            return Ok(());
        }
        let now = berth_tls::identity::now();
        let mut methods = route.methods().iter().copied().chain(route.change());
        methods.try_for_each(|method| {
            let authorized = access::authorize(caller.peer(), method, now);
            // Those who have not logged in are sent to the login.
            if let Err(refused) = &authorized
                && caller.is_known()
            {
                access::record_refusal(caller.peer(), method, refused);
            }
            authorized
        })
    }

    /// Returns whether the caller's role may call all of these methods.
    fn may(&self, peer: Option<&Peer>, mut methods: impl Iterator<Item = &'static str>) -> bool {
        let role: Option<Role> = peer
            .and_then(|peer| peer.identity.as_ref())
            .map(|identity| identity.role);
        !self.shared.is_authenticated
            || role.is_some_and(|role| methods.all(|method| table::may(role, method)))
    }

    /// Returns whether the caller may have a VM placed on trial.
    fn may_validate(&self, peer: Option<&Peer>) -> bool {
        let route = Route::WhyNot(berth_page::route::WhyNotQuery::default());
        self.may(peer, route.methods().iter().copied())
    }

    /// Returns whether the caller may have every action carried out.
    fn may_change(&self, peer: Option<&Peer>) -> bool {
        let actions = action::all("").into_iter();
        self.may(peer, actions.map(|action| action.method()))
    }

    async fn view(&self, route: &Route, caller: Caller) -> Response<Content> {
        let made = tokio::time::timeout(VIEW_TIMEOUT, self.html(route, caller)).await;
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

    async fn html(&self, route: &Route, caller: Caller) -> Result<String, Status> {
        let Shared { context, calls, .. } = &*self.shared;
        let guests = Guests::for_caller(context, calls, caller.peer());
        let known = guests.known(route).await;
        // It is closed nowhere.
        let _turn = self.shared.turns.acquire().await;
        let may_validate = self.may_validate(caller.peer());
        let may_change = self.may_change(caller.peer());
        let token = self.shared.seals.token(&caller.key());
        let logged_in = caller.session.as_ref().and_then(|session| {
            let identity = session.peer.identity.as_ref()?;
            Some(LoggedIn {
                principal: identity.principal(),
                token: token.clone(),
            })
        });
        let (view, source) = self.read(route, caller.peer(), token, known).await?;
        let frame = Frame {
            cluster_id: self.shared.context.cluster_id().to_owned(),
            member: self.shared.context.handle().leader().id,
            revision: view.revision,
            source,
            may_validate,
            may_change,
            logged_in,
            topic: route.topic(),
        };
        let rendered = spawn_blocking(move || (view.render)(&frame)).await;
        rendered.map_err(|error| Status::internal(error.to_string()))
    }

    /// Reads a view from the leader if this member is it, and else from this member's own state.
    async fn read(
        &self,
        route: &Route,
        peer: Option<&Peer>,
        token: String,
        known: Known,
    ) -> Result<(View, Source), Status> {
        let Shared {
            context, failover, ..
        } = &*self.shared;
        let reader = Reader {
            context,
            failover,
            peer: peer.cloned(),
            token,
            known,
        };
        if context.handle().leader().role.deciding {
            let limit = match route {
                // What takes long is not waited for twice.
                Route::Failover | Route::WhyNot(_) | Route::VmHistory(_) | Route::Balance => {
                    VIEW_TIMEOUT
                }
                Route::Asset(_)
                | Route::Cluster
                | Route::Hosts(_)
                | Route::Host(_)
                | Route::Vms(_)
                | Route::Vm(_)
                | Route::Console(_)
                | Route::Audit(_)
                | Route::Action(_)
                | Route::Login(_)
                | Route::Logout
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
        caller: Caller,
    ) -> Result<stream::Events, Status> {
        let key = caller.peer().map_or(Key::Local, Key::of);
        let Caller { peer, session } = caller;
        let logins = self.shared.logins.clone();
        let session = logins.zip(session);
        let peer = match &session {
            Some((_, session)) => Some(session.peer.clone()),
            None => peer,
        };
        let bound = self.shared.bounds.caller(key);
        let permit = bound.acquire(Resource::Watches, 1);
        let permit = permit.map_err(|refused| {
            let status = refused.to_status();
            bound.log(&status);
            status
        })?;
        let checked = peer.filter(|_| self.shared.is_authenticated);
        let following = stream::Following {
            context: self.shared.context.clone(),
            topic: query.topic,
            checked,
            session,
            stop: self.shared.stop.clone(),
            _permit: permit,
        };
        following.open(query.after).await
    }
}

/// Who makes a request.
struct Caller {
    /// The connection.
    peer: Option<Peer>,
    /// Where the browser is logged in, and presents no certificate.
    session: Option<Session>,
}

impl Caller {
    /// Returns who the request is authorized as.
    fn peer(&self) -> Option<&Peer> {
        match &self.session {
            Some(session) => Some(&session.peer),
            None => self.peer.as_ref(),
        }
    }

    fn is_known(&self) -> bool {
        self.peer().is_some_and(|peer| peer.identity.is_some())
    }

    /// Returns what the caller's forms are sealed for.
    fn key(&self) -> String {
        let identity = self.peer.as_ref().and_then(|peer| peer.identity.as_ref());
        match (&self.session, identity) {
            (Some(session), _) => format!("session {}", session.key()),
            (None, Some(identity)) => format!("certificate {}", identity.fingerprint),
            (None, None) => String::new(),
        }
    }
}

/// Reads the body of a form.
async fn read_form(body: Incoming) -> Result<Submission, Status> {
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    let body = tokio::time::timeout(CLIENT_TIMEOUT, body).await;
    let body = body.ok().and_then(Result::ok);
    let submission = body.and_then(|body| Submission::read(&body.to_bytes()));
    submission.ok_or_else(|| {
        let message = format!(
            "the body is no form: it is not complete within {} s, has more than {BODY_BYTES_MAX} bytes, or is not \
             UTF-8",
            CLIENT_TIMEOUT.as_secs()
        );
        to_status(&Refusal::new(refusal::Code::InvalidArgument, "INVALID_FORM", message))
    })
}

/// Returns whether another answer is had without the leader.
fn is_of_leadership(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}
