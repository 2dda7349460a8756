//! The body of a response: holds what its request took until it is sent, or its client is gone.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use super::layer::InProgress;

/// The body of a response.
#[derive(Debug)]
pub(super) struct ResponseBody {
    inner: Body,
    held: Option<InProgress>,
}

impl ResponseBody {
    pub(super) fn new(inner: Body, held: InProgress) -> Self {
        Self {
            inner,
            held: Some(held),
        }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if frame.is_none() {
            self.held = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
