//! The history of a VM or a host, read from this member's checkpoints and log.
//!
//! ```text
//!   archive ─▶ earlier state + entries ─▶ replay, on a thread of its own ─▶ messages ─▶ reader
//! ```
//!
//! A history takes as much memory as a state, so a member makes one at a time. Not here: which changes
//! belong to it ([`crate::change_log`]).
//!
//! Invariant: a message has everything up to its revision; a replay that cannot go on ends the stream
//! with an error, never early.

use std::time::{Duration, Instant};

use berth_domain::history::{Entry, Subject};
use berth_domain::refusal::{Code, Refusal};
use berth_process::bounds::Held;
use berth_proto::convert::history::read_subject;
use berth_proto::event::v1;
use berth_proto::status::to_status;
use berth_replication::runtime::{Past, in_background};
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::messages::Messages;
use super::refusal;
use crate::change_log::ChangeLog;
use crate::earlier;
use crate::machine::Machine;

/// How many bytes of entries a message has at most, unless one alone has more.
const MESSAGE_BYTES_MAX: usize = 128 << 10;
/// Messages that are queued for a slow client.
const WAITING_MAX: usize = 4;
/// For how many request timeouts a client is waited for in all: meanwhile no other history is made.
const PATIENCE: u32 = 3;

type Message = v1::GetHistoryResponse;

/// Begins to send the history that is requested.
pub(super) async fn get(
    context: Context,
    request: Request<v1::GetHistoryRequest>,
) -> Result<Response<Messages<Message>>, Status> {
    let held = Held::of(&request);
    let wire = request.into_inner();
    let subject = read_subject(&wire.name, "name")?;
    let last = context.state(wire.consistency).await?.revision();
    if wire.after_revision > last {
        return Err(to_status(&earlier::not_reached(wire.after_revision, last)));
    }
    let turn = tokio::time::timeout(context.request_timeout(), context.history_turn());
    let turn = turn.await.map_err(|_| to_status(&earlier::busy()))?;
    if let Some(held) = &held {
        held.take_over();
    }
    let (messages, stream) = mpsc::channel(WAITING_MAX);
    let (end, ended) = oneshot::channel();
    let sending = Sending {
        subject,
        after: wire.after_revision,
        last,
        first: 0,
        message: Message::default(),
        bytes: 0,
        messages,
        stopping: context.stopping().clone(),
        patience: context.request_timeout() * PATIENCE,
        _turn: turn,
        _held: held,
    };
    tokio::spawn(async move {
        let status = match run(&context, sending).await {
            Ok(()) | Err(Ended::Closed) => return,
            Err(Ended::Stopping) => refusal::stopping(),
            Err(Ended::Refused(refusal)) => to_status(&refusal),
        };
        // The client may have gone.
        let _ = end.send(status);
    });
    Ok(Response::new(Messages {
        messages: ReceiverStream::new(stream),
        ended,
    }))
}

/// Why a history ends early.
enum Ended {
    /// The client closed the stream.
    Closed,
    Stopping,
    Refused(Box<Refusal>),
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Makes the history, and sends it.
async fn run(context: &Context, mut sending: Sending) -> Result<(), Ended> {
    let archive = context.archive();
    // To its end, although the client may go: the next one begins when this one has ended.
    let past = archive.earliest(sending.last).await;
    let past = past.map_err(|error| earlier::not_kept(&error))?;
    sending.first = past.replay.machine().state().revision().max(sending.after);
    let sent = tokio::task::spawn_blocking(move || in_background(|| sending.all(past)));
    match sent.await {
        Ok(done) => done,
        Err(end) if end.is_panic() => std::panic::resume_unwind(end.into_panic()),
        Err(_) => Err(Ended::Stopping),
    }
}

/// What is sent, and what is held for it.
struct Sending {
    subject: Subject,
    /// Entries up to this revision are left out.
    after: u64,
    /// The last revision.
    last: u64,
    /// The stream has everything after this revision.
    first: u64,
    /// The message that is being filled.
    message: Message,
    bytes: usize,
    messages: mpsc::Sender<Message>,
    stopping: CancellationToken,
    /// How long the client is waited for, in all that is left.
    patience: Duration,
    _turn: OwnedSemaphorePermit,
    _held: Option<Held>,
}

impl Sending {
    /// Replays the entries of the log; blocks.
    fn all(mut self, past: Past<Machine>) -> Result<(), Ended> {
        let mut replay = past.replay;
        let mut change_log = ChangeLog::new(self.subject.clone());
        for entry in &past.entries {
            if self.stopping.is_cancelled() {
                return Err(Ended::Stopping);
            }
            if self.messages.is_closed() {
                return Err(Ended::Closed);
            }
            let applied = replay.apply_observed(entry, &mut change_log);
            applied.map_err(|error| earlier::broken(&error))?;
            let done = change_log.take().map_err(|error| earlier::broken(&error))?;
            let after = self.after;
            for entry in done.iter().filter(|entry| entry.revision > after) {
                self.add(entry)?;
            }
        }
        self.send(self.last)
    }

    fn add(&mut self, entry: &Entry) -> Result<(), Ended> {
        let wire = v1::HistoryEntry::from(entry);
        let bytes = wire.encoded_len();
        if self.bytes > 0 && self.bytes + bytes > MESSAGE_BYTES_MAX {
            self.send(entry.revision - 1)?;
        }
        self.bytes += bytes;
        self.message.entries.push(wire);
        Ok(())
    }

    /// Sends what was collected: everything up to this revision.
    fn send(&mut self, revision: u64) -> Result<(), Ended> {
        let message = Message {
            first_revision: self.first,
            revision,
            ..std::mem::take(&mut self.message)
        };
        self.bytes = 0;
        let began = Instant::now();
        let sent = self.messages.send_timeout(message, self.patience);
        let sent = Handle::current().block_on(sent);
        self.patience = self.patience.saturating_sub(began.elapsed());
        match sent {
            Ok(()) => Ok(()),
            Err(SendTimeoutError::Closed(_)) => Err(Ended::Closed),
            Err(SendTimeoutError::Timeout(_)) => Err(too_slow().into()),
        }
    }
}

fn too_slow() -> Refusal {
    let message =
        "the history was cut off: the client read its messages too slowly, and others wait";
    Refusal::new(Code::DeadlineExceeded, "READER_TOO_SLOW", message)
        .with_hint("read messages as they arrive; go on after the latest revision")
}
