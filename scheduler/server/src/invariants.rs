//! Samples the invariants of the state while the member runs.
//!
//! They are checked on a copy, beside everything else: a check reads all rows, which is too slow for
//! each command. So a fault in the state machine is noticed within minutes, before many decisions are
//! built on it.
//!
//! Not here: what a broken invariant means for the process, which is in [`stop`](crate::stop).

use std::time::{Duration, Instant};

use berth_replication::runtime::in_background;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::service::Context;

/// A check rests so many times as long as the last one took: together they take at most a hundredth of
/// a processor.
const REST_FACTOR: u32 = 99;

/// A state that breaks an invariant.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The revision of the state.
    pub(crate) revision: u64,
    /// Which invariant, and where.
    pub(crate) what: String,
}

/// Becomes ready with the first invariant that is broken. An interval of zero means that none is looked
/// for.
pub(crate) async fn watch(context: Context, interval: Duration) -> Broken {
    let mut rest = interval;
    while !interval.is_zero() {
        sleep(rest).await;
        let Ok(state) = context.stale(Clone::clone).await else {
            continue;
        };
        let check = move || {
            let began = Instant::now();
            (state.revision(), state.check(), began.elapsed())
        };
        let checked = spawn_blocking(|| in_background(check));
        // A panic of the check is in the log; the next one may not have it.
        let Ok((revision, checked, took)) = checked.await else {
            continue;
        };
        tracing::debug!(revision, took_ms = took.as_millis(), "invariants checked");
        if let Err(violation) = checked {
            let what = violation.to_string();
            return Broken { revision, what };
        }
        rest = interval.max(took * REST_FACTOR);
    }
    std::future::pending().await
}
