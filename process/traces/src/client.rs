//! Calls with a span: a channel that begins one for each call of a task that has a span, and sends its
//! identity in the header.
//!
//! Invariant: a call of a task without a span is sent as it is.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tonic::Code;
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tower_service::Service;

use crate::body;
use crate::context::HEADER;
use crate::span::Span;

/// A channel, as `tonic::transport::Channel`, with spans.
#[derive(Clone, Debug)]
pub struct Traced<S>(S);

impl<S> Traced<S> {
    /// Returns a channel with spans.
    pub fn new(channel: S) -> Self {
        Self(channel)
    }
}

impl<S> Service<Request<Body>> for Traced<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Responding<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let span = Span::client(request.uri().path().trim_start_matches('/'));
        if let Some(span) = &span
            && let Ok(header) = HeaderValue::from_str(&span.active().context().header())
        {
            request.headers_mut().insert(HEADER, header);
        }
        Responding {
            inner: self.0.call(request),
            span,
        }
    }
}

/// A response to come.
#[derive(Debug)]
pub struct Responding<F> {
    inner: F,
    span: Option<Span>,
}

impl<F, E> Future for Responding<F>
where
    F: Future<Output = Result<Response<Body>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(Pin::new(&mut self.inner).poll(context));
        let Some(mut span) = self.span.take() else {
            return Poll::Ready(response);
        };
        Poll::Ready(match response {
            Ok(response) => Ok(body::keeping(response, span)),
            Err(error) => {
                // No answer came.
                span.set_code(Code::Unavailable);
                Err(error)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};

    use super::*;
    use crate::context::SpanContext;
    use crate::current::{Active, within};

    /// A server that answers each request with its headers.
    struct Echo;

    impl Service<Request<Body>> for Echo {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let mut response = Response::new(Body::empty());
            *response.headers_mut() = request.headers().clone();
            ready(Ok(response))
        }
    }

    /// Goal: where no collector is configured, nothing of a span leaves with a call. Method: also in a
    /// task that has a span.
    #[tokio::test]
    async fn no_header_is_sent_where_nothing_is_configured() {
        let span = Active::new(SpanContext {
            trace: 1,
            span: 2,
            is_sampled: true,
        });
        let request = Request::new(Body::empty());
        let response = within(Some(span), async { Traced::new(Echo).call(request).await });
        let headers = response.await.unwrap().headers().clone();
        assert!(headers.is_empty(), "{headers:?}");
    }
}
