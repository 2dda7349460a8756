//! `berth.event.v1.EventService`: a stream of changes without gaps.
//!
//! A watch reads the feed at its own pace: unread events stay there, stored once for all watches.
//! A client that falls behind the feed's retention gets an error; one that stops reading is cut off.
//!
//! Invariant: every change up to the revision of a message was sent, and revisions never go back.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use berth_domain::event::{Change, Event, Kind, Name, Record};
use berth_domain::refusal::{Code, Refusal};
use berth_process::bounds::Held;
use berth_proto::convert::event::read_name;
use berth_proto::convert::{Invalid, field};
use berth_proto::event::v1;
use berth_proto::event::v1::event_service_server::EventService;
use berth_proto::event::v1::watch_response::Phase;
use berth_proto::status::to_status;
use berth_proto::types::v1::ReadConsistency;
use berth_state::State;
use prost::Message as _;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::messages::Messages;
use super::{history, refusal, stale};
use crate::feed::Part;

/// How many bytes of events a message has at most, unless one alone has more.
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Messages that are queued for a slow client.
const WAITING_MAX: usize = 4;

/// Maximum number of names in a request.
const NAMES_MAX: usize = 100;

const PROGRESS_DEFAULT_MS: u64 = 10_000;
const PROGRESS_MS_MIN: u64 = 100;
const PROGRESS_MS_MAX: u64 = 3_600_000;

type Message = v1::WatchResponse;

/// Serves `EventService`.
pub(crate) struct EventApi(pub(crate) Context);

#[tonic::async_trait]
impl EventService for EventApi {
    type WatchStream = Messages<Message>;
    type GetHistoryStream = Messages<v1::GetHistoryResponse>;

    async fn get_history(
        &self,
        request: Request<v1::GetHistoryRequest>,
    ) -> Result<Response<Self::GetHistoryStream>, Status> {
        history::get(self.0.clone(), request).await
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let held = Held::of(&request);
        let wire = request.into_inner();
        let after = wire.after_revision;
        let filter = Filter::read(wire)?;
        let snapshot = match after {
            0 => Some(self.0.state(ReadConsistency::Linearizable.into()).await?),
            after => {
                self.reached(after).await?;
                None
            }
        };
        if let Some(held) = &held {
            held.take_over();
        }
        let (messages, stream) = mpsc::channel(WAITING_MAX);
        let (end, ended) = oneshot::channel();
        let watching = Watching {
            patience: self.0.request_timeout(),
            context: self.0.clone(),
            messages,
            filter: Arc::new(filter),
            sent_revision: after,
            last_sent: Instant::now(),
            _held: held,
        };
        tokio::spawn(async move {
            if let Some(status) = watching.run(snapshot).await {
                // The client may have gone.
                let _ = end.send(status);
            }
        });
        Ok(Response::new(Messages {
            messages: ReceiverStream::new(stream),
            ended,
        }))
    }
}

impl EventApi {
    /// Refuses a revision after which changes are not kept, or that never was.
    async fn reached(&self, after: u64) -> Result<(), Status> {
        let feed = self.0.feed();
        feed.events(after).map_err(|refusal| to_status(&refusal))?;
        if after <= feed.revision() {
            return Ok(());
        }
        // This member may only be behind: a linearizable read returns the cluster's revision.
        let state = self.0.state(ReadConsistency::Linearizable.into()).await?;
        if after <= state.revision() {
            return Ok(());
        }
        let reached = state.revision();
        if stale::is_requested() {
            // Of the cluster's revision this one says nothing.
            return Err(stale::behind(after, reached));
        }
        Err(to_status(
            &Refusal::new(
                Code::OutOfRange,
                "REVISION_NOT_REACHED",
                format!("the cluster has not reached revision {after}: it is at {reached}"),
            )
            .with_hint("it is of another cluster, or of one that was restored: watch from 0")
            .with("last_revision", reached),
        ))
    }
}

/// The records that a watch selects.
struct Filter {
    kinds: BTreeSet<Kind>,
    /// Empty: all of those kinds.
    names: BTreeSet<Name>,
    progress: Duration,
}

impl Filter {
    fn read(wire: v1::WatchRequest) -> Result<Self, Invalid> {
        field::bounded(wire.kinds.len(), "kinds", NAMES_MAX)?;
        field::bounded(wire.names.len(), "names", NAMES_MAX)?;
        let names_audit = wire
            .names
            .iter()
            .any(|name| name.starts_with("auditEntries/"));
        let mut kinds = BTreeSet::new();
        for (at, kind) in wire.kinds.into_iter().enumerate() {
            kinds.insert(field::choice::<v1::Kind, Kind>(
                kind,
                &format!("kinds[{at}]"),
            )?);
        }
        if kinds.is_empty() {
            let all = Kind::ALL.into_iter();
            // Audit entries are not part of the state that clients manage.
            kinds.extend(all.filter(|kind| *kind != Kind::Audit || names_audit));
        }
        let mut names = BTreeSet::new();
        for (at, name) in wire.names.iter().enumerate() {
            let field = format!("names[{at}]");
            let name = read_name(name, &field)?;
            if !kinds.contains(&name.kind()) {
                return Err(Invalid::new(field, "must be of one of the requested kinds"));
            }
            names.insert(name);
        }
        let progress = field::optional_duration_ms(wire.progress_interval, "progress_interval")?
            .unwrap_or(PROGRESS_DEFAULT_MS);
        if !(PROGRESS_MS_MIN..=PROGRESS_MS_MAX).contains(&progress) {
            return Err(Invalid::new(
                "progress_interval",
                "must be 100 milliseconds to 1 hour",
            ));
        }
        Ok(Self {
            kinds,
            names,
            progress: Duration::from_millis(progress),
        })
    }

    fn matches(&self, name: &Name) -> bool {
        if self.names.is_empty() {
            return self.kinds.contains(&name.kind());
        }
        self.names.contains(name)
    }

    /// Returns the selected records of a state.
    fn records<'s>(&'s self, state: &'s State) -> Box<dyn Iterator<Item = Record> + Send + 's> {
        if !self.names.is_empty() {
            return Box::new(self.names.iter().filter_map(|name| find(state, name)));
        }
        Box::new(self.kinds.iter().flat_map(|kind| all(state, *kind)))
    }
}

fn find(state: &State, name: &Name) -> Option<Record> {
    match name {
        Name::Vm(name) => state.vm(name).cloned().map(Record::Vm),
        Name::Migration(id) => state.migration(*id).cloned().map(Record::Migration),
        Name::Host(name) => state.host(name).map(|view| Record::Host(view.host.clone())),
        Name::Claim(id) => state.claim(*id).cloned().map(Record::Claim),
        Name::Operation(id) => state.operation(*id).cloned().map(Record::Operation),
        Name::Audit(revision) => state.audit().get(revision).cloned().map(Record::Audit),
    }
}

fn all(state: &State, kind: Kind) -> Box<dyn Iterator<Item = Record> + Send + '_> {
    match kind {
        Kind::Vm => Box::new(state.vms().values().cloned().map(Record::Vm)),
        Kind::Migration => Box::new(state.migrations().values().cloned().map(Record::Migration)),
        Kind::Host => Box::new(state.hosts().values().map(|v| Record::Host(v.host.clone()))),
        Kind::Claim => Box::new(state.claims().values().cloned().map(Record::Claim)),
        Kind::Operation => Box::new(state.operations().values().cloned().map(Record::Operation)),
        Kind::Audit => Box::new(state.audit().values().cloned().map(Record::Audit)),
    }
}

/// Why a watch ends.
enum Ended {
    /// The client closed the stream.
    Closed,
    /// The watch is refused.
    Refused(Box<Refusal>),
    Stopping,
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Events that go into one message.
#[derive(Default)]
struct Piece {
    events: Vec<v1::Event>,
    bytes: usize,
}

impl Piece {
    /// Adds an event; returns those before it where they are enough for a message.
    fn push(&mut self, event: v1::Event) -> Option<Vec<v1::Event>> {
        let bytes = event.encoded_len();
        let full = (!self.events.is_empty() && self.bytes + bytes > MESSAGE_BYTES_MAX)
            .then(|| std::mem::take(self).events);
        self.bytes += bytes;
        self.events.push(event);
        full
    }
}

struct Watching {
    context: Context,
    messages: mpsc::Sender<Message>,
    filter: Arc<Filter>,
    /// The revision up to which everything was sent, including the next message.
    sent_revision: u64,
    last_sent: Instant,
    /// Maximum time for a client to take a message.
    patience: Duration,
    /// Held as long as the watch goes on, which may notice late that its client is gone.
    _held: Option<Held>,
}

impl Watching {
    /// Sends all events; returns the final status, unless the client is gone.
    async fn run(mut self, snapshot: Option<State>) -> Option<Status> {
        match self.send_all(snapshot).await {
            Err(Ended::Closed) => None,
            Err(Ended::Refused(refusal)) => Some(to_status(&refusal)),
            Ok(()) | Err(Ended::Stopping) => Some(refusal::stopping()),
        }
    }

    /// Sends all events until the replica stops.
    async fn send_all(&mut self, snapshot: Option<State>) -> Result<(), Ended> {
        let context = self.context.clone();
        let mut lost = pin!(leader_lost(&context));
        // Directly behind the snapshot: a client that replaces all that it has by the snapshot would
        // lose changes that came before this.
        let mut is_in_step = snapshot.is_some();
        if let Some(state) = snapshot {
            self.snapshot(state).await?;
            self.send(Phase::InStep, Vec::new()).await?;
        }
        loop {
            let part = context.feed().events(self.sent_revision)?;
            self.changes(&part).await?;
            if part.is_more {
                self.send_progress().await?;
                continue;
            }
            if !is_in_step {
                is_in_step = true;
                self.send(Phase::InStep, Vec::new()).await?;
            }
            tokio::select! {
                biased;
                () = self.messages.closed() => return Err(Ended::Closed),
                () = context.stopping().cancelled() => return Err(Ended::Stopping),
                () = &mut lost => return Err(cut_off().into()),
                () = tokio::time::sleep_until(self.silent_until()) => {}
                known = context.feed().beyond(self.sent_revision) => if !known {
                    return Ok(());
                },
            }
            self.send_progress().await?;
        }
    }

    /// Sends the records of a frozen state.
    async fn snapshot(&mut self, state: State) -> Result<(), Ended> {
        let revision = state.revision();
        let filter = self.filter.clone();
        let mut piece = Piece::default();
        for record in filter.records(&state) {
            let change = Change::Put(record);
            let event = Event { revision, change };
            if let Some(full) = piece.push((&event).into()) {
                self.send(Phase::Snapshot, full).await?;
            }
        }
        if !piece.events.is_empty() {
            self.send(Phase::Snapshot, piece.events).await?;
        }
        self.sent_revision = revision;
        Ok(())
    }

    /// Sends the selected changes.
    async fn changes(&mut self, part: &Part) -> Result<(), Ended> {
        let filter = self.filter.clone();
        let mut piece = Piece::default();
        for revision in &part.revisions {
            let changes = revision.changes.iter();
            for changed in changes.filter(|changed| filter.matches(changed.name())) {
                let event = Event {
                    revision: revision.revision,
                    change: changed.read()?,
                };
                // This message may hold a part of this revision, so it is not complete yet.
                if let Some(full) = piece.push((&event).into()) {
                    self.send(Phase::Changes, full).await?;
                }
            }
            self.sent_revision = revision.revision;
        }
        self.sent_revision = part.revision;
        if !piece.events.is_empty() {
            self.send(Phase::Changes, piece.events).await?;
        }
        Ok(())
    }

    fn silent_until(&self) -> Instant {
        self.last_sent + self.filter.progress
    }

    /// Sends the current revision, if nothing was sent for the progress interval.
    async fn send_progress(&mut self) -> Result<(), Ended> {
        match Instant::now() < self.silent_until() {
            true => Ok(()),
            false => self.send(Phase::Progress, Vec::new()).await,
        }
    }

    async fn send(&mut self, phase: Phase, events: Vec<v1::Event>) -> Result<(), Ended> {
        let message = Message {
            phase: phase.into(),
            revision: self.sent_revision,
            events,
        };
        let sent = tokio::select! {
            sent = self.messages.send_timeout(message, self.patience) => sent,
            () = self.context.stopping().cancelled() => return Err(Ended::Stopping),
        };
        match sent {
            Ok(()) => {
                self.last_sent = Instant::now();
                Ok(())
            }
            Err(SendTimeoutError::Closed(_)) => Err(Ended::Closed),
            Err(SendTimeoutError::Timeout(_)) => Err(too_slow(self.patience).into()),
        }
    }
}

/// Waits until this member has had no leader for so long that it may be partitioned from the others,
/// whose changes it would miss.
async fn leader_lost(context: &Context) {
    let mut leader = context.handle().watch_leader();
    loop {
        if leader.wait_for(|l| l.role.leader.is_none()).await.is_err() {
            // The replica is gone: that ends the watch by itself.
            return std::future::pending().await;
        }
        let again = leader.wait_for(|l| l.role.leader.is_some());
        if tokio::time::timeout(context.leader_wait(), again)
            .await
            .is_err()
        {
            return;
        }
    }
}

fn cut_off() -> Refusal {
    let message = "this member has no leader and may miss changes";
    Refusal::new(Code::Unavailable, "LEADER_LOST", message)
        .with_hint("resume at another member, after the latest revision received")
}

fn too_slow(patience: Duration) -> Refusal {
    let message = format!(
        "the client read none of its queued messages for {} seconds",
        patience.as_secs_f64()
    );
    Refusal::new(Code::DeadlineExceeded, "READER_TOO_SLOW", message).with_hint(
        "read messages as they arrive; resume with a new watch after the latest revision",
    )
}
