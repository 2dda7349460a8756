//! How many bytes of long bodies and long answers are held at a time.
//!
//! Short ones are not counted: the number of connections bounds them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is not longer is not counted.
const SHORT: usize = 64 << 10;
/// What is counted is counted in pieces of so many bytes.
const PIECE: usize = 1 << 10;

/// So many bytes, of which those in use are taken.
#[derive(Debug)]
pub(super) struct Budget {
    pieces: Arc<Semaphore>,
    all: u32,
}

/// Bytes of a budget, which go back to it in the end.
#[derive(Debug)]
pub(super) struct Share(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// Bytes together with their share, which goes where they go.
struct Held(
    Vec<u8>,
    #[expect(dead_code, reason = "held, not read")] Share,
);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Budget {
    /// Returns a budget of so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let all = pieces(bytes).max(1);
        Self {
            // As many as fit into a number of 32 bits fit into any address space of ours.
            pieces: Arc::new(Semaphore::new(all as usize)),
            all,
        }
    }

    /// Takes the share of something so long, waiting for it; an error if it does not come in
    /// time. Something short has none, something longer than everything takes all.
    pub(super) async fn wait(&self, bytes: usize, limit: Duration) -> Result<Option<Share>, ()> {
        if bytes <= SHORT {
            return Ok(None);
        }
        let share = self.pieces.clone().acquire_many_owned(self.count(bytes));
        match tokio::time::timeout(limit, share).await {
            Ok(Ok(share)) => Ok(Some(Share(share))),
            Ok(Err(_)) | Err(_) => Err(()),
        }
    }

    /// Takes the share of these bytes for as long as they are held; nothing if it is not there.
    pub(super) fn hold(&self, bytes: Vec<u8>) -> Option<Bytes> {
        if bytes.len() <= SHORT {
            return Some(bytes.into());
        }
        let count = self.count(bytes.len());
        let share = self.pieces.clone().try_acquire_many_owned(count).ok()?;
        Some(Bytes::from_owner(Held(bytes, Share(share))))
    }

    fn count(&self, bytes: usize) -> u32 {
        pieces(bytes).min(self.all)
    }
}

fn pieces(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX >> 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_taken_until_it_is_dropped() {
        let budget = Budget::new(1 << 20);
        let long = |bytes: usize| vec![7; bytes];
        let first = budget.hold(long(700 << 10)).unwrap();
        assert!(budget.hold(long(400 << 10)).is_none());
        assert!(budget.hold(long(SHORT)).is_some(), "it is short");
        let part = first.slice(5..9);
        drop(first);
        assert!(budget.hold(long(400 << 10)).is_none(), "a part is held");
        assert_eq!(&*part, [7; 4]);
        drop(part);
        let everything = budget.hold(long(5 << 20));
        assert!(everything.is_some() && budget.hold(long(SHORT + 1)).is_none());
    }

    #[tokio::test]
    async fn a_share_is_not_waited_for_without_end() {
        let budget = Budget::new(1 << 20);
        let limit = Duration::from_millis(50);
        assert!(budget.wait(SHORT, limit).await.unwrap().is_none());
        let share = budget.wait(1 << 20, limit).await.unwrap();
        assert!(budget.wait(SHORT + 1, limit).await.is_err());
        drop(share);
        assert!(budget.wait(SHORT + 1, limit).await.unwrap().is_some());
    }
}
