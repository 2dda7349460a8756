//! Waiting for a condition, as tests of whole processes do: never for time to pass.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up. Far more than it takes: machines that test
/// are busy, and some are emulated.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// How often a condition is looked at, at most.
pub const GLANCE: Duration = Duration::from_millis(25);

/// How many times as long as it looked a test waits before it looks again. A look that starts a program
/// costs more CPU time than what it waits for: without this, tests that wait kept two CPUs busy.
const PAUSE: u32 = 3;

/// The longest pause between two looks.
const PAUSE_MAX: Duration = Duration::from_millis(400);

/// Looks until there is what is looked for, and returns it.
///
/// # Panics
///
/// When it is not there within [`PATIENCE`]; says what was seen last.
#[track_caller]
pub fn eventually<T, E: Display>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let begun = Instant::now();
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() >= deadline => {
                panic!("{what}: not within {} s: {seen}", PATIENCE.as_secs())
            }
            Err(_) => {
                let pause = begun.elapsed().saturating_mul(PAUSE).min(PAUSE_MAX);
                std::thread::sleep(pause.max(GLANCE));
            }
        }
    }
}
