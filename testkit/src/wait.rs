//! Waiting for a condition, as tests of whole processes do: never for time to pass.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up. Far more than it takes: machines that test
/// are busy, and some are emulated.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// How often a condition is looked at.
pub const GLANCE: Duration = Duration::from_millis(25);

/// Looks until there is what is looked for, and returns it.
///
/// # Panics
///
/// When it is not there within [`PATIENCE`]; says what was seen last.
#[track_caller]
pub fn eventually<T, E: Display>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() >= deadline => {
                panic!("{what}: not within {} s: {seen}", PATIENCE.as_secs())
            }
            Err(_) => std::thread::sleep(GLANCE),
        }
    }
}
