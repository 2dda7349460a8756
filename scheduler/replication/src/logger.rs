//! Passes what raft-rs logs on to `tracing`.
//!
//! raft-rs speaks slog and narrates a lot. Elections and configuration changes appear at debug
//! level under the target `raft`, warnings as warnings; the rest is dropped before it is
//! formatted.

use slog::{Drain, Level, Logger, Never, OwnedKVList, Record, o};

struct Tracing;

impl Drain for Tracing {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _values: &OwnedKVList) -> Result<(), Never> {
        match record.level() {
            Level::Critical | Level::Error => {
                tracing::error!(target: "raft", "{}", record.msg());
            }
            Level::Warning => tracing::warn!(target: "raft", "{}", record.msg()),
            Level::Info => tracing::debug!(target: "raft", "{}", record.msg()),
            Level::Debug | Level::Trace => {}
        }
        Ok(())
    }

    fn is_enabled(&self, level: Level) -> bool {
        level.is_at_least(Level::Info)
    }
}

/// Returns the logger to give to raft-rs.
pub(crate) fn logger() -> Logger {
    Logger::root(Tracing, o!())
}
