//! Bodies: how long they may be, how slow, and how many long ones are worked on at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many bodies of the greatest length are held at a time.
const HELD_MAX: usize = 4;
/// What is counted, in bytes. Less than this is not: the number of connections bounds it.
const UNIT: usize = 1 << 16;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// It is longer than is allowed.
    #[error(
        "the body is longer than the {bytes_max} bytes that are read (kubernetes.body_bytes_max)"
    )]
    TooLong {
        /// How long it may be.
        bytes_max: usize,
    },
    /// It did not come in time.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// There are too many long ones.
    #[error("too many long bodies at once; repeat the request")]
    Busy,
    /// The connection broke, or its pieces are malformed.
    #[error("the body broke off")]
    Broken,
}

/// Reads bodies.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    bytes_max: usize,
    timeout: Duration,
    permits: Arc<Semaphore>,
}

/// A body, and the right to hold it.
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    _held: OwnedSemaphorePermit,
}

impl Bodies {
    pub(crate) fn new(bytes_max: usize, timeout: Duration) -> Self {
        let units = (bytes_max / UNIT).saturating_mul(HELD_MAX);
        Self {
            bytes_max,
            timeout,
            permits: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Reads a body to its end.
    pub(crate) async fn read(&self, headers: &HeaderMap, body: Incoming) -> Result<Body, Unread> {
        let bytes_max = self.bytes_max;
        let announced = headers
            .get(CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok()?.parse().ok());
        let length: usize = announced.unwrap_or(bytes_max);
        if length > bytes_max {
            return Err(Unread::TooLong { bytes_max });
        }
        let units = u32::try_from(length / UNIT).unwrap_or(u32::MAX);
        let held =
            tokio::time::timeout(self.timeout, self.permits.clone().acquire_many_owned(units))
                .await;
        let held = held
            .map_err(|_| Unread::Busy)?
            .expect("the semaphore is never closed");
        let read =
            tokio::time::timeout(self.timeout, Limited::new(body, bytes_max).collect()).await;
        match read {
            Ok(Ok(read)) => Ok(Body {
                bytes: read.to_bytes(),
                _held: held,
            }),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Unread::TooLong { bytes_max }),
            Ok(Err(_)) => Err(Unread::Broken),
            Err(_) => Err(Unread::TooSlow),
        }
    }
}
