//! A stream of messages with a final status.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// The messages of a stream, followed by its final status: a client that was cut off finds
/// that after the messages that were queued for it.
pub(crate) struct Messages<T> {
    pub(super) messages: ReceiverStream<T>,
    pub(super) ended: oneshot::Receiver<Status>,
}

impl<T> Stream for Messages<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match Pin::new(&mut self.messages).poll_next(context) {
            Poll::Ready(Some(message)) => Poll::Ready(Some(Ok(message))),
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) if self.ended.is_terminated() => Poll::Ready(None),
            Poll::Ready(None) => match Pin::new(&mut self.ended).poll(context) {
                Poll::Ready(status) => Poll::Ready(status.ok().map(Err)),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}
