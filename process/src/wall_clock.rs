//! The wall clock of this machine.
//!
//! What it is not: the time of the cluster, which is replicated and never goes back.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the milliseconds since 1970. Of a clock before 1970, which was never set: 0.
#[must_use]
pub fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |elapsed| elapsed.as_millis());
    u64::try_from(ms).unwrap_or(u64::MAX)
}
