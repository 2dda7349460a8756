//! The body of a gRPC response, at the end of which is the status of the call.
//!
//! Invariant: the span of a call ends with its status, or when the body is dropped.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::Response;

use crate::span::Span;

/// Returns a response that ends a span with its own end.
#[must_use]
pub fn ending(response: Response<Body>, mut span: Span) -> Response<Body> {
    // A response without a message has its status in the headers.
    span.set_status(response.headers());
    response.map(|inner| {
        let span = Some(span);
        Body::new(TracedBody { inner, span })
    })
}

#[derive(Debug)]
struct TracedBody {
    inner: Body,
    span: Option<Span>,
}

impl HttpBody for TracedBody {
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
        if let (Some(trailers), Some(span)) = (trailers, &mut self.span) {
            span.set_status(trailers);
        }
        if frame.is_none() || trailers.is_some() {
            self.span = None;
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
