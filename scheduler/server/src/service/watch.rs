//! The stream of one operation as it changes, until it is done.
//!
//! A stream ends with UNAVAILABLE when this member stops; the client goes on at another one.

use std::sync::Arc;

use berth_domain::id::OperationId;
use berth_domain::operation::Operation;
use berth_proto::operation;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::context::Context;
use super::refusal;

/// Messages that may wait for a slow client. Changes gather behind them and arrive as one.
const WAITING_MAX: usize = 4;

type Messages<T> = mpsc::Sender<Result<T, Status>>;

/// Sends an operation as it is, then after each change, until it is done.
pub(crate) fn operation(
    context: Context,
    id: OperationId,
    first: (Arc<Operation>, u64),
) -> impl Stream<Item = Result<operation::v1::WatchOperationResponse, Status>> {
    let (messages, stream) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        if let Err(status) = follow_operation(&context, id, first, &messages).await {
            // The client may have gone.
            let _ = messages.send(Err(status)).await;
        }
    });
    ReceiverStream::new(stream)
}

async fn follow_operation(
    context: &Context,
    id: OperationId,
    (mut shown, mut revision): (Arc<Operation>, u64),
    messages: &Messages<operation::v1::WatchOperationResponse>,
) -> Result<(), Status> {
    let watch = context.feed().watch_operation(id);
    loop {
        let message = operation::v1::WatchOperationResponse {
            operation: Some((&*shown).into()),
            revision,
        };
        if messages.send(Ok(message)).await.is_err() || shown.is_done() {
            return Ok(());
        }
        loop {
            let changed = watch.changed();
            let now = context
                .stale(move |state| Some((state.operation(id)?.clone(), state.revision())))
                .await?;
            match now {
                // Its end was sent, or it was forgotten before that.
                None => return Ok(()),
                Some((operation, at)) if operation != shown => {
                    (shown, revision) = (operation, at);
                    break;
                }
                Some(_) => {}
            }
            tokio::select! {
                () = changed => {}
                () = messages.closed() => return Ok(()),
                () = context.stopping().cancelled() => return Err(refusal::stopping()),
            }
        }
    }
}
