//! The watch: it is opened, read, and opened again at another scheduler when it ends.
//!
//! Not here: what its messages mean ([`feed`](super::feed)).
//!
//! Invariant: a watch continues after the revision of the last message that was passed on, or, where the
//! schedulers do not retain the changes since then, begins with a snapshot.

use std::convert::Infallible;
use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use berth_proto::event::v1::event_service_client::EventServiceClient;
use berth_proto::event::v1::{WatchRequest, WatchResponse};
use tokio::sync::mpsc::Sender;
use tonic::Streaming;

use super::update::Update;
use crate::address::without_scheme;
use crate::read;
use crate::session::{Session, ended};

/// The longest silence of a stream that is alive.
const SILENCE_MAX: Duration = Duration::from_secs(12);
/// How often the scheduler sends its revision when nothing changes.
const PROGRESS_SECONDS: i64 = 4;
/// The wait before a watch that ended is opened again: the first, and the longest after failures.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(3);

/// Opens a watch.
///
/// # Errors
///
/// The scheduler's refusal, or that none could be reached.
pub async fn open(session: &Session, after: u64) -> Result<Streaming<WatchResponse>, Refusal> {
    let request = WatchRequest {
        // All but the audit.
        kinds: Vec::new(),
        names: Vec::new(),
        after_revision: after,
        progress_interval: Some(prost_types::Duration {
            seconds: PROGRESS_SECONDS,
            nanos: 0,
        }),
    };
    read!(session, EventServiceClient, watch, request)
}

/// Passes a watch on for ever, beginning with one that is open.
///
/// # Errors
///
/// A refusal that no other scheduler would lift.
pub async fn follow(
    session: &Session,
    stream: Streaming<WatchResponse>,
    updates: Sender<Update>,
) -> anyhow::Result<Infallible> {
    let mut revision = 0;
    let mut opened = Ok(stream);
    let mut pause = AGAIN_AFTER;
    loop {
        let refusal = match opened {
            Ok(stream) => {
                pause = AGAIN_AFTER;
                updates.send(Update::Opened(revision)).await?;
                pass_on(stream, &updates, &mut revision).await?
            }
            Err(refusal) => refusal,
        };
        if is_final(refusal.code) {
            return Err(refusal.into());
        }
        if refusal.code == Code::OutOfRange {
            // Too much has changed while no stream was open, or the cluster was restored.
            revision = 0;
        } else {
            session.move_on();
            let lost = Update::Lost {
                trying: without_scheme(&session.current_scheduler()).to_owned(),
                why: refusal.message,
            };
            updates.send(lost).await?;
        }
        tokio::time::sleep(pause).await;
        pause = AGAIN_AFTER_MAX.min(pause * 2);
        opened = open(session, revision).await;
    }
}

/// Passes the messages of a stream on; returns why it ended.
async fn pass_on(
    mut stream: Streaming<WatchResponse>,
    updates: &Sender<Update>,
    revision: &mut u64,
) -> anyhow::Result<Refusal> {
    loop {
        let Ok(message) = tokio::time::timeout(SILENCE_MAX, stream.message()).await else {
            let message = "the scheduler sends nothing any more";
            return Ok(Refusal::new(Code::Unavailable, "STREAM_SILENT", message));
        };
        match message {
            Ok(Some(message)) => {
                *revision = message.revision;
                updates.send(Update::Message(Box::new(message))).await?;
            }
            Ok(None) => {
                let message = "the scheduler ended the watch";
                return Ok(Refusal::new(Code::Unavailable, "STREAM_ENDED", message));
            }
            Err(status) => return Ok(ended(&status)),
        }
    }
}

/// Returns whether another scheduler, or a later attempt, would refuse a watch just the same.
fn is_final(code: Code) -> bool {
    match code {
        Code::InvalidArgument | Code::PermissionDenied | Code::Unimplemented => true,
        Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Internal => false,
    }
}
