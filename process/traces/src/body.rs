//! The body of a gRPC response, with what is kept until the response has ended: its span, or what is
//! counted of it.
//!
//! Invariant: what is kept is dropped with the last frame, or when the client has gone.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::{HeaderMap, Response};

use crate::span::Span;

/// What is kept until a response has ended.
pub trait Kept: Send + Unpin + 'static {
    /// Is shown the headers of a response without a message, or the trailers: they have the status.
    fn status(&mut self, headers: &HeaderMap);
}

impl Kept for Span {
    fn status(&mut self, headers: &HeaderMap) {
        self.set_status(headers);
    }
}

/// Returns a response that keeps this until it has ended.
#[must_use]
pub fn keeping(response: Response<Body>, mut kept: impl Kept) -> Response<Body> {
    kept.status(response.headers());
    response.map(|inner| {
        let kept = Some(kept);
        Body::new(KeepingBody { inner, kept })
    })
}

struct KeepingBody<K> {
    inner: Body,
    kept: Option<K>,
}

impl<K: Kept> HttpBody for KeepingBody<K> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let trailers = match &frame {
            Some(Ok(frame)) => frame.trailers_ref(),
            Some(Err(_)) | None => None,
        };
        if let (Some(trailers), Some(kept)) = (trailers, &mut self.kept) {
            kept.status(trailers);
        }
        if frame.is_none() || trailers.is_some() {
            self.kept = None;
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
