//! The body of a request, followed message by message as it arrives.
//!
//! ```text
//!   HEADER ─5 bytes─▶ is the length allowed? ─▶ PAYLOAD ─all of it─▶ HEADER   (streams)
//!                     take a permit for it                └────────▶ COMPLETE (else)
//! ```
//!
//! Not here: decompression and decoding.
//!
//! Invariant: what a message needs in memory is counted before it arrives, by its declared length: that
//! much is reserved for it then. A body with one message ends in time.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::{Code, Status};

use super::refusal::{BODY_TOO_SLOW, MALFORMED_REQUEST, MESSAGE_TOO_LARGE, refusal};
use super::table::Resource;
use super::{Caller, Permit};

/// The flag of compression and the length.
const HEADER_BYTES: usize = 5;

/// What of a body is read next.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The header of a message.
    Header {
        bytes: [u8; HEADER_BYTES],
        read: usize,
    },
    /// The rest of a message.
    Payload { left: u64 },
    /// Nothing: the only message is complete.
    Complete,
}

const START: State = State::Header {
    bytes: [0; HEADER_BYTES],
    read: 0,
};

/// The body of a request.
#[derive(Debug)]
pub(super) struct RequestBody {
    inner: Body,
    caller: Caller,
    message_bytes_max: u64,
    /// Runs where one message is expected; absent for a stream of them.
    deadline: Option<Pin<Box<Sleep>>>,
    state: State,
    /// For the message that arrives, or has arrived last.
    permit: Option<Permit>,
}

impl RequestBody {
    pub(super) fn new(
        inner: Body,
        caller: Caller,
        message_bytes_max: u64,
        is_stream: bool,
    ) -> Self {
        let time = caller.bounds().limits().times.body;
        Self {
            inner,
            caller,
            message_bytes_max,
            deadline: (!is_stream).then(|| Box::pin(sleep(time))),
            state: START,
            permit: None,
        }
    }

    /// Follows further bytes.
    fn follow(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while let Some(&first) = data.first() {
            match &mut self.state {
                State::Header { bytes, read } => {
                    bytes[*read] = first;
                    *read += 1;
                    data = &data[1..];
                    if *read == HEADER_BYTES {
                        let [flag, length @ ..] = *bytes;
                        self.begin(flag, u32::from_be_bytes(length).into())?;
                    }
                }
                State::Payload { left } => {
                    let taken = usize::try_from(*left).map_or(data.len(), |l| l.min(data.len()));
                    data = &data[taken..];
                    *left -= taken as u64;
                    if *left == 0 {
                        self.end();
                    }
                }
                State::Complete => return Err(malformed("it holds more than one message")),
            }
        }
        Ok(())
    }

    /// Begins with a message.
    fn begin(&mut self, flag: u8, length: u64) -> Result<(), Status> {
        if flag > 1 {
            return Err(malformed("its first byte is no compression flag"));
        }
        let max = self.message_bytes_max;
        if length > max {
            let what = format!("the message has {length} bytes, and this server reads {max}");
            let hint = "send less at once, or raise request_bytes_max of the scheduler";
            let metadata = [("max", &*max.to_string()), ("bytes", &*length.to_string())];
            let code = Code::ResourceExhausted;
            return Err(refusal(code, MESSAGE_TOO_LARGE, &what, hint, &metadata));
        }
        self.permit = None;
        if length > 0 {
            let permit = self.caller.acquire(Resource::BodyBytes, length);
            self.permit = Some(permit.map_err(|refused| refused.to_status())?);
        }
        self.state = State::Payload { left: length };
        if length == 0 {
            self.end();
        }
        Ok(())
    }

    /// Ends a message.
    fn end(&mut self) {
        self.state = match self.deadline {
            Some(_) => State::Complete,
            None => START,
        };
    }

    /// Checks that the body may end here.
    fn check_end(&self) -> Result<(), Status> {
        match self.state {
            State::Header { read: 0, .. } if self.deadline.is_none() => Ok(()),
            State::Header { read: 0, .. } => Err(malformed("it holds no message")),
            State::Header { .. } | State::Payload { .. } => {
                Err(malformed("it ends within a message"))
            }
            State::Complete => Ok(()),
        }
    }

    fn poll_checked(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            let time = self.caller.bounds().limits().times.body;
            return Poll::Ready(Some(Err(too_slow(time))));
        }
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(self.check_end().err().map(Err)),
        };
        let followed = frame.data_ref().map_or(Ok(()), |data| self.follow(data));
        Poll::Ready(Some(followed.map(|()| frame)))
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(self.poll_checked(context));
        if let Some(Err(status)) = &frame
            && status.code() == Code::ResourceExhausted
        {
            self.caller.log(status);
        }
        Poll::Ready(frame)
    }

    /// Never: whether a message is missing is known at the end alone.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn malformed(why: &str) -> Status {
    let what = format!("the body of the request is malformed: {why}");
    let hint = "send one message of the method's type, framed as gRPC does";
    refusal(Code::InvalidArgument, MALFORMED_REQUEST, &what, hint, &[])
}

fn too_slow(time: Duration) -> Status {
    let seconds = time.as_secs_f64().to_string();
    let what = format!("the body of the request did not arrive within {seconds} s");
    let hint = "repeat the request, with less in it on a slow connection";
    let metadata = [("max", &*seconds), ("bound", "seconds of a body")];
    let code = Code::ResourceExhausted;
    refusal(code, BODY_TOO_SLOW, &what, hint, &metadata)
}

#[cfg(test)]
mod tests {
    use berth_tls::Role;
    use tonic_types::StatusExt as _;

    use super::super::{Bounds, Key, Limits};
    use super::*;

    fn frame(flag: u8, declared: u32, payload: usize) -> Vec<u8> {
        [&[flag][..], &declared.to_be_bytes(), &vec![7; payload]].concat()
    }

    /// Returns the reason of the refusal of a body that arrives in pieces of this size.
    fn check(body: &[u8], piece: usize, is_stream: bool) -> Result<(), String> {
        let bounds = Bounds::new(Limits::new(400).with_messages(1000));
        let caller = bounds.caller(Key::Identity(Role::Reader, "bob".to_owned()));
        let mut followed = RequestBody::new(Body::empty(), caller, 1000, is_stream);
        let mut pieces = body.chunks(piece);
        let read = pieces.try_for_each(|piece| followed.follow(piece));
        let read = read.and_then(|()| followed.check_end());
        drop(followed);
        assert_eq!(bounds.held(Resource::BodyBytes), 0);
        read.map_err(|status| status.get_details_error_info().unwrap().reason)
    }

    /// Goal: bodies are read alike however they are cut. Method: each body in pieces of each size.
    #[tokio::test]
    async fn bodies_are_followed_in_any_pieces() {
        let two = [frame(0, 3, 3), frame(1, 0, 0)].concat();
        let malformed = Err(MALFORMED_REQUEST.to_owned());
        let too_large = Err(MESSAGE_TOO_LARGE.to_owned());
        type Read = Result<(), String>;
        let cases: [(&[u8], Read, Read); 8] = [
            (b"", malformed.clone(), Ok(())),
            (b"\0\0", malformed.clone(), malformed.clone()),
            (&frame(0, 0, 0), Ok(()), Ok(())),
            (&frame(1, 1000, 1000), Ok(()), Ok(())),
            (&frame(0, 1001, 0), too_large.clone(), too_large),
            (&frame(0, 10, 9), malformed.clone(), malformed.clone()),
            (&frame(9, 0, 0), malformed.clone(), malformed.clone()),
            (&two, malformed, Ok(())),
        ];
        for (body, one, many) in cases {
            for piece in 1..=body.len().max(1) {
                assert_eq!(check(body, piece, false), one, "{body:?} {piece}");
                assert_eq!(check(body, piece, true), many, "{body:?} {piece}");
            }
        }
    }

    /// Goal: the declared length is counted as long as the message is incomplete.
    #[tokio::test]
    async fn what_is_declared_is_counted() {
        let bounds = Bounds::new(Limits::new(400));
        let caller = bounds.caller(Key::Identity(Role::Reader, "bob".to_owned()));
        let max = caller.max(Resource::BodyBytes);
        let mut bodies = Vec::new();
        let body = || RequestBody::new(Body::empty(), caller.clone(), 4 << 20, false);
        for _ in 0..max >> 20 {
            let mut one = body();
            one.follow(&frame(0, 1 << 20, 1)).unwrap();
            bodies.push(one);
        }
        assert_eq!(bounds.held(Resource::BodyBytes), max);
        let refused = body().follow(&frame(0, 1, 1)).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        drop(bodies);
        assert!(body().follow(&frame(0, 1, 1)).is_ok());
        assert_eq!(bounds.callers(), 0);
    }

    /// Goal: a body that does not end is refused in time, a stream is not.
    #[tokio::test]
    async fn a_body_ends_in_time() {
        struct Silent;
        impl HttpBody for Silent {
            type Data = Bytes;
            type Error = Status;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
                Poll::Pending
            }
        }
        let mut limits = Limits::new(400);
        limits.times.body = Duration::from_millis(20);
        let bounds = Bounds::new(limits);
        let caller = bounds.caller(Key::Identity(Role::Reader, "bob".to_owned()));
        for (is_stream, ends) in [(false, true), (true, false)] {
            let mut body = RequestBody::new(Body::new(Silent), caller.clone(), 9, is_stream);
            let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let time = Duration::from_millis(if ends { 60_000 } else { 100 });
            let next = tokio::time::timeout(time, next).await;
            assert_eq!(next.is_ok(), ends, "{next:?}");
            if let Ok(Some(Err(status))) = next {
                let info = status.get_details_error_info().unwrap();
                assert_eq!(info.reason, BODY_TOO_SLOW);
            }
        }
    }
}
