//! How old this member's own state may be: when a leader has confirmed it last.
//!
//! Once a second the member reads linearizably, as a client would, and notes when that read *began*: what
//! was committed before is in its state when the read ends. A message of a leader alone shows nothing: it
//! may have waited while this process was stopped, and says nothing to a member that is behind.
//!
//! Invariant: the age is never less than the true one, whatever was stopped, delayed or lost; it is of
//! monotonic time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use berth_replication::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::machine::Machine;

/// How often the state is confirmed.
const INTERVAL: Duration = Duration::from_secs(1);
/// After how long it is tried again where no leader confirms it.
const RETRY: Duration = Duration::from_millis(250);
/// How long a confirmation may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// When the state of this member was confirmed last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freshness(Arc<Mutex<Option<Instant>>>);

impl Freshness {
    /// Returns how long ago the last confirmation began; nothing if there was none since the member started.
    pub(crate) fn age(&self) -> Option<Duration> {
        let confirmed = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        confirmed.map(|at| at.elapsed())
    }

    /// Records a confirmation that began then.
    fn record(&self, began: Instant) {
        // It is replaced as a whole.
        let mut confirmed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *confirmed = (*confirmed).max(Some(began));
    }
}

/// Has the state confirmed until `stopping`.
pub(crate) async fn run(
    freshness: Freshness,
    handle: Handle<Machine>,
    stopping: CancellationToken,
) {
    let confirming = async {
        loop {
            let began = Instant::now();
            let read = timeout(TIMEOUT, handle.read(|_| ())).await;
            let is_confirmed = matches!(read, Ok(Ok(())));
            if is_confirmed {
                freshness.record(began);
            }
            tokio::time::sleep(if is_confirmed { INTERVAL } else { RETRY }).await;
        }
    };
    tokio::select! {
        () = confirming => {}
        () = stopping.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the age counts from the beginning of a confirmation, and a late end of an earlier one does
    /// not make the state younger or older.
    #[test]
    fn the_age_is_that_of_the_latest_confirmation() {
        let freshness = Freshness::default();
        assert_eq!(freshness.age(), None);
        let long_ago = Duration::from_secs(60);
        let began = Instant::now().checked_sub(long_ago).expect("uptime");
        freshness.record(began);
        let age = freshness.age().expect("it was confirmed");
        assert!(age >= long_ago);
        freshness.record(Instant::now());
        freshness.record(began);
        let age = freshness.age().expect("it was confirmed");
        assert!(age < long_ago);
    }
}
