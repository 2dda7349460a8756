//! Changes as server-sent events: the watch of the gRPC service, without what changed.
//!
//! ```text
//!   EventService.Watch ─▶ concerns the view? ─▶ "change" with the revision, at most one each PAUSE
//!                                           └─▶ "alive" every few seconds
//!                      ─▶ its end           ─▶ "end" with the reason
//! ```
//!
//! A view is loaded again as a whole, so an event says only that it is due; what it shows is read and
//! authorized as ever.
//!
//! Invariant: a stream ends when its client is gone, the member stops, or the caller's certificate or login is no
//! longer valid; after a change of the view there is an event, or the end of the stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use berth_page::route::Topic;
use berth_process::bounds::Permit;
use berth_process::{access, terminal};
use berth_proto::event::v1::event_service_server::EventService as _;
use berth_proto::event::v1::{Event, Kind, WatchRequest, WatchResponse, event, record};
use berth_proto::status::from_status;
use berth_tls::Peer;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

use super::logins::{Logins, Session};
use super::response::Part;
use crate::service::{Context, EventApi, of_own_state};

/// The least time between two changes.
const PAUSE: Duration = Duration::from_millis(50);
/// How often something is sent while nothing changes.
const ALIVE: Duration = Duration::from_secs(5);
/// Events that are queued for a slow client.
const WAITING_MAX: usize = 4;
/// The method that a stream is of.
const WATCH: &str = "berth.event.v1.EventService/Watch";

/// The events of a stream.
pub(super) type Events = ReceiverStream<Part>;

type Messages =
    <EventApi as berth_proto::event::v1::event_service_server::EventService>::WatchStream;

/// A stream that is to be opened.
pub(super) struct Following {
    pub(super) context: Context,
    pub(super) topic: Topic,
    /// The caller, where it is authenticated.
    pub(super) checked: Option<Peer>,
    /// The login that the stream belongs to, if it belongs to one.
    pub(super) session: Option<(Arc<Logins>, Session)>,
    pub(super) stop: CancellationToken,
    /// Held as long as the stream goes on.
    pub(super) _permit: Permit,
}

impl Following {
    /// Opens it after a revision.
    pub(super) async fn open(self, after: u64) -> Result<Events, Status> {
        // From 0 on a watch begins with everything there is.
        let (after, begins_with_change) = match self.watch(after.max(1)).await {
            Ok(messages) => return Ok(self.follow(messages, false)),
            Err(status) if status.code() == tonic::Code::OutOfRange => {
                (self.context.feed().revision(), true)
            }
            Err(status) => return Err(status),
        };
        let messages = self.watch(after.max(1)).await?;
        Ok(self.follow(messages, begins_with_change))
    }

    async fn watch(&self, after: u64) -> Result<Messages, Status> {
        let request = WatchRequest {
            kinds: kinds(&self.topic)
                .iter()
                .map(|kind| i32::from(*kind))
                .collect(),
            names: Vec::new(),
            after_revision: after,
            progress_interval: None,
        };
        let api = EventApi(self.context.clone());
        let watched = api.watch(Request::new(request));
        let response = match self.context.handle().leader().role.deciding {
            true => watched.await,
            false => of_own_state(&self.context, watched).await.0,
        };
        response.map(tonic::Response::into_inner)
    }

    fn follow(self, messages: Messages, begins_with_change: bool) -> Events {
        let (parts, events) = mpsc::channel(WAITING_MAX);
        tokio::spawn(async move {
            let end = self.send_all(messages, begins_with_change, &parts).await;
            if let Err(Ended::Because(why)) = end {
                // The client may have gone, and none other waits for this.
                let _ = parts.send(part("end", &why)).await;
            }
        });
        ReceiverStream::new(events)
    }

    async fn send_all(
        &self,
        mut messages: Messages,
        begins_with_change: bool,
        parts: &mpsc::Sender<Part>,
    ) -> Result<Infallible, Ended> {
        let mut revision = 0;
        let mut is_due = begins_with_change;
        let mut alive_at = Instant::now();
        let mut change_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = parts.closed() => return Err(Ended::ClientGone),
                () = self.stop.cancelled() => return Err(because("the member stops")),
                () = sleep_until(change_at), if is_due => {
                    is_due = false;
                    send(parts, "change", revision).await?;
                    change_at = Instant::now() + PAUSE;
                }
                () = sleep_until(alive_at) => {
                    self.check()?;
                    send(parts, "alive", revision).await?;
                    alive_at = Instant::now() + ALIVE;
                }
                message = messages.next() => {
                    let message = self.message(message)?;
                    revision = revision.max(message.revision);
                    is_due |= message.events.iter().any(|event| concerns(&self.topic, event));
                }
            }
        }
    }

    fn message(
        &self,
        message: Option<Result<WatchResponse, Status>>,
    ) -> Result<WatchResponse, Ended> {
        match message {
            Some(Ok(message)) => Ok(message),
            Some(Err(status)) => Err(because(&from_status(&status).message)),
            None => Err(because("the member ended the watch")),
        }
    }

    /// Checks that the caller still may follow.
    fn check(&self) -> Result<(), Ended> {
        if let Some((logins, session)) = &self.session
            && !logins.goes_on(session, Instant::now())
        {
            return Err(because("the login has ended"));
        }
        let Some(peer) = &self.checked else {
            return Ok(());
        };
        let authorized = access::authorize(Some(peer), WATCH, berth_tls::identity::now());
        authorized.map_err(|status| because(status.message()))
    }
}

/// Why a stream ends.
enum Ended {
    ClientGone,
    Because(String),
}

fn because(why: &str) -> Ended {
    Ended::Because(why.to_owned())
}

async fn send(parts: &mpsc::Sender<Part>, event: &str, revision: u64) -> Result<(), Ended> {
    let sent = parts.send(part(event, &revision.to_string())).await;
    sent.map_err(|_| Ended::ClientGone)
}

/// Returns an event; its data is one line.
fn part(event: &str, data: &str) -> Part {
    let text = format!("event: {event}\ndata: {}\n\n", terminal::escape(data));
    Ok(hyper::body::Frame::data(Bytes::from(text)))
}

/// Returns the kinds of records that a view is made of; none stands for all of them.
fn kinds(topic: &Topic) -> &'static [Kind] {
    match topic {
        Topic::Cluster | Topic::Vm(_) => &[],
        Topic::Hosts | Topic::Host(_) => &[Kind::Host, Kind::Claim],
        Topic::Vms => &[Kind::Vm],
    }
}

/// Returns whether an event changes a view.
fn concerns(topic: &Topic, event: &Event) -> bool {
    let (host, vm) = match topic {
        Topic::Cluster | Topic::Hosts | Topic::Vms => return true,
        Topic::Host(name) => (Some(name), None),
        Topic::Vm(name) => (None, Some(name)),
    };
    let is = |name: Option<&String>, resource: &str| {
        name.is_some_and(|name| {
            resource
                .split_once('/')
                .is_some_and(|(_, short)| short == name)
        })
    };
    let record = match &event.change {
        Some(event::Change::Put(record)) => record.record.as_ref(),
        // Of a claim that is gone it is not known where it was.
        Some(event::Change::Deleted(_)) | None => {
            return is(host, &event.name)
                || is(vm, &event.name)
                || !matches!(event.kind(), Kind::Host | Kind::Vm);
        }
    };
    match record {
        Some(record::Record::Host(record)) => is(host, &record.name),
        Some(record::Record::Claim(claim)) => is(host, &claim.host) || is(vm, &claim.vm),
        Some(record::Record::Vm(record)) => is(vm, &record.name),
        Some(record::Record::Migration(migration)) => is(vm, &migration.vm),
        Some(record::Record::Operation(operation)) => is(vm, &operation.vm),
        Some(record::Record::Audit(_)) | None => false,
    }
}
