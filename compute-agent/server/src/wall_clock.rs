//! The wall clock of this machine.
//!
//! What it is not: the clock of the agent's core, which counts from its start and is never set back.

use std::time::{SystemTime, UNIX_EPOCH};

use berth_domain::id::TimeMs;

/// Returns this machine's wall clock. A clock before 1970 was never set: no grant is valid then.
pub(crate) fn wall() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |elapsed| elapsed.as_millis());
    TimeMs(u64::try_from(ms).unwrap_or(u64::MAX))
}
