//! `ClusterService.Backup`: a backup of this member's own state as a stream of bytes.
//!
//! ```text
//!   request ─▶ permit ─▶ state or entries ─▶ blocking task: encode ─▶ channel ─▶ client
//! ```
//!
//! Any member answers, with or without a leader. A state that is being sent is kept as it was, and what
//! changes meanwhile takes memory besides: so few are sent at a time, and a client that reads too slowly
//! is cut off.
//!
//! Invariant: a stream that ends without a status has been sent whole.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use berth_backup::{Place, WriteError};
use berth_domain::id::TimeMs;
use berth_domain::refusal::{Code, Refusal};
use berth_process::access;
use berth_proto::cluster::v1::{BackupEnd, BackupRequest, BackupResponse, ScheduledBackups};
use berth_proto::convert::field;
use berth_proto::status::to_status;
use berth_replication::HistoryError;
use berth_replication::runtime::in_background;
use berth_store::StateHash;
use bytes::{Bytes, BytesMut};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};
use uuid::Uuid;

use super::context::{Context, wall};
use super::messages::Messages;
use super::refusal;
use crate::backup::content::{Backup, BackupError, Origin};
use crate::backup::status::BackupStatus;

/// How many backups a member sends at a time.
pub(super) const BACKUPS_MAX: usize = 2;

/// The size of a message.
const MESSAGE_BYTES: usize = 256 << 10;

/// Messages that are queued for a slow client.
const WAITING_MAX: usize = 4;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// For the next message.
    message: Duration,
    /// For all of it.
    whole: Duration,
}

const TIMES: Times = Times {
    message: Duration::from_secs(30),
    whole: Duration::from_secs(3_600),
};

/// The stream of a backup.
pub(crate) type BackupStream = Messages<BackupResponse>;

/// Begins to send a backup.
pub(super) async fn backup(
    context: &Context,
    request: Request<BackupRequest>,
) -> Result<BackupStream, Status> {
    let caller = access::caller(request.extensions()).map(|caller| caller.principal());
    let after = request.into_inner().after;
    let after = after.map(|after| follows(context, after)).transpose()?;
    let Some(permit) = context.backup_permit() else {
        return Err(to_status(&busy()));
    };
    let origin = Origin {
        cluster_id: context.cluster_id().to_owned(),
        member_id: context.handle().leader().id,
    };
    let (handle, now) = (context.handle(), wall().0);
    let backup = match after {
        None => context.bounded(origin.full(handle, now)).await?,
        Some(after) => {
            let increment = origin.increment(handle, now, after);
            context.bounded(increment).await?
        }
    };
    let backup = backup.map_err(|error| refused(context, error))?;
    let (messages, stream) = mpsc::channel(WAITING_MAX);
    let (end, ended) = oneshot::channel();
    let out = Chunks::new(messages, TIMES, context.stopping().clone());
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let failure = in_background(|| send(backup, out, caller.as_deref()));
        if let Some(status) = failure {
            // The client may have gone.
            let _ = end.send(status);
        }
    });
    Ok(Messages {
        messages: ReceiverStream::new(stream),
        ended,
    })
}

/// Returns how scheduled backups went as a message.
pub(super) fn status_to_wire(status: BackupStatus) -> ScheduledBackups {
    let BackupStatus {
        last_ms,
        last_index,
        failure,
        failures: _,
    } = status;
    ScheduledBackups {
        last_time: last_ms.map(|ms| field::timestamp(TimeMs(ms))),
        last_index,
        failure: failure.unwrap_or_default(),
    }
}

/// Reads the end of the backup that an increment follows.
fn follows(context: &Context, wire: BackupEnd) -> Result<Place, Status> {
    let cluster: Uuid = field::uuid(&wire.cluster_id, "after.cluster_id")?;
    if cluster.to_string() != context.cluster_id() {
        let message = format!(
            "the increment was not made: the backup is of cluster {cluster}, and this is cluster {}",
            context.cluster_id()
        );
        let refusal = Refusal::new(Code::FailedPrecondition, "BACKUP_OF_OTHER_CLUSTER", message);
        return Err(to_status(&refusal.with_hint(FULL_HINT)));
    }
    if StateHash::from_bytes(&wire.state_hash).is_none() {
        return Err(refusal::invalid("after.state_hash", "must have 16 bytes"));
    }
    Ok(Place {
        index: wire.index,
        term: wire.term,
        state_hash: wire.state_hash.into(),
        rows: wire.rows,
    })
}

const FULL_HINT: &str = "make a full backup: leave the earlier one out";

fn busy() -> Refusal {
    let message = format!(
        "the backup was not begun: this member sends {BACKUPS_MAX} already, the most at a time"
    );
    Refusal::new(Code::ResourceExhausted, "BACKUP_BUSY", message)
        .with_hint("repeat it when one of them has ended, or at another member")
}

/// Returns what a client gets if there is nothing to send.
fn refused(context: &Context, error: BackupError) -> Status {
    let error = match error {
        BackupError::State(error) => return context.urls().of_read(error),
        BackupError::Log(error) => error,
    };
    let message = format!("the increment was not made: {error}");
    let refusal = match error {
        HistoryError::Stopped => return refusal::stopping(),
        // Another one is further.
        HistoryError::NotReached { .. } => {
            Refusal::new(Code::Unavailable, "MEMBER_BEHIND", message)
                .with_hint("repeat it at another member, or when this one has caught up")
        }
        HistoryError::Forgotten { .. } => {
            Refusal::new(Code::FailedPrecondition, "BACKUP_TOO_OLD", message).with_hint(FULL_HINT)
        }
        HistoryError::OtherTerm { .. } | HistoryError::OtherState { .. } => {
            Refusal::new(Code::FailedPrecondition, "BACKUP_OF_OTHER_HISTORY", message)
                .with_hint(FULL_HINT)
        }
    };
    to_status(&refusal)
}

/// Sends a backup, and returns what the client gets if that fails.
fn send(backup: Backup, mut out: Chunks, caller: Option<&str>) -> Option<Status> {
    let kind = backup.header().kind().as_str();
    let index = backup.header().end.index;
    let caller = caller.unwrap_or("unverified");
    let began = Instant::now();
    let written = backup.write(&mut out);
    let took_ms = began.elapsed().as_millis();
    let status = match (written, out.cut) {
        (Ok(bytes), _) => {
            tracing::info!(kind, index, bytes, took_ms, caller, "backup sent");
            return None;
        }
        // A client that has gone reads no status.
        (Err(_), Some(Cut::Gone)) => None,
        (Err(_), Some(Cut::Stopping)) => Some(refusal::stopping()),
        (Err(_), Some(Cut::Slow)) => Some(to_status(&too_slow())),
        (Err(error), None) => Some(to_status(&failed(&error))),
    };
    let cause = status
        .as_ref()
        .map_or("the client has gone", Status::message);
    tracing::warn!(kind, index, took_ms, caller, cause, "backup not sent");
    status
}

fn too_slow() -> Refusal {
    let message = format!(
        "the backup was cut off: the client did not read a part of it in {} s, or not all of it in {} s",
        TIMES.message.as_secs(),
        TIMES.whole.as_secs()
    );
    Refusal::new(Code::DeadlineExceeded, "BACKUP_TOO_SLOW", message)
        .with_hint("write it to a local disk, and copy it from there")
}

fn failed(error: &WriteError) -> Refusal {
    let message = format!("the backup failed: {error}");
    Refusal::new(Code::Internal, "BACKUP_FAILED", message)
        .with_hint("make the backup at another member, and look at the log of this one")
}

/// Why a client is sent nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// It reads too slowly.
    Slow,
    /// It has ended its request.
    Gone,
    /// The member is stopping.
    Stopping,
}

/// Sends what is written to it in messages, from a thread that may block.
struct Chunks {
    messages: mpsc::Sender<BackupResponse>,
    runtime: Handle,
    times: Times,
    deadline: tokio::time::Instant,
    stopping: CancellationToken,
    pending: BytesMut,
    cut: Option<Cut>,
}

impl Chunks {
    /// Begins within the runtime that the messages are sent by.
    fn new(
        messages: mpsc::Sender<BackupResponse>,
        times: Times,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            messages,
            runtime: Handle::current(),
            times,
            deadline: tokio::time::Instant::now() + times.whole,
            stopping,
            pending: BytesMut::with_capacity(MESSAGE_BYTES),
            cut: None,
        }
    }

    fn send(&mut self, data: Bytes) -> io::Result<()> {
        let until = self
            .deadline
            .min(tokio::time::Instant::now() + self.times.message);
        let message = BackupResponse { data };
        let cut = self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => Some(Cut::Stopping),
                () = tokio::time::sleep_until(until) => Some(Cut::Slow),
                sent = self.messages.send(message) => sent.err().map(|_| Cut::Gone),
            }
        });
        self.cut = cut;
        match cut {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MESSAGE_BYTES - self.pending.len();
        let taken = &bytes[..bytes.len().min(room)];
        self.pending.extend_from_slice(taken);
        if self.pending.len() == MESSAGE_BYTES {
            self.flush()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.pending.is_empty() {
            true => Ok(()),
            false => {
                let data = self.pending.split().freeze();
                self.send(data)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = 3 * MESSAGE_BYTES + 7;

    fn chunks(times: Times) -> (Chunks, mpsc::Receiver<BackupResponse>, CancellationToken) {
        let (messages, received) = mpsc::channel(1);
        let stopping = CancellationToken::new();
        (
            Chunks::new(messages, times, stopping.clone()),
            received,
            stopping,
        )
    }

    /// Writes until that fails, and returns why it did.
    async fn cut(mut chunks: Chunks) -> Option<Cut> {
        let written = tokio::task::spawn_blocking(move || {
            let written = chunks.write_all(&[7; PART]);
            assert!(written.is_err(), "more than fits into the channel");
            chunks.cut
        });
        written.await.expect("no panic")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_written_arrives_in_bounded_messages() {
        let (mut chunks, mut received, _stopping) = chunks(TIMES);
        let written = tokio::task::spawn_blocking(move || {
            chunks.write_all(&[7; PART])?;
            chunks.flush()
        });
        let mut bytes = 0;
        while let Some(message) = received.recv().await {
            assert!(message.data.len() <= MESSAGE_BYTES);
            assert!(message.data.iter().all(|byte| *byte == 7));
            bytes += message.data.len();
        }
        assert_eq!(bytes, PART);
        written.await.expect("no panic").expect("all was taken");
    }

    /// Goal: neither a client that does not read, nor one that reads a little now and then, nor one
    /// that has gone keeps a backup, and neither holds up a member that stops.
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_kept_for_a_client_that_does_not_read() {
        let soon = Duration::from_millis(50);
        let late = Duration::from_secs(600);
        let (message, whole) = (soon, late);
        let (out, received, _stopping) = chunks(Times { message, whole });
        assert_eq!(cut(out).await, Some(Cut::Slow));
        drop(received);
        let (message, whole) = (late, soon);
        let (out, received, _stopping) = chunks(Times { message, whole });
        assert_eq!(cut(out).await, Some(Cut::Slow));
        drop(received);
        let (out, received, _stopping) = chunks(TIMES);
        drop(received);
        assert_eq!(cut(out).await, Some(Cut::Gone));
        let (out, received, stopping) = chunks(TIMES);
        let cutting = tokio::spawn(cut(out));
        stopping.cancel();
        assert_eq!(cutting.await.expect("no panic"), Some(Cut::Stopping));
        drop(received);
    }
}
